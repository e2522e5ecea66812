//! The contract suite of the store port, on PostgreSQL. Skips aloud where none is installed; in CI that fails.
#![expect(clippy::unwrap_used, reason = "a harness that cannot be set up fails its test")]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use leasehold_sql::postgres::{PostgresOptions, PostgresStore};
use leasehold_sql::test_server::{TestDatabase, TestServer};
use leasehold_store::contract::{Harness, TestClock};
use leasehold_store::faulty::Faulty;
use leasehold_store::port::Store;

mod lossy;

use lossy::{Breaks, Calls, Lossy, When};

struct PostgresHarness {
    database: &'static TestDatabase<'static>,
    /// One installation of many in the database: a schema is made sooner than a database.
    schema: String,
    clock: Arc<TestClock>,
    store: PostgresStore,
}

impl PostgresHarness {
    async fn new() -> Option<Self> {
        Self::reached(|url| async move { url }).await
    }

    /// A store that reaches the server at what `way` makes of its URL.
    async fn reached<W: Future<Output = String>>(way: impl FnOnce(String) -> W) -> Option<Self> {
        static DATABASE: OnceLock<TestDatabase<'static>> = OnceLock::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = TestServer::shared_or_skip("the contract suite on PostgreSQL")?;
        let database = DATABASE.get_or_init(|| server.database().unwrap());
        let schema = format!("installation {}", NEXT.fetch_add(1, Ordering::Relaxed));
        let clock = Arc::new(TestClock::new());
        let url = way(database.url()).await;
        let store = open(&url, &schema, &clock).await;
        Some(Self { database, schema, clock, store })
    }
}

async fn open(url: &str, schema: &str, clock: &Arc<TestClock>) -> PostgresStore {
    let options = PostgresOptions::new().in_schema(schema).with_connections(4).timed_by(clock.clone());
    PostgresStore::open(url, options).await.unwrap()
}

#[async_trait]
impl Harness for PostgresHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn clock(&self) -> &TestClock {
        &self.clock
    }

    async fn dump(&self) -> String {
        // Every row of every table of the port, in one question.
        let question = format!(
            "SELECT string_agg(format('SELECT %L, row_to_json(t)::text FROM %I.%I t ORDER BY 2', tablename, \
             schemaname, tablename), '; ' ORDER BY tablename) \
             FROM pg_tables WHERE schemaname = '{}' AND tablename <> 'schema_migration'",
            self.schema
        );
        let question = self.database.query(&question).unwrap().remove(0).remove(0).unwrap();
        let mut dump = String::new();
        for row in self.database.query(&question).unwrap() {
            let [table, row] = &row[..] else { panic!("two columns") };
            writeln!(dump, "{} {}", table.as_ref().unwrap(), row.as_ref().unwrap()).unwrap();
        }
        dump
    }

    async fn reopened(&self) -> Option<Arc<dyn Store>> {
        self.store.close().await;
        Some(Arc::new(open(&self.database.url(), &self.schema, &self.clock).await))
    }
}

leasehold_store::contract_suite!(match PostgresHarness::new().await {
    Some(harness) => harness,
    None => return,
});

/// A store behind a wire that breaks.
async fn behind_a_lossy_wire(breaks: Breaks, when: When) -> Option<(PostgresHarness, Lossy)> {
    let wire = std::cell::Cell::new(None);
    let way = |url: String| {
        let wire = &wire;
        async move {
            let (user, rest) = url.split_once('@').unwrap();
            let (server, database) = rest.split_once('/').unwrap();
            let lossy = Lossy::to(server, breaks, when).await;
            // What is in between reads the messages, which would be encrypted as soon as the server could.
            let url = format!("{user}@{}/{database}?sslmode=disable", lossy.address);
            wire.set(Some(lossy));
            url
        }
    };
    let harness = PostgresHarness::reached(way).await?;
    Some((harness, wire.take()?))
}

/// A harness whose store says what it is asked before it asks.
struct Telling {
    harness: PostgresHarness,
    store: Arc<Faulty>,
}

#[async_trait]
impl Harness for Telling {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &TestClock {
        self.harness.clock()
    }

    async fn dump(&self) -> String {
        self.harness.dump().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_any_method_whose_answer_was_lost_on_the_wire_is_found_by_its_replay() {
    let Some(harness) = PostgresHarness::new().await else { return };
    let calls = Arc::new(Calls::default());
    let when = When::Called(calls.clone());
    let Some((twin, wire)) = behind_a_lossy_wire(Breaks::BeforeTheAnswer, when).await else { return };
    let told = calls.clone();
    let store = Arc::new(Faulty::telling(twin.store(), move |method| told.called(method)));
    let twin = Telling { harness: twin, store };
    leasehold_store::contract::replay::every_answer_may_be_lost_twice(&harness, &twin).await;
    assert_eq!(calls.broke(), leasehold_store::method::changing().collect(), "no changing method is left out");
    assert!(wire.broke() > 40, "the wire broke {} times", wire.broke());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_before_the_commit_is_nobodys_business() {
    let breaks = Breaks::BeforeTheTransaction;
    let Some((harness, wire)) = behind_a_lossy_wire(breaks, When::EveryThird).await else { return };
    leasehold_store::contract::heartbeat::there_is_a_verdict_per_lease_in_order(&harness).await;
    assert!(wire.broke() > 3, "the wire broke {} times", wire.broke());
}
