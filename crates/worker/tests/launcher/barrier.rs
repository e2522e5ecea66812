//! One name that exactly one side can create.

use std::sync::Barrier as Gate;

use leasehold_core::attempt::{RejectReason, StopReason};
use leasehold_core::time::Millis;
use leasehold_core::verdict::{BarrierFact, LockFact, ReceiptFact};
use leasehold_worker::attempt_dir::AttemptDir;
use leasehold_worker::durable::Latched;
use leasehold_worker::launcher::barrier::link_tombstone;
use leasehold_worker::launcher::observe::{decide, observe};
use leasehold_worker::launcher::spawn::spawn;
use leasehold_worker::launcher::{LaunchOutcome, Receipt};
use leasehold_worker::process_identity::boot_id;

use crate::launch::{PATIENCE, program, sh};

#[test]
fn a_tombstone_prevents_the_start() {
    let fixture = sh("echo started >\"$MARK\"");
    assert_eq!(link_tombstone(&fixture.dir, &boot_id().unwrap()).unwrap(), Latched::Won);
    let (rejection, kept) = fixture.refused();
    assert_eq!(rejection.reason, RejectReason::Tombstone);
    let dir = AttemptDir::open(&kept.path().join("01900000-0000-7000-8000-000000000001")).unwrap();
    assert_eq!(observe(&dir).unwrap().barrier_fact(), BarrierFact::Tombstone);
}

#[test]
fn recovery_and_launcher_never_both_win() {
    let marks = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let mark = marks.path().join(round.to_string());
        let fixture = sh(&format!("echo started >>{}", mark.display()));
        let again = AttemptDir::open(fixture.dir.dir().path()).unwrap();
        let gate = Gate::new(2);
        let (outcome, found) = std::thread::scope(|scope| {
            let launch = scope.spawn(|| {
                gate.wait();
                let launch = spawn(&program(), &fixture.dir, &fixture.request, PATIENCE);
                launch.launcher.unwrap().wait().unwrap();
                launch.outcome
            });
            gate.wait();
            // A different delay each round, without a clock: recovery meets the launch at another step.
            for _ in 0..round * 20_000 {
                std::hint::spin_loop();
            }
            let found = decide(&again, &boot_id().unwrap()).unwrap();
            (launch.join().unwrap(), found)
        });
        let started = mark.exists();
        match found.barrier_fact() {
            BarrierFact::Tombstone => assert!(!started, "round {round}: {outcome:?}"),
            BarrierFact::Child => assert!(started, "round {round}: {outcome:?}"),
            BarrierFact::Absent => panic!("recovery left nobody's name"),
        }
        match outcome {
            LaunchOutcome::Started { .. } => assert!(started),
            // Unknown: recovery's look at the lock met the launcher's own.
            LaunchOutcome::Rejected(_) | LaunchOutcome::Unknown { .. } => assert!(!started),
        }
    }
}

#[test]
fn two_launchers_on_one_directory_start_one_process() {
    let marks = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let mark = marks.path().join(round.to_string());
        let fixture = sh(&format!("echo started >>{}", mark.display()));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let launches: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let launch = spawn(&program(), &fixture.dir, &fixture.request, PATIENCE);
                        launch.launcher.unwrap().wait().unwrap();
                        launch.outcome
                    })
                })
                .collect();
            launches.into_iter().map(|launch| launch.join().unwrap()).collect()
        });
        let started = outcomes.iter().filter(|outcome| matches!(outcome, LaunchOutcome::Started { .. })).count();
        assert_eq!(started, 1, "{outcomes:?}");
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "started\n");
    }
}

#[test]
fn a_launcher_that_meets_a_running_job_writes_nothing() {
    let mut fixture = sh("echo ready; sleep 600");
    fixture.request.grace = Millis::ZERO;
    let request = fixture.request.clone();
    let started = fixture.start();
    started.first_line();
    let second = spawn(&program(), &started.dir, &request, PATIENCE);
    assert!(matches!(second.outcome, LaunchOutcome::Unknown { .. }), "{:?}", second.outcome);
    second.launcher.unwrap().wait().unwrap();
    let found = observe(&started.dir).unwrap();
    assert_eq!((found.lock, found.barrier_fact()), (LockFact::Held, BarrierFact::Child));
    assert!(found.receipt.is_none());
    started.control().stop(StopReason::Cancel, None).unwrap();
    let ended = started.end();
    let found = observe(&ended.dir).unwrap();
    assert_eq!(found.lock, LockFact::Free);
    let third = spawn(&program(), &ended.dir, &request, PATIENCE);
    assert!(matches!(third.outcome, LaunchOutcome::Unknown { .. }));
    third.launcher.unwrap().wait().unwrap();
    assert_eq!(Receipt::read(&ended.dir).unwrap(), found.receipt);
}

#[test]
fn a_receipt_of_another_launch_proves_nothing() {
    let fixture = sh("exit 0");
    let mut callback = fixture.callback();
    let attempt = fixture.request.attempt;
    let ended = fixture.end();
    let found = observe(&ended.dir).unwrap();
    assert_eq!(found.receipt_fact(attempt, &callback), ReceiptFact::Ended);
    callback.sequence = callback.sequence.next();
    assert_eq!(found.receipt_fact(attempt, &callback), ReceiptFact::Absent);
    callback.sequence = leasehold_core::counter::CallbackSequence::FIRST;
    callback.token = leasehold_core::crypto::CompletionToken::from_bytes([8; 32]).digest();
    assert_eq!(found.receipt_fact(attempt, &callback), ReceiptFact::Absent);
}

#[test]
fn a_missing_directory_is_never_made_again() {
    let fixture = sh("true");
    let again = AttemptDir::open(fixture.dir.dir().path()).unwrap();
    again.remove().unwrap();
    let launch = spawn(&program(), &fixture.dir, &fixture.request, PATIENCE);
    assert!(matches!(launch.outcome, LaunchOutcome::Rejected(_)), "{:?}", launch.outcome);
    launch.launcher.unwrap().wait().unwrap();
    assert!(!fixture.dir.dir().path().exists());
}

#[test]
fn an_agent_that_dies_before_its_request_is_whole_starts_nothing() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let fixture = sh("true");
    let mut launcher = Command::new(&program().program)
        .arg("launcher")
        .arg(fixture.dir.dir().path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fixture.request.to_bytes().unwrap();
    launcher.stdin.take().unwrap().write_all(&bytes[..bytes.len() - 1]).unwrap();
    launcher.wait_with_output().unwrap();
    let found = decide(&fixture.dir, &boot_id().unwrap()).unwrap();
    assert_eq!((found.lock, found.barrier_fact()), (LockFact::Free, BarrierFact::Tombstone));
    assert!(found.receipt.is_none());
}
