//! GPUs that a machine declares: each is one run's at a time, over a restart of the agent too, and who waits is told so.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::cases::{session, wait_for_another_session};

const DECLARED: &str = "[{ id = \"GPU-8f1c0c52\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }, \
                        { id = \"GPU-0a5b8c9d\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }]";

#[test]
fn no_two_runs_see_the_same_gpu_and_a_third_waits_for_one() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.enroll(WorkerOptions { name: "rig", slots: 4, machine: None })?;
    cluster.worker_variable(index, "LEASEHOLD_WORKER_GPUS", DECLARED);
    cluster.start_agent(index)?;
    let shown = cluster.json(&["worker", "get", "rig"]);
    assert_eq!(shown["capabilities"]["gpus"][0]["model"], "Tesla T4", "{shown}");

    let job = |name: &str| {
        let go = cluster.directory().join(name);
        format!("echo $CUDA_VISIBLE_DEVICES $LEASEHOLD_DEVICES; while [ ! -e {} ]; do sleep 0.05; done", go.display())
    };
    let submit = |name: &str| cluster.submit(&["--require", "gpu.vendor=nvidia", "--", "sh", "-c", &job(name)]);
    let (one, two) = (submit("one"), submit("two"));
    for run in [&one, &two] {
        cluster.wait_for_state(run, "running")?;
    }
    let rig = cluster.json(&["worker", "get", "rig"]);
    let held = rig["busy_devices"].as_object().context("no device is held")?;
    let runs: BTreeSet<_> = held.values().filter_map(Value::as_str).collect();
    assert_eq!(runs, [one.as_str(), two.as_str()].into(), "{rig}");
    let page = cluster.ask(&["worker", "get", "rig"]);
    for (device, run) in held {
        let told = format!("{device}, held by run {}", run.as_str().unwrap_or_default());
        assert!(page.contains(&told), "{page}");
    }
    let third = submit("one");
    let waits = |cluster: &Cluster| {
        let explained = cluster.json(&["explain", &third]);
        let explanation = &explained["explanation"];
        assert_eq!((&explanation["outlook"], &explanation["leading"]), (&"busy".into(), &"gpu".into()), "{explained}");
        assert_eq!(explanation["workers"][0]["mismatches"][0]["have"], "0 free of 2 that fit", "{explained}");
    };
    waits(&cluster);
    let never = cluster.submit(&["--require", "gpu>=3", "--", "true"]);
    assert_eq!(cluster.json(&["explain", &never])["explanation"]["outlook"], "never");
    // Who wants none is not held up, and is told of none.
    let free = cluster.submit(&["--", "sh", "-c", "echo none${LEASEHOLD_DEVICES}"]);
    cluster.wait_for_state(&free, "succeeded")?;
    assert_eq!(cluster.log(&free), "none");

    // The next agent carries the jobs on, and with them what they have.
    cluster.kill_agent(index)?;
    cluster.start_agent(index)?;
    waits(&cluster);

    fs::write(cluster.directory().join("one"), b"")?;
    for run in [&one, &third] {
        cluster.wait_for_state(run, "succeeded")?;
    }
    assert_eq!(cluster.json(&["runs", "get", &two])["state"], "running");
    fs::write(cluster.directory().join("two"), b"")?;
    cluster.wait_for_state(&two, "succeeded")?;
    let seen = [&one, &two, &third].map(|run| cluster.log(run));
    let names = seen.clone().map(|line| line.split(' ').next().unwrap_or_default().to_owned());
    assert!(seen.iter().zip(&names).all(|(line, name)| *line == format!("{name} {name}")), "{seen:?}");
    let mut both = names[..2].to_vec();
    both.sort_unstable();
    assert_eq!((both, &names[2]), (vec!["GPU-0a5b8c9d".to_owned(), "GPU-8f1c0c52".to_owned()], &names[0]));
    cluster.shut_down()
}

