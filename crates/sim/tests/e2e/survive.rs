//! What fails while jobs run: launchers, the agent, the control plane, the network, a copied disk.
//!
//! Each job writes down itself when it starts, that it lives, and when it ends; that is compared with what the product
//! says. (Proof, *Invariants*.)

use std::path::Path;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::executable;
use leasehold_sim::machine::{Machine, is_root_or_skip};
use leasehold_sim::processes;
use leasehold_sim::seed::Seed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::marks::Marks;

/// The shortest lease that a run may have, and what is added before contact counts as lost.
const LEASE: &str = "25s";

/// A script that adds a line to `file` as long as it lives.
fn heart(file: &Path) -> String {
    format!("while :; do echo beat >>{}; sleep 0.05; done", file.display())
}

fn beats(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

/// Waits until a heart beats.
fn wait_for_beats(file: &Path) -> Result<()> {
    eventually("a job to live", || if beats(file) > 2 { Ok(()) } else { Err(beats(file).to_string()) })
}

/// Whether a heart stands still for as long as it takes to ask the control plane a few times.
fn stands_still(cluster: &Cluster, file: &Path) -> bool {
    let before = beats(file);
    for _ in 0..10 {
        cluster.ask(&["runs", "list"]);
    }
    beats(file) == before
}

/// A script that adds the time, in milliseconds of the wall clock, to `file` as long as it lives.
fn dated_heart(file: &Path) -> String {
    format!("while :; do date +%s%3N >>{}; sleep 0.05; done", file.display())
}

/// When a dated heart beat last.
fn last_beat(file: &Path) -> Result<i64> {
    let text = std::fs::read_to_string(file)?;
    Ok(text.lines().last().context("it never beat")?.parse()?)
}

/// A time of the API, in milliseconds of the wall clock.
fn utc_ms(time: &Value) -> Result<i64> {
    let text = time.as_str().context("a time")?;
    let output = std::process::Command::new("date").args(["--date", text, "+%s%3N"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
    kill_process(pid, Signal::KILL)?;
    Ok(())
}

fn first_attempt(run: &Value) -> &Value {
    &run["attempts"][0]
}

#[test]
fn a_job_dies_with_its_launcher_and_is_not_started_again_by_a_guess() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let held = cluster.directory().join("held");
    let run = cluster.submit(&["--", "sh", "-c", &format!("echo alive; {}", heart(&held))]);
    wait_for_beats(&held)?;

    for launcher in cluster.worker(near).launchers() {
        kill(launcher)?;
    }
    let lost = cluster.wait_for_state(&run, "lost")?;
    assert!(stands_still(&cluster, &held), "its job died with it");
    let evidence = first_attempt(&lost)["outcome"]["evidence"].as_str().unwrap_or_default().to_owned();
    assert!(evidence.starts_with("launcher_killed"), "{lost}");
    assert_eq!(lost["attempts"].as_array().map(Vec::len), Some(1), "held until somebody decides: {lost}");
    // All that its launcher wrote is kept, and known to be not all that it would have been.
    let log = eventually("what there is of its log", || {
        let run = cluster.json(&["runs", "get", &run]);
        let log = first_attempt(&run)["log"].clone();
        if log["state"] == "incomplete" { Ok(log) } else { Err(run.to_string()) }
    })?;
    assert_eq!(
        (log["reason"].as_str(), log["received"].as_u64()),
        (Some("launcher_died"), log["length"].as_u64()),
        "{log}"
    );
    assert_eq!(cluster.log(&run), "alive", "{log}");

    // Where the task says that a second start is safe, the policy starts it.
    let starts = cluster.directory().join("starts");
    let script = format!("echo $LEASEHOLD_ATTEMPT >>{}; [ $LEASEHOLD_ATTEMPT = 2 ] || sleep 600", starts.display());
    let safe = ["--on-lost", "retry", "--safety", "idempotent", "--retry", "2", "--", "sh", "-c", &script];
    let run = cluster.submit(&safe);
    eventually("the first start", || if beats(&starts) == 1 { Ok(()) } else { Err(String::new()) })?;
    for launcher in cluster.worker(near).launchers() {
        kill(launcher)?;
    }
    cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(std::fs::read_to_string(&starts)?, "1\n2\n");
    cluster.shut_down()
}

#[test]
fn the_control_plane_may_be_killed_under_load() -> Result<()> {
    let mut seed = Seed::announced("the_control_plane_may_be_killed_under_load");
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    for round in 0..4 {
        let marks = Marks::new(&cluster, &mut seed);
        let runs = marks.submit(&cluster, 20, &mut seed);
        marks.wait_for_lines(usize::try_from(seed.below(40))?)?;
        cluster.kill_control()?;
        if round % 2 == 1 {
            cluster.kill_agent(near)?;
            cluster.spawn_agent(near)?;
        }
        cluster.start_control()?;
        for run in &runs {
            cluster.cli(&["runs", "watch", run, "--exit-status"])?.expect_code(0);
        }
        marks.check_one_whole_life_of_each(&runs)?;
    }
    cluster.shut_down()
}

#[test]
fn a_frozen_agent_keeps_no_job_alive_beyond_its_lease() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let (mild, stubborn) = (cluster.directory().join("mild"), cluster.directory().join("stubborn"));
    let deaf = format!("trap '' TERM; {}", dated_heart(&stubborn));
    let runs = [
        cluster.submit(&["--lease", LEASE, "--", "sh", "-c", &dated_heart(&mild)]),
        cluster.submit(&["--lease", LEASE, "--", "sh", "-c", &deaf]),
    ];
    wait_for_beats(&mild)?;
    wait_for_beats(&stubborn)?;

    cluster.signal_agent(near, Signal::STOP)?;
    for (run, file) in runs.iter().zip([&mild, &stubborn]) {
        let lost = cluster.wait_for_state(run, "lost")?;
        // Lost is said two seconds after the lease has ended: the job was over before that.
        let (last, said) = (last_beat(file)?, utc_ms(&first_attempt(&lost)["ended_at"])?);
        assert!(last + 2_000 < said, "the last beat of {run} was at {last}, its lease ended before {said}");
        // Nothing is awaited here: at the very moment that the control plane calls it lost, the job is over.
        assert!(stands_still(&cluster, &mild) && stands_still(&cluster, &stubborn), "stopped before {run} was lost");
    }
    cluster.signal_agent(near, Signal::CONT)?;
    let next = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&next, "succeeded")?;
    for run in &runs {
        let run = cluster.json(&["runs", "get", run]);
        assert_eq!((&run["state"], &first_attempt(&run)["may_live"]), (&"lost".into(), &false.into()), "{run}");
    }
    cluster.shut_down()
}

