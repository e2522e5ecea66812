//! Jobs as another user than the worker's. Only root can; the tests say so where they cannot run.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use leasehold_core::attempt::{RejectReason, StopReason};
use leasehold_core::time::Millis;
use leasehold_worker::launcher::LaunchOutcome;
use leasehold_worker::launcher::request::{Command, RunAs};
use leasehold_worker::launcher::spawn::{LauncherProgram, spawn};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::executable;
use crate::launch::{Fixture, PATIENCE, program, sh, wait_gone};

const UID: u32 = 65_534;
const GID: u32 = 65_533;

/// A job as somebody who has nothing; `None` where this is not root.
fn as_nobody(test: &str, script: &str) -> Option<Fixture> {
    if !geteuid().is_root() {
        eprintln!("skipped: {test} needs root");
        return None;
    }
    let mut fixture = sh(script);
    // What stands above an attempt lets everybody through, as a worker whose jobs run as others makes it.
    std::fs::set_permissions(fixture.attempts.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    fixture.request.run_as = Some(RunAs { uid: UID, gid: GID, groups: vec![GID, 44] });
    Some(fixture)
}

#[test]
fn a_job_is_its_user_in_everything() {
    let script = "id -u; id -g; id -G; grep -E '^(Uid|Gid|Groups):' /proc/self/status; pwd; touch here && cat here && \
                  stat -c '%u %g' here ../output && echo done >../output/file && cat ../output/file";
    let Some(fixture) = as_nobody("a_job_is_its_user_in_everything", script) else { return };
    let work = fixture.dir.path("work").display().to_string();
    let ended = fixture.end();
    let (uid, gid) = (UID.to_string(), GID.to_string());
    let stdout = ended.stdout();
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines[..3], [&uid, &gid, &format!("{gid} 44")], "{stdout}");
    // Real, effective, saved and file-system ids: there is no way back.
    assert_eq!(lines[3].split_whitespace().skip(1).collect::<Vec<_>>(), [&uid; 4], "{stdout}");
    assert_eq!(lines[4].split_whitespace().skip(1).collect::<Vec<_>>(), [&gid; 4], "{stdout}");
    assert_eq!(lines[6], work, "{stdout}");
    assert_eq!(lines[7..], [format!("{uid} {gid}"), format!("{uid} {gid}"), "done".to_owned()], "{stdout}");
    assert_eq!(ended.exit_code(), 0, "{}", String::from_utf8_lossy(&ended.log.stderr));
}

#[test]
fn a_job_reaches_nothing_of_the_workers() {
    let script = "cd ..; for f in lock barrier log receipt; do cat $f 2>/dev/null && echo read $f; \
                  (echo x >>$f) 2>/dev/null && echo wrote $f; done; ls . 2>/dev/null && echo listed; \
                  touch new 2>/dev/null && echo made; rm -f barrier 2>/dev/null; ls ../ 2>/dev/null && echo listed; \
                  kill -0 $PPID 2>/dev/null && echo signalled; cat /proc/$PPID/environ 2>/dev/null && echo spied; \
                  echo tried";
    let Some(fixture) = as_nobody("a_job_reaches_nothing_of_the_workers", script) else { return };
    let barrier = fixture.dir.path("barrier");
    let ended = fixture.end();
    assert_eq!(ended.stdout(), "tried\n");
    assert!(barrier.exists());
}

#[test]
fn a_script_is_readable_for_its_user() {
    let Some(mut fixture) = as_nobody("a_script_is_readable_for_its_user", "") else { return };
    fixture.request.command =
        Command::Script { interpreter: vec!["sh".to_owned()], text: "id -u; stat -c %a \"$0\"\n".to_owned() };
    assert_eq!(fixture.end().stdout(), format!("{UID}\n600\n"));
}

