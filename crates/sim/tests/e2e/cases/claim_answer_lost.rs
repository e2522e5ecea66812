//! Answer of a claim lost: the server's bytes are dropped after the claim has committed; in half of the rounds the worker
//! is killed as well. One start per run, and one claim: the same offer again, no attempt spent.
//!
//! A few rounds with real processes, on one control plane and on three replicas; two hundred with the real engine in its
//! simulated world (`leasehold-worker`, `engine::tests`), and two hundred between two replicas' connections to PostgreSQL
//! (`leasehold-sql`, `postgres::tests::lost_claims`).

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::proxy::{Mode, Proxy};
use leasehold_sim::replicas::Replicas;
use leasehold_sim::seed::Seed;
use leasehold_sim::story;

use super::{claim_unread, wait_for_open_asks};
use crate::marks::Marks;

const ROUNDS: usize = 16;

#[test]
fn a_claim_whose_answer_is_lost_is_answered_again_and_starts_once() -> Result<()> {
    let mut seed = Seed::announced("a_claim_whose_answer_is_lost_is_answered_again_and_starts_once");
    let mut cluster = Cluster::start()?;
    let mut worker = Worker::join(&mut cluster, &Cluster::ingress, &mut seed)?;
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            worker.is_killed_too(&mut cluster)?;
        } else {
            let run = worker.misses_the_answer(&cluster)?;
            worker.is_heard(&cluster, &run)?;
        }
    }
    worker.check_one_claim_and_one_start_each(&cluster)?;
    cluster.shut_down()
}

/// The replica that granted it may be the one that is killed then: whichever is asked answers the same.
#[test]
fn a_claim_whose_answer_is_lost_is_answered_again_by_any_replica() -> Result<()> {
    let name = "a_claim_whose_answer_is_lost_is_answered_again_by_any_replica";
    if !Replicas::are_possible_or_skip(name) {
        return Ok(());
    }
    let mut seed = Seed::announced(name);
    let mut replicas = Replicas::start(44, &[])?;
    let ingress = replicas.ingress();
    let mut worker = Worker::join(&mut replicas.cluster, &|_| ingress.clone(), &mut seed)?;
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            worker.is_killed_too(&mut replicas.cluster)?;
        } else {
            let run = worker.misses_the_answer(&replicas.cluster)?;
            replicas.kill(usize::try_from(seed.below(3))?)?;
            worker.is_heard(&replicas.cluster, &run)?;
        }
    }
    worker.check_one_claim_and_one_start_each(&replicas.cluster)?;
    let claimed_again = replicas.claimed_again()?;
    assert!(claimed_again.is_empty(), "{claimed_again:?}");
    replicas.shut_down()
}

/// A worker behind a wire that loses answers, and what it was given.
struct Worker {
    index: usize,
    proxy: Proxy,
    marks: Marks,
    script: String,
    runs: BTreeSet<String>,
}

impl Worker {
    fn join(cluster: &mut Cluster, ingress: &dyn Fn(&Cluster) -> String, seed: &mut Seed) -> Result<Self> {
        let index = cluster.enroll(WorkerOptions { name: "near", slots: 1, machine: None })?;
        let proxy = Proxy::start(&ingress(cluster))?;
        cluster.worker_variable(index, "LEASEHOLD_WORKER_SERVER", &proxy.url());
        cluster.start_agent(index)?;
        let marks = Marks::new(cluster, seed);
        let line = |what| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
        let script = format!("{}; {}", line("start"), line("end"));
        Ok(Self { index, proxy, marks, script, runs: BTreeSet::new() })
    }

    /// It is given a run, has not read that, and is killed; it comes back.
    fn is_killed_too(&mut self, cluster: &mut Cluster) -> Result<()> {
        let run = claim_unread(cluster, self.index, &["--", "sh", "-c", &self.script])?;
        cluster.kill_agent(self.index)?;
        cluster.start_agent(self.index)?;
        cluster.wait_for_state(&run, "succeeded")?;
        self.runs.insert(run);
        Ok(())
    }

    /// It is given a run, and the answer is lost on the way. What is submitted while its pull is not open yet runs as usual.
    fn misses_the_answer(&mut self, cluster: &Cluster) -> Result<String> {
        for _ in 0..20 {
            wait_for_open_asks(cluster, self.index)?;
            self.proxy.set(Mode::DropAnswers);
            let run = cluster.submit(&["--", "sh", "-c", &self.script]);
            for _ in 0..25 {
                if cluster.json(&["runs", "get", &run])["state"] == "dispatching" {
                    let is_lost = || if self.proxy.dropped() > 0 { Ok(()) } else { Err(String::new()) };
                    eventually("the answer to be lost", is_lost)?;
                    self.runs.insert(run.clone());
                    return Ok(run);
                }
            }
            self.proxy.set(Mode::Pass);
            cluster.wait_for_state(&run, "succeeded")?;
        }
        bail!("no pull was ever open")
    }

    /// Its wire is mended, and what it was given ends.
    fn is_heard(&self, cluster: &Cluster, run: &str) -> Result<()> {
        self.proxy.set(Mode::Pass);
        cluster.wait_for_state(run, "succeeded").map(drop)
    }

    fn check_one_claim_and_one_start_each(&self, cluster: &Cluster) -> Result<()> {
        for run in &self.runs {
            let claims = story::kinds(cluster, run)?.iter().filter(|kind| *kind == "attempt.claimed").count();
            let run = cluster.json(&["runs", "get", run]);
            assert_eq!((claims, &run["fence"]), (1, &1.into()), "claimed once, and answered again: {run}");
            assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run}");
        }
        let starts = std::fs::read_to_string(self.marks.file())?;
        for run in &self.runs {
            assert_eq!(starts.matches(&format!("start {run} 1 ")).count(), 1, "{starts}");
        }
        Ok(())
    }
}
