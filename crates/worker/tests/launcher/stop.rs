//! Deadlines, stops, and that nothing of an ended attempt is left.

use leasehold_core::attempt::{ExitStatus, StopReason};
use leasehold_core::time::Millis;
use leasehold_worker::launcher::LauncherState;
use leasehold_worker::launcher::request::LeaseDeadline;
use leasehold_worker::process_identity::{ProcessIdentity, boot_id};

use crate::launch::{now, sh, wait_gone};

/// A job that ignores SIGTERM, has a child in a session of its own that does, too, and one that is stopped.
const STUBBORN: &str = "trap '' TERM
setsid sh -c 'trap \"\" TERM; (setsid sleep 600 & echo $! >deep; wait)' &
sleep 600 & kill -STOP $!
echo $! >stopped
while [ ! -s deep ]; do :; done
echo $$ $(cat deep) $(cat stopped)
while :; do sleep 600; done";

#[test]
fn a_polite_job_ends_on_sigterm() {
    let started = sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done").start();
    started.first_line();
    started.control().stop(StopReason::Cancel, None).unwrap();
    let ended = started.end();
    assert_eq!(ended.stopped(), (StopReason::Cancel, ExitStatus::Code(3)));
    assert_eq!(ended.stdout(), "ready\nbye\n");
}

#[test]
fn a_stubborn_tree_is_gone_after_the_grace() {
    let mut fixture = sh(STUBBORN);
    fixture.request.grace = Millis::new(300);
    let started = fixture.start();
    let pids = started.first_line();
    let before = now();
    started.control().stop(StopReason::Cancel, None).unwrap();
    let ended = started.end();
    assert!(now().since(before) >= Millis::new(300), "the grace was given");
    assert_eq!(ended.stopped(), (StopReason::Cancel, ExitStatus::Signal(9)));
    assert_eq!((ended.ending.left_count, ended.ending.left.len()), (0, 0));
    for pid in pids.split_whitespace() {
        assert!(!crate::launch::is_alive(pid), "process {pid} is left");
    }
}

#[test]
fn what_a_job_leaves_behind_ends_with_it() {
    let ended = sh("(setsid sh -c 'trap \"\" TERM; sleep 600' & echo $!); sleep 600 & echo $!; exit 4").end();
    assert_eq!(ended.exit_code(), 4);
    for pid in ended.stdout().split_whitespace() {
        assert!(!crate::launch::is_alive(pid), "process {pid} is left");
    }
}

#[test]
fn a_timeout_stops_a_job_that_nobody_talks_to() {
    let mut fixture = sh("sleep 600");
    fixture.request.timeout_at = Some(now().plus(Millis::new(500)));
    let mut started = fixture.start();
    started.control = None;
    assert_eq!(started.launcher.wait().unwrap().code(), Some(0));
    assert_eq!(started.end().stopped(), (StopReason::Timeout, ExitStatus::Signal(15)));
}

#[test]
fn a_lease_that_nobody_renews_stops_the_job_before_it_ends() {
    let mut fixture = sh("trap '' TERM; while :; do sleep 600; done");
    // Length 2 s: margin 2 s, SIGTERM half a second before the kill.
    let at = now().plus(Millis::from_secs(4));
    fixture.request.lease = Some(LeaseDeadline { at, length: Millis::from_secs(2) });
    let ended = fixture.end();
    assert_eq!(ended.stopped(), (StopReason::Lease, ExitStatus::Signal(9)));
    assert!(ended.ending.ended.boot < at, "the job is dead before its lease ends");
}

#[test]
fn a_renewed_lease_lets_the_job_go_on() {
    let mut fixture = sh("echo ready; sleep 5; echo done");
    let at = now().plus(Millis::from_secs(6));
    fixture.request.lease = Some(LeaseDeadline { at, length: Millis::from_secs(2) });
    let started = fixture.start();
    started.control().extend(now().plus(Millis::from_secs(600))).unwrap();
    // An older renewal that arrives late takes nothing back.
    started.control().extend(at).unwrap();
    let ended = started.end();
    assert_eq!((ended.exit_code(), ended.stdout().as_str()), (0, "ready\ndone\n"));
}

