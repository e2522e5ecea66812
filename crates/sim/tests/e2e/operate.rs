//! What a person does to a worker, with real processes: drain, resume, grant a takeover, delete; and what the machine
//! itself says that is wrong with it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;
use leasehold_sim::process::{self, Running};
use leasehold_sim::{binaries, story};
use serde_json::Value;

fn worker(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["worker", "get", name])
}

/// Waits until the agent says by a beat that it obeys: it would take nothing.
fn wait_for_slots(cluster: &Cluster, name: &str, slots: u64) -> Result<Value> {
    eventually(&format!("{name} to offer {slots} slots"), || {
        let found = worker(cluster, name);
        if found["session"]["slots"] == slots { Ok(found) } else { Err(found.to_string()) }
    })
}

#[test]
fn a_drained_worker_keeps_what_runs_and_takes_nothing_across_restarts_of_both_sides() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let go = cluster.directory().join("go");
    let job = format!("while [ ! -e {} ]; do sleep 0.05; done; echo whole", go.display());
    let running = cluster.submit(&["--", "sh", "-c", &job]);
    cluster.wait_for_state(&running, "running")?;

    let told = cluster.ask(&["worker", "drain", "near", "--reason", "new disk"]);
    assert!(told.contains("takes nothing new") && told.contains("1 run go"), "{told}");
    let shown = wait_for_slots(&cluster, "near", 0)?;
    assert_eq!((&shown["status"], &shown["drain"]["why"]), (&"draining".into(), &"new disk".into()));
    let waiting = cluster.submit(&["--", "echo", "late"]);
    let explained = cluster.json(&["explain", &waiting]);
    assert_eq!(explained["explanation"]["leading"], "draining", "{explained}");

    // The wish is stored: a new agent and a new control plane find it.
    cluster.kill_agent(index)?;
    cluster.start_agent(index)?;
    cluster.kill_control()?;
    cluster.start_control()?;
    wait_for_slots(&cluster, "near", 0)?;
    assert!(cluster.ask(&["worker", "drain", "near"]).contains("drained before"));
    std::fs::write(&go, b"")?;
    cluster.wait_for_state(&running, "succeeded")?;
    assert_eq!(cluster.log(&running), "whole");
    assert_eq!(cluster.json(&["runs", "get", &waiting])["state"], "pending", "nothing new");

    assert!(cluster.ask(&["worker", "resume", "near"]).contains("takes work again"));
    cluster.wait_for_state(&waiting, "succeeded")?;
    wait_for_slots(&cluster, "near", 4)?;
    let rows = cluster.json(&["audit", "list"]);
    let told: Vec<_> = rows.as_array().into_iter().flatten().filter(|row| row["subject"] == "worker/near").collect();
    let actions: Vec<_> = told.iter().map(|row| row["action"].as_str().unwrap_or_default()).collect();
    assert_eq!(actions, ["resume_worker", "drain_worker", "enroll"]);
    assert_eq!((&told[1]["origin"], &told[2]["origin"]), (&"admin socket".into(), &"127.0.0.1".into()));
    cluster.shut_down()
}

#[test]
fn draining_waits_for_what_runs_when_asked_and_an_unknown_worker_is_named() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--", "sh", "-c", "sleep 2"]);
    cluster.wait_for_state(&run, "running")?;
    let told = cluster.ask(&["worker", "drain", "near", "--wait"]);
    assert!(told.contains("nothing runs there"), "{told}");
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "succeeded");
    let unknown = cluster.cli(&["worker", "drain", "far"])?;
    unknown.expect_code(3);
    cluster.shut_down()
}

/// The newest audit row of this action.
fn audited(cluster: &Cluster, action: &str) -> Result<Value> {
    let rows = story::audit(cluster)?;
    rows.into_iter().rfind(|row| row["action"] == action).with_context(|| format!("no audit row says {action}"))
}

#[test]
fn a_spent_ticket_stops_a_worker_for_good_until_a_person_grants_a_takeover() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions::named("near"))?;
    let file = cluster.worker(index).state().join("session.json");
    let old = fs::read(&file)?;
    cluster.stop_agent(index)?.expect_code(0);
    cluster.start_agent(index)?;
    cluster.stop_agent(index)?.expect_code(0);
    // Its disk is what it was before: its ticket was spent by what happened since.
    fs::write(&file, old)?;
    cluster.spawn_agent(index)?;
    cluster.wait_for_agent_end(index)?.expect_code(25);
    let stopped = cluster.agent_command(index).output()?;
    assert_eq!(stopped.status.code(), Some(25), "for good");
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("grant-takeover"), "it says what to do: {stopped:?}");
    let refused = cluster.agent_command(index).arg("--take-over").output()?;
    assert_eq!(refused.status.code(), Some(25), "nobody granted it: {refused:?}");

    let told = cluster.ask(&["worker", "grant-takeover", "near", "--reason", "restored from a backup"]);
    assert!(told.contains("is let in once"), "{told}");
    assert_eq!(worker(&cluster, "near")["takeover"]["why"], "restored from a backup");
    let agent = Running::start(cluster.agent_command(index).arg("--take-over"))?;
    cluster.adopt_agent(index, agent);
    let run = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(worker(&cluster, "near")["takeover"], Value::Null, "single use");
    let row = audited(&cluster, "take_over")?;
    assert_eq!((&row["facts"]["instead_of"], &row["origin"]), (&"ticket_spent".into(), &"127.0.0.1".into()));
    cluster.shut_down()
}

