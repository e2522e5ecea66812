//! The database's clock steps forward by three hours: that is alarmed, and no lease and no session ends by it.
//!
//! A real server, whose function that tells the time is replaced while a job runs under the shortest lease; what leases and
//! sessions are judged by is told by nothing else. Steps of every kind stand in the adapter's own tests.

use anyhow::{Context as _, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::request;
use leasehold_sim::story;
use leasehold_sql::test_server::TestServer;

/// What the database tells from now on.
const STEPPED: &str = "CREATE OR REPLACE FUNCTION leasehold.clock_millis() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE \
                       AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3 * 3600 * 1000 $$";

/// How many steps its only replica has seen.
fn alarms(cluster: &Cluster) -> Result<String> {
    let told = request::get_over(&cluster.admin_socket(), "/metrics")?;
    let line = told.body.lines().find_map(|line| line.strip_prefix("leasehold_database_clock_steps_total "));
    line.map(str::to_owned).with_context(|| told.body.clone())
}

#[test]
fn a_step_of_the_databases_clock_is_alarmed_and_loses_nothing() -> Result<()> {
    let Some(server) = TestServer::shared_or_skip("a_step_of_the_databases_clock") else { return Ok(()) };
    let database = server.database()?;
    let mut cluster = Cluster::prepare_on_postgres(&database.url())?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo through", gate.display());
    let run = cluster.submit(&["--lease", "25s", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;
    let session = || cluster.json(&["worker", "get", "near"])["session"].clone();
    let before = session();
    assert_eq!(alarms(&cluster)?, "0");

    database.query(STEPPED)?;
    let after = eventually("a beat behind the step", || {
        let now = session();
        if now["version"].as_u64() > before["version"].as_u64() { Ok(now) } else { Err(now.to_string()) }
    })?;
    assert_eq!(after["id"], before["id"], "the worker never had to start over");
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "running");
    assert_eq!(alarms(&cluster)?, "1");
    assert!(cluster.written().contains("the database's clock stepped"), "{}", cluster.written());
    let later = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&later, "succeeded")?;

    std::fs::write(gate, "")?;
    let ended = cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(ended["attempts"].as_array().map(Vec::len), Some(1), "{ended}");
    assert_eq!(cluster.log(&run), "through");
    let kinds = story::kinds(&cluster, &run)?;
    assert!(!kinds.iter().any(|kind| kind == "lease.rebound" || kind.ends_with("lost")), "{kinds:?}");
    assert!(cluster.agent_runs(near));
    cluster.shut_down()
}
