//! The two acknowledgements that move a claimed attempt.

use std::fmt::Write as _;

use leasehold_core::canonical::Value;
use leasehold_core::counter::{LeaseGeneration, SessionGeneration};
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::session::SessionFence;
use leasehold_core::time::Clock as _;
use leasehold_store::call::{AcknowledgeRunning, AttemptStep};
use leasehold_store::view::Grant;

use super::super::super::activation;
use super::super::super::transaction::Connection;
use super::super::Fixture;
use super::{Chance, SEED, STATES, asking_core, chaos, compare, plainly, rows, speakers};
use crate::scene::{revision, running, step};

/// An attempt that is about to start, as it may be; with what its revision says of starts.
fn starting(chance: &mut Chance, grant: &Grant, sessions: [&SessionFence; 2], policy: &str, now: i64) -> String {
    let (attempt, run) = (grant.attempt.id, grant.run.id);
    let (state, of_run) = chance.of(&[("claimed", "dispatching"), ("starting", "dispatching"), ("running", "running")]);
    let launch = format!("1, '\\x{}'::bytea", running(grant).callback.token);
    let boot = if state == "claimed" { "NULL" } else { chance.mostly(6, "'boot-a'", &["NULL", "'boot-b'"]) };
    let mut sql = format!(
        "UPDATE attempt SET state = '{state}', version = {}, boot = {}, start_by_lease = {}, deadline_lease = {}, \
         may_live = {}, running_at = NULL, (handle_boot, handle_pid, handle_start_time) = ROW({}), \
         (callback_sequence, callback_token) = ROW({}) WHERE id = '{attempt}';",
        chance.below(9),
        chance.mostly(12, boot, &["'boot-b'"]),
        if state == "starting" { "1" } else { "NULL" },
        chance.mostly(2, "NULL", &["1"]),
        chance.mostly(4, "false", &["true"]),
        if state == "running" { "'boot-a', 7, 99" } else { "NULL, NULL, NULL" },
        if state == "running" { launch.as_str() } else { "NULL, NULL::bytea" },
    );
    write!(
        sql,
        "UPDATE run SET state = '{of_run}', version = {}, started_at = {}, (start_millis, timeout_millis) = ROW({}), \
         (intent_reason, intent_by, intent_at) = ROW({}), closed_at = NULL, closing_outcome = NULL, \
         closing_unobserved = NULL WHERE id = '{run}';",
        chance.below(9),
        chance.mostly(2, "NULL", &["5"]),
        chance.mostly(12, policy, &["NULL, NULL"]),
        chance.mostly(10, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]),
    )
    .unwrap();
    let of = chance.mostly(10, 0, &[1]);
    write!(
        sql,
        "UPDATE lease SET state = '{}', expires_lease = {}, session = '{}', session_generation = 1, version = {} \
         WHERE attempt = '{attempt}';",
        chance.mostly(12, "active", &["ended", "released", "expired"]),
        chance.mostly(8, now + 60_000, &[now - 1, now, now + 1]),
        sessions[of].session,
        chance.below(9),
    )
    .unwrap();
    sql
}

/// What the agent says, or somebody who is not it.
fn call(chance: &mut Chance, fixture: &Fixture<'_>, agents: &[SessionFence], grant: &Grant) -> AttemptStep {
    let mut call = step(&agents[chance.mostly(12, 0, &[1])], grant);
    match chance.below(30) {
        0 => call.session.generation = SessionGeneration::from_stored(2).unwrap(),
        1 => call.lease.generation = LeaseGeneration::from_stored(2).unwrap(),
        2 => call.lease.token = Digest::of(Domain::LeaseToken, b"another"),
        3 => call.lease.offer = fixture.ask().offer,
        4 => call.lease.attempt = fixture.attempt_id(),
        _ => {}
    }
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_starts_are_what_core_says() {
    let Some(fixture) = Fixture::new().await else { return };
    let agents = [fixture.agent("worker-0").await, fixture.agent("worker-1").await];
    let limits = Value::map([("timeout", Value::text("30s")), ("lease", Value::text("25s"))]);
    let (mut grants, mut policies) = (Vec::new(), Vec::new());
    for revision in [revision(&[]), revision(&[("limits", limits)])] {
        let run = fixture.admit(revision).await;
        grants.push(fixture.claim(&agents[0], run).await);
        let of = format!("FROM run WHERE id = '{run}'");
        let timeout = fixture.sql(&format!("SELECT timeout_millis::text {of}")).remove(0).remove(0);
        let timeout = timeout.unwrap_or_else(|| "NULL".to_owned());
        policies.push(format!("{}, {timeout}", fixture.value(&format!("SELECT start_millis::text {of}"))));
    }
    assert_ne!(policies[0], policies[1], "one of them has a timeout");
    let told: u64 = fixture.value("SELECT max(sequence)::text FROM event").parse().unwrap();
    let client = chaos(&fixture).await;
    let mut chance = Chance(SEED);
    // Of each: plain, done by core alone, and not done.
    let mut counts = [[0_u32; 3]; 2];
    for round in 0..STATES {
        let now = fixture.clock.boot().get();
        let which = chance.of(&[0, 1]);
        let mut sql = format!("DELETE FROM event_digest; DELETE FROM event WHERE sequence > {told};");
        sql += &speakers(&mut chance, &agents, now);
        sql += &starting(&mut chance, &grants[which], [&agents[0], &agents[1]], &policies[which], now);
        client.batch_execute(&sql).await.unwrap();
        let step = call(&mut chance, &fixture, &agents, &grants[which]);
        let runs = chance.of(&[false, true]);
        let why = format!("seed {SEED}, state {round}, running: {runs}: {step:#?}\n{sql}");
        let before = rows(&Connection::new(fixture.store.connect().await.unwrap())).await;
        let (plain, done) = if runs {
            let call = AcknowledgeRunning { step, call: running(&grants[which]) };
            let core = asking_core(&fixture, |db| activation::running(db, &call)).await;
            let plain = plainly(&fixture, |db| activation::running_plainly(db, &call)).await;
            compare(&plain, &core, &before, &why);
            (plain.0.is_some(), core.0.is_some())
        } else {
            let core = asking_core(&fixture, |db| activation::starting(db, &step)).await;
            let plain = plainly(&fixture, |db| activation::starting_plainly(db, &step)).await;
            compare(&plain, &core, &before, &why);
            (plain.0.is_some(), core.0.is_some())
        };
        let kind = if plain { 0 } else { usize::from(!done) + 1 };
        counts[usize::from(runs)][kind] += 1;
    }
    // A test that sees one kind alone compares nothing.
    assert!(counts.iter().all(|of| of[0] > 10 && of[1] > 3 && of[2] > 30), "{counts:?}");
}
