//! Case 17: a worker under a service manager. The shipped unit file says which signals and how long; the test sends them
//! in systemd's order, to the real binary, and hears what the service tells its manager. After a reboot a run is lost with
//! `machine_rebooted`, never succeeded.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold_sim::binaries;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::process::{self, Running};
use leasehold_sim::processes;
use leasehold_sim::seed::Seed;
use leasehold_sim::service_manager::{ServiceManager, Unit};
use leasehold_sim::story;
use rustix::process::{Pid, Signal, kill_process};

use crate::marks::Marks;

const WORKER_UNIT: &str = include_str!("../../../../../deploy/systemd/leasehold-worker.service");
const CONTROL_UNIT: &str = include_str!("../../../../../deploy/systemd/leasehold.service");
const REPLICA_UNIT: &str = include_str!("../../../../../deploy/systemd/leasehold-replica.service");

/// Starts an agent as the unit's service, and waits until it says that it has started.
fn start(cluster: &mut Cluster, near: usize, manager: &ServiceManager, watchdog: Option<Duration>) -> Result<()> {
    let mut command = cluster.agent_command(near);
    manager.serve(&mut command, watchdog);
    cluster.adopt_agent(near, Running::start(&mut command)?);
    manager.wait_for("READY=1")?;
    manager.wait_for("STATUS=taking work")?;
    Ok(())
}

/// A signal as systemd sends it: what is frozen is woken to hear it.
fn send(cluster: &Cluster, near: usize, signal: Signal) -> Result<()> {
    cluster.signal_agent(near, signal)?;
    cluster.signal_agent(near, Signal::CONT)
}

/// A job that marks its start, lives until the gate is there, and marks its end.
fn gated(cluster: &Cluster, marks: &Marks, gate: &Path) -> Result<String> {
    let line = |what: &str| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
    let script = format!(
        "{}; echo before; until [ -e {} ]; do sleep 0.05; done; echo after; {}",
        line("start"),
        gate.display(),
        line("end")
    );
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    marks.wait_for_lines(1)?;
    cluster.wait_for_state(&run, "running")?;
    Ok(run)
}

/// The job of a run went to its own end, once, with its whole log.
fn finish(cluster: &Cluster, marks: &Marks, gate: &Path, run: &str) -> Result<()> {
    std::fs::write(gate, "")?;
    cluster.wait_for_state(run, "succeeded")?;
    marks.check_one_whole_life_of_each(&[run.to_owned()].into())?;
    eventually("the whole log", || match cluster.ask(&["runs", "logs", run]).as_str() {
        "before\nafter" => Ok(()),
        other => Err(other.to_owned()),
    })
}

#[test]
fn a_stop_drains_and_says_how_long_that_may_take() -> Result<()> {
    let (mut cluster, unit) = (Cluster::start()?, Unit::parse(WORKER_UNIT)?);
    let mut seed = Seed::announced("a_stop_drains_and_says_how_long_that_may_take");
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let manager = ServiceManager::listen(cluster.directory())?;
    start(&mut cluster, near, &manager, None)?;
    let (marks, gate) = (Marks::new(&cluster, &mut seed), cluster.directory().join("gate"));
    let run = gated(&cluster, &marks, &gate)?;

    send(&cluster, near, unit.signal("KillSignal", Signal::TERM)?)?;
    let stopping = manager.wait_for("STOPPING=1")?;
    let asked = stopping.lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="));
    let asked: u64 = asked.context("it asks for more time than the unit gives")?.parse()?;
    ensure!(asked > 600_000_000, "{asked} µs are less than its drain may take");
    manager.wait_for("STATUS=stopping; 1 attempt is open")?;
    let later = cluster.submit(&["--", "true"]);
    finish(&cluster, &marks, &gate, &run)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    assert_eq!(cluster.json(&["runs", "get", &later])["state"], "pending", "nothing new was taken");
    cluster.cli(&["runs", "cancel", &later])?.expect_code(0);
    cluster.shut_down()
}

#[test]
fn a_second_sigterm_cancels_what_runs_with_grace() -> Result<()> {
    let (mut cluster, unit) = (Cluster::start()?, Unit::parse(WORKER_UNIT)?);
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let manager = ServiceManager::listen(cluster.directory())?;
    start(&mut cluster, near, &manager, None)?;
    let mark = cluster.directory().join("pid");
    let script = format!("trap 'echo asked' TERM; echo $$ >{}; while :; do sleep 0.1; done", mark.display());
    let run = cluster.submit(&["--grace", "1s", "--", "sh", "-c", &script]);
    eventually("the job to run", || if mark.exists() { Ok(()) } else { Err("no mark".to_owned()) })?;

    let stop = unit.signal("KillSignal", Signal::TERM)?;
    send(&cluster, near, stop)?;
    manager.wait_for("STOPPING=1")?;
    send(&cluster, near, stop)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    cluster.wait_for_state(&run, "cancelled")?;
    let pid = std::fs::read_to_string(mark)?;
    ensure!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} is alive after its grace");
    assert_eq!(cluster.log(&run), "asked", "it was asked before it was killed");
    cluster.shut_down()
}

