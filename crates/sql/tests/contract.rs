//! The contract suite of the store port, on SQLite.
#![expect(clippy::unwrap_used, reason = "a harness that cannot be set up fails its test")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_sql::sqlite::{Options, SqliteStore};
use leasehold_store::contract::{Harness, TestClock};
use leasehold_store::port::Store;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// Tables that are no data of the port: a clock, and what the adapter keeps for itself.
const APART: [&str; 3] = ["lease_clock", "schema_migration", "sqlite_sequence"];

struct SqliteHarness {
    directory: tempfile::TempDir,
    clock: Arc<TestClock>,
    store: SqliteStore,
}

impl SqliteHarness {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::new());
        let store = SqliteStore::open(directory.path().join("store.db"), Options::new(clock.clone())).unwrap();
        Self { directory, clock, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }
}

#[async_trait]
impl Harness for SqliteHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn clock(&self) -> &TestClock {
        &self.clock
    }

    async fn dump(&self) -> String {
        let connection = Connection::open_with_flags(self.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut names =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
        let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut dump = String::new();
        for name in names.iter().filter(|name| !APART.contains(&name.as_str())) {
            let mut rows = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
            let columns = rows.column_count();
            let mut rows = rows.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                write!(dump, "{name}").unwrap();
                for column in 0..columns {
                    match row.get_ref(column).unwrap() {
                        ValueRef::Text(text) => write!(dump, " {}", String::from_utf8_lossy(text)).unwrap(),
                        other => write!(dump, " {other:?}").unwrap(),
                    }
                }
                dump.push('\n');
            }
        }
        dump
    }

    async fn reopened(&self) -> Option<Arc<dyn Store>> {
        self.store.close().await;
        let store = SqliteStore::open(self.path(), Options::new(self.clock.clone())).unwrap();
        Some(Arc::new(store))
    }
}

leasehold_store::contract_suite!(SqliteHarness::new());
