//! `leasehold doctor` of a replica: before its first start, beside one that has stopped, with another's key, and without the
//! name of its database.

use anyhow::{Context as _, Result};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::process::{self, Ended};
use leasehold_sql::test_server::{PASSWORD, TestServer};
use serde_json::Value;

/// What it says of the cluster's data directory, with these variables.
fn doctor(cluster: &Cluster, variables: &[(&str, &str)]) -> Result<(Ended, Value)> {
    let mut doctor = cluster.leasehold();
    doctor.args(["doctor", "-o", "json"]).arg("--data").arg(cluster.data()).envs(variables.iter().copied());
    let told = process::run(&mut doctor)?;
    assert!(!told.stdout.contains(PASSWORD), "{told}");
    let report = serde_json::from_str(&told.stdout).with_context(|| told.to_string())?;
    Ok((told, report))
}

#[track_caller]
fn check<'r>(report: &'r Value, check: &str, status: &str) -> &'r str {
    let mut checks = report["checks"].as_array().into_iter().flatten();
    let found = checks.find(|found| found["check"] == check).unwrap_or_else(|| panic!("no {check} in {report:#}"));
    assert_eq!(found["status"], status, "{found:#}");
    found["detail"].as_str().unwrap_or_default()
}

#[test]
fn a_replica_is_told_its_key_its_clock_and_its_database() -> Result<()> {
    let name = "a_replica_is_told_its_key_its_clock_and_its_database";
    let Some(server) = TestServer::shared_or_skip(name) else { return Ok(()) };
    let database = server.database()?;
    let url = database.url();
    let mut cluster = Cluster::prepare_on_postgres(&url)?;
    let on = ("LEASEHOLD_DATABASE", url.as_str());

    // Migrated, and nothing else: nothing is missing, and nothing is left behind.
    let mut migrate = cluster.leasehold();
    let file = cluster.directory().join("url");
    std::fs::write(&file, &url)?;
    migrate.args(["serve", "--migrate-only"]).env("LEASEHOLD_DATABASE_FILE", &file);
    process::run(&mut migrate)?.expect_code(0);
    assert!(!cluster.data().exists());
    let (told, report) = doctor(&cluster, &[on])?;
    told.expect_code(0);
    assert!(check(&report, "data_directory", "skipped").contains("the first start"));
    std::fs::create_dir(cluster.data())?;
    rustix::fs::chmod(cluster.data(), rustix::fs::Mode::from_raw_mode(0o700))?;
    let (told, report) = doctor(&cluster, &[on])?;
    told.expect_code(0);
    for missing in ["master_key", "ca_file", "ca_certificate"] {
        assert!(check(&report, missing, "skipped").contains("first start"), "{report:#}");
    }

    cluster.start_control()?;
    cluster.stop_control()?;
    let (told, report) = doctor(&cluster, &[on])?;
    told.expect_code(0);
    assert!(check(&report, "master_key", "ok").contains("opens the installation"), "{report:#}");
    let clock = check(&report, "lease_clock", "ok");
    assert!(clock.contains("the database's: 20") && !clock.contains("since"), "{clock}");

    let (told, report) = doctor(&cluster, &[on, ("LEASEHOLD_MASTER_KEY", &"A".repeat(43))])?;
    told.expect_code(1);
    let key = check(&report, "master_key", "problem");
    assert!(key.contains("LEASEHOLD_MASTER_KEY does not open the installation"), "{key}");

    let (told, report) = doctor(&cluster, &[])?;
    told.expect_code(1);
    let directory = check(&report, "data_directory", "problem");
    assert!(directory.contains("of a replica on PostgreSQL"), "{directory}");
    assert!(told.stdout.contains("--database") && !told.stdout.contains("restore"), "{told}");

    let nowhere = url.replace(database.name(), "nowhere");
    let (told, report) = doctor(&cluster, &[("LEASEHOLD_DATABASE", &nowhere)])?;
    told.expect_code(1);
    assert!(check(&report, "master_key", "skipped").contains("cannot be told"), "{report:#}");
    cluster.start_control()?;
    cluster.shut_down()
}
