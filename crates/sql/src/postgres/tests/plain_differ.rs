//! What the plain claims and ends repeat of core's rules, held to core: random states and random calls, and for each the way
//! that asks core, which is undone, beside the one statement. Answers, rows and what observers are told must be the same.

use std::sync::Arc;

use leasehold_core::attempt::{Callback, ExitStatus, Left, LimitMeans, LimitsKept, LogPin, StopReason, Usage};
use leasehold_core::canonical::Value;
use leasehold_core::claim::Ask;
use leasehold_core::counter::{CallbackSequence, LeaseGeneration, SessionGeneration};
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::end::{EndCall, Ending};
use leasehold_core::frame::{Cut, CutReason};
use leasehold_core::id::RunId;
use leasehold_core::revision::Revision;
use leasehold_core::session::SessionFence;
use leasehold_core::time::{Clock as _, Millis, UtcMillis};
use leasehold_store::call::{AcknowledgeRunning, Claim};
use leasehold_store::observe::Fact;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;
use tokio_postgres::Client;

use super::super::clock::Clocks;
use super::super::transaction::{Connection, Decided, Undone, Unlocked};
use super::super::{claim, end};
use super::Fixture;
use crate::scene::{exited, revision, running, step};

const SEED: u64 = 20_261_130;
const STATES: u32 = 400;

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

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    /// Mostly the usual; in one of `rare` something else.
    fn mostly<T: Copy>(&mut self, rare: u64, usual: T, others: &[T]) -> T {
        if self.below(rare) == 0 { self.of(others) } else { usual }
    }
}

/// What is stored, but for the clocks of the database itself.
async fn rows(db: &Connection) -> Vec<String> {
    let tables = ["worker", "session", "project", "run", "attempt", "lease", "event", "event_digest"];
    let rows = tables.map(|table| format!("SELECT '{table} ' || row_to_json(t)::text FROM {table} t"));
    db.texts(&format!("{} ORDER BY 1", rows.join(" UNION ALL "))).await
}

/// What one way makes of a call: its answer if it is done now, what observers hear, and the rows.
type Made<T> = (Option<T>, Vec<Fact>, Vec<String>);

/// The way that asks core, undone afterwards.
async fn asking_core<T, R, W: Future<Output = Decided<T, R>>>(
    fixture: &Fixture<'_>,
    call: impl FnOnce(Unlocked) -> W,
) -> Made<T> {
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    // A state that contradicts itself is damage to this way: nothing is done then either.
    let answer = match call(Unlocked::new(
        connection.clone(),
        Clocks { told: Some(fixture.clock.clone()), watch: None },
    ))
    .await
    {
        Ok(Outcome::Applied(answer)) => Some(answer),
        Ok(Outcome::Replayed(_) | Outcome::Refused(_)) | Err(_) => None,
    };
    let rows = if answer.is_some() { rows(&connection).await } else { Vec::new() };
    connection.roll_back().await;
    (answer, connection.take_facts(), rows)
}

/// The one statement.
async fn plainly<T, R, P, W>(fixture: &Fixture<'_>, call: P) -> Made<T>
where
    P: FnOnce(Unlocked) -> W,
    W: Future<Output = Result<Option<Outcome<T, R>>, Undone>>,
{
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    let answer = match call(Unlocked::new(
        connection.clone(),
        Clocks { told: Some(fixture.clock.clone()), watch: None },
    ))
    .await
    {
        Ok(Some(Outcome::Applied(answer))) => Some(answer),
        Ok(Some(Outcome::Replayed(_) | Outcome::Refused(_))) => panic!("plain is what is done now"),
        Ok(None) => None,
        // A state that contradicts itself meets a unique index.
        Err(Undone::Certainly(_)) => {
            connection.roll_back().await;
            None
        }
        Err(Undone::Unknown(reason)) => panic!("{reason}"),
    };
    (answer, connection.take_facts(), rows(&connection).await)
}

/// Fails unless a plain call did what core would have done, and one that is not plain did nothing.
fn compare<T: std::fmt::Debug + PartialEq>(plain: &Made<T>, core: &Made<T>, before: &[String], why: &str) {
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|row| !those.contains(row)).cloned().collect()
    };
    let expected = if plain.0.is_some() {
        assert_eq!((&plain.0, &plain.1), (&core.0, &core.1), "{why}");
        &core.2[..]
    } else {
        before
    };
    assert!(
        plain.2 == expected,
        "only in one statement: {:#?}\nexpected instead: {:#?}\n{why}",
        only(&plain.2, expected),
        only(expected, &plain.2)
    );
}

