//! Case 19, the log endpoint misbehaves: lost answers, stalls, resets and silence in turn while a job writes, calls that
//! fail before and after they arrive, and both sides restarted. What is stored and what a follower saw is byte for byte
//! what was written, no line twice.
//!
//! Scaled: 20,000 lines in about ten seconds instead of 100,000 in a hundred, faults of a second instead of thirty. What
//! an endpoint *answers* (500, 413, a stalled body) is played in the worker's own tests, where the server is scripted.

use std::path::Path;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::process::{Running, Stream};
use leasehold_sim::proxy::{Mode, Proxy};

use super::bytes::{bytes_of, log_becomes};

const BLOCKS: usize = 200;

fn written() -> String {
    let lines: Vec<_> = (1..=BLOCKS * 100).map(|line| line.to_string()).collect();
    lines.join("\n") + "\n"
}

/// Waits until the job has written this many blocks of a hundred lines.
fn block(progress: &Path, wanted: usize) -> Result<()> {
    eventually(&format!("block {wanted}"), || {
        let done = std::fs::read_to_string(progress).unwrap_or_default();
        if done.lines().count() >= wanted { Ok(()) } else { Err(done.lines().count().to_string()) }
    })
}

#[test]
fn a_log_is_whole_and_no_line_is_there_twice_whatever_its_endpoint_does() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let proxy = Proxy::start(&cluster.ingress())?;
    let worker = cluster.enroll(WorkerOptions::named("near"))?;
    cluster.worker_variable(worker, "LEASEHOLD_WORKER_SERVER", &proxy.url());
    cluster.worker_variable(worker, "LEASEHOLD_FAULT", "call.log.after:lost@2-4,call.log.before:unsent@7-9");
    cluster.start_agent(worker)?;
    let progress = cluster.directory().join("progress");
    let script = format!(
        "b=0; while [ $b -lt {BLOCKS} ]; do seq $((b * 100 + 1)) $((b * 100 + 100)); b=$((b + 1)); echo $b >> {}; \
         sleep 0.05; done",
        progress.display()
    );
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    let mut follower = Running::start(cluster.leasehold().args(["logs", "-f", &run]))?;
    follower.wait_for_text(Stream::Stdout, "100")?;

    proxy.set(Mode::DropAnswers);
    eventually("an answer to be lost", || if proxy.dropped() > 0 { Ok(()) } else { Err("none".into()) })?;
    proxy.set(Mode::Pass);
    block(&progress, 40)?;
    proxy.set(Mode::Stall);
    block(&progress, 60)?;
    proxy.set(Mode::Pass);
    block(&progress, 70)?;
    proxy.set(Mode::Reset);
    block(&progress, 85)?;
    proxy.set(Mode::Pass);
    cluster.kill_control()?;
    block(&progress, 100)?;
    cluster.start_control()?;
    block(&progress, 115)?;
    cluster.kill_agent(worker)?;
    block(&progress, 130)?;
    cluster.start_agent(worker)?;
    proxy.set(Mode::Cut);
    block(&progress, 150)?;
    proxy.set(Mode::Pass);

    cluster.wait_for_state(&run, "succeeded")?;
    let log = log_becomes(&cluster, &run, "complete")?;
    assert_eq!(log["received"], log["length"]);
    let ended = follower.wait()?;
    ended.expect_code(0);
    assert!(ended.stdout == written(), "what the follower saw differs: {} bytes", ended.stdout.len());
    assert!(bytes_of(&cluster, &["logs", &run])? == written().into_bytes(), "what is stored differs");
    cluster.shut_down()
}