#[test]
fn a_cut_longer_than_the_lease_stops_the_job_and_keeps_the_others() -> Result<()> {
    if !is_root_or_skip("a_cut_longer_than_the_lease_stops_the_job_and_keeps_the_others") {
        return Ok(());
    }
    let machine = Machine::create(2)?;
    let mut cluster = Cluster::start_on(machine.host_address())?;
    let far = cluster.join(WorkerOptions { name: "far", slots: 3, machine: Some(&machine) })?;
    let (short, gate) = (cluster.directory().join("short"), cluster.directory().join("gate"));
    let stopped = cluster.submit(&["--lease", LEASE, "--", "sh", "-c", &heart(&short)]);
    let wait = format!("echo before; until [ -e {} ]; do sleep 0.05; done; echo after; exit 4", gate.display());
    let kept = cluster.submit(&["--lease", "10m", "--", "sh", "-c", &wait]);
    wait_for_beats(&short)?;
    cluster.wait_for_state(&kept, "running")?;

    machine.cut()?;
    let lost = cluster.wait_for_state(&stopped, "lost")?;
    assert!(stands_still(&cluster, &short), "its launcher stopped it in time");
    assert_eq!(first_attempt(&lost)["outcome"]["evidence"], "lease_expired", "{lost}");
    assert_eq!(cluster.json(&["runs", "get", &kept])["state"], "running");
    // It ends while nobody can be told.
    std::fs::write(gate, "")?;
    eventually("the other job to end", || {
        let left = cluster.worker(far).launchers();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    machine.mend()?;

    cluster.cli(&["runs", "watch", &kept, "--exit-status", "--reflect-exit-status"])?.expect_code(4);
    assert_eq!(cluster.log(&kept), "before\nafter", "the log has no hole");
    assert_eq!(cluster.json(&["runs", "get", &stopped])["attempts"].as_array().map(Vec::len), Some(1));
    wait_until_clean(&cluster, far)?;
    cluster.shut_down()
}

#[test]
fn a_copy_of_a_state_directory_starts_and_judges_nothing() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let (held, gate) = (cluster.directory().join("held"), cluster.directory().join("gate"));
    let script = format!("echo start >>{}; until [ -e {} ]; do sleep 0.05; done", held.display(), gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;

    let copy = cluster.directory().join("copy");
    copy_tree(cluster.worker(near).state(), &copy)?;
    // Beside the original, and after it died.
    for _ in 0..2 {
        let refused = cluster.start_copy(near, &copy)?.wait()?;
        refused.expect_code(24);
        assert!(refused.stderr.contains("worker enroll"), "it says what to do\n{refused}");
        if cluster.agent_runs(near) {
            cluster.kill_agent(near)?;
        }
    }
    cluster.start_agent(near)?;
    std::fs::write(gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(std::fs::read_to_string(held)?, "start\n");
    cluster.shut_down()
}

#[test]
fn a_signal_during_the_start_is_heard() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    // A runtime that is slow to say its version: the agent looks at its machine, and has no session yet.
    let (bin, asked) = (cluster.directory().join("bin"), cluster.directory().join("asked"));
    std::fs::create_dir(&bin)?;
    executable::write(&bin.join("bash"), format!("#!/bin/sh\necho asked >{}\nexec sleep 600\n", asked.display()))?;
    cluster.spawn_agent_with(near, "PATH", &format!("{}:/usr/bin:/bin", bin.display()))?;
    eventually("the agent to look at its machine", || asked.exists().then_some(()).ok_or_else(String::new))?;

    let ended = cluster.stop_agent(near)?;
    ended.expect_code(0);
    // What did not answer was not waited for, and is left behind.
    processes::kill_all_naming(&bin)?;
    cluster.shut_down()
}

#[test]
fn a_job_whose_record_cannot_be_read_is_stopped_before_it_is_called_lost() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let held = cluster.directory().join("held");
    let run = cluster.submit(&["--", "sh", "-c", &heart(&held)]);
    wait_for_beats(&held)?;
    cluster.wait_for_state(&run, "running")?;

    cluster.kill_agent(near)?;
    let records = cluster.worker(near).records();
    let [record] = records.as_slice() else { panic!("one record: {records:?}") };
    std::fs::write(cluster.worker(near).state().join("inbox").join(record), "not a record")?;
    cluster.start_agent(near)?;
    cluster.wait_for_state(&run, "lost")?;
    assert!(stands_still(&cluster, &held), "nothing of a lost attempt lives");
    assert_eq!(cluster.worker(near).files_in("quarantine"), [record.as_str()], "kept for a person to look at");
    cluster.shut_down()
}

fn wait_until_clean(cluster: &Cluster, near: usize) -> Result<()> {
    eventually("every record to settle and go", || {
        let left = [cluster.worker(near).files_in("inbox"), cluster.worker(near).files_in("attempts")].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
