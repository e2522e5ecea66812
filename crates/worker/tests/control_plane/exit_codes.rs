//! What the real binary says and how it ends when the control plane turns it away: 21 revoked, 22 protocol refused.
//!
//! (Decisions, *Worker exit codes*.)

use std::process::{Output, Stdio};

use leasehold_core::crypto::Ticket;
use leasehold_core::refusal::RefusalCode;
use leasehold_worker::durable::Dir;
use leasehold_worker::session_file::SessionFile;
use leasehold_worker::state::StateFile;

use crate::calls::identity;
use crate::server::{Ca, Reply, Server};

/// Runs an agent against a control plane that answers every call with this refusal.
async fn turned_away(code: RefusalCode) -> Output {
    let ca = Ca::new();
    let server = Server::start(&ca, move |_| Reply::code(code)).await;
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");
    let dir = Dir::create(&state).unwrap();
    let mut identity = identity(&ca, &server);
    // Tests run side by side, and a worker has one agent on a host.
    identity.worker = format!("nas-{}", code.to_string().replace('_', "-")).parse().unwrap();
    identity.allow_root = true;
    identity.write(&dir).unwrap();
    SessionFile::enrolled(Ticket::from_bytes([3; 32])).write(&dir).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold-worker"));
    command.arg("run").env("LEASEHOLD_WORKER_STATE_DIR", &state).stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_revoked_worker_ends_with_21_and_says_how_to_come_back() {
    let output = turned_away(RefusalCode::Revoked).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(21), "{said}");
    assert!(said.contains("enroll the machine again"), "{said}");
}

#[tokio::test]
async fn a_worker_of_an_unknown_protocol_ends_with_22_and_says_what_was_refused() {
    let output = turned_away(RefusalCode::UnsupportedProtocol).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(22), "{said}");
    assert!(said.contains("as the test wants it"), "{said}");
}
