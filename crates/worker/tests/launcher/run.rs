//! How a job starts and ends when nobody interferes.

use leasehold_core::attempt::{ExitStatus, LimitMeans, RejectReason};
use leasehold_core::time::Millis;
use leasehold_worker::launcher::LaunchOutcome;
use leasehold_worker::launcher::request::{Cgroup, Command, SecretValue};
use leasehold_worker::launcher::spawn::{LauncherProgram, spawn};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

use crate::executable;
use crate::launch::{PATIENCE, argv, now, program, sh};

#[test]
fn an_exit_code_is_the_jobs_own() {
    for code in [0, 1, 7, 255] {
        assert_eq!(sh(&format!("exit {code}")).end().exit_code(), code);
    }
}

#[test]
fn a_signal_of_its_own_is_a_natural_end() {
    let ended = sh("kill -KILL $$").end();
    assert_eq!((ended.ending.stopped, ended.ending.status), (None, ExitStatus::Signal(9)));
}

#[test]
fn the_environment_is_clean() {
    let mut fixture = argv(&["env"]);
    fixture.request.environment.insert("GREETING".to_owned(), "hello".to_owned());
    fixture.request.secrets.insert("TOKEN".to_owned(), SecretValue::new("x7f3".to_owned()));
    let mut lines: Vec<_> = fixture.end().stdout().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines[0], "GREETING=hello");
    assert!(lines[1].starts_with("PATH="));
    assert_eq!(lines[2..], ["TOKEN=***"]);
}

#[test]
fn a_job_runs_in_a_private_directory_of_its_own() {
    let ended = sh("pwd; umask; stat -c %a .").end();
    let work = ended.dir.path("work").display().to_string();
    let lines: Vec<_> = ended.stdout().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], work);
    assert_ne!(lines[1], "0077", "the launcher's own umask is not the job's");
    assert_eq!(lines[2], "700");
}

#[test]
fn a_working_directory_may_be_named() {
    let mut fixture = sh("pwd");
    fixture.request.working_dir = Some("/".to_owned());
    assert_eq!(fixture.end().stdout(), "/\n");
}

#[test]
fn a_script_reaches_its_interpreter_as_a_file() {
    let mut fixture = sh("");
    fixture.request.command = Command::Script {
        interpreter: vec!["sh".to_owned(), "-eu".to_owned()],
        text: "echo \"one\"\nfalse\necho two\n".to_owned(),
    };
    let ended = fixture.end();
    assert_eq!((ended.stdout().as_str(), ended.exit_code()), ("one\n", 1));
}

#[test]
fn no_inherited_descriptor_reaches_the_job() {
    // Open without close-on-exec, as an agent under a careless parent would inherit it.
    let leak = tempfile::NamedTempFile::with_suffix(".leak").unwrap();
    rustix::io::fcntl_setfd(leak.as_file(), rustix::io::FdFlags::empty()).unwrap();
    let ended = sh("ls -l /proc/$$/fd").end();
    assert!(ended.stdout().contains("/dev/null"), "stdin is listed: {}", ended.stdout());
    assert!(!ended.stdout().contains(".leak"), "{}", ended.stdout());
}

#[test]
fn the_job_leads_a_process_group_that_is_not_its_launchers() {
    let started = sh("cat /proc/$$/stat; sleep 600").start();
    let line = started.first_line();
    let fields: Vec<_> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let (parent, group, session) = (fields[1], fields[2], fields[3]);
    assert_eq!(group, started.handle.pid.to_string());
    assert_eq!(parent, started.launcher.id().to_string());
    assert_eq!(session, parent, "the launcher leads the session");
    started.control().stop(leasehold_core::attempt::StopReason::Cancel, Some(Millis::ZERO)).unwrap();
    started.end();
}

#[test]
fn what_cannot_be_executed_is_rejected() {
    let (rejection, _kept) = argv(&["no-such-program"]).refused();
    assert_eq!(rejection.reason, RejectReason::Exec);
    assert!(rejection.detail.contains("`no-such-program` not found in PATH"), "{}", rejection.detail);
    assert_eq!(argv(&["/etc/passwd"]).refused().0.reason, RejectReason::Exec);
    assert_eq!(argv(&["/"]).refused().0.reason, RejectReason::Exec);
}

