//! Ends.

use std::fmt::Write as _;

use leasehold_core::attempt::{Callback, ExitStatus, Left, LimitMeans, LimitsKept, LogPin, StopReason, Usage};
use leasehold_core::canonical::Value;
use leasehold_core::counter::{CallbackSequence, LeaseGeneration, SessionGeneration};
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::end::{EndCall, Ending};
use leasehold_core::frame::{Cut, CutReason};
use leasehold_core::session::SessionFence;
use leasehold_core::time::{Clock as _, Millis, UtcMillis};
use leasehold_store::call::AcknowledgeRunning;
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;

use super::super::super::end;
use super::super::super::transaction::Connection;
use super::super::Fixture;
use super::{Chance, SEED, STATES, asking_core, chaos, compare, plainly, rows, speakers};
use crate::scene::{exited, revision, running, step};

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
    write!(
        sql,
        "UPDATE run SET state = '{of_run}', version = {}, closed_at = NULL, closing_outcome = NULL, due_lease = NULL, \
         closing_unobserved = NULL, failures = {}, machinery_failures = {}, max_attempts = {revision}, \
         (intent_reason, intent_by, intent_at) = ROW({}) WHERE id = '{run}';",
        chance.below(9),
        chance.below(3),
        chance.below(5),
        chance.mostly(6, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]),
    )
    .unwrap();
    let leases = if state == "lost" { ["expired", "ended"] } else { ["active", "active"] };
    write!(
        sql,
        "UPDATE lease SET state = '{}', expires_lease = {}, session = '{}', version = {} WHERE attempt = '{attempt}';",
        chance.of(&leases),
        chance.mostly(4, now + 60_000, &[now - 1]),
        session.session,
        chance.below(9),
    )
    .unwrap();
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
        write!(sql, "UPDATE run SET max_attempts = {} WHERE id = '{}';", most[which], grants[which].run.id).unwrap();
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