#[test]
fn a_restart_leaves_the_jobs_to_their_launchers_and_the_next_agent_carries_them_on() -> Result<()> {
    let (mut cluster, unit) = (Cluster::start()?, Unit::parse(WORKER_UNIT)?);
    let mut seed = Seed::announced("a_restart_leaves_the_jobs");
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let manager = ServiceManager::listen(cluster.directory())?;
    start(&mut cluster, near, &manager, None)?;
    let (marks, gate) = (Marks::new(&cluster, &mut seed), cluster.directory().join("gate"));
    let run = gated(&cluster, &marks, &gate)?;
    for _ in 0..3 {
        send(&cluster, near, unit.signal("RestartKillSignal", Signal::TERM)?)?;
        cluster.wait_for_agent_end(near)?.expect_code(0);
        assert_eq!(cluster.worker(near).launchers().len(), 1, "KillMode={}", unit.get("KillMode").unwrap_or_default());
        manager.forget()?;
        start(&mut cluster, near, &manager, None)?;
    }
    assert_eq!(unit.get("KillMode"), Some("process"), "systemd signals the agent alone");
    finish(&cluster, &marks, &gate, &run)?;
    cluster.shut_down()
}

#[test]
fn a_reload_is_told_as_one_and_keeps_the_process() -> Result<()> {
    let (mut cluster, unit) = (Cluster::start()?, Unit::parse(WORKER_UNIT)?);
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let manager = ServiceManager::listen(cluster.directory())?;
    start(&mut cluster, near, &manager, None)?;
    let pid = cluster.worker(near).agent_pid();
    assert_eq!(unit.get("ExecReload"), Some("/bin/kill -HUP $MAINPID"));
    cluster.signal_agent(near, Signal::HUP)?;
    let reloading = manager.wait_for("RELOADING=1")?;
    ensure!(reloading.contains("MONOTONIC_USEC="), "a newer systemd asks for it: {reloading}");
    manager.wait_for("READY=1")?;
    manager.wait_for("STATUS=taking work")?;
    assert_eq!(cluster.worker(near).agent_pid(), pid);
    ensure!(cluster.agent_runs(near), "the same process runs");
    cluster.shut_down()
}

#[test]
fn a_hung_agent_is_killed_by_the_watchdog_and_its_jobs_go_on() -> Result<()> {
    let (mut cluster, unit) = (Cluster::start()?, Unit::parse(WORKER_UNIT)?);
    let mut seed = Seed::announced("a_hung_agent_is_killed_by_the_watchdog");
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let manager = ServiceManager::listen(cluster.directory())?;
    ensure!(unit.get("WatchdogSec").is_some(), "the unit has a watchdog");
    let watchdog = Duration::from_secs(2);
    start(&mut cluster, near, &manager, Some(watchdog))?;
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1")?;
    }
    let (marks, gate) = (Marks::new(&cluster, &mut seed), cluster.directory().join("gate"));
    let run = gated(&cluster, &marks, &gate)?;

    cluster.signal_agent(near, Signal::STOP)?;
    manager.forget()?;
    // The manager's own timer: nothing is heard for as long as it waits.
    if let Some(heard) = manager.hear(watchdog)? {
        bail!("a frozen agent said {heard}");
    }
    send(&cluster, near, unit.signal("WatchdogSignal", Signal::ABORT)?)?;
    let killed = cluster.wait_for_agent_end(near)?;
    assert_eq!(killed.code(), None, "{killed}");
    assert_eq!(cluster.worker(near).launchers().len(), 1, "its job goes on");
    // Restart=always
    start(&mut cluster, near, &manager, Some(watchdog))?;
    finish(&cluster, &marks, &gate, &run)?;
    cluster.shut_down()
}

#[test]
fn a_service_that_starts_without_its_control_plane_has_started() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    cluster.kill_control()?;
    let manager = ServiceManager::listen(cluster.directory())?;
    let mut command = cluster.agent_command(near);
    manager.serve(&mut command, None);
    cluster.adopt_agent(near, Running::start(&mut command)?);
    manager.wait_for("READY=1")?;
    manager.wait_for("STATUS=waiting for the control plane")?;
    cluster.start_control()?;
    manager.wait_for("STATUS=taking work")?;
    cluster.shut_down()
}

