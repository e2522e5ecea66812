//! Starting on PostgreSQL: what is wrong is said with where and what to do, and a password is never said at all.

use anyhow::Result;
use leasehold_sim::cluster::Cluster;
use leasehold_sim::process::{self, Running};
use leasehold_sim::replica::Replica;
use leasehold_sql::test_server::{PASSWORD, TestServer};

#[test]
fn what_is_wrong_with_the_database_is_said_without_its_password() -> Result<()> {
    let Some(server) = TestServer::shared_or_skip("what_is_wrong_with_the_database") else { return Ok(()) };
    let database = server.database()?;
    let url = database.url();
    let cluster = Cluster::prepare()?;
    let serve = |url: &str| {
        let mut serve = cluster.leasehold();
        serve
            .arg("serve")
            .arg("--data")
            .arg(cluster.data())
            .args(cluster.listen_flags())
            .env("LEASEHOLD_DATABASE", url);
        process::run(&mut serve)
    };
    let another = |from: &str, to: &str| url.replace(from, to);
    for (url, code, words) in [
        (another(PASSWORD, "wrong-password-here"), 1, ["does not let the user leasehold in", "pg_hba.conf"]),
        (
            another(&format!(":{PASSWORD}@"), "@"),
            1,
            ["asks the user leasehold for a password", "LEASEHOLD_DATABASE_FILE"],
        ),
        (another(database.name(), "nowhere"), 1, ["has no database nowhere", "CREATE DATABASE"]),
        (another(&server.address(), "127.0.0.1:9"), 1, ["127.0.0.1:9 cannot be reached (", "refused"]),
        (another("postgres://", "mysql://"), 2, ["expected postgres://", "mysql"]),
        (url.clone() + "?sslmode=require", 1, ["offers no TLS", "ssl = on"]),
        (url.clone() + "?sslmode=maybe", 1, ["sslmode", "verify-full"]),
        (url.clone() + "?options=-csynchronous_commit%3Doff", 1, ["synchronous_commit = off", "set it to on"]),
    ] {
        let refused = serve(&url)?;
        refused.expect_code(code);
        for word in words {
            assert!(refused.stderr.contains(word), "no `{word}` in {refused}");
        }
        assert!(!refused.stderr.contains(PASSWORD) && !refused.stderr.contains("wrong-password"), "{refused}");
    }
    Ok(())
}

#[test]
fn a_password_on_the_command_line_does_not_stay_there_and_a_replica_needs_the_key() -> Result<()> {
    let Some(server) = TestServer::shared_or_skip("a_password_on_the_command_line") else { return Ok(()) };
    let database = server.database()?;
    let mut cluster = Cluster::prepare()?;
    cluster.log_everything();
    let mut serve = cluster.leasehold();
    serve.arg("serve").arg("--data").arg(cluster.data()).args(cluster.listen_flags());
    let mut first = Running::start(serve.args(["--database", &database.url()]).env("LEASEHOLD_LOG", "trace"))?;
    cluster.wait_until_healthy(&mut first)?;
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", first.pid()))?;
    assert!(arguments.contains("serve") && !arguments.contains(PASSWORD), "{arguments}");
    let written = first.written(leasehold_sim::process::Stream::Stderr);
    assert!(written.contains("first admin token") && !written.contains(PASSWORD), "{written}");

    // Another data directory, without the key and then with another one.
    let data = cluster.directory().join("second");
    let start = |key: Option<&str>| {
        let mut serve = cluster.leasehold();
        serve.arg("serve").arg("--data").arg(&data).args(["--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0"]);
        serve.env("LEASEHOLD_DATABASE", database.url());
        process::run(serve.envs(key.map(|key| ("LEASEHOLD_MASTER_KEY", key))))
    };
    let without = start(None)?;
    without.expect_code(1);
    assert!(without.stderr.contains("copy master.key"), "{without}");
    assert!(!data.join("master.key").exists(), "no key is made up");
    let other = start(Some(&"A".repeat(43)))?;
    other.expect_code(1);
    assert!(other.stderr.contains("LEASEHOLD_MASTER_KEY does not open the installation"), "{other}");

    cluster.control_variables([("LEASEHOLD_DATABASE".to_owned(), database.url())]);
    let mut replica = Replica::prepare(&cluster, "third", "127.0.0.1", &[])?;
    replica.start(&cluster)?;
    assert!(!replica.written().contains("admin token"));
    replica.stop()?;
    first.signal(rustix::process::Signal::TERM)?;
    first.wait()?.expect_code(0);

    // The same directory without the database would begin another installation.
    let mut serve = cluster.leasehold();
    let forgotten = process::run(serve.arg("serve").arg("--data").arg(cluster.data()))?;
    forgotten.expect_code(1);
    assert!(forgotten.stderr.contains("LEASEHOLD_DATABASE"), "{forgotten}");
    Ok(())
}
