//! What a failing or full disk, or a kill between two steps, can and cannot do.

use leasehold_core::attempt::{ExitStatus, RejectReason};
use leasehold_core::frame::CutReason;
use leasehold_core::verdict::{BarrierFact, LockFact};
use leasehold_worker::attempt_dir::AttemptDir;
use leasehold_worker::launcher::observe::observe;
use leasehold_worker::launcher::spawn::spawn;
use leasehold_worker::launcher::{Conclusion, ControlConnection, LaunchOutcome, LauncherState};

use crate::launch::{PATIENCE, program_with_fault, sh};

#[test]
fn a_receipt_is_whole_or_absent_wherever_its_launcher_is_killed() {
    for (point, written) in [
        ("receipt.write.before", false),
        ("receipt.write.after", false),
        ("receipt.sync.after", false),
        ("receipt.rename.before", false),
        ("receipt.rename.after", true),
        ("receipt.sync_dir.before", true),
        ("receipt.sync_dir.after", true),
    ] {
        let fixture = sh("exit 6");
        let launch = spawn(&program_with_fault(&format!("{point}:kill")), &fixture.dir, &fixture.request, PATIENCE);
        assert!(matches!(launch.outcome, LaunchOutcome::Started { .. }), "{point}: {:?}", launch.outcome);
        assert!(!launch.launcher.unwrap().wait().unwrap().success(), "{point} was not reached");
        let found = observe(&fixture.dir).unwrap();
        assert_eq!((found.lock, found.barrier_fact()), (LockFact::Free, BarrierFact::Child), "{point}");
        let receipt = found.authentic_receipt(fixture.request.attempt, &fixture.callback());
        assert_eq!(receipt.is_some(), written, "{point}");
    }
}

#[test]
fn a_launcher_killed_before_the_barrier_leaves_nobodys_name() {
    for point in ["receipt.reserve.before", "receipt.reserve.after"] {
        let fixture = sh("true");
        let launch = spawn(&program_with_fault(&format!("{point}:kill")), &fixture.dir, &fixture.request, PATIENCE);
        assert!(matches!(launch.outcome, LaunchOutcome::Unknown { .. }), "{point}: {:?}", launch.outcome);
        launch.launcher.unwrap().wait().unwrap();
        let found = observe(&fixture.dir).unwrap();
        assert_eq!((found.lock, found.barrier_fact()), (LockFact::Free, BarrierFact::Absent), "{point}");
        assert!(found.receipt.is_none());
    }
}

#[test]
fn a_child_killed_on_its_way_is_no_job_that_ended() {
    for (point, barrier) in [
        ("barrier.write.before", BarrierFact::Absent),
        ("barrier.link.before", BarrierFact::Absent),
        ("barrier.link.after", BarrierFact::Child),
    ] {
        let fixture = sh("true");
        let launch = spawn(&program_with_fault(&format!("{point}:kill")), &fixture.dir, &fixture.request, PATIENCE);
        let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("{point}: {:?}", launch.outcome) };
        assert_eq!(rejection.reason, RejectReason::Spawn, "{point}: {rejection:?}");
        launch.launcher.unwrap().wait().unwrap();
        let found = observe(&fixture.dir).unwrap();
        assert_eq!(found.barrier_fact(), barrier, "{point}");
        let receipt =
            found.authentic_receipt(fixture.request.attempt, &fixture.callback()).map(|said| &said.conclusion);
        assert!(matches!(receipt, Some(Conclusion::Rejected(_))), "{point}: {receipt:?}");
    }
}

#[test]
fn without_room_for_its_receipt_a_job_is_not_started() {
    let fixture = sh("true");
    let launch = spawn(&program_with_fault("receipt.reserve.before:enospc"), &fixture.dir, &fixture.request, PATIENCE);
    let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("{:?}", launch.outcome) };
    assert_eq!(rejection.reason, RejectReason::Storage);
    launch.launcher.unwrap().wait().unwrap();
    assert_eq!(observe(&fixture.dir).unwrap().barrier_fact(), BarrierFact::Absent);
}

#[test]
fn a_barrier_that_cannot_be_linked_starts_nothing() {
    let fixture = sh("true");
    let launch = spawn(&program_with_fault("barrier.write.before:enospc"), &fixture.dir, &fixture.request, PATIENCE);
    let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("{:?}", launch.outcome) };
    assert_eq!(rejection.reason, RejectReason::Spawn);
    launch.launcher.unwrap().wait().unwrap();
    assert!(matches!(
        observe(&fixture.dir).unwrap().receipt.map(|receipt| receipt.conclusion),
        Some(Conclusion::Rejected(_))
    ));
}

#[test]
fn a_launcher_whose_receipt_cannot_be_written_stays_and_answers() {
    let fixture = sh("exit 9");
    let launch = spawn(&program_with_fault("receipt.rename.before:enospc"), &fixture.dir, &fixture.request, PATIENCE);
    let mut launcher = launch.launcher.unwrap();
    let control = ControlConnection::connect(&fixture.dir).unwrap().expect("the launcher stays");
    let receipt = loop {
        assert!(control.wait(PATIENCE).unwrap());
        match control.receive().unwrap() {
            Some(LauncherState::Unwritten(receipt)) => break receipt,
            Some(LauncherState::Running { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(receipt.is_authentic(fixture.request.attempt, &fixture.callback()));
    let Conclusion::Ended(ending) = receipt.conclusion else { panic!("{:?}", receipt.conclusion) };
    assert_eq!(ending.status, ExitStatus::Code(9));
    let found = observe(&fixture.dir).unwrap();
    assert_eq!(found.lock, LockFact::Held);
    assert!(found.receipt.is_none());
    // The agent has settled what it heard: the launcher has nothing left to keep.
    AttemptDir::open(fixture.dir.dir().path()).unwrap().remove().unwrap();
    drop(control);
    launcher.wait().unwrap();
}

/// A file system of one mebibyte, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
            .arg(dir.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_holds_up_no_end() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let mut fixture = sh("seq 1000000; exit 8");
    fixture.dir = AttemptDir::create(disk.0.path(), fixture.request.attempt).unwrap();
    let ended = fixture.end();
    assert_eq!(ended.exit_code(), 8);
    assert!(ended.log.stdout.starts_with(b"1\n2\n3\n"));
    let cut = ended.ending.log.cut.expect("the receipt says what is missing");
    assert_eq!(cut.reason, CutReason::DiskFull);
    assert!(cut.stdout > 0);
    assert!(ended.log.cuts.iter().all(|cut| cut.reason == CutReason::DiskFull));
}
