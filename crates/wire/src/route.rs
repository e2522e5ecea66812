//! Every route of the worker protocol: the template that a server mounts, and the path that a worker asks.
//!
//! The worker itself stands in no path: it is the certificate's.

use leasehold_core::id::{AttemptId, SessionId};

/// `POST`: a machine becomes a worker. The only route without a client certificate.
pub const ENROLL: &str = "/worker/v1/enroll";
/// `PUT`: a session registers.
pub const SESSION: &str = "/worker/v1/sessions/{session}";
/// `POST`: the session beats and renews its leases.
pub const HEARTBEAT: &str = "/worker/v1/sessions/{session}/heartbeat";
/// `POST`: the session takes nothing new.
pub const DRAIN: &str = "/worker/v1/sessions/{session}/drain";
/// `POST`: the session leaves.
pub const OFFLINE: &str = "/worker/v1/sessions/{session}/offline";
/// `POST`: the session asks for work; held for up to 30 s.
pub const PULL: &str = "/worker/v1/sessions/{session}/pull";
/// `POST`: the attempt is about to start.
pub const STARTING: &str = "/worker/v1/sessions/{session}/attempts/{attempt}/starting";
/// `POST`: the attempt's process runs.
pub const RUNNING: &str = "/worker/v1/sessions/{session}/attempts/{attempt}/running";
/// `POST`: the claim is given back unstarted.
pub const RELEASE: &str = "/worker/v1/sessions/{session}/attempts/{attempt}/release";
/// `POST` with `?offset=N`: a piece of the attempt's log.
pub const LOGS: &str = "/worker/v1/sessions/{session}/attempts/{attempt}/logs";
/// `POST`: the attempt ended.
pub const END: &str = "/worker/v1/sessions/{session}/attempts/{attempt}/end";

/// Every template with its method.
pub const ALL: [(&str, &str); 11] = [
    ("POST", ENROLL),
    ("PUT", SESSION),
    ("POST", HEARTBEAT),
    ("POST", DRAIN),
    ("POST", OFFLINE),
    ("POST", PULL),
    ("POST", STARTING),
    ("POST", RUNNING),
    ("POST", RELEASE),
    ("POST", LOGS),
    ("POST", END),
];

fn of_session(template: &str, session: SessionId) -> String {
    template.replace("{session}", &session.to_string())
}

fn of_attempt(template: &str, session: SessionId, attempt: AttemptId) -> String {
    of_session(template, session).replace("{attempt}", &attempt.to_string())
}

/// The path of [`SESSION`].
pub fn session(session: SessionId) -> String {
    of_session(SESSION, session)
}

/// The path of [`HEARTBEAT`].
pub fn heartbeat(session: SessionId) -> String {
    of_session(HEARTBEAT, session)
}

/// The path of [`DRAIN`].
pub fn drain(session: SessionId) -> String {
    of_session(DRAIN, session)
}

/// The path of [`OFFLINE`].
pub fn offline(session: SessionId) -> String {
    of_session(OFFLINE, session)
}

/// The path of [`PULL`].
pub fn pull(session: SessionId) -> String {
    of_session(PULL, session)
}

/// The path of [`STARTING`].
pub fn starting(session: SessionId, attempt: AttemptId) -> String {
    of_attempt(STARTING, session, attempt)
}

/// The path of [`RUNNING`].
pub fn running(session: SessionId, attempt: AttemptId) -> String {
    of_attempt(RUNNING, session, attempt)
}

/// The path of [`RELEASE`].
pub fn release(session: SessionId, attempt: AttemptId) -> String {
    of_attempt(RELEASE, session, attempt)
}

/// The path and query of [`LOGS`].
pub fn logs(session: SessionId, attempt: AttemptId, offset: u64) -> String {
    format!("{}?offset={offset}", of_attempt(LOGS, session, attempt))
}

/// The path of [`END`].
pub fn end(session: SessionId, attempt: AttemptId) -> String {
    of_attempt(END, session, attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_fills_its_template() {
        let session = "01900000-0000-7000-8000-000000000001".parse().unwrap();
        let attempt = "01900000-0000-7000-8000-000000000002".parse().unwrap();
        assert_eq!(
            logs(session, attempt, 7),
            "/worker/v1/sessions/01900000-0000-7000-8000-000000000001/attempts/01900000-0000-7000-8000-000000000002/logs?offset=7"
        );
        for path in [pull(session), end(session, attempt), super::session(session)] {
            assert!(!path.contains(['{', '}']), "{path}");
        }
    }
}