/// Four devices, and runs that ask for 2, 2, 4 and 1: no device is two live runs' at once, and what asks for all waits until
/// all are free. What a lost run with `mutex` had stays its own until a person has said what became of it.
#[test]
fn of_four_gpus_each_is_one_runs_and_a_lost_mutex_keeps_its_own() -> Result<()> {
    let mut cluster = Cluster::prepare()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let index = cluster.enroll(WorkerOptions { name: "rig", slots: 8, machine: None })?;
    let device =
        |id: usize| format!("{{ id = \"GPU-{id}\", vendor = \"nvidia\", model = \"T4\", memory_mib = 15360 }}");
    let all: Vec<String> = (0..4).map(device).collect();
    cluster.worker_variable(index, "LEASEHOLD_WORKER_GPUS", &format!("[{}]", all.join(", ")));
    cluster.start_agent(index)?;

    let submit = |name: &str, count: usize| {
        let gate = cluster.directory().join(name);
        let job = format!("echo $CUDA_VISIBLE_DEVICES; until [ -e {} ]; do sleep 0.05; done", gate.display());
        cluster.submit(&["--require", &format!("gpu>={count}"), "--", "sh", "-c", &job])
    };
    let end = |name: &str, run: &str| -> Result<()> {
        fs::write(cluster.directory().join(name), b"")?;
        cluster.wait_for_state(run, "succeeded")?;
        Ok(())
    };
    let (a, b) = (submit("a", 2), submit("b", 2));
    for run in [&a, &b] {
        cluster.wait_for_state(run, "running")?;
    }
    let (c, d) = (submit("c", 4), submit("d", 1));
    let pending = |run: &str| assert_eq!(cluster.json(&["runs", "get", run])["state"], "pending");
    pending(&d);
    end("a", &a)?;
    // Two are free: enough for the last, which overtakes, and not for the one that asks for all.
    cluster.wait_for_state(&d, "running")?;
    end("b", &b)?;
    pending(&c);
    end("d", &d)?;
    cluster.wait_for_state(&c, "running")?;
    end("c", &c)?;
    let seen =
        [&a, &b, &c, &d].map(|run| -> BTreeSet<String> { cluster.log(run).split(',').map(str::to_owned).collect() });
    let [a, b, c, d] = &seen;
    assert_eq!(seen.each_ref().map(BTreeSet::len), [2, 2, 4, 1], "{seen:?}");
    assert!(a.is_disjoint(b) && b.is_disjoint(d) && d.is_subset(a) && a.union(b).eq(c), "{seen:?}");

    let spec = cluster.directory().join("mutex.toml");
    let text = "command = { argv = [\"sleep\", \"600\"] }\n[limits]\nlease = \"25s\"\nmutex = true\n\
                [placement.require]\ngpu = { vendor = \"nvidia\", count = 4 }\n";
    fs::write(&spec, text)?;
    let lost = cluster.submit(&["--spec", spec.to_str().context("a path of text")?]);
    cluster.wait_for_state(&lost, "running")?;
    let before = session(&cluster, index);
    cluster.signal_agent(index, Signal::STOP)?;
    cluster.wait_for_state(&lost, "lost")?;
    cluster.signal_agent(index, Signal::CONT)?;
    wait_for_another_session(&cluster, index, &before)?;
    let waits = cluster.submit(&["--require", "gpu", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    eventually("the run to wait for a device alone", || {
        let explained = cluster.json(&["explain", &waits]);
        let lacks = &explained["explanation"]["workers"][0]["mismatches"];
        let told = lacks.as_array().is_some_and(|lacks| lacks.len() == 1 && lacks[0]["have"] == "0 free of 4 that fit");
        if told { Ok(()) } else { Err(explained.to_string()) }
    })?;
    pending(&waits);
    cluster.ask(&["runs", "resolve", &lost, "mark-failed", "--reason", "seen to be over"]);
    cluster.wait_for_state(&waits, "succeeded")?;
    assert!(c.contains(&cluster.log(&waits)));
    cluster.shut_down()
}
