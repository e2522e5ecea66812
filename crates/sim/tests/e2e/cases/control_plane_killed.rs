//! Control plane killed under load: six live jobs; some end while it is away. Six starts, six ends, six succeeded.
//!
//! On SQLite. The outage lasts as long as it takes three jobs to end and their launchers to go, not ten seconds.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::seed::Seed;

use crate::marks::Marks;

#[test]
fn six_jobs_outlive_the_control_plane_and_their_ends_are_told() -> Result<()> {
    let mut seed = Seed::announced("six_jobs_outlive_the_control_plane_and_their_ends_are_told");
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions { name: "near", slots: 6, machine: None })?;
    let marks = Marks::new(&cluster, &mut seed);
    let gates = [cluster.directory().join("early"), cluster.directory().join("late")];
    let mut runs = BTreeSet::new();
    for number in 0..6 {
        let line = |what| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
        let wait = format!("until [ -e {} ]; do sleep 0.05; done", gates[number % 2].display());
        runs.insert(cluster.submit(&["--", "sh", "-c", &format!("{}; {wait}; {}", line("start"), line("end"))]));
    }
    for run in &runs {
        cluster.wait_for_state(run, "running")?;
    }
    marks.wait_for_lines(6)?;

    cluster.kill_control()?;
    std::fs::write(&gates[0], "")?;
    marks.wait_for_lines(9)?;
    eventually("three launchers to be done", || {
        let left = cluster.worker(near).launchers();
        if left.len() == 3 { Ok(()) } else { Err(format!("{left:?}")) }
    })?;
    cluster.start_control()?;
    std::fs::write(&gates[1], "")?;
    for run in &runs {
        let run = cluster.wait_for_state(run, "succeeded")?;
        assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run}");
    }
    marks.check_one_whole_life_of_each(&runs)?;
    cluster.shut_down()
}