#[test]
fn a_working_directory_that_its_user_may_not_enter_starts_nothing() {
    let Some(mut fixture) = as_nobody("a_working_directory_that_its_user_may_not_enter_starts_nothing", "echo ran")
    else {
        return;
    };
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    fixture.request.working_dir = Some(closed.path().display().to_string());
    let (rejection, kept) = fixture.refused();
    assert_eq!(rejection.reason, RejectReason::WorkingDir);
    assert!(rejection.detail.contains("Permission denied"), "{}", rejection.detail);
    // The barrier came first, as the worker's user; the receipt undoes it.
    assert!(kept.path().join("01900000-0000-7000-8000-000000000001/barrier").exists());
}

#[test]
fn another_users_job_dies_with_its_launcher_and_is_stopped_by_it() {
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' & wait";
    let Some(fixture) = as_nobody("another_users_job_dies_with_its_launcher_and_is_stopped_by_it", script) else {
        return;
    };
    let started = fixture.start();
    let orphan = started.first_line();
    started.control().stop(StopReason::Cancel, Some(Millis::ZERO)).unwrap();
    assert_eq!(started.end().ending.left_count, 0);
    wait_gone(&orphan);

    let Some(fixture) =
        as_nobody("another_users_job_dies_with_its_launcher_and_is_stopped_by_it", "echo $$; sleep 600")
    else {
        return;
    };
    let mut started = fixture.start();
    let pid = started.first_line();
    // The death signal is set after the last change of user, which clears it.
    let launcher = Pid::from_child(&started.launcher);
    kill_process(launcher, Signal::KILL).unwrap();
    started.launcher.wait().unwrap();
    wait_gone(&pid);
}

#[test]
fn who_may_not_become_another_runs_nothing() {
    const TEST: &str = "who_may_not_become_another_runs_nothing";
    if !geteuid().is_root() {
        let mut fixture = sh("echo ran");
        fixture.request.run_as = Some(RunAs { uid: UID, gid: GID, groups: Vec::new() });
        return assert_eq!(fixture.refused().0.reason, RejectReason::RunAs);
    }
    // Root without the rights that matter: refused before the barrier, and after it.
    for (missing, barrier) in [("-setgid", false), ("-setuid", true)] {
        let Some(fixture) = as_nobody(TEST, "echo ran") else { return };
        let LauncherProgram { program, mut arguments } = program();
        arguments.splice(0..0, [format!("--bounding-set={missing}").into(), program.into()]);
        let unable = LauncherProgram { program: "setpriv".into(), arguments };
        let launch = spawn(&unable, &fixture.dir, &fixture.request, PATIENCE);
        let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("{:?}", launch.outcome) };
        launch.launcher.unwrap().wait().unwrap();
        assert_eq!(rejection.reason, RejectReason::RunAs);
        assert!(rejection.detail.contains("not permitted"), "{}", rejection.detail);
        assert_eq!(fixture.dir.path("barrier").exists(), barrier, "without {missing}");
    }
}

#[test]
fn a_launcher_cannot_be_dumped() {
    let fixture = sh("echo ready; sleep 600");
    let mut launcher = program();
    if geteuid().is_root() {
        // What root runs is root's to look at in any case: only another user's launcher can show the difference.
        let own = fixture.attempts.path().join("leasehold-worker");
        executable::write(&own, std::fs::read(&launcher.program).unwrap());
        for path in [fixture.attempts.path(), fixture.dir.dir().path(), &fixture.dir.path("work")] {
            std::os::unix::fs::chown(path, Some(UID), Some(GID)).unwrap();
        }
        let mut arguments: Vec<OsString> = vec![format!("--reuid={UID}").into(), format!("--regid={GID}").into()];
        arguments.extend(["--clear-groups".into(), own.into()]);
        arguments.append(&mut launcher.arguments);
        launcher = LauncherProgram { program: "setpriv".into(), arguments };
    }
    let launch = spawn(&launcher, &fixture.dir, &fixture.request, PATIENCE);
    let LaunchOutcome::Started { handle } = launch.outcome else { panic!("{:?}", launch.outcome) };
    let mut launcher = launch.launcher.unwrap();
    let owner = |pid: u32| std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    assert_eq!(owner(launcher.id()), 0, "the kernel calls the files of a process that cannot be dumped root's");
    assert_ne!(owner(handle.pid), 0, "the job itself is an ordinary process");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
}
