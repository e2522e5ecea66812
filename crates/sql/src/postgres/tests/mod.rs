//! What only this adapter promises: its server, its connections, its locks, its plans. What every store promises is in the
//! contract suite. Without PostgreSQL these tests skip aloud; in CI they fail.

use std::ops::Deref;
use std::sync::Arc;

use leasehold_core::session::SessionFence;
use leasehold_store::call::AcknowledgeRunning;
use leasehold_store::contract::TestClock;
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;

use super::{PostgresOptions, PostgresStore};
use crate::scene::{Scene, revision, running, step};
use crate::test_server::{TestDatabase, TestServer};

mod beats;
mod beats_differ;
mod clock;
mod commits;
mod hints;
mod lost_claims;
mod observed;
mod opening;
mod plain;
mod plain_differ;
mod races;
mod scanners;
mod schema;
mod statements;
mod throughput;
pub(crate) mod wire;

/// A store on a database of its own, and the clock that it reads.
struct Fixture<'s> {
    database: TestDatabase<'s>,
    scene: Scene<PostgresStore>,
}

impl Deref for Fixture<'_> {
    type Target = Scene<PostgresStore>;

    fn deref(&self) -> &Self::Target {
        &self.scene
    }
}

impl Fixture<'static> {
    /// On the server that all tests share.
    async fn new() -> Option<Self> {
        let server = TestServer::shared_or_skip("the PostgreSQL adapter's tests")?;
        Some(Self::on(server).await)
    }
}

impl<'s> Fixture<'s> {
    async fn on(server: &'s TestServer) -> Self {
        Self::opened(server, PostgresOptions::new()).await
    }

    /// With every call on the way that asks `core`.
    async fn never_plainly(server: &'s TestServer) -> Self {
        Self::opened(server, PostgresOptions::new().never_plainly()).await
    }

    async fn opened(server: &'s TestServer, options: PostgresOptions) -> Self {
        let database = server.database().unwrap();
        let clock = Arc::new(TestClock::new());
        let options = options.with_connections(8).timed_by(clock.clone());
        let store = PostgresStore::open(&database.url(), options).await.unwrap();
        Self { database, scene: Scene::on(store, clock) }
    }

    /// A run of `session` that runs.
    async fn running(&self, session: &SessionFence) -> Grant {
        let run = self.admit(revision(&[])).await;
        let grant = self.claim(session, run).await;
        let step = step(session, &grant);
        self.store.acknowledge_starting(step.clone()).await.unwrap().into_result().unwrap();
        let call = AcknowledgeRunning { step, call: running(&grant) };
        self.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
        grant
    }

    /// Another replica on the same database.
    async fn replica(&self) -> PostgresStore {
        open(&self.database.url(), &self.clock).await
    }

    /// Runs SQL in the installation's schema; the rows of the last statement, as texts.
    fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.database.query(&format!("SET search_path TO leasehold; {sql}")).unwrap()
    }

    /// The one value that `sql` answers.
    fn value(&self, sql: &str) -> String {
        self.sql(sql).remove(0).remove(0).unwrap()
    }

    /// Waits until `sql` answers `value`.
    async fn until(&self, sql: &str, value: &str) {
        for _ in 0..2000 {
            if self.value(sql) == value {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{sql} never answered {value}");
    }
}

async fn open(url: &str, clock: &Arc<TestClock>) -> PostgresStore {
    let options = PostgresOptions::new().with_connections(8).timed_by(clock.clone());
    PostgresStore::open(url, options).await.unwrap()
}
