//! Beats of many: how much of the database they cost, who is answered what when they fail, and that what they repeat of
//! core's rules says what core says.

use futures_util::future::join_all;
use leasehold_core::counter::SessionVersion;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::Millis;
use leasehold_store::call::{Heartbeat, Renewal};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;

use super::super::{PostgresOptions, PostgresStore};
use super::wire::{Cut, Wire};
use super::{Fixture, open};
use crate::scene::step;
use crate::test_server::TestServer;

pub(super) fn beat(session: &SessionFence, version: SessionVersion, held: &[&Grant]) -> Heartbeat {
    let renewal =
        |grant: &&Grant| Renewal { fence: step(session, grant).lease, version: grant.lease.version, left: None };
    Heartbeat {
        session: session.clone(),
        version,
        said: Said { slots: 9, obeys_drain: false },
        faults: None,
        renewals: held.iter().map(renewal).collect(),
    }
}

/// A server whose transactions are all counted, which nobody else uses.
fn quiet_server() -> Option<TestServer> {
    TestServer::shared_or_skip("counting what beats cost")?;
    Some(TestServer::start_with(&[("autovacuum", "off")]).unwrap())
}

impl Fixture<'_> {
    async fn agents(&self, number: usize) -> Vec<SessionFence> {
        let mut agents = Vec::new();
        for n in 0..number {
            agents.push(self.agent(&format!("worker-{n}")).await);
        }
        agents
    }

    /// Another replica on the same database, over a wire.
    pub(super) async fn over_a_wire(&self) -> (PostgresStore, Wire) {
        let (wire, url) = Wire::to(&self.database.url()).await;
        (open(&url, &self.clock).await, wire)
    }

    /// How many transactions wrote something until now, on the whole server.
    fn written(&self) -> u64 {
        self.value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_beats_are_few_commits() {
    let Some(server) = quiet_server() else { return };
    let fixture = Fixture::on(&server).await;
    let agents = fixture.agents(64).await;
    let held = fixture.running(&agents[0]).await;
    fixture.clock.advance(Millis::from_secs(10));
    let before = fixture.written();
    let beats = agents.iter().map(|session| {
        let held: &[&Grant] = if *session == agents[0] { &[&held] } else { &[] };
        fixture.store.heartbeat(beat(session, SessionVersion::FIRST, held))
    });
    for beaten in join_all(beats).await {
        let beaten = beaten.unwrap().into_result().unwrap();
        assert_eq!(
            (beaten.session.version, beaten.session.remaining),
            (SessionVersion::FIRST.next(), Millis::from_secs(45))
        );
        assert!(
            beaten
                .leases
                .iter()
                .all(|(_, renewed)| renewed.as_ref().is_ok_and(|lease| lease.remaining == lease.length))
        );
    }
    let written = fixture.written() - before;
    assert!((1..=8).contains(&written), "64 beats were {written} transactions");
    assert_eq!(fixture.value("SELECT count(*) FROM session WHERE version = 1"), "64");
}

/// On one thread: what is sent in one flight then crosses the wire in one piece, however busy the machine is.
#[tokio::test(flavor = "current_thread")]
async fn a_plain_beat_with_renewals_is_one_round_trip() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    let held = [fixture.running(&session).await, fixture.running(&session).await];
    let (replica, wire) = fixture.over_a_wire().await;
    let mut version = SessionVersion::FIRST;
    // The first one makes the connection and prepares the statement.
    for expected in [None, Some(1), Some(1)] {
        let before = wire.round_trips();
        let beaten = replica.heartbeat(beat(&session, version, &[&held[0], &held[1]])).await.unwrap();
        let beaten = beaten.into_result().unwrap();
        assert_eq!(beaten.leases.len(), 2);
        version = beaten.session.version;
        if let Some(expected) = expected {
            assert_eq!(wire.round_trips() - before, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_judges_a_batch_where_no_test_sets_one() {
    let Some(fixture) = Fixture::new().await else { return };
    let session = fixture.agent("nas").await;
    fixture.sql("UPDATE session SET expires_lease = clock_millis() + 60000");
    let store = PostgresStore::open(&fixture.database.url(), PostgresOptions::new()).await.unwrap();
    let before: i64 = fixture.value("SELECT clock_millis()").parse().unwrap();
    let beaten = store.heartbeat(beat(&session, SessionVersion::FIRST, &[])).await.unwrap().into_result().unwrap();
    let after: i64 = fixture.value("SELECT clock_millis()").parse().unwrap();
    assert_eq!(beaten.session.remaining, Millis::from_secs(45));
    let spoke: i64 =
        fixture.value("SELECT spoke_lease FROM session WHERE expires_lease = spoke_lease + 45000").parse().unwrap();
    assert!((before..=after).contains(&spoke), "{spoke} is not between {before} and {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_that_is_refused_or_has_to_wait_keeps_nobody_else() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = fixture.agents(4).await;
    let lost = fixture.running(&agents[1]).await;
    fixture.sql(&format!("UPDATE lease SET expires_lease = 0 WHERE attempt = '{}'", lost.attempt.id));
    let blocker = super::races::hold(&fixture, "SELECT FROM worker WHERE id = 'worker-3' FOR UPDATE").await;
    let mut beats: Vec<_> = agents.iter().map(|session| beat(session, SessionVersion::FIRST, &[])).collect();
    beats[0].version = SessionVersion::FIRST.next();
    beats[1] = beat(&agents[1], SessionVersion::FIRST, &[&lost]);
    let waiting = beats.pop().unwrap();
    let (replica, store) = (fixture.store.clone(), &fixture.store);
    let waiting = tokio::spawn(async move { replica.heartbeat(waiting).await });
    let mut beaten = join_all(beats.into_iter().map(|beat| store.heartbeat(beat))).await.into_iter();
    let refused = beaten.next().unwrap().unwrap();
    assert!(matches!(refused, Outcome::Refused(refusal) if refusal.code == RefusalCode::VersionConflict));
    let renewed = beaten.next().unwrap().unwrap().into_result().unwrap();
    assert_eq!(renewed.leases[0].1.as_ref().unwrap_err().code, RefusalCode::LeaseExpired);
    assert!(beaten.next().unwrap().unwrap().is_applied());
    super::races::wait_for_a_waiter(&fixture).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_applied());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_the_database_refuses_is_carried_out_one_by_one() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = fixture.agents(8).await;
    // The sum of a clock and this is no number of the database's.
    fixture.sql(&format!("UPDATE session SET lease_millis = {} WHERE worker = 'worker-5'", i64::MAX));
    let beats = agents.iter().map(|session| fixture.store.heartbeat(beat(session, SessionVersion::FIRST, &[])));
    for beaten in join_all(beats).await {
        assert!(beaten.unwrap().is_applied());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_is_lost_is_unknown_to_all_and_found_again_by_each() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = fixture.agents(8).await;
    let held = fixture.running(&agents[3]).await;
    let (replica, wire) = fixture.over_a_wire().await;
    let beats = |version: SessionVersion| {
        let replica = &replica;
        let held = &held;
        join_all(agents.iter().map(move |session| {
            let mine = session.worker == held.lease.worker;
            replica.heartbeat(beat(session, version, if mine { std::slice::from_ref(&held) } else { &[] }))
        }))
    };
    for (cut, done) in [(Cut::BeforeTheServer, false), (Cut::BeforeTheAnswer, true)] {
        let dump = fixture.sql("SELECT version, expires_lease FROM session ORDER BY id");
        wire.cuts(Some(cut));
        for beaten in beats(version(&dump)).await {
            assert!(matches!(beaten, Err(StoreError::Unknown { .. })), "{cut:?}: {beaten:?}");
        }
        wire.cuts(None);
        let after = fixture.sql("SELECT version, expires_lease FROM session ORDER BY id");
        assert_eq!(after != dump, done, "{cut:?}");
        for beaten in beats(version(&dump)).await {
            match beaten.unwrap() {
                Outcome::Applied(beaten) if !done => assert_eq!(beaten.session.version, version(&dump).next()),
                Outcome::Refused(refusal) if done => {
                    assert_eq!(refusal.code, RefusalCode::VersionConflict);
                    assert_eq!(refusal.session.unwrap().version, version(&dump).next());
                }
                other => panic!("{cut:?}: {other:?}"),
            }
        }
    }
}

/// The one version that every session has.
fn version(rows: &[Vec<Option<String>>]) -> SessionVersion {
    let versions: Vec<i64> = rows.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    SessionVersion::from_stored(versions[0]).unwrap()
}

/// Everything that happens while nothing happens: workers beat and pull, replicas look for what is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_writes_its_sessions_row_and_nothing_else() {
    const ROUNDS: u64 = 12;
    let Some(server) = quiet_server() else { return };
    let fixture = Fixture::on(&server).await;
    let agents = fixture.agents(40).await;
    let counts = "SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables \
                  WHERE schemaname = 'leasehold' AND relname <> 'session' ORDER BY relname";
    let updated = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'leasehold' AND relname = 'session'";
    // What a connection counted is told when it is closed.
    fixture.store.close().await;
    fixture.until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", "1").await;
    let (before, written) = (fixture.sql(counts), fixture.written());
    let (replica, wire) = fixture.over_a_wire().await;
    let opened = wire.commits();
    let mut version = SessionVersion::FIRST;
    for _ in 0..ROUNDS {
        fixture.clock.advance(Millis::from_secs(10));
        let beats = agents.iter().map(|session| replica.heartbeat(beat(session, version, &[])));
        assert!(join_all(beats).await.into_iter().all(|beaten| beaten.unwrap().is_applied()));
        version = version.next();
    }
    let batches = wire.commits() - opened;
    for _ in 0..ROUNDS {
        let asks = agents.iter().map(|session| replica.recover_asks(session.clone(), vec![fixture.ask()]));
        assert!(join_all(asks).await.into_iter().all(|asked| asked.unwrap().into_result().is_ok()));
        assert!(replica.lanes(None, 8, 8).await.unwrap().is_empty());
        replica.statistics().await.unwrap();
        assert!(replica.expire_leases(64).await.unwrap().runs.is_empty());
        assert!(replica.begin_retries(vec![fixture.attempt_id()]).await.unwrap().runs.is_empty());
        assert!(replica.stop_overdue(64).await.unwrap().runs.is_empty());
    }
    replica.close().await;
    drop(replica);
    fixture.until(updated, &(ROUNDS * 40).to_string()).await;
    assert_eq!(fixture.sql(counts), before, "no other table is written");
    let hot = fixture.value("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'");
    assert_eq!(hot, (ROUNDS * 40).to_string(), "every update stays in its page");
    assert!(batches <= ROUNDS * 4, "{batches} batches");
    assert_eq!(fixture.written() - written, batches, "no other transaction wrote");
}