async fn chaos(fixture: &Fixture<'_>) -> Client {
    let url = fixture.database.superuser_url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // No trigger and no foreign key is in the way of a state that took another way to come about.
    let free = "SET search_path TO leasehold; SET synchronous_commit TO off; SET session_replication_role TO replica";
    client.batch_execute(free).await.unwrap();
    client
}

/// Workers and their sessions, as they may be.
fn speakers(chance: &mut Chance, agents: &[SessionFence], now: i64) -> String {
    let mut sql = String::new();
    for agent in agents {
        sql += &format!(
            "UPDATE worker SET state = '{}', (drain_by, drain_at) = ROW({}), current_session = {} WHERE id = '{}'; \
             UPDATE session SET state = '{}', max_runs = {}, slots = 0, expires_lease = {} WHERE id = '{}';",
            chance.mostly(20, "active", &["revoked", "deleted"]),
            chance.mostly(15, "NULL, NULL", &["'a person', 7"]),
            chance.mostly(25, format!("'{}'", agent.session).as_str(), &["NULL"]),
            agent.worker,
            chance.mostly(15, "active", &["draining", "offline"]),
            chance.mostly(2, 256, &[1, 2, 3]),
            chance.mostly(12, now + 60_000, &[now - 1, now, now + 1]),
            agent.session,
        );
    }
    sql
}

fn limited(concurrency: i64, mutex: bool) -> Revision {
    let limits =
        [("concurrency", Value::Int(concurrency)), ("mutex", Value::Bool(mutex)), ("lease", Value::text("25s"))];
    revision(&[("limits", Value::map(limits))])
}

