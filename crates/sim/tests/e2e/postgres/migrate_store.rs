//! A control plane moves from SQLite to PostgreSQL while a job runs: everything arrives, nothing starts twice, and what was
//! left behind never answers again.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::database::while_held;
use leasehold_sim::process::{self, Ended, Running, Stream};
use leasehold_sim::seed::Seed;
use leasehold_sql::test_server::{PASSWORD, TestDatabase, TestServer};
use rustix::process::Signal;
use serde_json::Value;

use crate::marks::Marks;

/// What the control plane says of the past.
fn past(cluster: &Cluster, ended: &BTreeSet<String>) -> (Vec<Value>, Vec<String>, Vec<Value>) {
    let runs = ended.iter().map(|run| cluster.json(&["runs", "get", run])).collect();
    let logs = ended.iter().map(|run| cluster.ask(&["runs", "logs", run])).collect();
    (runs, logs, cluster.list(&["audit", "list", "--limit", "1000"]))
}

fn command(cluster: &Cluster, verb: &str, url: Option<&str>, more: &[&str]) -> Command {
    let mut command = cluster.leasehold();
    command.arg(verb).arg("--data").arg(cluster.data()).args(more);
    command.env_remove("LEASEHOLD_DATABASE").envs(url.map(|url| ("LEASEHOLD_DATABASE", url)));
    command
}

#[test]
fn a_control_plane_moves_to_postgresql_under_a_running_job() -> Result<()> {
    let name = "a_control_plane_moves_to_postgresql_under_a_running_job";
    let Some(server) = TestServer::shared_or_skip(name) else { return Ok(()) };
    let database = server.database()?;
    let url = database.url();
    let mut seed = Seed::announced(name);
    let mut cluster = Cluster::prepare()?;
    cluster.start_control()?;
    let token = cluster.first_token()?;
    cluster.join(WorkerOptions::named("near"))?;
    let marks = Marks::new(&cluster, &mut seed);
    let ended = [
        cluster.submit(&["--", "sh", "-c", "echo hello; echo aside >&2; head -c 300000 /dev/urandom | od"]),
        cluster.submit(&["--", "sh", "-c", "printf 'no newline'; exit 7"]),
    ];
    for (run, state) in ended.iter().zip(["succeeded", "failed"]) {
        cluster.wait_for_state(run, state)?;
        cluster.log(run);
    }
    let gate = cluster.directory().join("gate");
    let line = |what| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let script = format!("echo before; {}; {wait}; echo after; {}", line("start"), line("end"));
    let running = cluster.submit(&["--lease", "10m", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&running, "running")?;
    marks.wait_for_lines(1)?;

    let migrate = |more: &[&str]| process::run(&mut command(&cluster, "migrate-store", Some(&url), more));
    let refused = migrate(&[])?;
    refused.expect_code(1);
    assert!(refused.stderr.contains(&format!("in use by process {}", cluster.control_pid())), "{refused}");
    let ended = BTreeSet::from(ended);
    let (runs, logs, audit) = past(&cluster, &ended);
    cluster.stop_control()?;

    let migrate = |more: &[&str]| process::run(&mut command(&cluster, "migrate-store", Some(&url), more));
    let looked = migrate(&["--dry-run"])?;
    assert!(looked.expect_code(0).stdout.contains("can be moved"), "{looked}");
    kill_it_in_the_middle(&cluster, &database)?;
    let serve = |url: Option<&str>| -> Result<Ended> {
        process::run(command(&cluster, "serve", url, &[]).args(cluster.listen_flags()))
    };
    for refused in [serve(None)?, serve(Some(&url))?] {
        refused.expect_code(1);
        assert!(refused.stderr.contains("did not end") && refused.stderr.contains("migrate-store"), "{refused}");
    }

    let moved = migrate(&[])?;
    assert!(moved.expect_code(0).stdout.starts_with("moved "), "{moved}");
    let next = "--database-file FILE, with the same master key";
    assert!(moved.stdout.contains(next) && moved.stdout.contains("not of the schema's owner"), "{moved}");
    assert!(!moved.stderr.contains(PASSWORD) && !moved.stdout.contains(PASSWORD), "{moved}");
    let again = migrate(&["-o", "json"])?;
    assert!(again.expect_code(0).stdout.contains("already_moved"), "{again}");
    let old = serve(None)?;
    old.expect_code(1);
    assert!(old.stderr.contains("was moved to postgres://") && !old.stderr.contains(PASSWORD), "{old}");
    let doctor = process::run(&mut command(&cluster, "doctor", None, &[]))?;
    assert!(doctor.expect_code(1).stdout.contains("moved to postgres://"), "{doctor}");
    let back = process::run(&mut command(&cluster, "migrate-store", None, &["--take-back"]))?;
    assert!(back.expect_code(10).stderr.contains("older"), "{back}");

    let elsewhere = server.database()?;
    let other = serve(Some(&elsewhere.url()))?;
    other.expect_code(1);
    assert!(other.stderr.contains("another database than postgres://") && !other.stderr.contains(PASSWORD), "{other}");

    cluster.control_variables([("LEASEHOLD_DATABASE".to_owned(), url)]);
    cluster.start_control()?;
    let (runs_after, logs_after, audit_after) = past(&cluster, &ended);
    assert_eq!((runs_after, logs_after), (runs, logs));
    for entry in &audit {
        assert!(audit_after.contains(entry), "{entry} is gone");
    }
    let of_the_move = audit_after.iter().filter(|entry| entry["action"] == "migrate_store");
    assert_eq!(of_the_move.count(), 1);
    std::fs::write(&gate, "")?;
    let run = cluster.wait_for_state(&running, "succeeded")?;
    assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run}");
    marks.check_one_whole_life_of_each(&BTreeSet::from([running.clone()]))?;
    assert_eq!(cluster.log(&running), "before\nafter");
    let mut remote = cluster.leasehold();
    remote.env("LEASEHOLD_ADDR", format!("http://{}", cluster.api())).env("LEASEHOLD_TOKEN", &token);
    let later = process::run(remote.args(["run", "--", "echo", "later"]))?;
    assert_eq!(later.expect_code(0).answer(), "later");
    cluster.shut_down()
}

/// A table of the database is held, so the move stops before its rows; there it is killed.
fn kill_it_in_the_middle(cluster: &Cluster, database: &TestDatabase<'_>) -> Result<()> {
    let url = database.url();
    let mut make = cluster.leasehold();
    make.args(["serve", "--migrate-only", "--data"]).arg(cluster.directory().join("owner"));
    process::run(make.env("LEASEHOLD_DATABASE", &url))?.expect_code(0);
    while_held(database, "log_chunk", || {
        let mut moving = Running::start(&mut command(cluster, "migrate-store", Some(&url), &[]))?;
        moving.wait_for_text(Stream::Stderr, "copied lease")?;
        moving.signal(Signal::KILL)?;
        moving.wait().map(|_| ())
    })
}
