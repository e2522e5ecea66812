//! Control groups: real ones where this machine lets us make them, and a tree that only looks like one for controllers
//! that nobody handed down.

use std::path::{Path, PathBuf};

use leasehold_core::attempt::{ExitStatus, LimitMeans, LimitsKept, RejectReason, StopReason};
use leasehold_core::time::Millis;
use leasehold_worker::cgroup::{Home, Machine};
use leasehold_worker::config::CgroupSetting;
use leasehold_worker::launcher::observe::observe;
use leasehold_worker::launcher::request::{Cgroup, JobLimits};
use leasehold_worker::launcher::stop_named::{Remains, stop_named};
use leasehold_worker::process_identity::boot_id;

use crate::launch::{Fixture, MachineClock, is_alive, now, sh, wait_gone};

/// A home of its own for one test, removed with all that is left in it.
struct OwnHome(Home);

impl OwnHome {
    /// `None` on a machine that lets us make no groups; said aloud, and in CI a failure.
    fn make(test: &str) -> Option<Self> {
        let name = format!("leasehold-test-{test}-{}", std::process::id());
        let found = Home::find(&CgroupSetting::Auto, &name, &Machine::read().unwrap()).unwrap();
        let found = found.filter(|home| home.features().contains("cgroup-kill"));
        if found.is_none() {
            assert!(!in_ci(), "{test} needs a cgroup2 directory that this user may write, and CI must run it");
            eprintln!("skipped: {test} needs a cgroup2 directory that this user may write");
        }
        found.map(Self)
    }

    fn has(&self, test: &str, feature: &str) -> bool {
        let has = self.0.features().contains(feature);
        if !has {
            eprintln!("skipped: {test} needs `{feature}` handed down to {}", self.0.directory().display());
        }
        has
    }

    fn request(&self, fixture: &mut Fixture) -> PathBuf {
        let directory = self.0.of(fixture.request.attempt);
        fixture.request.cgroup = Some(Cgroup { directory: directory.display().to_string(), required: true });
        directory
    }
}

impl Drop for OwnHome {
    fn drop(&mut self) {
        self.0.sweep(|_| false);
        self.0.leave();
        assert!(std::thread::panicking() || !self.0.directory().exists(), "a group is left");
    }
}

#[expect(clippy::disallowed_methods, reason = "CI tells itself through the environment")]
fn in_ci() -> bool {
    std::env::var_os("CI").is_some()
}

#[test]
fn a_job_runs_in_a_group_of_its_own_that_goes_with_it() {
    let Some(home) = OwnHome::make("own-group") else { return };
    let mut fixture = sh("grep ^0:: /proc/self/cgroup");
    let directory = home.request(&mut fixture);
    let started = fixture.start();
    let found = observe(&started.dir).unwrap();
    assert_eq!(found.identity().unwrap().cgroup.as_deref(), directory.to_str(), "the barrier names it");
    let ended = started.end();
    let name = directory.file_name().unwrap().to_str().unwrap();
    assert!(ended.stdout().trim_end().ends_with(name), "{}", ended.stdout());
    assert!(!directory.exists(), "nothing is left of it");
    assert!(!ended.ending.usage.oom_killed);
}

#[test]
fn a_group_is_killed_whole_after_its_launcher_died() {
    let Some(home) = OwnHome::make("orphans") else { return };
    // Another session, another group, no environment: nothing but the control group tells whose it is.
    let mut fixture = sh("env -i setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' & wait");
    let directory = home.request(&mut fixture);
    let mut started = fixture.start();
    let orphan = started.first_line();
    started.launcher.kill().unwrap();
    started.launcher.wait().unwrap();
    wait_gone(&started.handle.pid.to_string());
    assert!(is_alive(&orphan));
    let found = observe(&started.dir).unwrap();
    let remains = stop_named(found.identity().unwrap(), &boot_id().unwrap(), &MachineClock).unwrap();
    assert_eq!(remains, Remains::AllGone, "an emptied group is a proof, whoever else lives on this machine");
    assert!(!is_alive(&orphan));
    assert!(!directory.exists(), "recovery removes what the launcher could not");
}

#[test]
fn what_moved_itself_out_of_the_group_is_still_a_descendant() {
    let Some(home) = OwnHome::make("escape") else { return };
    let above = home.0.directory().parent().unwrap().join("cgroup.procs");
    let mut fixture = sh(&format!(
        "(echo 0 >{} && exec setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600') & wait",
        above.display()
    ));
    fixture.request.grace = Millis::new(100);
    home.request(&mut fixture);
    let started = fixture.start();
    let escaped = started.first_line();
    started.control().stop(StopReason::Cancel, None).unwrap();
    started.end();
    assert!(!is_alive(&escaped));
}