/// Runs, attempts and leases of which anything may be, for claims.
fn waiting(chance: &mut Chance, agents: &[SessionFence], runs: &[(RunId, String)], asks: &[Ask], now: i64) -> String {
    let mut sql = "DELETE FROM lease; DELETE FROM event_digest; DELETE FROM event WHERE sequence > 1;".to_owned();
    sql += &format!("UPDATE project SET concurrency = {};", chance.mostly(2, "NULL", &["1", "2", "3", "4"]));
    for (n, (run, lease)) in runs.iter().enumerate() {
        let state = chance.mostly(4, "pending", &["dispatching", "running", "lost"]);
        sql += &format!(
            "UPDATE run SET state = '{state}', version = {}, fence = {}, latest = {}, lease_millis = {}, \
             (intent_reason, intent_by, intent_at) = ROW({}) WHERE id = '{run}';",
            chance.below(9),
            chance.of(&["NULL", "NULL", "50"]),
            chance.mostly(20, 1, &[2]),
            chance.mostly(12, lease.as_str(), &["NULL"]),
            chance.mostly(10, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]),
        );
        let (state, ended) = match state {
            "pending" => (chance.mostly(10, "pending", &["claimed", "starting"]), "NULL, NULL"),
            "lost" => ("lost", "7, '{\"evidence\":\"lease_expired\",\"kind\":\"lost\"}'"),
            "running" => ("running", "NULL, NULL"),
            _ => (chance.of(&["claimed", "starting"]), "NULL, NULL"),
        };
        sql += &format!(
            "UPDATE attempt SET state = '{state}', (ended_at, outcome) = ROW({ended}), version = {}, may_live = {}, \
             lease_generation = {}, worker = {}, claimed_at = {} WHERE run = '{run}';",
            chance.below(9),
            chance.mostly(4, false, &[true]),
            chance.of(&["NULL", "NULL", "7"]),
            chance.of(&["NULL", "'worker-0'"]),
            chance.of(&["NULL", "7"]),
        );
        if chance.below(2) == 0 {
            let agent = chance.of(&[0, 0, 1]);
            let used = &asks[n % asks.len()];
            let (offer, token) = match chance.below(24) {
                0 => (format!("'{}'", used.offer), format!("'\\x{}'", used.token)),
                1 => (format!("'{}'", used.offer), format!("sha256('{run}')")),
                2 => ("gen_random_uuid()".to_owned(), format!("'\\x{}'", used.token)),
                _ => (
                    "'01900000-0000-7000-8000-00000000000' || ".to_owned() + &n.to_string(),
                    format!("sha256('{run}')"),
                ),
            };
            sql += &format!(
                "INSERT INTO lease SELECT id, 7, run, ({offer})::uuid, {token}, 0, '{}', '{}', 1, 50, 25000, {}, '{}', 0, 7 \
                 FROM attempt WHERE run = '{run}' ON CONFLICT DO NOTHING;",
                agents[agent].worker,
                chance.mostly(6, agents[agent].session, &[agents[1].session]),
                chance.mostly(4, now + 60_000, &[now]),
                if state == "pending" { chance.mostly(8, "released", &["active"]) } else { "active" },
            );
        }
    }
    sql
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_claims_are_what_core_says() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = [fixture.agent("worker-0").await, fixture.agent("worker-1").await];
    let mut runs = Vec::new();
    for revision in [revision(&[]), limited(1, false), limited(2, true), limited(2, false), revision(&[])] {
        let mut call = fixture.submission(revision.clone());
        call.task = revision.limits().concurrency.map(|_| "nightly".parse().unwrap());
        let run = fixture.store.admit_run(call).await.unwrap().into_result().unwrap().run.id;
        runs.push((run, revision.policy().lease.get().to_string()));
    }
    let client = chaos(&fixture).await;
    let mut chance = Chance(SEED);
    let (mut claimed, mut refused, mut older) = (0_u32, 0_u32, 0_u32);
    for round in 0..STATES {
        let asks = [fixture.ask(), fixture.ask()];
        let now = fixture.clock.boot().get();
        let mut sql = speakers(&mut chance, &agents, now);
        sql += &waiting(&mut chance, &agents, &runs, &asks, now);
        client.batch_execute(&sql).await.unwrap();
        let (run, ask) = (chance.of(&[0, 1, 2, 3, 4]), chance.of(&[0, 1]));
        let mut call = Claim {
            session: agents[chance.of(&[0, 0, 1])].clone(),
            ask: asks[ask].clone(),
            run: runs[run].0,
            score: -3,
        };
        if chance.below(15) == 0 {
            call.session.generation = SessionGeneration::from_stored(2).unwrap();
        }
        if chance.below(20) == 0 {
            call.run = "01900000-0000-7000-8000-00000000dddd".parse().unwrap();
        }
        let why = format!("seed {SEED}, state {round}: {call:#?}\n{sql}");
        let before = rows(&Connection::new(fixture.store.connect().await.unwrap())).await;
        let core = asking_core(&fixture, |db| claim::claim(db, &call)).await;
        let plain: Made<Grant> = plainly(&fixture, |db| claim::plainly(db, &call)).await;
        compare(&plain, &core, &before, &why);
        match (&plain.0, &core.0) {
            (Some(_), _) => claimed += 1,
            (None, None) => refused += 1,
            (None, Some(_)) => {
                // Nothing but these: everything else that core lets pass is claimed in one statement.
                let of_older = "SELECT count(*)::text FROM run WHERE lease_millis IS NULL AND id = ";
                let is_older = fixture.value(&format!("{of_older}'{}'", call.run)) == "1";
                let used = "SELECT count(*)::text FROM lease WHERE offer = ";
                let used = fixture.value(&format!("{used}'{}'", call.ask.offer)) == "1";
                assert!(is_older || used, "{why}");
                older += u32::from(is_older);
            }
        }
    }
    // A test that sees one kind alone compares nothing.
    assert!(
        claimed > 30 && refused > 30 && older > 0,
        "{claimed} claimed, {refused} refused, {older} of older versions"
    );
}

