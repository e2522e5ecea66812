//! Claims.

use std::fmt::Write as _;

use leasehold_core::canonical::Value;
use leasehold_core::claim::Ask;
use leasehold_core::counter::SessionGeneration;
use leasehold_core::id::RunId;
use leasehold_core::revision::Revision;
use leasehold_core::session::SessionFence;
use leasehold_core::time::Clock as _;
use leasehold_store::call::Claim;
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;

use super::super::super::claim;
use super::super::super::transaction::Connection;
use super::super::Fixture;
use super::{Chance, Made, SEED, STATES, asking_core, chaos, compare, plainly, rows, speakers};
use crate::scene::revision;

fn limited(concurrency: i64, mutex: bool) -> Revision {
    let limits =
        [("concurrency", Value::Int(concurrency)), ("mutex", Value::Bool(mutex)), ("lease", Value::text("25s"))];
    revision(&[("limits", Value::map(limits))])
}

/// Runs, attempts and leases of which anything may be, for claims.
fn waiting(chance: &mut Chance, agents: &[SessionFence], runs: &[(RunId, String)], asks: &[Ask], now: i64) -> String {
    let mut sql = "DELETE FROM lease; DELETE FROM event_digest; DELETE FROM event WHERE sequence > 1;".to_owned();
    write!(sql, "UPDATE project SET concurrency = {};", chance.mostly(2, "NULL", &["1", "2", "3", "4"])).unwrap();
    for (n, (run, lease)) in runs.iter().enumerate() {
        let state = chance.mostly(4, "pending", &["dispatching", "running", "lost"]);
        write!(
            sql,
            "UPDATE run SET state = '{state}', version = {}, fence = {}, latest = {}, lease_millis = {}, \
             (intent_reason, intent_by, intent_at) = ROW({}) WHERE id = '{run}';",
            chance.below(9),
            chance.of(&["NULL", "NULL", "50"]),
            chance.mostly(20, 1, &[2]),
            chance.mostly(12, lease.as_str(), &["NULL"]),
            chance.mostly(10, "NULL, NULL, NULL", &["'cancel', 'a person', 7", "'timeout', 'system', 7"]),
        )
        .unwrap();
        let (state, ended) = match state {
            "pending" => (chance.mostly(10, "pending", &["claimed", "starting"]), "NULL, NULL"),
            "lost" => ("lost", "7, '{\"evidence\":\"lease_expired\",\"kind\":\"lost\"}'"),
            "running" => ("running", "NULL, NULL"),
            _ => (chance.of(&["claimed", "starting"]), "NULL, NULL"),
        };
        write!(
            sql,
            "UPDATE attempt SET state = '{state}', (ended_at, outcome) = ROW({ended}), version = {}, may_live = {}, \
             lease_generation = {}, worker = {}, claimed_at = {} WHERE run = '{run}';",
            chance.below(9),
            chance.mostly(4, false, &[true]),
            chance.of(&["NULL", "NULL", "7"]),
            chance.of(&["NULL", "'worker-0'"]),
            chance.of(&["NULL", "7"]),
        )
        .unwrap();
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
            write!(sql, "INSERT INTO lease SELECT id, 7, run, ({offer})::uuid, {token}, 0, '{}', '{}', 1, 50, 25000, {}, '{}', 0, 7 \
                 FROM attempt WHERE run = '{run}' ON CONFLICT DO NOTHING;",
                agents[agent].worker,
                chance.mostly(6, agents[agent].session, &[agents[1].session]),
                chance.mostly(4, now + 60_000, &[now]),
                if state == "pending" { chance.mostly(8, "released", &["active"]) } else { "active" }).unwrap();
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
        let core = Box::pin(asking_core(&fixture, |db| claim::claim(db, &call))).await;
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
