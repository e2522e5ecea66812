//! Workers of the release before at three replicas of this build, which are replaced one by one; then the workers are. The
//! release before had no PostgreSQL: there are no replicas of it. What the first replica of a next release does to those that
//! still run is done here by hand: it adds to the schema.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::database;
use leasehold_sim::process;
use leasehold_sim::replicas::Replicas;
use leasehold_sim::seed::Seed;
use leasehold_sql::test_server::StopMode;

use super::killed::wait_until_ready;
use super::own_server;
use crate::live_jobs::LiveJobs;
use crate::marks::Marks;
use crate::rolling_upgrade::{Takes, join_previous, upgrade};

#[test]
fn replicas_and_then_workers_are_replaced_one_by_one_under_jobs() -> Result<()> {
    let name = "replicas_and_then_workers_are_replaced_one_by_one_under_jobs";
    if !Replicas::are_possible_or_skip(name) {
        return Ok(());
    }
    let mut seed = Seed::announced(name);
    let mut replicas = Replicas::start(42, &[])?;
    let (near, near_file) = join_previous(&mut replicas.cluster, "near")?;
    let (far, far_file) = join_previous(&mut replicas.cluster, "far")?;
    let live = LiveJobs::start(&replicas.cluster, 6, &mut seed)?;
    let marks = Marks::new(&replicas.cluster, &mut seed);
    let mut runs = BTreeSet::new();
    for which in 0..3 {
        runs.extend(marks.submit(&replicas.cluster, 20, &mut seed));
        replicas.replace(which)?;
        runs.extend(marks.submit(&replicas.cluster, 20, &mut seed));
    }
    live.check_one_start_each()?;
    for (worker, file, how) in [(near, near_file, Takes::Exec), (far, far_file, Takes::Restart)] {
        runs.extend(marks.submit(&replicas.cluster, 20, &mut seed));
        upgrade(&mut replicas.cluster, worker, &file, how)?;
        runs.extend(marks.submit(&replicas.cluster, 20, &mut seed));
    }
    for run in &runs {
        replicas.cluster.wait_for_state(run, "succeeded")?;
    }
    assert_eq!(runs.len(), 200);
    marks.check_one_whole_life_of_each(&runs)?;
    live.end_whole(&replicas.cluster)?;
    replicas.shut_down()
}

#[test]
fn a_schema_that_grows_does_a_running_replica_no_harm_and_keeps_it_out_when_it_starts() -> Result<()> {
    let name = "a_schema_that_grows_does_a_running_replica_no_harm_and_keeps_it_out_when_it_starts";
    let Some(server) = own_server(name)? else { return Ok(()) };
    let mut seed = Seed::announced(name);
    let mut cluster = Cluster::prepare_on_postgres(&server.make_database("leasehold")?)?;
    cluster.start_control()?;
    cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let live = LiveJobs::start(&cluster, 2, &mut seed)?;
    let marks = Marks::new(&cluster, &mut seed);
    let mut runs = marks.submit(&cluster, 10, &mut seed);

    database::grow(&server, "leasehold")?;
    runs.extend(marks.submit(&cluster, 10, &mut seed));
    // Its connections may come after the change, too.
    server.stop(StopMode::Immediate)?;
    server.start_again()?;
    wait_until_ready(&cluster)?;
    runs.extend(marks.submit(&cluster, 10, &mut seed));
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    marks.check_one_whole_life_of_each(&runs)?;
    live.end_whole(&cluster)?;

    cluster.stop_control()?;
    let mut serve = cluster.leasehold();
    serve.arg("serve").arg("--data").arg(cluster.data()).args(cluster.listen_flags());
    let refused = process::run(serve.envs(cluster.variables().iter().map(|(name, value)| (name, value))))?;
    refused.expect_code(1);
    assert!(refused.stderr.contains("schema version 9999"), "{refused}");
    database::forget_growth(&server, "leasehold")?;
    cluster.start_control()?;
    cluster.shut_down()
}