/// An end as an agent may send it.
fn ending(chance: &mut Chance, fixture: &Fixture<'_>, agents: &[SessionFence], grant: &Grant) -> EndCall {
    let of = chance.mostly(10, 0, &[1]);
    let step = step(&agents[of], grant);
    let code = chance.of(&[0, 0, 3]);
    let mut call = exited(&step, grant, code, b"log");
    let at = UtcMillis::new(77);
    let status = ExitStatus::Signal(9);
    match chance.below(12) {
        0 => call.ending = Ending::Exited { status, at },
        1 => call.ending = Ending::Stopped { reason: StopReason::Timeout, status, at },
        2 => call.ending = Ending::Stopped { reason: StopReason::Shutdown, status, at },
        3 => call.ending = Ending::NeverSpawned,
        _ => {}
    }
    match chance.below(12) {
        0 => call.callback = None,
        1 => {
            let token = Digest::of(Domain::CompletionToken, b"another");
            call.callback = Some(Callback { sequence: CallbackSequence::FIRST, token });
        }
        _ => {}
    }
    match chance.below(20) {
        0 => call.session.generation = SessionGeneration::from_stored(2).unwrap(),
        1 => call.lease.generation = LeaseGeneration::from_stored(2).unwrap(),
        2 => call.lease.token = Digest::of(Domain::LeaseToken, b"another"),
        3 => call.lease.offer = fixture.ask().offer,
        4 => call.lease.attempt = fixture.attempt_id(),
        _ => {}
    }
    call.running = call.running.filter(|_| chance.below(3) > 0);
    call.usage = (chance.below(2) == 0).then(|| Usage {
        user: Millis::new(chance.below(9)),
        system: Millis::new(chance.below(9)),
        max_rss_kib: chance.below(9),
        oom_killed: chance.below(2) == 0,
        limits: LimitsKept { memory: Some(LimitMeans::Cgroup), cpu: None, pids: Some(LimitMeans::Rlimit) },
    });
    if chance.below(4) == 0 {
        let cut = Some(Cut { reason: CutReason::Quota, stdout: 5, stderr: 6 });
        call.log = call.log.map(|log| LogPin { cut, finished: false, ..log });
    }
    if chance.below(6) == 0 {
        call.log = None;
    }
    call.left = (chance.below(15) == 0).then(|| Left { count: 1, pids: vec![7] });
    call
}

