//! PostgreSQL killed under load: six live jobs; some end while it is away. Six starts, six ends, six succeeded.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::request;
use leasehold_sim::seed::Seed;
use leasehold_sql::test_server::{PASSWORD, StopMode};

use super::own_server;
use crate::marks::Marks;

#[test]
fn six_jobs_outlive_the_database_and_their_ends_are_told() -> Result<()> {
    let name = "six_jobs_outlive_the_database_and_their_ends_are_told";
    let Some(server) = own_server(name)? else { return Ok(()) };
    let mut seed = Seed::announced(name);
    let mut cluster = Cluster::prepare_on_postgres(&server.make_database("leasehold")?)?;
    cluster.start_control()?;
    let near = cluster.join(WorkerOptions { name: "near", slots: 6, machine: None })?;
    let marks = Marks::new(&cluster, &mut seed);
    let gates = ["early", "middle", "late"].map(|gate| cluster.directory().join(gate));
    let mut runs = BTreeSet::new();
    for number in 0..6 {
        let line = |what| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
        let wait = format!("until [ -e {} ]; do sleep 0.05; done", gates[number % 3].display());
        runs.insert(cluster.submit(&["--", "sh", "-c", &format!("{}; {wait}; {}", line("start"), line("end"))]));
    }
    for run in &runs {
        cluster.wait_for_state(run, "running")?;
    }
    marks.wait_for_lines(6)?;

    let launchers = |left: usize, cluster: &Cluster| {
        eventually(&format!("{left} launchers"), || {
            let found = cluster.worker(near).launchers();
            if found.len() == left { Ok(()) } else { Err(format!("{found:?}")) }
        })
    };
    // A crash of the machine, then a stop that leaves the rest to recovery.
    server.kill()?;
    std::fs::write(&gates[0], "")?;
    launchers(4, &cluster)?;
    let away = request::get(&cluster.api(), "/readyz", None)?;
    assert_eq!(away.status, 503, "{away:?}");
    let why = away.body.as_str();
    assert!(
        why.contains("not_ready") && why.contains(&format!("the server {} cannot be reached", server.address())),
        "{why}"
    );
    assert!(!why.contains(PASSWORD), "{why}");
    server.start_again()?;
    wait_until_ready(&cluster)?;
    server.stop(StopMode::Immediate)?;
    std::fs::write(&gates[1], "")?;
    launchers(2, &cluster)?;
    server.start_again()?;
    std::fs::write(&gates[2], "")?;
    for run in &runs {
        let run = cluster.wait_for_state(run, "succeeded")?;
        assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run}");
    }
    marks.check_one_whole_life_of_each(&runs)?;
    cluster.shut_down()
}

pub(super) fn wait_until_ready(cluster: &Cluster) -> Result<()> {
    eventually("the control plane to be ready again", || match request::get(&cluster.api(), "/readyz", None) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    })
}
