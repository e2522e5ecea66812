//! Every fault point of the worker × everything that can happen there, on the real binaries.
//!
//! The list is the worker's own (`leasehold-worker fault-points`), so a step that is added to the worker is tried here
//! without anybody adding it. Many workers on one control plane live through the scenarios side by side, each with runs
//! pinned to it. A point that no scenario comes to is a failure, too. (Proof, *Crash points*.)

mod life;
mod scenario;
mod verdict;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use leasehold_sim::cluster::{Cluster, Worker, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::process::Ended;

use life::Life;
use scenario::{Recipe, Scenario};

/// Workers that live side by side. Most of a scenario is waiting.
const LANES: usize = 16;
/// How often a scenario is lived when its life did not come to a later pass.
const TRIES: usize = 3;

#[test]
#[expect(clippy::disallowed_methods, reason = "how a person tries one scenario, or those of one step")]
fn every_fault_at_every_step_of_a_worker_ends_in_the_truth() -> Result<()> {
    let only = std::env::var("LEASEHOLD_FAULT_ONLY").unwrap_or_default();
    let mut cluster = Cluster::start()?;
    for lane in 0..LANES {
        cluster.enroll(WorkerOptions::named(&format!("lane-{lane}")))?;
        // Thousands of starts, and no run that wants a runtime; a life at a step of the detection asks for it.
        cluster.worker_variable(lane, "LEASEHOLD_WORKER_DETECT_RUNTIMES", "false");
    }
    let groups = has_control_groups(&mut cluster)?;
    let scenarios: VecDeque<Scenario> = scenario::all(&scenario::points()?)
        .into_iter()
        .filter(|scenario| !matches!(scenario.recipe, Recipe::Joining | Recipe::ByHand))
        .filter(|scenario| groups || !scenario.point.name.starts_with("cgroup."))
        .filter(|scenario| scenario.to_string().contains(&only) || scenario.point.process == only)
        .collect();
    let count = scenarios.len();
    ensure!(count > 0, "no scenario is called `{only}`");
    let (queue, failures) = (Mutex::new(scenarios), Mutex::new(Vec::new()));
    let mut workers = cluster.lend_workers();
    std::thread::scope(|scope| {
        for worker in &mut workers {
            let (cluster, queue, failures) = (&cluster, &queue, &failures);
            scope.spawn(move || lane(cluster, worker, queue, failures));
        }
    });
    cluster.take_back(workers);
    // Whatever it lived through, a worker starts as any other does, and goes in order.
    for lane in 0..LANES {
        cluster.start_agent(lane)?;
    }
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {count} scenarios:\n\n{}", failures.len(), failures.join("\n\n"));
    println!("{count} scenarios");
    cluster.shut_down()
}

#[test]
fn every_step_of_joining_may_be_its_last() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let joining = scenario::all(&scenario::points()?).into_iter().filter(|scenario| {
        let step = scenario.point.step();
        // The ticket is written by `join`, too.
        let ticket = step.starts_with("session.") && scenario.recipe == Recipe::Runs && scenario.effect == "kill";
        scenario.recipe == Recipe::Joining || ticket
    });
    // One error of the disk stands for all: joining treats them alike.
    let tried = joining.filter(|scenario| scenario.pass == 1 && !matches!(scenario.effect.as_str(), "eio" | "erofs"));
    for (number, scenario) in tried.enumerate() {
        let name = format!("new-{number}");
        let worker = cluster.add_worker(WorkerOptions::named(&name));
        let line = cluster.join_line(&name);
        let struck = cluster.directory().join(format!("{name}-struck"));
        let faults =
            [("LEASEHOLD_FAULT", scenario.faults.as_str()), ("LEASEHOLD_FAULT_STRUCK", &struck.display().to_string())];
        let first = join(&cluster, worker, &line, &faults)?;
        ensure!(struck.exists(), "{scenario} was never passed\n{first}");
        let joined = first.code() == Some(0);
        if !joined {
            // The same line again: what broke off is carried on, or was done already.
            let again = join(&cluster, worker, &line, &[])?;
            let done = again.code() == Some(24) && again.stderr.contains("holds an identity already");
            ensure!(again.code() == Some(0) || done, "{scenario}\n{first}\n{again}");
        }
    }
    // They are what they should be: a sample of them works.
    for worker in [0, 7] {
        cluster.start_agent(worker)?;
        let name = cluster.worker(worker).name.clone();
        let run = cluster.submit(&["--require", &format!("worker={name}"), "--", "true"]);
        cluster.wait_for_state(&run, "succeeded")?;
    }
    cluster.shut_down()
}

/// Whether this machine lends its workers control groups; elsewhere nobody comes to their steps.
fn has_control_groups(cluster: &mut Cluster) -> Result<bool> {
    cluster.start_agent(0)?;
    let worker = cluster.json(&["worker", "get", &cluster.worker(0).name]);
    cluster.kill_agent(0)?;
    let features = worker["capabilities"]["features"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(features.iter().any(|feature| feature == "cgroup-kill"))
}

/// Runs a join line; more machines join here within a minute than a control plane lets in, so it may have to be patient.
fn join(cluster: &Cluster, worker: usize, line: &str, variables: &[(&str, &str)]) -> Result<Ended> {
    eventually("an enrollment that is not too many", || {
        let ended = cluster.run_join_line(worker, line, variables).map_err(|error| format!("{error:#}"))?;
        if ended.stderr.contains("rate_limited") { Err(ended.stderr) } else { Ok(ended) }
    })
}

/// Lives through scenarios until there are none, or until one went wrong and left its worker in an unknown state.
fn lane(cluster: &Cluster, worker: &mut Worker, queue: &Mutex<VecDeque<Scenario>>, failures: &Mutex<Vec<String>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(scenario) = next else { return };
        let name = worker.name.clone();
        let went_wrong = |error: &dyn std::fmt::Display| {
            let text = format!("{scenario} on {name}: {error}");
            eprintln!("{text}");
            failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        };
        match meets(cluster, worker, &scenario) {
            Ok(true) => {}
            Ok(false) => went_wrong(&format!("never passed in {TRIES} lives")),
            Err(error) => return went_wrong(&format!("{error:#}")),
        }
    }
}

/// Whether the fault strikes in one of a few lives.
fn meets(cluster: &Cluster, worker: &mut Worker, scenario: &Scenario) -> Result<bool> {
    for attempt in 1..=TRIES {
        if Life::new(cluster, worker, scenario, attempt)?.live()? {
            return Ok(true);
        }
    }
    Ok(false)
}
