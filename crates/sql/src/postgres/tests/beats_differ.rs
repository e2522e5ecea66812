//! What `beat_together` repeats of core's rules, held to core: random states, random beats, and for each the way that asks
//! core beside the way that does not. Both are undone, so the next state is as random as the last.

use std::sync::Arc;

use leasehold_core::counter::{LeaseGeneration, SessionGeneration, SessionVersion};
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::time::Clock as _;
use leasehold_store::call::Heartbeat;
use leasehold_store::outcome::Outcome;
use leasehold_store::view::{Beaten, Grant};
use tokio_postgres::Client;

use super::super::beats::{BEAT_TOGETHER, beaten, told_of, values};
use super::super::clock::Clocks;
use super::super::lock::Locks;
use super::super::sessions;
use super::super::transaction::{Connection, Unlocked};
use super::Fixture;
use super::beats::beat;
use crate::scene::revision;

const SEED: u64 = 20_261_130;
const STATES: u32 = 150;
const WORKERS: usize = 3;
const HELD: usize = 3;

/// Chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    /// Mostly the usual; in one of `rare` something else.
    fn mostly<'a>(&mut self, rare: u64, usual: &'a str, else_: &[&'a str]) -> &'a str {
        if self.below(rare) == 0 { self.of(else_) } else { usual }
    }
}

/// A state in which nothing fits together by itself: whatever a row can say, and often what it usually says.
fn state(chance: &mut Chance, agents: &[SessionFence], held: &[Vec<Grant>], now: i64) -> String {
    // No trigger and no foreign key is in the way of a state that took another way to come about.
    let mut sql = vec!["SET session_replication_role = replica".to_owned()];
    let ends = [now - 1, now, now + 1, now + 60_000].map(|end| end.to_string());
    let ends = ends.each_ref().map(String::as_str);
    let stranger = "'01900000-0000-7000-8000-00000000ffff'";
    for (agent, held) in agents.iter().zip(held) {
        let drained = chance.mostly(8, "NULL, NULL", &["'a person', 7"]);
        let rival = chance.mostly(12, "NULL, NULL, NULL", &["'01900000-0000-7000-8000-00000000eeee', 1, false"]);
        sql.push(format!(
            "UPDATE worker SET state = '{}', (drain_by, drain_at) = ROW({drained}), \
             (rival_session, rival_heard, rival_audited) = ROW({rival}) WHERE id = '{}'",
            chance.mostly(12, "active", &["revoked", "deleted"]),
            agent.worker,
        ));
        let most = chance.of(&["1", "4", "256"]);
        sql.push(format!(
            "UPDATE session SET state = '{}', boot = '{}', max_runs = {most}, slots = 1, obeys_drain = {}, \
             expires_lease = {}, version = {} WHERE id = '{}'",
            chance.mostly(6, "active", &["draining", "draining", "offline"]),
            chance.mostly(8, "boot-a", &["boot-b"]),
            chance.of(&["true", "false"]),
            chance.mostly(6, ends[3], &ends),
            chance.mostly(8, "1", &["0"]),
            agent.session,
        ));
        for grant in held {
            let attempt = grant.attempt.id;
            let session = format!("'{}'", agent.session);
            sql.push(format!(
                "UPDATE lease SET state = '{}', expires_lease = {}, session = {}, version = {} WHERE attempt = '{attempt}'",
                chance.mostly(12, "active", &["ended", "released", "expired"]),
                chance.mostly(8, ends[3], &ends),
                chance.mostly(12, &session, &[stranger]),
                chance.below(3),
            ));
            let state = chance.of(&["claimed", "starting", "starting", "running", "running"]);
            // Only of what started can something be left.
            let left = if state == "claimed" { "NULL, NULL" } else { chance.mostly(15, "NULL, NULL", &["1, '7'"]) };
            sql.push(format!(
                "UPDATE attempt SET state = '{state}', boot = {}, start_by_lease = {}, \
                 (left_count, left_pids) = ROW({left}) WHERE id = '{attempt}'",
                chance.mostly(10, "'boot-a'", &["NULL", "'boot-b'"]),
                chance.mostly(4, "NULL", &ends),
            ));
            let intent = chance.mostly(20, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]);
            sql.push(format!(
                "UPDATE run SET (intent_reason, intent_by, intent_at) = ROW({intent}) WHERE id = '{}'",
                grant.run.id
            ));
        }
    }
    sql.join("; ")
}

/// A beat as the agent would send it, or with something wrong.
fn call(chance: &mut Chance, agent: &SessionFence, own: &[Grant], foreign: &Grant) -> Heartbeat {
    let mut held: Vec<&Grant> = own.iter().filter(|_| chance.below(4) > 0).collect();
    if chance.below(15) == 0 {
        held.push(foreign);
    }
    let version = SessionVersion::FIRST.next();
    let mut call = beat(agent, version, &held);
    call.said = Said { slots: u16::try_from(chance.below(300)).unwrap(), obeys_drain: chance.below(8) == 0 };
    if chance.below(15) == 0 {
        call.session.generation = SessionGeneration::from_stored(2).unwrap();
    }
    for renewal in &mut call.renewals {
        match chance.below(60) {
            0 => renewal.fence.token = Digest::of(Domain::LeaseToken, b"another"),
            1 => renewal.fence.generation = LeaseGeneration::from_stored(2).unwrap(),
            2 => renewal.fence.offer = "01900000-0000-7000-8000-00000000dddd".parse().unwrap(),
            _ => {}
        }
    }
    call
}