/// What runs below `unshare` is of the boot whose id stands in this file.
fn in_boot(cluster: &Cluster, near: usize, boot: &Path) -> Command {
    let agent = cluster.agent_command(near);
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(boot);
    command.arg(agent.get_program()).args(agent.get_args());
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn after_a_reboot_a_run_is_lost_with_its_evidence_and_never_succeeded() -> Result<()> {
    if !is_root_or_skip("after_a_reboot_a_run_is_lost_with_its_evidence_and_never_succeeded") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let boots = ["b0", "b1"].map(|name| cluster.directory().join(name));
    for (number, boot) in boots.iter().enumerate() {
        std::fs::write(boot, format!("0000000{number}-0000-4000-8000-000000000000\n"))?;
    }
    let mut agent = Running::start(&mut in_boot(&cluster, near, &boots[0]))?;
    agent.wait_for_text(process::Stream::Stderr, "ready")?;
    cluster.adopt_agent(near, agent);
    // It would succeed, had the machine let it.
    let mark = cluster.directory().join("mark");
    let script = format!("echo start >>{}; sleep 600", mark.display());
    let run = cluster.submit(&["--lease", "25s", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;

    // Everything of the machine ends in one instant; its disk stays. Launchers first, or they would tell of their jobs.
    cluster.kill_agent(near)?;
    for launcher in cluster.worker(near).launchers() {
        let launcher = i32::try_from(launcher).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(launcher, Signal::KILL)?;
    }
    processes::kill_all_naming(cluster.worker(near).state())?;
    let mut agent = Running::start(&mut in_boot(&cluster, near, &boots[1]))?;
    agent.wait_for_text(process::Stream::Stderr, "the machine started anew while this attempt ran")?;
    cluster.adopt_agent(near, agent);
    cluster.wait_for_state(&run, "lost")?;
    eventually("the evidence of the reboot", || {
        let told = story::events(&cluster, &run).map_err(|error| error.to_string())?;
        if told.iter().any(|event| event.to_string().contains("machine_rebooted")) {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    })?;
    eventually("the record to settle and go", || {
        let left = [cluster.worker(near).files_in("inbox"), cluster.worker(near).files_in("attempts")].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    assert_eq!(std::fs::read_to_string(&mark)?, "start\n", "it was started once");
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "lost");
    cluster.shut_down()
}

/// The unit as `systemd-analyze verify` sees it, with this build's binary in the place of the installed one.
fn verify(text: &str, program: &Path) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let installed = text.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split(' ').next());
    let installed = installed.context("a unit starts a program")?;
    let name = Path::new(installed).file_name().context("a program has a name")?.to_string_lossy().into_owned();
    let file = directory.path().join(format!("{name}.service"));
    let program = program.to_str().context("a path of this build")?;
    std::fs::write(&file, text.replace(installed, program))?;
    let checked = process::run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file))?;
    // An older systemd says so of what only a newer one knows, and goes on.
    let said: Vec<&str> = checked.stderr.lines().filter(|line| !line.contains("'DelegateSubgroup'")).collect();
    ensure!(checked.code() == Some(0) && said.is_empty(), "{checked}");
    Ok(())
}

#[test]
fn the_units_are_what_systemd_understands() -> Result<()> {
    if !leasehold_sim::service_manager::is_there_or_skip("the_units_are_what_systemd_understands") {
        return Ok(());
    }
    verify(WORKER_UNIT, binaries::leasehold_worker())?;
    verify(CONTROL_UNIT, binaries::leasehold())?;
    verify(REPLICA_UNIT, binaries::leasehold())?;
    // The check can fail.
    ensure!(verify(&WORKER_UNIT.replace("Type=notify", "Type=notfiy"), binaries::leasehold_worker()).is_err());
    ensure!(verify(&CONTROL_UNIT.replace("ProtectClock", "ProtectClok"), binaries::leasehold()).is_err());
    Ok(())
}

#[test]
fn a_worker_is_not_restarted_where_that_would_end_the_same_way() -> Result<()> {
    let unit = Unit::parse(WORKER_UNIT)?;
    let kept_down: Vec<u8> = unit
        .get("RestartPreventExitStatus")
        .context("there are such codes")?
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    // Usage, fenced, revoked, protocol refused, identity or state refused, ticket spent; not error and drain timed out.
    assert_eq!(kept_down, [2, 20, 21, 22, 24, 25]);
    assert_eq!(unit.get("Restart"), Some("always"));
    for (key, value) in [("Type", "notify"), ("Delegate", "yes"), ("OOMPolicy", "continue"), ("TasksMax", "infinity")] {
        assert_eq!(unit.get(key), Some(value), "{key}");
    }
    // What systemd would take away under a job that goes on.
    for key in ["PrivateTmp", "RuntimeDirectory", "DynamicUser"] {
        assert_eq!(unit.get(key), None, "{key}");
    }
    Ok(())
}
