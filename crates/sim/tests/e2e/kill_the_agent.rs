//! `kill -9` of the agent at a random moment while fifty runs go through, and a restart; again and again.
//!
//! The jobs themselves write down when they start and when they end, so what the product says is compared with what
//! happened: no attempt started twice, every start has its end, and what ran when the agent died was carried on.

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::seed::Seed;

use crate::marks::Marks;

const RUNS: u64 = 50;

/// Rounds of one test; `LEASEHOLD_CHAOS_ROUNDS` asks for more or fewer.
const ROUNDS: u64 = 20;

#[expect(clippy::disallowed_methods, reason = "how a person asks for a longer test")]
fn rounds() -> u64 {
    std::env::var("LEASEHOLD_CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
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
    let marks = Marks::new(cluster, seed);
    let runs = marks.submit(cluster, RUNS, seed);
    marks.wait_for_lines(usize::try_from(seed.below(2 * RUNS))?)?;
    for _ in 0..seed.below(2_000_000) {
        std::hint::spin_loop();
    }
    cluster.kill_agent(worker)?;
    cluster.start_agent(worker)?;

    for run in &runs {
        let ended = cluster.wait_for_state(run, "succeeded");
        ended.with_context(|| format!("the agent said:\n{}", cluster.written()))?;
    }
    marks.check_one_whole_life_of_each(&runs)
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
    assert_eq!(cluster.log(&run), "before\nafter", "the log has no hole");
    cluster.shut_down()
}
