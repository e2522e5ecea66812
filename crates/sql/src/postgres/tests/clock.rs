//! The database's clock steps under live leases. What counts as a step, and where ends move to, is `core`'s to test.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::limits::{CLOCK_WATCH, LOST_GRACE, SESSION_LEASE};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::{Clock as _, Millis};
use leasehold_store::call::{AcknowledgeRunning, AttemptStep, Heartbeat, Release, Renewal};
use leasehold_store::contract::TestClock;
use leasehold_store::port::Store as _;
use leasehold_store::view::{Beaten, Grant};

use super::{Fixture, PostgresOptions, PostgresStore};
use crate::scene::{revision, running, step};
use crate::test_server::TestServer;

const HOURS: Millis = Millis::from_secs(3 * 3600);

/// A database whose clock can be set, and machines whose boot-time clock cannot.
struct Clocks<'s> {
    fixture: Fixture<'s>,
    machine: Arc<TestClock>,
}

/// A lease of ten minutes on a job that runs.
struct Job {
    step: AttemptStep,
    grant: Grant,
}

impl<'s> Clocks<'s> {
    async fn on(server: &'s TestServer) -> Self {
        let mut fixture = Fixture::on(server).await;
        let machine = Arc::new(TestClock::new());
        fixture.scene.store = replica(&fixture, &machine).await;
        let this = Self { fixture, machine };
        this.pass(CLOCK_WATCH);
        this
    }

    /// A replica that has looked at the clock, and for long enough.
    async fn settled(&self) -> PostgresStore {
        let replica = replica(&self.fixture, &self.machine).await;
        self.pass(CLOCK_WATCH);
        replica.expire_leases(64).await.unwrap();
        replica
    }

    /// Time passes, on every clock.
    fn pass(&self, span: Millis) {
        self.fixture.clock.advance(span);
        self.machine.advance(span);
    }

    /// Somebody sets the database's clock.
    fn step(&self, by: Millis) {
        self.fixture.clock.advance(by);
    }

    async fn job(&self, session: &SessionFence) -> Job {
        let timeout = Value::map([("timeout", Value::text("1h"))]);
        let run = self.fixture.admit(revision(&[("limits", timeout)])).await;
        let grant = self.fixture.claim(session, run).await;
        let step = step(session, &grant);
        let store = &self.fixture.store;
        store.acknowledge_starting(step.clone()).await.unwrap().into_result().unwrap();
        let call = AcknowledgeRunning { step: step.clone(), call: running(&grant) };
        store.acknowledge_running(call).await.unwrap().into_result().unwrap();
        Job { step, grant }
    }

    fn steps(&self) -> String {
        self.fixture.value("SELECT count(*) FROM clock_step")
    }

    async fn state(&self, job: &Job) -> &'static str {
        self.fixture.store.run(job.grant.run.id).await.unwrap().unwrap().run.state.as_str()
    }
}

async fn replica(fixture: &Fixture<'_>, machine: &Arc<TestClock>) -> PostgresStore {
    let options =
        PostgresOptions::new().with_connections(8).timed_by(fixture.clock.clone()).watching_the_clock(machine.clone());
    PostgresStore::open(&fixture.database.url(), options).await.unwrap()
}

