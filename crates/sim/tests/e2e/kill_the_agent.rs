//! `kill -9` of the agent at a random moment while fifty runs go through, and a restart; again and again.
//!
//! The jobs themselves write down when they start and when they end, so what the product says is compared with what
//! happened: no attempt started twice, every start has its end, and what ran when the agent died was carried on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::seed::Seed;

const RUNS: u64 = 50;

/// Rounds of one test; `LEASEHOLD_CHAOS_ROUNDS` asks for more or fewer.
const ROUNDS: u64 = 20;

#[expect(clippy::disallowed_methods, reason = "how a person asks for a longer test")]
fn rounds() -> u64 {
    std::env::var("LEASEHOLD_CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// What one attempt wrote about itself.
#[derive(Debug, Default)]
struct Life {
    starts: Vec<String>,
    ends: Vec<String>,
}

/// The lives in a file of `start RUN ATTEMPT PID` and `end RUN ATTEMPT PID` lines, by run and attempt.
fn lives(file: &Path) -> Result<BTreeMap<(String, String), Life>> {
    let mut lives: BTreeMap<(String, String), Life> = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, run, attempt, pid] = words.as_slice() else { anyhow::bail!("a torn line: {line}") };
        let life = lives.entry(((*run).to_owned(), (*attempt).to_owned())).or_default();
        let list = if *what == "start" { &mut life.starts } else { &mut life.ends };
        list.push((*pid).to_owned());
    }
    Ok(lives)
}

#[test]
fn no_attempt_starts_twice_when_the_agent_is_killed() -> Result<()> {
    let mut seed = Seed::announced("no_attempt_starts_twice_when_the_agent_is_killed");
    let mut cluster = Cluster::start()?;
    let worker = cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    for round in 0..rounds() {
        one_round(&mut cluster, worker, &mut seed).with_context(|| format!("round {round}"))?;
    }
    cluster.shut_down()
}

fn one_round(cluster: &mut Cluster, worker: usize, seed: &mut Seed) -> Result<()> {
    let marks = cluster.directory().join(format!("marks-{}", seed.below(u64::MAX)));
    let line = |what: &str| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.display());
    let script = format!("{}; sleep 0.0{}; {}", line("start"), 1 + seed.below(9), line("end"));
    let runs: BTreeSet<String> = (0..RUNS).map(|_| cluster.submit(&["--", "sh", "-c", &script])).collect();

    // The moment is a fact, too: so many lines are written, and then as many instructions of ours pass.
    let moment = usize::try_from(seed.below(2 * RUNS))?;
    eventually(&format!("{moment} lines"), || {
        let written = std::fs::read_to_string(&marks).unwrap_or_default().lines().count();
        if written >= moment { Ok(()) } else { Err(written.to_string()) }
    })?;
    for _ in 0..seed.below(2_000_000) {
        std::hint::spin_loop();
    }
    cluster.kill_agent(worker)?;
    cluster.start_agent(worker)?;

    for run in &runs {
        cluster.cli(&["runs", "watch", run, "--exit-status"])?.expect_code(0);
    }
    let lives = lives(&marks)?;
    for ((run, attempt), life) in &lives {
        assert!(runs.contains(run), "a start of a run that nobody submitted: {run}");
        assert_eq!(life.starts.len(), 1, "run {run} attempt {attempt} started {} times: {life:?}", life.starts.len());
        assert_eq!(life.starts, life.ends, "run {run} attempt {attempt} was carried to its own end");
    }
    let started: BTreeSet<&String> = lives.keys().map(|(run, _)| run).collect();
    assert_eq!(started.len(), runs.len(), "every run was started");
    // A second attempt is right only after a first that provably never started.
    assert_eq!(lives.len(), runs.len(), "one start for each run: {lives:?}");
    Ok(())
}

#[test]
fn a_running_job_is_carried_on_by_the_next_agent() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let worker = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("echo before; until [ -e {} ]; do sleep 0.05; done; echo after; exit 9", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;

    cluster.kill_agent(worker)?;
    cluster.start_agent(worker)?;
    std::fs::write(gate, "")?;
    cluster.cli(&["runs", "watch", &run, "--exit-status", "--reflect-exit-status"])?.expect_code(9);
    assert_eq!(cluster.ask(&["runs", "logs", &run]), "before\nafter", "the log has no hole");
    cluster.shut_down()
}
