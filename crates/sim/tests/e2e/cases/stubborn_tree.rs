//! Case 15, a stubborn tree, and case 16, a background child that keeps stdout: what a job leaves running is gone, in
//! time and whole, and nobody else of the machine is signalled. With control groups and without them.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::story;
use rustix::time::{ClockId, clock_gettime};

use crate::freezer::Freezer;

/// Between SIGTERM and SIGKILL, as the runs below ask for it.
const GRACE_MS: i64 = 1000;
/// What is left of a job may take so much longer to be gone.
const AFTER_GRACE_MS: i64 = 2000;

fn boot_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// A process of this machine, in the agent's own session, that says every signal that it can catch.
struct Witness(Child);

impl Witness {
    fn start() -> Result<Self> {
        let script = "for s in HUP INT QUIT USR1 USR2 ALRM TERM CONT TSTP; do trap \"echo $s\" $s; done\n\
                      echo ready; while read -r line; do [ \"$line\" = over ] && exit 0; done";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = [0; 6];
        child.stdout.as_mut().context("its stdout")?.read_exact(&mut ready)?;
        Ok(Self(child))
    }

    /// That it lives and heard nothing.
    fn was_left_alone(mut self) -> Result<()> {
        self.0.stdin.take().context("its stdin")?.write_all(b"over\n")?;
        let mut heard = String::new();
        self.0.stdout.take().context("its stdout")?.read_to_string(&mut heard)?;
        ensure!(self.0.wait()?.success(), "the witness was killed");
        ensure!(heard.is_empty(), "the witness was signalled: {heard}");
        Ok(())
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The process ids that a job wrote down, once there are `count` of them.
fn written_down(file: &Path, count: usize) -> Result<Vec<String>> {
    eventually("the whole tree to run", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<_> = text.lines().map(str::to_owned).collect();
        if text.ends_with('\n') && pids.len() == count { Ok(pids) } else { Err(text) }
    })
}

/// Cancels a run twice and waits until none of `pids` lives; how long after the first cancel was accepted that was.
fn cancelled_and_gone(cluster: &Cluster, run: &str, pids: &[String]) -> Result<i64> {
    cluster.ask(&["runs", "cancel", run]);
    let accepted = boot_ms();
    // The second one changes nothing, whenever it comes.
    let _ = cluster.cli(&["runs", "cancel", run])?;
    eventually("everything of the job to be gone", || {
        let left: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    Ok(boot_ms() - accepted)
}

fn worker_with_groups(setting: &str) -> Result<(Cluster, usize)> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    cluster.spawn_agent_with(near, "LEASEHOLD_WORKER_CGROUP", setting)?;
    eventually("the worker's session", || {
        let state = cluster.session_state("near");
        if state == "active" { Ok(()) } else { Err(state) }
    })?;
    let worker = cluster.json(&["worker", "get", "near"]);
    let has = worker.to_string().contains("cgroup-kill");
    ensure!(has || setting == "off" || !rustix::process::geteuid().is_root(), "no control groups for root: {worker}");
    ensure!(!(has && setting == "off"), "switched off, and there all the same: {worker}");
    Ok((cluster, near))
}

fn a_stubborn_tree_is_gone(setting: &str) -> Result<()> {
    let (cluster, _) = worker_with_groups(setting)?;
    let witness = Witness::start()?;

    // A daemon by the book (double fork, a session of its own, no stdio), one that is stopped, one in the background,
    // and the job itself: all of them deaf to SIGTERM.
    let pids = cluster.directory().join("pids");
    let note = format!("echo $$ >>{}", pids.display());
    let deaf = format!("trap \"\" TERM HUP; {note}; while :; do sleep 600; done");
    let script = format!(
        "trap '' TERM\n(setsid sh -c '(sh -c \"$1\" _ </dev/null >/dev/null 2>&1 &)' _ \"$1\" &)\n\
         setsid sh -c \"$1\" _ &\nsh -c \"trap '' TERM; {note}; kill -STOP \\$\\$; sleep 600\" &\n{note}\n\
         while :; do sleep 600; done"
    );
    let grace = format!("{GRACE_MS}ms");
    let run = cluster.submit(&["--grace", &grace, "--", "sh", "-c", &script, "_", &deaf]);
    let tree = written_down(&pids, 4)?;
    cluster.wait_for_state(&run, "running")?;
    let took = cancelled_and_gone(&cluster, &run, &tree)?;
    ensure!(took <= GRACE_MS + AFTER_GRACE_MS, "gone only {took} ms after the cancel");
    cluster.wait_for_state(&run, "cancelled")?;
    let ends = story::kinds(&cluster, &run)?.iter().filter(|kind| *kind == "run.ended").count();
    ensure!(ends == 1, "one transition, not {ends}");
    witness.was_left_alone()?;
    cluster.shut_down()
}

#[test]
fn a_stubborn_tree_is_gone_with_control_groups() -> Result<()> {
    a_stubborn_tree_is_gone("auto")
}

#[test]
fn a_stubborn_tree_is_gone_without_control_groups() -> Result<()> {
    a_stubborn_tree_is_gone("off")
}

#[test]
fn a_background_child_that_keeps_stdout_holds_up_no_end() -> Result<()> {
    for setting in ["auto", "off"] {
        let (cluster, _) = worker_with_groups(setting)?;
        let pid = cluster.directory().join("pid");
        let script = format!("nohup sleep 300 & echo $! >{}; echo done", pid.display());
        let run = cluster.cli(&["run", "--", "sh", "-c", &script])?;
        run.expect_code(0);
        ensure!(run.stdout.contains("done"), "{run}");
        let child = std::fs::read_to_string(&pid)?;
        ensure!(!is_alive(child.trim()), "the child is left, with groups {setting}");
        cluster.shut_down()?;
    }
    Ok(())
}

#[test]
fn what_the_kernel_does_not_let_go_of_is_named_and_seen_off() -> Result<()> {
    let Some(freezer) = Freezer::make("what-the-kernel-holds")? else { return Ok(()) };
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let (pids, gate) = (cluster.directory().join("pids"), cluster.directory().join("gate"));

    // A child: the job's own end does not wait for it.
    let script = format!(
        "setsid sleep 600 & echo $! >{}; until [ -e {} ]; do sleep 0.05; done; exit 3",
        pids.display(),
        gate.display()
    );
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    let [child] = written_down(&pids, 1)?.try_into().map_err(|_| anyhow::anyhow!("one child"))?;
    freezer.hold(&child)?;
    std::fs::write(&gate, "")?;
    let failed = cluster.wait_for_state(&run, "failed")?;
    let named = &failed["attempts"][0];
    ensure!(
        named["cancel_incomplete"]["pids"][0].as_u64() == child.parse().ok() && named["may_live"] == true,
        "{failed}"
    );
    // It costs no slot: both are taken and done while it is there.
    for other in [cluster.submit(&["--", "true"]), cluster.submit(&["--", "true"])] {
        cluster.wait_for_state(&other, "succeeded")?;
    }
    freezer.set("THAWED")?;
    eventually("it to be known as gone", || {
        let run = cluster.json(&["runs", "get", &run]);
        let attempt = &run["attempts"][0];
        let gone = attempt["cancel_incomplete"].is_null() && attempt["may_live"] == false;
        if gone { Ok(()) } else { Err(run.to_string()) }
    })?;
    ensure!(!is_alive(&child), "gone is said of what lives");
    let told = story::kinds(&cluster, &run)?;
    for kind in ["cancel.incomplete", "cancel.completed"] {
        ensure!(told.iter().filter(|told| *told == kind).count() == 1, "{kind}: {told:?}");
    }

    // The job's own process: it is not over before that is gone, and costs its own slot only.
    std::fs::remove_file(&pids)?;
    let run = cluster.submit(&["--grace", "0s", "--", "sh", "-c", &format!("echo $$ >{}; sleep 600", pids.display())]);
    let [job] = written_down(&pids, 1)?.try_into().map_err(|_| anyhow::anyhow!("one job"))?;
    cluster.wait_for_state(&run, "running")?;
    freezer.hold(&job)?;
    cluster.ask(&["runs", "cancel", &run]);
    eventually("the worker to say it", || {
        let written = cluster.written();
        if written.contains("the kernel does not let go of 1 of its processes") { Ok(()) } else { Err(written) }
    })?;
    eventually("everybody to be told", || {
        let run = cluster.json(&["runs", "get", &run]);
        let named = &run["attempts"][0]["cancel_incomplete"];
        let told = named["count"] == 1 && named["pids"][0].as_u64() == job.parse().ok();
        if told { Ok(()) } else { Err(run.to_string()) }
    })?;
    let explained = cluster.ask(&["explain", &run]);
    let words = format!("the kernel does not let go of 1 process ({job}): it ends when they are gone");
    ensure!(explained.contains(&words) && cluster.ask(&["runs", "get", &run]).contains(&words), "{explained}");
    let other = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&other, "succeeded")?;
    ensure!(cluster.json(&["runs", "get", &run])["state"] == "running", "over, and its process is there");
    freezer.set("THAWED")?;
    let cancelled = cluster.wait_for_state(&run, "cancelled")?;
    let attempt = &cancelled["attempts"][0];
    ensure!(attempt["cancel_incomplete"].is_null() && attempt["may_live"] == false, "it went: {cancelled}");
    let told = story::kinds(&cluster, &run)?;
    let left = ["cancel.incomplete", "cancel.completed"];
    ensure!(told.iter().all(|kind| !left.contains(&kind.as_str())), "nothing was left when it ended: {told:?}");
    eventually("every attempt's directory to go", || {
        let left = cluster.worker(near).files_in("attempts");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    cluster.shut_down()
}

#[test]
fn an_end_says_how_its_limits_were_kept() -> Result<()> {
    let (cluster, _) = worker_with_groups("off")?;
    let spec = cluster.directory().join("limited.toml");
    let command = "[command]\nargv = [\"sh\", \"-c\", \"ulimit -v\"]\n";
    std::fs::write(&spec, format!("{command}[limits]\nmemory_mib = 512\ncpu = \"0.5\"\nbest_effort = true\n"))?;
    let ended = cluster.cli(&["run", "--spec", spec.to_str().context("a path")?])?;
    ended.expect_code(0);
    ensure!(ended.stdout.trim() == "524288", "{ended}");
    let run = cluster.list(&["runs", "list"])[0]["id"].as_str().context("an id")?.to_owned();
    let usage = cluster.json(&["runs", "get", &run])["attempts"][0]["usage"].clone();
    ensure!(usage["limits"]["memory"] == "rlimit" && usage["limits"]["cpu"] == "none", "{usage}");
    ensure!(usage["max_rss_kib"].as_u64().is_some_and(|kib| kib > 0), "{usage}");
    let page = cluster.ask(&["runs", "get", &run]);
    ensure!(page.contains("cpu not kept: its worker cannot (best_effort)"), "{page}");

    // Without best_effort it waits for a worker that can, and says for what.
    std::fs::write(&spec, format!("{command}[limits]\nmemory_mib = 512\n"))?;
    let run = cluster.submit(&["--spec", spec.to_str().context("a path")?]);
    eventually("the reason", || {
        let told = cluster.cli(&["explain", &run]).map_err(|error| error.to_string())?;
        if told.stdout.contains("cgroup-memory") { Ok(()) } else { Err(told.to_string()) }
    })?;
    cluster.ask(&["runs", "cancel", &run]);
    cluster.shut_down()
}
