//! What a worker is told when a call is refused: a stable code, and what helps it go on.
//!
//! Every fence fails closed with one of these codes; fenced, expired and unknown are never mixed up.
//! (Protocol, *Errors*.)

use crate::lease::LeaseProjection;
use crate::session::SessionProjection;
use crate::time::Millis;

names! {
    /// The stable code of a refused worker call.
    pub enum RefusalCode as "refusal code" {
        /// The request cannot be read.
        InvalidRequest = "invalid_request",
        /// The request names a field that this version does not know.
        UnknownField = "unknown_field",
        /// The request or a part of it is over its limit.
        LimitExceeded = "limit_exceeded",
        /// No valid certificate, or an enrollment token that is unknown, used up or expired.
        Unauthenticated = "unauthenticated",
        /// The worker's identity was revoked.
        Revoked = "revoked",
        /// The registration ticket was spent by another session.
        TicketSpent = "ticket_spent",
        /// Another boot's session of this worker is live: wait and ask again.
        SessionLive = "session_live",
        /// The session's lease has ended: start over.
        SessionExpired = "session_expired",
        /// The session was replaced, is offline, or never was.
        SessionFenced = "session_fenced",
        /// The lease is another's, ended, or of another boot.
        LeaseFenced = "lease_fenced",
        /// The lease ran out.
        LeaseExpired = "lease_expired",
        /// The named version is not the current one.
        VersionConflict = "version_conflict",
        /// The same id came with other content before.
        ConflictReplay = "conflict_replay",
        /// The server does not speak this protocol version.
        UnsupportedProtocol = "unsupported_protocol",
        /// Too many requests.
        RateLimited = "rate_limited",
        /// The server cannot take this now; whether it was done is unknown.
        Overloaded = "overloaded",
    }
}

/// A refused worker call. Refusing changes nothing but, at most, an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for programs.
    pub code: RefusalCode,
    /// Why, for people: what was wrong, what is allowed, what to do. Never a secret.
    pub message: String,
    /// When asking again makes sense, where that is known.
    pub retry_after: Option<Millis>,
    /// The session as it is, on conflicts.
    pub session: Option<Box<SessionProjection>>,
    /// The lease as it is, on conflicts.
    pub lease: Option<Box<LeaseProjection>>,
}

impl Refusal {
    /// A refusal with its code and its sentence.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, session: None, lease: None }
    }

    /// The same, with the time after which asking again makes sense.
    #[must_use]
    pub fn retry_after(mut self, after: Millis) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The same, showing the session as it is.
    #[must_use]
    pub fn showing_session(mut self, session: SessionProjection) -> Self {
        self.session = Some(Box::new(session));
        self
    }

    /// The same, showing the lease as it is.
    #[must_use]
    pub fn showing_lease(mut self, lease: LeaseProjection) -> Self {
        self.lease = Some(Box::new(lease));
        self
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}
