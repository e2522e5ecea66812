//! What the hot path costs on PostgreSQL, next to what the same server can commit at all; and what is left of it when a
//! million runs have ended and somebody's read transaction stays open.
//!
//! A measurement, not a promise: `cargo xtask bench postgres` runs it and keeps the tables. Each caller has a session and a
//! connection of its own, so that what is measured is the store, not a lock that callers share.

mod aged;
mod crew;
mod timed;

use leasehold_core::time::Millis;

use super::{Fixture, PostgresOptions, PostgresStore};
use crate::scene::Scene;
use crate::test_server::{Laps, PlainRows, TestServer};
use crew::Crew;

/// A server with the memory of a small real one, and no checkpoint in the middle of a measurement but those it asks for.
fn server() -> Option<TestServer> {
    TestServer::is_there_or_skip("a measurement of PostgreSQL").then(|| {
        let settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("checkpoint_timeout", "15min")];
        TestServer::start_with(&settings).unwrap()
    })
}

/// A store with so many connections, and who plays on it.
async fn scene(fixture: &Fixture<'_>, connections: usize) -> Scene<PostgresStore> {
    // Ids are counted from the clock: none of an earlier scene on this database comes again.
    fixture.clock.advance(Millis::from_secs(3600));
    let options = PostgresOptions::new().with_connections(connections).timed_by(fixture.clock.clone());
    let store = PostgresStore::open(&fixture.database.url(), options).await.unwrap();
    Scene::on(store, fixture.clock.clone())
}

/// One line of a table.
fn line(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn heading(cells: &[&str]) {
    line(&cells.iter().map(ToString::to_string).collect::<Vec<_>>());
    line(&cells.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: `cargo xtask bench postgres`"]
async fn a_what_claims_and_ends_cost() {
    let Some(server) = server() else { return };
    println!("\n## Calls at the store's port, next to commits of one row on the same server\n");
    heading(&["connections", "call", "per second", "p50, ms", "p99, ms", "of the commits"]);
    for (connections, rounds, each) in [(1, 5, 100), (8, 3, 100), (32, 2, 60)] {
        eprintln!("{connections} connections …");
        let fixture = Fixture::on(&server).await;
        let crew = Crew::of(scene(&fixture, connections).await, connections, "worker").await;
        let machine = PlainRows::prepare(&fixture.database.url(), connections).await.unwrap();
        machine.commit(20).await.unwrap();
        let [mut commits, mut submits, mut claims, mut ends] = [(); 4].map(|()| Laps::default());
        for _ in 0..rounds {
            // Around what is compared with it: the machine is not equally busy all the time.
            commits.append(machine.commit(each).await.unwrap());
            let (runs, laps) = crew.submit(each).await;
            submits.append(laps);
            let (held, laps) = crew.claim(runs).await;
            claims.append(laps);
            crew.start(&held).await;
            ends.append(crew.end(held).await);
            commits.append(machine.commit(each).await.unwrap());
        }
        for (call, laps) in [("one row", &commits), ("submit", &submits), ("claim", &claims), ("end", &ends)] {
            line(&[
                connections.to_string(),
                call.to_owned(),
                format!("{:.0}", laps.per_second()),
                format!("{:.2}", laps.p50()),
                format!("{:.2}", laps.p99()),
                format!("{:.2}", laps.per_second() / commits.per_second()),
            ]);
        }
    }
    println!();
}