#[test]
fn a_second_stop_may_shorten_the_grace_and_keeps_the_reason() {
    let mut fixture = sh("trap '' TERM; echo ready; while :; do sleep 600; done");
    fixture.request.grace = Millis::from_secs(3600);
    let started = fixture.start();
    started.first_line();
    assert!(matches!(started.state(), Some(LauncherState::Running { stopping: None, .. })));
    started.control().stop(StopReason::Cancel, None).unwrap();
    assert!(matches!(started.state(), Some(LauncherState::Running { stopping: Some(StopReason::Cancel), .. })));
    started.control().stop(StopReason::Shutdown, Some(Millis::ZERO)).unwrap();
    assert_eq!(started.end().stopped(), (StopReason::Cancel, ExitStatus::Signal(9)));
}

#[test]
fn a_job_that_had_ended_keeps_its_own_outcome() {
    let started = sh("echo ready; exit 5").start();
    started.first_line();
    let pid = started.handle.pid.to_string();
    wait_gone(&pid);
    // Too late by the facts: whether the launcher still hears it or not, it may not claim the end.
    if let Some(control) = &started.control {
        let _ = control.stop(StopReason::Cancel, None);
    }
    assert_eq!(started.end().exit_code(), 5);
}

#[test]
fn a_restarted_agent_re_attaches() {
    let mut started = sh("echo ready; sleep 600").start();
    started.first_line();
    started.control = None;
    for _ in 0..6 {
        let again = leasehold_worker::launcher::ControlConnection::connect(&started.dir).unwrap();
        started.control = again;
        let state = started.state();
        let Some(LauncherState::Running { handle, stopping: None, left: None }) = state else { panic!("{state:?}") };
        assert_eq!(handle, started.handle);
    }
    started.control().stop(StopReason::Cancel, None).unwrap();
    assert_eq!(started.end().stopped(), (StopReason::Cancel, ExitStatus::Signal(15)));
}

#[test]
fn the_job_dies_with_its_launcher() {
    let mut started = sh("trap '' TERM; sleep 600 & echo $!; wait").start();
    let orphan = started.first_line();
    started.launcher.kill().unwrap();
    started.launcher.wait().unwrap();
    wait_gone(&started.handle.pid.to_string());
    let found = leasehold_worker::launcher::observe::observe(&started.dir).unwrap();
    assert_eq!(found.lock, leasehold_core::verdict::LockFact::Free);
    assert_eq!(found.barrier_fact(), leasehold_core::verdict::BarrierFact::Child);
    assert!(found.receipt.is_none());
    let identity = found.identity().unwrap();
    assert_eq!(identity.process, ProcessIdentity::from_handle(&started.handle).unwrap());
    let boot = boot_id().unwrap();
    assert!(crate::launch::is_alive(&orphan), "only the direct child dies with the launcher");
    leasehold_worker::launcher::stop_named::stop_named(identity, &boot, &crate::launch::MachineClock).unwrap();
    assert!(!crate::launch::is_alive(&orphan));
}

#[test]
fn an_escaped_process_is_known_by_its_environment() {
    let mut fixture = sh("setsid sleep 600 & echo $!; wait");
    fixture.request.environment.insert("LEASEHOLD_RUN_ID".to_owned(), fixture.request.run.to_string());
    fixture.request.environment.insert("LEASEHOLD_ATTEMPT".to_owned(), "1".to_owned());
    let mut started = fixture.start();
    let orphan = started.first_line();
    started.launcher.kill().unwrap();
    started.launcher.wait().unwrap();
    let found = leasehold_worker::launcher::observe::observe(&started.dir).unwrap();
    let boot = boot_id().unwrap();
    leasehold_worker::launcher::stop_named::stop_named(found.identity().unwrap(), &boot, &crate::launch::MachineClock)
        .unwrap();
    assert!(!crate::launch::is_alive(&orphan));
}

#[test]
fn a_frozen_launcher_is_stopped_with_its_job() {
    let mut started = sh("trap '' TERM; sleep 600 & echo $!; wait").start();
    let orphan = started.first_line();
    let launcher = rustix::process::Pid::from_child(&started.launcher);
    rustix::process::kill_process(launcher, rustix::process::Signal::STOP).unwrap();
    let found = leasehold_worker::launcher::observe::observe(&started.dir).unwrap();
    assert_eq!(found.lock, leasehold_core::verdict::LockFact::Held);
    let boot = boot_id().unwrap();
    leasehold_worker::launcher::stop_named::stop_named(found.identity().unwrap(), &boot, &crate::launch::MachineClock)
        .unwrap();
    started.launcher.wait().unwrap();
    for pid in [started.handle.pid.to_string(), orphan] {
        assert!(!crate::launch::is_alive(&pid), "process {pid} is left");
    }
}