/// A heartbeat that renews `jobs`.
async fn beat(store: &PostgresStore, session: &SessionFence, jobs: &[&Job]) -> Result<Beaten, Refusal> {
    let version = store.worker(&session.worker).await.unwrap().unwrap().session.unwrap().version;
    let renewal = |job: &&Job| Renewal { fence: job.step.lease.clone(), version: job.grant.lease.version, left: None };
    let renewals = jobs.iter().map(renewal).collect();
    let said = Said { slots: 9, obeys_drain: false };
    let call = Heartbeat { session: session.clone(), version, said, faults: None, renewals };
    store.heartbeat(call).await.unwrap().into_result()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_three_hours_loses_nothing_that_lives_and_what_is_dead_is_lost_when_its_lease_is_over() {
    let Some(server) = TestServer::shared_or_skip("a step of the database's clock") else { return };
    let clocks = &Clocks::on(server).await;
    let other = clocks.settled().await;
    let (alive, dead) = (clocks.fixture.agent("nas").await, clocks.fixture.agent("attic").await);
    let (kept, orphan) = (clocks.job(&alive).await, clocks.job(&dead).await);
    clocks.pass(Millis::from_secs(10));
    clocks.step(HOURS);

    // The one that has not noticed anything yet declares nothing, times nothing out, and renews; so does the other.
    assert_eq!(other.expire_leases(64).await.unwrap().runs, []);
    let beaten = beat(&clocks.fixture.store, &alive, &[&kept]).await.unwrap();
    assert_eq!(beaten.leases[0].1.as_ref().unwrap().remaining, Millis::from_secs(600));
    assert_eq!(clocks.fixture.store.stop_overdue(64).await.unwrap().runs, []);
    beat(&other, &alive, &[&kept]).await.unwrap();
    // And one that has just started, although it knows nothing of a step.
    let late = replica(&clocks.fixture, &clocks.machine).await;
    beat(&late, &alive, &[&kept]).await.unwrap();
    clocks.job(&alive).await;
    assert_eq!(clocks.steps(), "1", "whoever else meets the step finds it dealt with");
    let audited = clocks.fixture.value("SELECT actor || ' ' || action FROM audit WHERE action = 'clock_stepped'");
    assert_eq!(audited, "system clock_stepped");
    assert!(clocks.fixture.store.warning().await.unwrap().contains("stepped"));

    // The dead worker's lease had 590 s left. The other's is renewed, by any replica.
    let stores = [&clocks.fixture.store, &other, &late];
    for round in 0..29 {
        clocks.pass(Millis::from_secs(20));
        let store = stores[round % 3];
        assert_eq!(store.expire_leases(64).await.unwrap().runs, [], "after {} s", (round + 1) * 20);
        beat(store, &alive, &[&kept]).await.unwrap();
    }
    clocks.pass(Millis::from_secs(10).plus(LOST_GRACE));
    assert_eq!(other.expire_leases(64).await.unwrap().runs, [], "what the bounds leave open is the lease's");
    clocks.pass(Millis::new(200));
    assert_eq!(other.expire_leases(64).await.unwrap().runs, [orphan.grant.run.id]);
    assert_eq!((clocks.state(&kept).await, clocks.state(&orphan).await), ("running", "lost"));

    // A task's time is up when it is up: an hour after it began, not three hours early.
    for _ in 0..((3600 - 602) / 30) {
        clocks.pass(Millis::from_secs(30));
        assert_eq!(late.stop_overdue(64).await.unwrap().runs, []);
        beat(&other, &alive, &[&kept]).await.unwrap();
    }
    clocks.pass(Millis::from_secs(30));
    assert!(late.stop_overdue(64).await.unwrap().runs.contains(&kept.grant.run.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_starts_after_a_step_that_nobody_has_noticed_calls_nobody_late() {
    let Some(server) = TestServer::shared_or_skip("a start after a step") else { return };
    let clocks = &Clocks::on(server).await;
    let alive = clocks.fixture.agent("nas").await;
    let job = clocks.job(&alive).await;
    clocks.step(HOURS);
    let late = replica(&clocks.fixture, &clocks.machine).await;
    let scanned = late.expire_leases(64).await.unwrap();
    assert_eq!((scanned.runs, scanned.next), (vec![], Some(CLOCK_WATCH)));
    assert_eq!(late.stop_overdue(64).await.unwrap().runs, []);
    assert_eq!(beat(&late, &alive, &[&job]).await.unwrap_err().code, RefusalCode::Overloaded);
    let refused = late.acknowledge_starting(job.step.clone()).await.unwrap().into_result().unwrap_err();
    assert_eq!(refused.code, RefusalCode::Overloaded);

    // The one that was there before looks, as it does every few seconds.
    assert_eq!(clocks.fixture.store.expire_leases(64).await.unwrap().runs, []);
    beat(&late, &alive, &[&job]).await.unwrap();
    clocks.pass(CLOCK_WATCH);
    assert_eq!(late.expire_leases(64).await.unwrap().runs, []);
    assert_eq!(clocks.state(&job).await, "running");

    // A lease that ran out by the time that passed is lost, and its holder is told so.
    clocks.pass(SESSION_LEASE);
    assert_eq!(beat(&late, &alive, &[&job]).await.unwrap_err().code, RefusalCode::SessionExpired);
    clocks.pass(Millis::from_secs(600));
    assert_eq!(late.expire_leases(64).await.unwrap().runs, [job.grant.run.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_in_a_row_small_ones_and_steps_back_end_nothing_early_and_nothing_a_lease_late() {
    let Some(server) = TestServer::shared_or_skip("steps in a row") else { return };
    let clocks = &Clocks::on(server).await;
    let other = clocks.settled().await;
    let (alive, dead) = (clocks.fixture.agent("nas").await, clocks.fixture.agent("attic").await);
    let (kept, orphan) = (clocks.job(&alive).await, clocks.job(&dead).await);
    for (n, by) in [1_500, 10_800_000, 2_000, 90_000].into_iter().enumerate() {
        clocks.pass(Millis::from_secs(5));
        clocks.step(Millis::new(by));
        let (first, second) =
            if n % 2 == 0 { (&clocks.fixture.store, &other) } else { (&other, &clocks.fixture.store) };
        assert_eq!(first.expire_leases(64).await.unwrap().runs, []);
        beat(second, &alive, &[&kept]).await.unwrap();
    }
    assert_eq!(clocks.steps(), "4");
    let given_back = clocks.fixture.admit(revision(&[])).await;
    let grant = clocks.fixture.claim(&alive, given_back).await;
    let release = Release { step: step(&alive, &grant), reason: ReleaseReason::DiskLow };
    other.release(release).await.unwrap().into_result().unwrap();
    // Somebody sets it right again.
    clocks.fixture.clock.set_back(HOURS);
    beat(&other, &alive, &[&kept]).await.unwrap();
    beat(&clocks.fixture.store, &alive, &[&kept]).await.unwrap();
    assert_eq!(clocks.steps(), "5");
    let now = clocks.fixture.clock.boot().get();
    let kept_back = clocks.fixture.value(&format!("SELECT until_lease - {now} FROM refused"));
    assert_eq!(kept_back, "30000", "what it gave back is kept from it for as long as before");
    for _ in 0..28 {
        clocks.pass(Millis::from_secs(20));
        assert_eq!(other.expire_leases(64).await.unwrap().runs, []);
        beat(&other, &alive, &[&kept]).await.unwrap();
    }
    // 580 s have passed; a lease lasts 600. One length after the last step it is over at the latest.
    clocks.pass(Millis::from_secs(40).plus(LOST_GRACE));
    assert_eq!(clocks.fixture.store.expire_leases(64).await.unwrap().runs, [orphan.grant.run.id]);
    assert_eq!(clocks.state(&kept).await, "running");
}

/// Scans and beats of two replicas meet the same step at the same time: one of them moves the ends, none fails, and none waits
/// for another in a circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_that_meet_a_step_at_once_move_the_ends_once() {
    if TestServer::shared_or_skip("many calls that meet a step").is_none() {
        return;
    }
    let server = TestServer::start_with(&[("deadlock_timeout", "10ms")]).unwrap();
    let clocks = &Clocks::on(&server).await;
    let other = &clocks.settled().await;
    let mut holders = Vec::new();
    for name in ["nas", "attic", "shed", "barn"] {
        let session = clocks.fixture.agent(name).await;
        holders.push((clocks.job(&session).await, session));
    }
    for round in 1..=3 {
        clocks.pass(Millis::from_secs(5));
        clocks.step(HOURS);
        let calls = holders.iter().enumerate().map(|(n, (job, session))| async move {
            let store = if n % 2 == 0 { &clocks.fixture.store } else { other };
            let held = [job];
            let (scanned, beaten) = tokio::join!(store.expire_leases(64), beat(store, session, &held));
            assert_eq!(scanned.unwrap().runs, []);
            assert!(beaten.unwrap().leases[0].1.is_ok());
        });
        join_all(calls).await;
        assert_eq!(clocks.steps(), round.to_string());
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(clocks.fixture.value(deadlocks), "0");
}

/// The same with the clock that production reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_that_is_watched_is_the_databases() {
    let Some(server) = TestServer::shared_or_skip("the clock that is watched") else { return };
    let mut fixture = Fixture::on(server).await;
    // It stands still, so that the machine's may: nothing of this test takes time.
    fixture
        .sql("CREATE OR REPLACE FUNCTION clock_millis() RETURNS bigint LANGUAGE sql AS 'SELECT 1800000000000::bigint'");
    let machine = Arc::new(TestClock::new());
    let options = PostgresOptions::new().with_connections(8).watching_the_clock(machine.clone());
    fixture.scene.store = PostgresStore::open(&fixture.database.url(), options).await.unwrap();
    let clocks = Clocks { fixture, machine };
    let session = clocks.fixture.agent("nas").await;
    let job = clocks.job(&session).await;
    clocks
        .fixture
        .sql("CREATE OR REPLACE FUNCTION clock_millis() RETURNS bigint LANGUAGE sql AS 'SELECT 1800010800000::bigint'");
    let beaten = beat(&clocks.fixture.store, &session, &[&job]).await.unwrap();
    assert_eq!(beaten.leases[0].1.as_ref().unwrap().remaining, Millis::from_secs(600));
    assert_eq!(clocks.fixture.value("SELECT by_millis FROM clock_step"), "10800000");
}
