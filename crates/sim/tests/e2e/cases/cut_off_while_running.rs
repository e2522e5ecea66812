//! Cut off while running. A cut shorter than the run's lease (and longer than the session's): one start, one end, succeeded.
//! A longer one: the process is stopped before its lease ends, attempt 2 starts only after that, at no instant do two live;
//! and the first worker's own word on attempt 1 comes late and changes nothing.
//!
//! Both cuts are played at the same time, with sessions of 15 s. The shorter one lasts until the session has expired, and
//! its run has a lease of 45 s, so that a slow machine has time to start over; the longer one's has the shortest, 25 s.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::{eventually, within};
use leasehold_sim::machine::{Machine, is_root_or_skip};
use leasehold_sim::{process, story};
use serde_json::Value;

use super::{session, wait_for_another_session};

/// Beats with its attempt and the time in milliseconds of the clock that both hosts share.
fn job(beats: &Path, gate: &Path) -> String {
    let beat = format!(
        "echo $LEASEHOLD_ATTEMPT $(cut -d. -f1,2 /proc/uptime | cut -d' ' -f1 | tr -d .) >>{}",
        beats.display()
    );
    format!("{beat}; until [ -e {} ]; do {beat}; sleep 0.05; done; echo done", gate.display())
}

/// The first and the last beat of an attempt, in hundredths of a second of uptime.
fn life(beats: &Path, attempt: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(beats).unwrap_or_default();
    let of_attempt = text.lines().filter_map(|line| line.split_once(' ')).filter(|(number, _)| *number == attempt);
    let times: Vec<u64> = of_attempt.filter_map(|(_, time)| time.parse().ok()).collect();
    Some((*times.first()?, *times.last()?))
}

fn millis(time: &Value) -> Result<i64> {
    let text = time.as_str().context("a time")?;
    let ended = process::run(std::process::Command::new("date").args(["-d", text, "+%s%3N"]))?;
    Ok(ended.expect_code(0).answer().parse()?)
}

#[test]
fn a_cut_is_survived_or_answered_by_a_second_attempt_and_never_by_two_at_once() -> Result<()> {
    if !is_root_or_skip("a_cut_is_survived_or_answered_by_a_second_attempt_and_never_by_two_at_once") {
        return Ok(());
    }
    // Both machines reach the control plane under the first one's address of this host.
    let (short, long) = (Machine::create(22)?, Machine::create(23)?);
    let mut cluster = Cluster::prepare_on("0.0.0.0")?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let ingress = |machine: &Machine, cluster: &Cluster| {
        let port = cluster.ingress().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap_or_default();
        format!("https://{}:{port}", machine.host_address())
    };
    let on = |cluster: &mut Cluster, name: &str, machine: Option<&Machine>| -> Result<usize> {
        let worker = cluster.enroll(WorkerOptions { name, slots: 2, machine: None })?;
        if let Some(machine) = machine {
            cluster.move_worker(worker, machine);
            let url = ingress(machine, cluster);
            cluster.worker_variable(worker, "LEASEHOLD_WORKER_SERVER", &url);
        }
        cluster.start_agent(worker)?;
        Ok(worker)
    };
    let shortly = on(&mut cluster, "short", Some(&short))?;
    on(&mut cluster, "long", Some(&long))?;

    let file = |name: &str| cluster.directory().join(name);
    let (kept_beats, kept_gate) = (file("kept"), file("kept.gate"));
    let (cut_beats, cut_gate) = (file("cut"), file("cut.gate"));
    let submit = |place: &str, lease: &str, more: &[&str], script: &str| {
        let place = format!("worker={place}");
        cluster.submit(&[&["--require", &place, "--lease", lease], more, &["--", "sh", "-c", script]].concat())
    };
    let kept = submit("short", "45s", &[], &job(&kept_beats, &kept_gate));
    // The second capable worker comes later, so that the first one has the first attempt.
    let safe = ["--require", "worker=other", "--on-lost", "retry", "--safety", "idempotent", "--retry", "2"];
    let cut = submit("long", "25s", &safe, &job(&cut_beats, &cut_gate));
    cluster.wait_for_state(&kept, "running")?;
    cluster.wait_for_state(&cut, "running")?;
    on(&mut cluster, "other", None)?;
    let was = session(&cluster, shortly);

    short.cut()?;
    long.cut()?;
    eventually("the session of the shorter cut to expire", || {
        let worker = cluster.json(&["worker", "get", "short"]);
        if worker["status"] == "offline" { Ok(()) } else { Err(worker.to_string()) }
    })?;
    short.mend()?;
    wait_for_another_session(&cluster, shortly, &was).context("the worker starts over")?;
    assert_eq!(cluster.json(&["runs", "get", &kept])["state"], "running", "it is carried on");

    // The longer cut: lost, and only then another attempt.
    let second = eventually("the second attempt to run", || {
        let found = cluster.json(&["runs", "get", &cut]);
        if found["attempt"] == 2 && found["state"] == "running" { Ok(found) } else { Err(found.to_string()) }
    })?;
    let [first, next] = second["attempts"].as_array().context("attempts")?.as_slice() else { panic!("{second}") };
    assert_eq!((&first["state"], &first["worker"], &next["worker"]), (&"lost".into(), &"long".into(), &"other".into()));
    let (_, last_beat) = life(&cut_beats, "1").context("attempt 1 lived")?;
    let (first_beat, _) =
        eventually("a beat of attempt 2", || life(&cut_beats, "2").ok_or_else(|| "none yet".to_owned()))?;
    assert!(last_beat < first_beat, "attempt 1 lived until {last_beat}, attempt 2 from {first_beat}");
    assert!(millis(&next["claimed_at"])? >= millis(&first["ended_at"])?, "{second}");

    long.mend()?;
    let late = || {
        let kinds = story::kinds(&cluster, &cut).map_err(|error| error.to_string())?;
        if kinds.iter().any(|kind| kind == "evidence.late") { Ok(()) } else { Err(format!("{kinds:?}")) }
    };
    eventually("the first worker's own word", late)?;
    let after = cluster.json(&["runs", "get", &cut]);
    assert_eq!((&after["state"], &after["attempts"][0]["state"]), (&"running".into(), &"lost".into()), "{after}");

    fs::write(kept_gate, "")?;
    fs::write(cut_gate, "")?;
    for run in [&kept, &cut] {
        cluster.wait_for_state(run, "succeeded")?;
        within(Duration::from_secs(20), "the log", || match cluster.ask(&["runs", "logs", run]) {
            log if log == "done" => Ok(()),
            log => Err(log),
        })?;
    }
    let kept = cluster.json(&["runs", "get", &kept]);
    assert_eq!(kept["attempts"].as_array().map(Vec::len), Some(1), "{kept}");
    let beats = fs::read_to_string(kept_beats)?;
    assert!(!beats.contains("\n2 ") && life(&cut_beats, "1").context("attempt 1")?.1 == last_beat, "no ghost");
    cluster.shut_down()
}
