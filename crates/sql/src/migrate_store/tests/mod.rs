//! A move, and everything that can come between its steps. Without PostgreSQL these tests skip aloud; in CI they fail.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::actor::Actor;
use leasehold_core::canonical::Value;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::{ApiTokenId, MoveId, ProjectName};
use leasehold_core::role::Role;
use leasehold_core::time::{Clock as _, Entropy, Millis};
use leasehold_core::trigger::TriggerKey;
use leasehold_store::call::{AcknowledgeRunning, AppendLog, ApplyTasks, Installation, NewApiToken};
use leasehold_store::contract::TestClock;
use leasehold_store::port::Store as _;
use leasehold_store::webhook::MakeWebhookToken;

use super::{Destination, Move, MoveError, Progress, Report, Settled, settle};
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::scene::{Scene, every_call, revision, running, step};
use crate::sqlite::{OpenError, Options, Source, SqliteStore};
use crate::test_server::{TestDatabase, TestServer};

mod answers;
mod crashes;
mod refusals;
mod whole;

struct Sevens;

impl Entropy for Sevens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A store on SQLite with something of everything in it, closed, and an empty database.
struct Fixture<'s> {
    directory: tempfile::TempDir,
    database: TestDatabase<'s>,
    clock: Arc<TestClock>,
}

fn token(clock: &TestClock) -> NewApiToken {
    NewApiToken {
        id: ApiTokenId::new(clock.utc(), &Sevens),
        name: "first-admin".to_owned(),
        role: Role::Admin,
        digest: Digest::of(Domain::ApiToken, b"another token"),
        created_at: clock.utc(),
        expires_at: None,
    }
}

fn installation(clock: &TestClock, domain: &str) -> Installation {
    Installation {
        trust_domain: domain.parse().unwrap(),
        ca_certificate: format!("certificate of {domain}").into_bytes(),
        ca_key: b"its key".to_vec(),
        ticket_key: b"its tickets".to_vec(),
        created_at: clock.utc(),
    }
}

impl Fixture<'static> {
    async fn new() -> Option<Self> {
        let server = TestServer::shared_or_skip("the tests of moving a store")?;
        Some(Self::on(server).await)
    }
}

impl<'s> Fixture<'s> {
    /// A store that was filled, whose lease clock stands where the clock of tests does.
    async fn on(server: &'s TestServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::new());
        let fixture = Self { directory, database: server.database().unwrap(), clock: clock.clone() };
        fixture.sqlite().unwrap().close().await;
        fixture.set_lease_clock(clock.boot().get());
        let scene = Scene::on(fixture.sqlite().unwrap(), clock);
        every_call(&scene).await;
        in_the_middle(&scene).await;
        scene.store.close().await;
        fixture
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("leasehold.db")
    }

    fn set_lease_clock(&self, at: i64) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        assert_eq!(connection.execute("UPDATE lease_clock SET at = ?1", [at]).unwrap(), 1);
    }

    fn sqlite(&self) -> Result<SqliteStore, OpenError> {
        SqliteStore::open(self.path(), Options::new(self.clock.clone()))
    }

    async fn postgres(&self) -> PostgresStore {
        PostgresStore::open(&self.database.url(), self.options()).await.unwrap()
    }

    fn options(&self) -> PostgresOptions {
        PostgresOptions::new().with_connections(4).timed_by(self.clock.clone())
    }

    fn destination(&self) -> Destination {
        Destination {
            url: self.database.url(),
            told: "postgres://the-new-one/leasehold".to_owned(),
            options: self.options(),
            patience: Duration::from_secs(20),
        }
    }

    /// What one start of the command does, given what it is told of its progress.
    async fn run(&self, progress: impl FnMut(Progress) + Send) -> Result<Option<Report>, MoveError> {
        self.run_until(progress, std::future::pending()).await
    }

    async fn run_until(
        &self,
        progress: impl FnMut(Progress) + Send,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Report>, MoveError> {
        run(&self.path(), &self.destination(), &self.clock, progress, stop).await
    }

    /// Whether the database has the installation.
    async fn has_arrived(&self) -> bool {
        let store = self.postgres().await;
        let found = store.installation().await.unwrap().is_some();
        store.close().await;
        found
    }

    fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.database.query(&format!("SET search_path TO leasehold; {sql}")).unwrap()
    }
}

async fn run(
    path: &Path,
    to: &Destination,
    clock: &TestClock,
    mut progress: impl FnMut(Progress) + Send,
    stop: impl Future<Output = ()>,
) -> Result<Option<Report>, MoveError> {
    let source = Source::open(path)?;
    if let Settled::Finished(_) = settle(&source, to, clock).await? {
        return Ok(None);
    }
    source.migrate(clock.utc())?;
    source.check()?;
    let ours = source.installation()?.ok_or(MoveError::NotInstalled)?;
    let sealed = Installation {
        ca_key: b"key under the new master key".to_vec(),
        ticket_key: b"tickets under the new master key".to_vec(),
        ..ours
    };
    let id = MoveId::new(clock.utc(), &Sevens);
    let call = Move { source: &source, to, id, installation: &sealed, actor: &Actor::Local { uid: 7 }, clock };
    call.run(&mut progress, stop).await.map(Some)
}

/// A task with a schedule that has fired, and a webhook with its token.
async fn scheduled(scene: &Scene<SqliteStore>) {
    let secondly = Value::map([("cron", Value::text("* * * * * *"))]);
    let called = Value::map([("webhook", Value::Bool(true))]);
    let task = revision(&[("name", Value::text("secondly")), ("trigger", Value::List(vec![secondly, called]))]);
    let (actor, project) = (Actor::System, ProjectName::default());
    let tasks = [("secondly".parse().unwrap(), task)].into();
    let apply = ApplyTasks { actor, project, tasks, prune: false, cascade: false, plan: None };
    scene.store.apply_tasks(apply).await.unwrap().into_result().unwrap();
    let (task, name) = ("secondly".parse().unwrap(), "webhook".parse().unwrap());
    let trigger = TriggerKey { project: ProjectName::default(), task, name };
    let token = Digest::of(Domain::WebhookToken, b"secret");
    let make = MakeWebhookToken { actor: Actor::System, trigger, token };
    scene.store.make_webhook_token(make).await.unwrap().into_result().unwrap();
    scene.clock.advance(Millis::from_secs(2));
    let fired = scene.store.fire_triggers(64).await.unwrap();
    assert_eq!(fired.runs.len(), 1, "the second is skipped, the first waits");
}

/// Runs that wait, are claimed and run, of a worker that is there.
async fn in_the_middle(scene: &Scene<SqliteStore>) {
    scheduled(scene).await;
    let session = scene.agent("desk").await;
    let [ran, claimed, _waiting] =
        [scene.admit(revision(&[])).await, scene.admit(revision(&[])).await, scene.admit(revision(&[])).await];
    scene.claim(&session, claimed).await;
    let grant = scene.claim(&session, ran).await;
    let fence = step(&session, &grant);
    scene.store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    let call = AcknowledgeRunning { step: fence.clone(), call: running(&grant) };
    scene.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut offset = 0;
    for bytes in bytes.chunks(100_000) {
        let call = AppendLog { step: fence.clone(), offset, bytes: bytes.to_vec() };
        offset = scene.store.append_log(call).await.unwrap().into_result().unwrap();
    }
}
