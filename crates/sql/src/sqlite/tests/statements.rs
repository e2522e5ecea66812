//! How SQLite carries the statements out: no call reads all runs, attempts, leases, events or log chunks there are.

use rusqlite::Connection;

use super::super::plans;
use super::Fixture;
use crate::scene::every_call;

/// Indexes that hold only what is waiting or alive: reading one from end to end is the work itself.
const LIVE: [&str; 9] = [
    "run_pending",
    "run_due",
    "run_held",
    "run_in_the_way",
    "task_trigger_owing",
    "attempt_deadline",
    "attempt_may_live",
    "lease_active",
    "lease_active_expiry",
];

/// Tables that grow with the installation's life.
const GROWING: [&str; 8] = ["run", "attempt", "lease", "event", "log_chunk", "audit", "session", "schedule_ledger"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_table_that_grows() {
    let fixture = Fixture::new();
    every_call(&fixture).await;
    let connection = Connection::open(fixture.path()).unwrap();
    let statements = plans::prepared();
    assert!(statements.len() > 60, "the scenario prepares the statements of every method: {}", statements.len());
    let mut problems = Vec::new();
    for sql in statements.iter().filter(|sql| !sql.starts_with("PRAGMA")) {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = explain.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let detail: String = row.get("detail").unwrap();
            let mut words = detail.split(' ');
            let scanned = (words.next() == Some("SCAN")).then(|| words.next().unwrap_or_default());
            let live = LIVE.iter().any(|index| detail.ends_with(&format!("INDEX {index}")));
            let grows = scanned.is_some_and(|table| GROWING.contains(&table));
            if (grows && !live) || detail.contains("TEMP B-TREE") {
                problems.push(format!("{detail}: {sql}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
