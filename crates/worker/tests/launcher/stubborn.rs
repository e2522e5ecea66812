//! What does not want to end: processes that fork and hop for ever, that stop themselves, that the kernel does not let go of.
//! And that nobody else is signalled meanwhile.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold_core::attempt::{ExitStatus, Left, StopReason};
use leasehold_core::time::Millis;
use leasehold_worker::launcher::stop_named::stop_named;
use leasehold_worker::launcher::{ControlConnection, JobIdentity, LauncherState, Receipt};
use leasehold_worker::process_identity::{ProcessIdentity, boot_id, signal_verified};
use rustix::process::{Pid, Signal, geteuid};

use crate::launch::{MachineClock, PATIENCE, is_alive, now, sh, wait_gone};

/// A process of this machine that is none of a launcher's: it says every signal that it can catch.
struct Witness(Child);

impl Witness {
    fn start() -> Self {
        let script = "for s in HUP INT QUIT USR1 USR2 ALRM TERM CONT TSTP; do trap \"echo $s\" $s; done\n\
                      echo ready; while read -r line; do [ \"$line\" = over ] && exit 0; done";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(child)
    }

    /// What it heard; it must still be there to say so.
    fn heard(mut self) -> String {
        use std::io::Write;
        self.0.stdin.take().unwrap().write_all(b"over\n").unwrap();
        let mut heard = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
        assert!(self.0.wait().unwrap().success(), "the witness was killed");
        heard
    }
}

/// Whether a live process names `path` in its arguments.
fn somebody_names(path: &Path) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(path.to_str().unwrap())
    })
}

/// Each process makes the next in a session of its own and ends, ten times in the time that one look at all processes
/// takes.
const HOPPER: &str = "use POSIX; $SIG{TERM} = 'IGNORE'; open(HOPS, '>>', 'hops');
for (;;) { my $next = fork; exit 0 if $next; setsid; syswrite(HOPS, \"hop\\n\"); }";
/// Eight of them at once, half of which stay in the session and the group of the job.
const SWARM: &str = "trap '' TERM; echo hop >>hops; case \"$1\" in
'') for s in '' '' '' '' setsid setsid setsid setsid; do $s sh \"$0\" \"${s:-sh}\" & done ;;
sh) sh \"$0\" sh & ;;
setsid) setsid sh \"$0\" setsid & ;;
esac
exit 0";

fn gone_after(interpreter: &str, script: &str, grace: Millis) {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("again.sh");
    std::fs::write(&path, script).unwrap();
    let witness = Witness::start();
    // The first one stays, or the job would end by itself.
    let mut fixture =
        sh(&format!("{interpreter} {} & echo started; trap '' TERM; while :; do sleep 600; done", path.display()));
    fixture.request.grace = grace;
    let work = fixture.dir.path("work");
    let started = fixture.start();
    started.first_line();
    let until = now().plus(PATIENCE);
    while std::fs::read_to_string(work.join("hops")).unwrap_or_default().lines().count() < 40 {
        assert!(now() < until, "it does not multiply");
        std::thread::yield_now();
    }
    let before = now();
    started.control().stop(StopReason::Cancel, None).unwrap();
    let ended = started.end();
    let took = now().since(before);
    assert!(took <= grace.plus(Millis::from_secs(2)), "it took {took}");
    assert_eq!(ended.stopped(), (StopReason::Cancel, ExitStatus::Signal(9)));
    assert_eq!(ended.ending.left_count, 0);
    assert!(!somebody_names(&path), "one of them is left");
    assert_eq!(witness.heard(), "", "a process of somebody else was signalled");
}

#[test]
fn a_process_that_hops_is_caught() {
    if !Path::new("/usr/bin/perl").exists() {
        return eprintln!("skipped: a_process_that_hops_is_caught needs perl, no shell forks fast enough");
    }
    gone_after("/usr/bin/perl", HOPPER, Millis::new(50));
}

#[test]
fn a_swarm_that_keeps_forking_is_gone() {
    gone_after("sh", SWARM, Millis::ZERO);
}