/// A started attempt, as it may be.
fn started(chance: &mut Chance, grant: &Grant, session: &SessionFence, now: i64) -> String {
    let (attempt, run) = (grant.attempt.id, grant.run.id);
    let lost = "7, '{\"evidence\":\"lease_expired\",\"kind\":\"lost\"}'";
    let (state, of_run, ended) = chance.mostly(
        3,
        ("running", "running", "NULL, NULL"),
        &[
            ("claimed", "dispatching", "NULL, NULL"),
            ("starting", "dispatching", "NULL, NULL"),
            ("lost", "lost", lost),
            ("lost", "pending", lost),
        ],
    );
    let launch = running(grant).callback.token;
    let launch = format!("1, '\\x{launch}'::bytea");
    let beaten = if state == "claimed" { "NULL, NULL" } else { chance.mostly(8, "NULL, NULL", &["1, '7'"]) };
    let revision = chance.mostly(8, "max_attempts", &["NULL"]);
    let mut sql = format!(
        "UPDATE attempt SET state = '{state}', (ended_at, outcome) = ROW({ended}), version = {}, resolution = '{}', \
         may_live = {}, boot = '{}', deadline_lease = {}, start_by_lease = {}, (left_count, left_pids) = ROW({beaten}), \
         (callback_sequence, callback_token) = ROW({}), log_length = NULL, log_digest = NULL, log_finished = NULL, \
         log_cut = NULL, log_cut_stdout = NULL, log_cut_stderr = NULL, usage_user_millis = NULL WHERE id = '{attempt}';",
        chance.below(9),
        if state == "lost" { chance.of(&["none", "policy", "person"]) } else { "none" },
        chance.mostly(4, false, &[true]),
        chance.mostly(6, "boot-a", &["boot-b"]),
        chance.mostly(2, "NULL".to_owned().as_str(), &["1"]),
        if state == "starting" { "1" } else { "NULL" },
        if state == "running" { launch.as_str() } else { chance.of(&["NULL, NULL::bytea", launch.as_str()]) },
    );
    sql += &format!(
        "UPDATE run SET state = '{of_run}', version = {}, closed_at = NULL, closing_outcome = NULL, due_lease = NULL, \
         closing_unobserved = NULL, failures = {}, machinery_failures = {}, max_attempts = {revision}, \
         (intent_reason, intent_by, intent_at) = ROW({}) WHERE id = '{run}';",
        chance.below(9),
        chance.below(3),
        chance.below(5),
        chance.mostly(6, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]),
    );
    let leases = if state == "lost" { ["expired", "ended"] } else { ["active", "active"] };
    sql += &format!(
        "UPDATE lease SET state = '{}', expires_lease = {}, session = '{}', version = {} WHERE attempt = '{attempt}';",
        chance.of(&leases),
        chance.mostly(4, now + 60_000, &[now - 1]),
        session.session,
        chance.below(9),
    );
    sql
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_ends_are_what_core_says() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = [fixture.agent("worker-0").await, fixture.agent("worker-1").await];
    let again = Value::map([("max_attempts", Value::Int(3)), ("on", Value::List(vec![Value::text("failed")]))]);
    let mut grants = Vec::new();
    for revision in [revision(&[]), revision(&[("retry", again)])] {
        let run = fixture.admit(revision).await;
        let grant = fixture.claim(&agents[0], run).await;
        let step = step(&agents[0], &grant);
        fixture.store.acknowledge_starting(step.clone()).await.unwrap().into_result().unwrap();
        let call = AcknowledgeRunning { step, call: running(&grant) };
        fixture.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
        grants.push(grant);
    }
    let told: u64 = fixture.value("SELECT max(sequence)::text FROM event").parse().unwrap();
    let most = ["1", "3"];
    let client = chaos(&fixture).await;
    let mut chance = Chance(SEED);
    let (mut ended, mut failed, mut refused, mut more) = (0_u32, 0_u32, 0_u32, 0_u32);
    for round in 0..STATES {
        let now = fixture.clock.boot().get();
        let which = chance.of(&[0, 1]);
        let mut sql = format!("DELETE FROM event_digest; DELETE FROM event WHERE sequence > {told};");
        sql += &format!("UPDATE run SET max_attempts = {} WHERE id = '{}';", most[which], grants[which].run.id);
        sql += &speakers(&mut chance, &agents, now);
        sql += &started(&mut chance, &grants[which], &agents[0], now);
        client.batch_execute(&sql).await.unwrap();
        let call = ending(&mut chance, &fixture, &agents, &grants[which]);
        let why = format!("seed {SEED}, state {round}: {call:#?}\n{sql}");
        let before = rows(&Connection::new(fixture.store.connect().await.unwrap())).await;
        let core = asking_core(&fixture, |db| end::end(db, &call)).await;
        let plain = plainly(&fixture, |db| end::plainly(db, &call)).await;
        compare(&plain, &core, &before, &why);
        match (&plain.0, &core.0) {
            (Some(_), _) if matches!(call.ending, Ending::Exited { status, .. } if !status.is_success()) => failed += 1,
            (Some(_), _) => ended += 1,
            (None, Some(_)) => more += 1,
            (None, None) => refused += 1,
        }
    }
    let all = format!("{ended} well, {failed} badly, {more} more than plain, {refused} refused");
    assert!(ended > 20 && failed > 5 && more > 20 && refused > 20, "{all}");
}