#[test]
fn a_job_that_needs_no_group_runs_without_one_where_it_cannot_be_made() {
    let mut fixture = sh("echo ran");
    let nowhere = Cgroup { directory: "/no/such/place".to_owned(), required: false };
    fixture.request.cgroup = Some(nowhere.clone());
    let started = fixture.start();
    assert_eq!(observe(&started.dir).unwrap().identity().unwrap().cgroup, None);
    assert_eq!(started.end().stdout(), "ran\n");

    let mut fixture = sh("echo ran");
    fixture.request.cgroup = Some(Cgroup { required: true, ..nowhere });
    let (rejection, _kept) = fixture.refused();
    assert_eq!(rejection.reason, RejectReason::Limits);
    assert!(rejection.detail.contains("/no/such/place cannot be made"), "{}", rejection.detail);
}

/// A directory with the files that the kernel would put into a group.
fn fake(directory: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(directory).unwrap();
    for (file, text) in files {
        std::fs::write(directory.join(file), text).unwrap();
    }
}

fn limits() -> JobLimits {
    JobLimits {
        memory_bytes: Some(64 << 20),
        cpu: Some("0.5".parse().unwrap()),
        pids: Some(20),
        kept: LimitsKept {
            memory: Some(LimitMeans::Cgroup),
            cpu: Some(LimitMeans::Cgroup),
            pids: Some(LimitMeans::Cgroup),
        },
    }
}

#[test]
fn limits_stand_in_the_group_before_the_job_does_and_what_the_kernel_counted_in_the_receipt() {
    let tree = tempfile::tempdir().unwrap();
    let mut fixture = sh("ulimit -v; kill -KILL $$");
    let directory = tree.path().join(fixture.request.attempt.to_string());
    fake(
        &directory,
        &[
            ("cgroup.procs", ""),
            ("cgroup.kill", ""),
            ("memory.max", ""),
            ("memory.swap.max", ""),
            ("memory.oom.group", ""),
            ("cpu.max", ""),
            ("pids.max", ""),
            ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n"),
            ("memory.peak", "67108864\n"),
        ],
    );
    fixture.request.cgroup = Some(Cgroup { directory: directory.display().to_string(), required: true });
    fixture.request.limits = limits();
    let ended = fixture.end();
    let read = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap();
    assert_eq!(["memory.max", "memory.swap.max", "memory.oom.group"].map(read), ["67108864", "0", "1"]);
    assert_eq!((read("cpu.max").as_str(), read("pids.max").as_str()), ("50000 100000", "20"));
    assert_eq!(read("cgroup.procs"), "0", "the child moved itself");
    assert_eq!((ended.ending.stopped, ended.ending.status), (None, ExitStatus::Signal(9)));
    let usage = ended.ending.usage;
    assert_eq!((usage.oom_killed, usage.max_rss_kib, usage.limits), (true, 65536, limits().kept));
    assert_eq!(ended.stdout(), "unlimited\n", "no rlimit beside the group's own limits");
}

#[test]
fn a_limit_that_cannot_be_set_starts_nothing() {
    let tree = tempfile::tempdir().unwrap();
    let mut fixture = sh("echo ran");
    let directory = tree.path().join(fixture.request.attempt.to_string());
    fake(&directory, &[("cgroup.procs", ""), ("memory.max", ""), ("cpu.max", "")]);
    fixture.request.cgroup = Some(Cgroup { directory: directory.display().to_string(), required: true });
    fixture.request.limits = limits();
    let (rejection, _kept) = fixture.refused();
    assert_eq!(rejection.reason, RejectReason::Limits);
}

#[test]
fn the_real_controllers_hold_what_they_are_told() {
    const TEST: &str = "the_real_controllers_hold_what_they_are_told";
    let Some(home) = OwnHome::make("controllers") else { return };
    if home.has(TEST, "cgroup-memory") {
        let mut fixture = sh("head -c 200000000 /dev/zero | tail -c 200000000 | wc -c");
        home.request(&mut fixture);
        fixture.request.limits = JobLimits { memory_bytes: Some(32 << 20), ..JobLimits::default() };
        fixture.request.limits.kept.memory = Some(LimitMeans::Cgroup);
        let ended = fixture.end();
        assert!(ended.ending.usage.oom_killed);
        assert_eq!(ended.ending.status, ExitStatus::Signal(9), "the group goes as one");
        assert!(ended.ending.usage.max_rss_kib <= 32 << 10);
    }
    if home.has(TEST, "cgroup-pids") {
        let mut fixture = sh("for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; echo all");
        home.request(&mut fixture);
        fixture.request.limits = JobLimits { pids: Some(4), ..JobLimits::default() };
        fixture.request.limits.kept.pids = Some(LimitMeans::Cgroup);
        let ended = fixture.end();
        assert_eq!(ended.stdout(), "", "a shell that cannot fork gives up");
    }
    if home.has(TEST, "cgroup-cpu") {
        let mut fixture = sh("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
        home.request(&mut fixture);
        fixture.request.limits = JobLimits { cpu: Some("0.1".parse().unwrap()), ..JobLimits::default() };
        fixture.request.limits.kept.cpu = Some(LimitMeans::Cgroup);
        let before = now();
        let usage = fixture.end().ending.usage;
        let (used, took) = (usage.user.plus(usage.system), now().since(before));
        assert!(used.times(4) < took, "{used} of processor time within {took}, at a tenth of one");
    }
}