#[test]
fn an_exec_that_fails_late_is_rejected_too() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("bad-interpreter");
    executable::write(&path, "#!/no/such/interpreter\n");
    let (rejection, kept) = argv(&[path.to_str().unwrap()]).refused();
    assert_eq!(rejection.reason, RejectReason::Exec);
    assert!(kept.path().join("01900000-0000-7000-8000-000000000001/barrier").exists(), "only the receipt undoes it");
}

#[test]
fn a_missing_working_directory_is_rejected() {
    let mut fixture = sh("true");
    fixture.request.working_dir = Some("/no/such/directory".to_owned());
    assert_eq!(fixture.refused().0.reason, RejectReason::WorkingDir);
}

#[test]
fn a_deadline_that_has_passed_is_rejected() {
    let mut fixture = sh("true");
    fixture.request.timeout_at = Some(now());
    assert_eq!(fixture.refused().0.reason, RejectReason::Deadline);
}

/// The child asks last, after everything that may have waited: here the way into its control group, which is a pipe that
/// nobody reads before the deadline has passed.
#[test]
fn a_deadline_that_passes_on_the_childs_way_is_rejected() {
    for seconds in [1, 4, 16] {
        let mut fixture = sh("true");
        let group = fixture.attempts.path().join("group");
        std::fs::create_dir(&group).unwrap();
        let way = group.join("cgroup.procs");
        mknodat(CWD, &way, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fixture.request.cgroup = Some(Cgroup { directory: group.display().to_string(), required: true });
        let deadline = now().plus(Millis::from_secs(seconds));
        fixture.request.timeout_at = Some(deadline);
        let opened = std::thread::spawn(move || {
            while now() <= deadline {
                std::thread::yield_now();
            }
            openat(CWD, &way, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap()
        });
        let (rejection, _kept) = fixture.refused();
        drop(opened.join().unwrap());
        assert_eq!(rejection.reason, RejectReason::Deadline);
        if rejection.detail == "the deadline passed before the process could start" {
            return;
        }
        // The launcher itself came too late to start a child, on a machine this slow.
    }
    panic!("no child came on its way within 16 s");
}

#[test]
fn processor_time_is_measured() {
    let ended = sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").end();
    assert!(ended.ending.usage.user.plus(ended.ending.usage.system) > Millis::ZERO);
    assert!(ended.ending.ended.boot >= ended.ending.started.boot);
}

#[test]
fn nothing_but_the_attempts_files_is_left() {
    let ended = sh("true").end();
    assert_eq!(ended.dir.dir().names().unwrap(), ["barrier", "lock", "log", "output", "receipt", "work"]);
}

#[test]
fn a_memory_limit_holds() {
    let mut fixture = sh("ulimit -v");
    fixture.request.limits.memory_bytes = Some(512 * 1024 * 1024);
    fixture.request.limits.kept.memory = Some(LimitMeans::Rlimit);
    assert_eq!(fixture.end().stdout(), "524288\n");
}

#[test]
fn a_worker_that_cannot_learn_exit_codes_starts_nothing() {
    let fixture = sh("true");
    let LauncherProgram { program, .. } = program();
    let deaf = LauncherProgram {
        program: "env".into(),
        arguments: vec!["--ignore-signal=CHLD".into(), program.into(), "launcher".into()],
    };
    let launch = spawn(&deaf, &fixture.dir, &fixture.request, PATIENCE);
    let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("{:?}", launch.outcome) };
    assert!(rejection.detail.contains("SIGCHLD"), "{}", rejection.detail);
    launch.launcher.unwrap().wait().unwrap();
}

#[test]
fn a_very_long_refusal_is_still_an_answer() {
    let name = "x".repeat(30_000);
    let (rejection, _kept) = argv(&[&name]).refused();
    assert_eq!((rejection.reason, rejection.detail.len()), (RejectReason::Exec, 512));
}

#[test]
fn the_directory_goes_whatever_the_job_left_in_it() {
    let ended = sh("mkdir -p a/b && touch a/b/c && chmod 500 a/b a && ln -s / root").end();
    let path = ended.dir.dir().path().to_owned();
    ended.dir.remove().unwrap();
    assert!(!path.exists() && std::path::Path::new("/").exists());
}
