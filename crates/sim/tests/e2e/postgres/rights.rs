//! A right in the database that is taken away while a replica runs: told as what it is, to everybody who is concerned, and over
//! when it is given back.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::{process, request};
use leasehold_sql::test_server::{PASSWORD, TestServer};

#[test]
fn a_right_that_is_taken_away_is_told_and_is_over_when_it_is_back() -> Result<()> {
    let name = "a_right_that_is_taken_away_is_told_and_is_over_when_it_is_back";
    let Some(server) = TestServer::shared_or_skip(name) else { return Ok(()) };
    let database = server.database()?;
    let role = format!("runtime_{}", database.name());
    database.query(&format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"))?;
    let url = database.url();
    let (_, place) = url.split_once('@').expect("a URL with a user");
    let mut cluster = Cluster::prepare_on_postgres(&format!("postgres://{role}:{PASSWORD}@{place}"))?;
    let mut migrate = cluster.leasehold();
    migrate.args(["serve", "--migrate-only"]).env("LEASEHOLD_DATABASE", &url);
    process::run(&mut migrate)?.expect_code(0);
    assert!(!cluster.data().exists(), "whoever migrates is no replica");
    database.query(&format!(
        "GRANT USAGE ON SCHEMA leasehold TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO {role}"
    ))?;
    cluster.start_control()?;
    cluster.join(WorkerOptions::named("near"))?;
    let before = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&before, "succeeded")?;

    for (right, missing) in [("INSERT ON leasehold.run", "no INSERT on run"), ("USAGE ON SCHEMA leasehold", "no USAGE")]
    {
        database.query(&format!("REVOKE {right} FROM {role}"))?;
        readiness(&cluster, 503, missing)?;
        let refused = cluster.cli(&["run", "--detach", "--", "true"])?;
        refused.expect_code(1);
        assert!(refused.stderr.contains("lacks a right in its database"), "{refused}");
        assert!(!refused.stderr.contains("again") && !refused.stderr.contains(missing), "{refused}");
        let written = cluster.written();
        assert!(written.contains(missing) && !written.contains(PASSWORD), "{written}");
        database.query(&format!("GRANT {right} TO {role}"))?;
        readiness(&cluster, 200, "ready")?;
    }
    let after = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&after, "succeeded")?;
    cluster.shut_down()?;
    database.query(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))?;
    Ok(())
}

fn readiness(cluster: &Cluster, status: u16, words: &str) -> Result<()> {
    eventually(&format!("/readyz to say {status} and {words}"), || {
        match request::get(&cluster.api(), "/readyz", None) {
            Ok(answer) if answer.status == status && answer.body.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}
