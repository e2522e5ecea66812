//! What arrives is what was there.

use std::collections::BTreeMap;

use leasehold_core::time::Millis;
use leasehold_store::port::Store as _;

use super::{Fixture, Progress, answers};
use crate::migrate_store::tables;
use crate::postgres::moving::Target;
use crate::scene::revision;
use crate::sqlite::{Options, Source, SqliteStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_is_answered_as_before() {
    let Some(fixture) = Fixture::new().await else { return };
    let before = fixture.sqlite().unwrap();
    let (said, audited) = (answers::of(&before).await, answers::audit(&before, "").await);
    before.close().await;
    let report = fixture.run(|_| {}).await.unwrap().unwrap();
    let after = fixture.postgres().await;
    let says = answers::of(&after).await;
    for (before, after) in said.iter().zip(&says) {
        assert_eq!(before, after);
    }
    assert_eq!(said.len(), says.len());
    assert_eq!(answers::audit(&after, "migrate_store").await, audited);
    let rows: BTreeMap<_, _> = report.tables.iter().map(|(table, rows, _)| (*table, *rows)).collect();
    for (table, rows) in &rows {
        assert!(*rows > 0 || ["refused", "worker_fault"].contains(table), "the scene has nothing in {table}");
    }
    assert_eq!(rows["installation"], 1);

    // It lives on: rows are numbered on, and the keys are those that were sealed anew.
    let new = after.installation().await.unwrap().unwrap();
    assert_eq!(new.ca_key, b"key under the new master key");
    assert_eq!(new.ticket_key, b"tickets under the new master key");
    let numbered = answers::audit(&after, "").await;
    assert!(numbered.last().unwrap().contains("local:7"), "{numbered:?}");
    let scene = crate::scene::Scene::on(after, fixture.clock.clone());
    let run = scene.admit(revision(&[("name", leasehold_core::canonical::Value::text("later"))])).await;
    assert!(scene.store.run(run).await.unwrap().is_some());
    scene.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_every_release_wrote_arrives() {
    let Some(fixture) = Fixture::new().await else { return };
    let releases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/releases");
    let mut versions = 0;
    for release in std::fs::read_dir(releases).unwrap() {
        let database = fixture.database.name();
        let data = release.unwrap().path().join("data/leasehold.db");
        fixture.sql("DROP SCHEMA IF EXISTS leasehold CASCADE");
        for file in ["leasehold.db", "leasehold.copy"] {
            std::fs::copy(&data, fixture.directory.path().join(file)).unwrap();
        }
        let clock = fixture.clock.clone();
        let stored = {
            let store = fixture.sqlite().unwrap();
            let now = store.now().await.unwrap().lease.get();
            store.close().await;
            now
        };
        // Both lease clocks show the same, so both answer the same.
        clock.advance(Millis::new(u64::try_from((stored - clock_now(&clock)).max(0)).unwrap()));
        fixture.set_lease_clock(clock_now(&clock));
        let before = SqliteStore::open(fixture.path(), Options::new(clock.clone())).unwrap();
        let said = answers::of(&before).await;
        before.close().await;
        fixture.run(|_| {}).await.unwrap().unwrap();
        let after = fixture.postgres().await;
        assert_eq!(answers::of(&after).await, said, "{database}: {}", data.display());
        after.close().await;
        versions += 1;
    }
    assert!(versions > 0, "no release is kept");
}

fn clock_now(clock: &leasehold_store::contract::TestClock) -> i64 {
    use leasehold_core::time::Clock as _;
    clock.boot().get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_keeps_the_time_it_had_left_however_long_the_copying_takes() {
    let Some(fixture) = Fixture::new().await else { return };
    // The clocks of both databases have nothing in common.
    fixture.set_lease_clock(5_000_000_000);
    let file = rusqlite::Connection::open(fixture.path()).unwrap();
    let leases = "SELECT state, expires_lease FROM lease ORDER BY attempt, generation";
    let before: Vec<(String, i64)> = file
        .prepare(leases)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    drop(file);
    let begun = clock_now(&fixture.clock);
    let clock = fixture.clock.clone();
    let slow = move |progress: Progress| {
        if progress == Progress::Compared {
            clock.advance(Millis::from_secs(3600));
        }
    };
    fixture.run(slow).await.unwrap().unwrap();
    let after = fixture.sql(leases);
    assert_eq!(after.len(), before.len());
    assert!(before.iter().any(|(state, _)| state == "active") && before.iter().any(|(state, _)| state != "active"));
    for ((state, before), after) in before.iter().zip(after) {
        let waited = if state == "active" { 3_600_000 } else { 0 };
        let after: i64 = after[1].as_ref().unwrap().parse().unwrap();
        assert_eq!(after - before, begun - 5_000_000_000 + waited, "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_and_no_column_of_either_schema_is_left_out() {
    let Some(fixture) = Fixture::new().await else { return };
    let source = Source::open(&fixture.path()).unwrap();
    let target = Target::open(&fixture.database.url(), "here", &fixture.options(), true).await.unwrap();
    let (sqlite, postgres) = (source.tables().unwrap(), target.catalog().await.unwrap());
    let plan = tables::plan(&sqlite, &postgres).unwrap();
    let columns: usize = plan.iter().map(|table| table.columns.len()).sum();
    assert!(columns > 100, "{columns}");

    // What one side alone has is named, whichever it is.
    let connection = rusqlite::Connection::open(fixture.path()).unwrap();
    connection.execute_batch("CREATE TABLE forgotten (id INTEGER); ALTER TABLE run ADD COLUMN colour TEXT").unwrap();
    let said = tables::plan(&source.tables().unwrap(), &postgres).unwrap_err();
    assert!(said.contains("forgotten"), "{said}");
    connection.execute_batch("DROP TABLE forgotten").unwrap();
    let said = tables::plan(&source.tables().unwrap(), &postgres).unwrap_err();
    assert!(said.contains("colour"), "{said}");
    fixture.sql("CREATE TABLE lost (id integer); ALTER TABLE run ADD COLUMN size interval");
    let said = tables::plan(&sqlite, &target.catalog().await.unwrap()).unwrap_err();
    assert!(said.contains("lost"), "{said}");
    fixture.sql("DROP TABLE lost");
    let said = tables::plan(&sqlite, &target.catalog().await.unwrap()).unwrap_err();
    assert!(said.contains("run.size") && said.contains("interval"), "{said}");
}
