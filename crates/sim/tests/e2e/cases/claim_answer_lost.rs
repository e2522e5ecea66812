//! Answer of a claim lost: the server's bytes are dropped after the claim has committed; in half of the rounds the worker
//! is killed as well. One start per run, and one claim: the same offer again, no attempt spent.
//!
//! Sixteen rounds with real processes; two hundred with the real engine in its simulated world
//! (`leasehold-worker`, `engine::tests`).

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::proxy::{Mode, Proxy};
use leasehold_sim::seed::Seed;
use leasehold_sim::story;

use super::claim_unread;
use crate::marks::Marks;

const ROUNDS: usize = 16;

#[test]
fn a_claim_whose_answer_is_lost_is_answered_again_and_starts_once() -> Result<()> {
    let mut seed = Seed::announced("a_claim_whose_answer_is_lost_is_answered_again_and_starts_once");
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions { name: "near", slots: 1, machine: None })?;
    let proxy = Proxy::start(&cluster.ingress())?;
    cluster.worker_variable(near, "LEASEHOLD_WORKER_SERVER", &proxy.url());
    cluster.start_agent(near)?;
    let marks = Marks::new(&cluster, &mut seed);
    let line = |what| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
    let script = format!("{}; {}", line("start"), line("end"));
    let job = ["--", "sh", "-c", script.as_str()];
    let mut runs = BTreeSet::new();
    for round in 0..ROUNDS {
        let run = if round % 2 == 0 {
            let run = claim_unread(&cluster, near, &job)?;
            cluster.kill_agent(near)?;
            cluster.start_agent(near)?;
            run
        } else {
            proxy.set(Mode::DropAnswers);
            let run = cluster.submit(&job);
            cluster.wait_for_state(&run, "dispatching")?;
            eventually("the answer to be lost", || if proxy.dropped() > 0 { Ok(()) } else { Err(String::new()) })?;
            proxy.set(Mode::Pass);
            run
        };
        cluster.wait_for_state(&run, "succeeded")?;
        runs.insert(run);
    }
    for run in &runs {
        let claims = story::kinds(&cluster, run)?.iter().filter(|kind| *kind == "attempt.claimed").count();
        let run = cluster.json(&["runs", "get", run]);
        assert_eq!((claims, &run["fence"]), (1, &1.into()), "claimed once, and answered again: {run}");
        assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run}");
    }
    let starts = std::fs::read_to_string(marks.file())?;
    for run in &runs {
        assert_eq!(starts.matches(&format!("start {run} 1 ")).count(), 1, "{starts}");
    }
    cluster.shut_down()
}