#[test]
fn what_is_wrong_with_a_machine_shows_until_it_is_mended() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions::named("near"))?;
    cluster.stop_agent(index)?.expect_code(0);
    let state = cluster.worker(index).state().to_owned();
    fs::write(state.join("inbox/garbage.json"), b"{")?;
    cluster.start_agent(index)?;
    let shown = eventually("the fault to be told", || {
        let found = worker(&cluster, "near");
        if found["fault_count"] == 1 { Ok(found) } else { Err(found.to_string()) }
    })?;
    assert_eq!(shown["faults"][0]["kind"], "quarantined", "{shown}");
    let page = cluster.ask(&["worker", "get", "near"]);
    assert!(page.contains("Fault:") && page.contains("garbage.json"), "{page}");
    let list = cluster.ask(&["worker", "list"]);
    assert!(list.contains("FAULTS"), "{list}");
    let run = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&run, "succeeded")?;

    for name in fs::read_dir(state.join("quarantine"))? {
        fs::remove_file(name?.path())?;
    }
    cluster.signal_agent(index, rustix::process::Signal::HUP)?;
    eventually("nothing to be wrong any more", || {
        let found = worker(&cluster, "near");
        if found["fault_count"] == 0 { Ok(()) } else { Err(found.to_string()) }
    })?;
    cluster.shut_down()
}

#[test]
fn a_reboot_shows_in_the_story_of_the_run_beside_the_lease_that_ran_out() -> Result<()> {
    if !is_root_or_skip("a_reboot_shows_in_the_story_of_the_run_beside_the_lease_that_ran_out") {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--lease", "25s", "--", "sleep", "1000"]);
    cluster.wait_for_state(&run, "running")?;
    // The power goes: agent, launcher and job at once.
    cluster.kill_agent(index)?;
    for launcher in cluster.worker(index).launchers() {
        let launcher = rustix::process::Pid::from_raw(i32::try_from(launcher)?).context("a launcher has a pid")?;
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL)?;
    }
    let boot = cluster.directory().join("boot-id");
    fs::write(&boot, "22222222-3333-4444-8555-666666666666\n")?;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$1\" run"]);
    command.arg(&boot).arg(binaries::leasehold_worker());
    for (name, value) in cluster.agent_command(index).get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    cluster.adopt_agent(index, Running::start(&mut command)?);
    cluster.wait_for_state(&run, "lost")?;
    let says =
        |event: &Value, kind: &str, evidence: &str| event["kind"] == kind && event["facts"]["evidence"] == evidence;
    let events = story::events(&cluster, &run)?;
    assert!(events.iter().any(|event| says(event, "attempt.lost", "lease_expired")), "{events:#?}");
    eventually("the reboot to be told", || match story::events(&cluster, &run) {
        Ok(events) if events.iter().any(|event| says(event, "evidence.kept", "machine_rebooted")) => Ok(()),
        found => Err(format!("{found:#?}")),
    })?;
    Ok(())
}

#[test]
fn a_silent_worker_is_not_called_active_and_a_second_enrollment_of_its_name_is_warned_of() -> Result<()> {
    let mut cluster = Cluster::prepare()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let index = cluster.join(WorkerOptions::named("near"))?;
    assert_eq!(worker(&cluster, "near")["session"]["state"], "active");
    let warned = cluster.cli(&["worker", "enroll", "--name", "near"])?;
    assert!(warned.expect_code(0).stderr.contains("worker near exists and is online"), "{warned}");
    let fresh = cluster.cli(&["worker", "enroll", "--name", "far"])?;
    assert!(!fresh.expect_code(0).stderr.contains("exists"), "{fresh}");
    cluster.kill_agent(index)?;
    let found = eventually("the silent session to end", || {
        let found = worker(&cluster, "near");
        if found["status"] == "offline" { Ok(found) } else { Err(found.to_string()) }
    })?;
    assert_eq!(found["session"]["state"], "expired", "{found}");
    let page = cluster.ask(&["worker", "get", "near"]);
    assert!(page.contains("expired") && !page.contains("active,"), "{page}");
    Ok(())
}

#[test]
fn a_worker_that_holds_something_is_deleted_only_as_destroyed() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let gate = cluster.directory().join("gate");
    let job = format!("while [ ! -e {} ]; do sleep 0.05; done", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &job]);
    cluster.wait_for_state(&run, "running")?;
    let unasked = cluster.cli(&["worker", "delete", "near"])?;
    assert!(unasked.expect_code(2).stderr.contains("--yes"), "{unasked}");
    let refused = cluster.cli(&["worker", "delete", "near", "--yes"])?;
    let said = &refused.expect_code(10).stderr;
    assert!(said.contains("1 live") && said.contains("--destroyed"), "numbers and the fix: {said}");

    // The machine is gone; here, its processes.
    cluster.kill_agent(index)?;
    let told = cluster.ask(&["worker", "delete", "near", "--yes", "--destroyed", "--reason", "burnt down"]);
    assert!(told.contains("is deleted; 1 run"), "{told}");
    let found = cluster.json(&["runs", "get", &run]);
    assert_eq!(found["state"], "lost", "at once, and held: {found}");
    let lost = story::events(&cluster, &run)?.into_iter().find(|event| event["kind"] == "attempt.lost");
    let lost = lost.context("the run's story says that it was lost")?;
    assert_eq!(lost["facts"]["evidence"], "destroyed", "{lost}");
    cluster.cli(&["worker", "get", "near"])?.expect_code(3);
    assert!(cluster.list(&["worker", "list"]).is_empty());
    assert!(cluster.ask(&["worker", "delete", "near", "--yes"]).contains("deleted before"));

    // It was not so: whoever comes back is told, and starts nothing.
    let back = process::run(&mut cluster.agent_command(index))?;
    assert!(back.expect_code(21).stderr.contains("was deleted"), "{back}");
    fs::write(&gate, b"")?;
    Ok(())
}