#[test]
fn a_background_child_that_keeps_stdout_open_holds_nothing_up() {
    let before = now();
    let ended = sh("nohup sleep 300 & echo $!; echo done").end();
    assert!(now().since(before) < Millis::from_secs(10));
    let stdout = ended.stdout();
    let (pid, rest) = stdout.split_once('\n').unwrap();
    assert_eq!((ended.exit_code(), rest), (0, "done\n"));
    assert!(ended.ending.ended.boot.since(ended.ending.started.boot) < Millis::from_secs(1));
    assert!(!is_alive(pid));

    let mut kept = sh("nohup sleep 300 & echo $!; echo done");
    kept.request.keep_descendants = true;
    let ended = kept.end();
    let stdout = ended.stdout();
    let pid = stdout.lines().next().unwrap();
    assert!(is_alive(pid), "it was to be kept");
    let pid = pid.parse().ok().and_then(Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Jobs that are stuck at once.
const JOBS: usize = 8;

/// A freezer of version 1: what is frozen there does not even hear SIGKILL.
struct Freezer(PathBuf);

impl Freezer {
    fn make(test: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup ") && line.ends_with(",freezer"));
        let path = mount
            .and_then(|line| line.split(' ').nth(4))
            .map(|point| PathBuf::from(point).join(format!("leasehold-test-{test}-{}", std::process::id())));
        let made = path.filter(|path| std::fs::create_dir(path).is_ok());
        if made.is_none() {
            eprintln!("skipped: {test} needs root and a freezer of cgroup version 1");
        }
        made.map(Self)
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
        let until = now().plus(PATIENCE);
        while std::fs::read_to_string(self.0.join("freezer.state")).unwrap().trim() != state {
            assert!(now() < until, "it does not become {state}");
            std::thread::yield_now();
        }
    }

    fn take(&self, pid: &str) {
        std::fs::write(self.0.join("cgroup.procs"), pid).unwrap();
        self.set("FROZEN");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let until = now().plus(PATIENCE);
        while std::fs::remove_dir(&self.0).is_err() && now() < until {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_job_that_the_kernel_does_not_let_go_of_is_said_to_be_left_until_it_goes() {
    let Some(freezer) = Freezer::make("frozen-job") else { return };
    let jobs: Vec<_> = (0..JOBS)
        .map(|_| {
            let mut fixture = sh("echo $$; sleep 600");
            fixture.request.grace = Millis::ZERO;
            let started = fixture.start();
            let pid = started.first_line();
            assert!(matches!(started.state(), Some(LauncherState::Running { left: None, .. })));
            freezer.take(&pid);
            started.control().stop(StopReason::Cancel, None).unwrap();
            (started, Left { count: 1, pids: vec![pid.parse().unwrap()] })
        })
        .collect();
    for (started, expected) in &jobs {
        loop {
            match started.state() {
                Some(LauncherState::Running { left: Some(left), .. }) => break assert_eq!(left, *expected),
                Some(LauncherState::Running { left: None, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // Another job of this machine is none the worse for it.
    assert_eq!(sh("exit 3").end().exit_code(), 3);
    std::thread::scope(|scope| {
        for (started, _) in &jobs {
            // Whatever wakes a launcher makes it kill once more: some are at it when their job goes.
            scope.spawn(|| while matches!(ControlConnection::connect(&started.dir), Ok(Some(_))) {});
        }
        freezer.set("THAWED");
    });
    for (started, _) in jobs {
        let ended = started.end();
        assert_eq!(ended.stopped(), (StopReason::Cancel, ExitStatus::Signal(9)));
        assert_eq!(ended.ending.left_count, 0, "nothing is left when it is said");
    }
}

#[test]
fn what_outlives_its_job_is_named_in_the_receipt_and_its_end_as_well() {
    let Some(freezer) = Freezer::make("frozen-child") else { return };
    let fixture = sh("setsid sleep 600 & echo $!; read -r line <>hold");
    let work = fixture.dir.path("work");
    assert!(Command::new("mkfifo").arg(work.join("hold")).status().unwrap().success());
    let mut started = fixture.start();
    let pid = started.first_line();
    freezer.take(&pid);
    std::fs::write(work.join("hold"), "go\n").unwrap();
    // The outcome does not wait for what the kernel holds.
    while started.state().is_some() {}
    let said = |started: &crate::launch::Started| Receipt::read(&started.dir).unwrap().unwrap().left();
    let expected = Left { count: 1, pids: vec![pid.parse().unwrap()] };
    assert_eq!(said(&started), Some(expected));
    assert!(started.launcher.try_wait().unwrap().is_none(), "its launcher stays with it");
    freezer.set("THAWED");
    assert!(started.launcher.wait().unwrap().success());
    assert_eq!(said(&started), None, "and says when it is gone");
    wait_gone(&pid);
    assert_eq!(started.end().exit_code(), 0);
}

/// A process that has the id `pid`, which another had before: the kernel is told which one comes next.
fn with_pid(pid: i32) -> Child {
    let until = now().plus(PATIENCE);
    loop {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        if i32::try_from(child.id()) == Ok(pid) {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(now() < until, "somebody else is always quicker");
    }
}

#[test]
fn a_reused_process_id_is_never_signalled() {
    if !geteuid().is_root() {
        eprintln!("skipped: choosing the next process id needs root");
        return;
    }
    let boot = boot_id().unwrap();
    let mut first = Command::new("sleep").arg("600").spawn().unwrap();
    let named = ProcessIdentity::of(&boot, Pid::from_child(&first)).unwrap();
    assert!(named.open(&boot).unwrap().is_some());
    first.kill().unwrap();
    first.wait().unwrap();
    let pid = named.pid.as_raw_nonzero().get();
    let mut second = with_pid(pid);
    while ProcessIdentity::of(&boot, named.pid).unwrap() == named {
        // Within one tick of the clock the two could not be told apart; no number comes round that fast by itself.
        second.kill().unwrap();
        second.wait().unwrap();
        second = with_pid(pid);
    }
    assert!(named.open(&boot).unwrap().is_none(), "it is not taken for the one that had its number");
    assert!(!signal_verified(named.pid, named.start, Signal::KILL).unwrap());
    // As the job, and as its launcher: whatever an old barrier says, it is not meant.
    let job = JobIdentity {
        process: named.clone(),
        launcher: named,
        run: "01900000-0000-7000-8000-000000000002".parse().unwrap(),
        attempt_number: leasehold_core::counter::AttemptNumber::FIRST,
        cgroup: None,
    };
    stop_named(&job, &boot, &MachineClock).unwrap();
    assert!(second.try_wait().unwrap().is_none(), "it lives");
    second.kill().unwrap();
    second.wait().unwrap();
}
