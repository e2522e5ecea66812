//! What lies between a session's end and the first heartbeat of the next one, in which no lease is renewed: nothing that
//! another program could hold up.
//!
//! (Worker design, *One start path*.)

use std::process::{Child, Stdio};
use std::time::Duration;

use leasehold_core::counter::{SessionGeneration, SessionVersion};
use leasehold_core::crypto::Ticket;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::{SessionProjection, SessionState};
use leasehold_core::time::{Clock, Millis};
use leasehold_wire::v1::heartbeat::HeartbeatAnswer;
use leasehold_wire::v1::register::RegisterAnswer;
use leasehold_worker::durable::Dir;
use leasehold_worker::machine::MachineClock;
use leasehold_worker::session_file::SessionFile;
use leasehold_worker::state::StateFile;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::calls::identity;
use crate::executable;
use crate::server::{Ca, Reply, Request, Server};

const PATIENCE: Duration = Duration::from_mins(1);

/// The agent; it does not outlive its test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn session(generation: u64) -> SessionProjection {
    SessionProjection {
        generation: SessionGeneration::new(generation).unwrap(),
        version: SessionVersion::new(generation).unwrap(),
        state: SessionState::Active,
        remaining: Millis::from_secs(45),
        interval: Millis::from_secs(15),
    }
}

/// What a request is, in a word.
fn kind(request: &Request) -> &'static str {
    match request.line.rsplit('/').next() {
        Some("heartbeat") => "heartbeat",
        Some("pull") => "pull",
        _ if request.line.starts_with("PUT ") => "register",
        _ => "other",
    }
}

/// The capabilities that the latest registration sent.
fn capabilities(server: &Server) -> serde_json::Value {
    let register = server.requests().into_iter().rfind(|request| kind(request) == "register").unwrap();
    serde_json::from_slice::<serde_json::Value>(&register.body).unwrap()["capabilities"].clone()
}

#[tokio::test]
async fn an_expired_session_is_followed_by_the_next_without_asking_the_machine_again() {
    let (ca, (heard, mut calls)) = (Ca::new(), mpsc::unbounded_channel());
    let counts = std::sync::Mutex::new((0, 0));
    let server = Server::start(&ca, move |request| {
        let kind = kind(request);
        let mut counts = counts.lock().unwrap();
        let reply = match kind {
            "register" => {
                counts.0 += 1;
                let ticket = Ticket::from_bytes([3 + u8::try_from(counts.0).unwrap(); 32]);
                Reply::message(&RegisterAnswer { session: (&session(counts.0)).into(), ticket })
            }
            "heartbeat" => {
                counts.1 += 1;
                if counts.1 == 1 {
                    Reply::code(RefusalCode::SessionExpired)
                } else {
                    Reply::message(&HeartbeatAnswer::new(&session(counts.0), &[], &[], MachineClock.utc()))
                }
            }
            _ => Reply::Silence,
        };
        // The test has ended: nobody counts any more.
        let _ = heard.send(kind);
        reply
    })
    .await;

    let parent = tempfile::tempdir().unwrap();
    let (bin, asked) = (parent.path().join("bin"), parent.path().join("asked"));
    std::fs::create_dir(&bin).unwrap();
    let python = bin.join("python3");
    executable::write(&python, format!("#!/bin/sh\necho asked >>{}\necho Python 3.11.7\n", asked.display()));
    let times = || std::fs::read_to_string(&asked).unwrap().lines().count();

    let state = parent.path().join("state");
    let dir = Dir::create(&state).unwrap();
    let mut identity = identity(&ca, &server);
    identity.worker = "nas-that-starts-over".parse().unwrap();
    identity.allow_root = true;
    identity.write(&dir).unwrap();
    SessionFile::enrolled(Ticket::from_bytes([3; 32])).write(&dir).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold-worker"));
    command.args(["run", "-q"]).env("LEASEHOLD_WORKER_STATE_DIR", &state).env("PATH", &bin);
    let mut agent = Agent(command.stdin(Stdio::null()).spawn().unwrap());
    let pid = Pid::from_child(&agent.0);

    for expected in ["register", "heartbeat"] {
        assert_eq!(timeout(PATIENCE, calls.recv()).await.unwrap(), Some(expected), "the first session");
    }
    let first = capabilities(&server);
    assert_eq!(first["runtimes"]["python"], "3.11.7");
    for expected in ["register", "heartbeat"] {
        assert_eq!(timeout(PATIENCE, calls.recv()).await.unwrap(), Some(expected), "nothing else between the two");
    }
    assert_eq!(times(), 1, "asked once, by the first image");
    assert_eq!(capabilities(&server), first);

    // A person's word is another matter, after an expiry too.
    kill_process(pid, Signal::HUP).unwrap();
    while timeout(PATIENCE, calls.recv()).await.unwrap() != Some("register") {}
    assert_eq!(times(), 2);
    while timeout(PATIENCE, calls.recv()).await.unwrap() != Some("heartbeat") {}
    kill_process(pid, Signal::USR1).unwrap();
    let ended = tokio::task::spawn_blocking(move || agent.0.wait()).await.unwrap().unwrap();
    assert!(ended.success());
}