/// What is stored.
#[derive(PartialEq, Eq)]
struct Rows {
    /// What a plain beat may write.
    narrow: Vec<String>,
    /// What it may not.
    others: Vec<String>,
}

async fn rows(db: &Connection) -> Rows {
    let narrow =
        "SELECT row_to_json(s)::text FROM session s UNION ALL SELECT row_to_json(l)::text FROM lease l ORDER BY 1";
    let others = "SELECT row_to_json(w)::text FROM worker w UNION ALL SELECT row_to_json(a)::text FROM attempt a \
                  UNION ALL SELECT row_to_json(r)::text FROM run r UNION ALL SELECT row_to_json(e)::text FROM event e \
                  UNION ALL SELECT attempt || ' of ' || session FROM lease ORDER BY 1";
    Rows { narrow: db.texts(narrow).await, others: db.texts(others).await }
}

/// What core says to each of these, one after the other, and whether it wrote nothing but narrow rows.
async fn asking_core(fixture: &Fixture<'_>, calls: &[&Heartbeat]) -> (Vec<(Option<Beaten>, bool)>, Rows) {
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    let clocks = Clocks { told: Some(fixture.clock.clone()), watch: None };
    let mut said = Vec::new();
    for call in calls {
        let before = rows(&connection).await;
        let unlocked = Unlocked::new(connection.clone(), clocks.clone());
        let outcome = sessions::heartbeat(unlocked, call).await.unwrap();
        let alone = rows(&connection).await.others == before.others;
        said.push(match outcome {
            Outcome::Applied(beaten) | Outcome::Replayed(beaten) => (Some(beaten), alone),
            Outcome::Refused(_) => (None, alone),
        });
    }
    let rows = rows(&connection).await;
    connection.roll_back().await;
    (said, rows)
}

async fn in_one_statement(fixture: &Fixture<'_>, calls: &[&Heartbeat]) -> (Vec<Option<Beaten>>, Rows) {
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    let clocks = Clocks { told: Some(fixture.clock.clone()), watch: None };
    let tx = Unlocked::new(connection.clone(), clocks).lock(Locks::none()).await.unwrap();
    let told = tx.all(BEAT_TOGETHER, values(calls, Some(tx.now.lease)), told_of).await.unwrap();
    let rows = rows(&connection).await;
    connection.roll_back().await;
    (beaten(calls, &told).unwrap(), rows)
}

/// The rows of one side alone.
fn only<'a>(these: &'a Rows, those: &Rows) -> Vec<&'a String> {
    let (these, those) = ([&these.narrow, &these.others], [&those.narrow, &those.others]);
    these.into_iter().flatten().filter(|row| !those.iter().any(|those| those.contains(row))).collect()
}

async fn chaos(fixture: &Fixture<'_>) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&fixture.database.superuser_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET search_path TO leasehold; SET synchronous_commit TO off").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_beats_are_what_core_says() {
    let Some(fixture) = Fixture::new().await else { return };
    let (mut agents, mut held) = (Vec::new(), Vec::new());
    for worker in 0..WORKERS {
        let agent = fixture.agent(&format!("worker-{worker}")).await;
        let mut grants = Vec::new();
        for _ in 0..HELD {
            let run = fixture.admit(revision(&[])).await;
            grants.push(fixture.claim(&agent, run).await);
        }
        agents.push(agent);
        held.push(grants);
    }
    let client = chaos(&fixture).await;
    let mut chance = Chance(SEED);
    let (mut plain, mut refused, mut more) = (0_u32, 0_u32, 0_u32);
    for round in 0..STATES {
        let now = fixture.clock.boot().get();
        client.batch_execute(&state(&mut chance, &agents, &held, now)).await.unwrap();
        let calls: Vec<Heartbeat> =
            (0..WORKERS).map(|n| call(&mut chance, &agents[n], &held[n], &held[(n + 1) % WORKERS][0])).collect();
        let calls: Vec<&Heartbeat> = calls.iter().collect();
        let why = format!("seed {SEED}, state {round}: {calls:#?}");
        let (together, written) = in_one_statement(&fixture, &calls).await;
        let (alone, _) = asking_core(&fixture, &calls).await;
        for ((together, (core, alone)), call) in together.iter().zip(&alone).zip(&calls) {
            // Nothing to tell beside the answer, nothing refused, and nothing else written.
            let ordinary = core.as_ref().filter(|core| {
                *alone && core.directives.is_empty() && core.leases.iter().all(|(_, renewed)| renewed.is_ok())
            });
            assert_eq!(together.as_ref(), ordinary, "{}: {why} {}", call.session.worker, written.narrow.join("\n"));
            match (together, core) {
                (Some(_), _) => plain += 1,
                (None, Some(_)) => more += 1,
                (None, None) => refused += 1,
            }
        }
        let done: Vec<&Heartbeat> =
            calls.iter().zip(&together).filter(|(_, done)| done.is_some()).map(|(call, _)| *call).collect();
        let (_, expected) = asking_core(&fixture, &done).await;
        assert!(
            written == expected,
            "only in one statement: {:#?}\nby core: {:#?}\n{why}",
            only(&written, &expected),
            only(&expected, &written)
        );
    }
    // A test that sees one kind alone compares nothing.
    assert!(plain > 40 && refused > 40 && more > 40, "{plain} plain, {refused} refused, {more} more than plain");
}
