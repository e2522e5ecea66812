//! What a person does to a worker: drain, resume, grant a takeover, and what the machine says of itself.

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::claim::NotClaimed;
use leasehold_core::directive::Directive;
use leasehold_core::fault::{Fault, FaultKind};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::{Said, SessionState};
use leasehold_core::time::{Clock as _, UtcMillis};

use super::Harness;
use super::fixture::{Expect, World, admin, assert_code, exited, plain, seconds, tickets};
use super::race::both;
use crate::call::{DrainWorker, GrantTakeover, Heartbeat};
use crate::outcome::Outcome;
use crate::port::{ClaimRefused, Unmet};

const DRAINING: ClaimRefused = ClaimRefused::NotClaimed(NotClaimed::Draining);

fn call(worker: &str) -> DrainWorker {
    DrainWorker { actor: admin(), worker: worker.parse().unwrap(), why: Some("new disk".to_owned()) }
}

/// A drained worker keeps what it holds, in every step, and is given nothing more; until it is resumed.
pub async fn a_drained_worker_keeps_what_it_holds_and_is_given_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let claimed = world.claimed(&session, plain()).await;
    let running = world.running(&session, plain()).await;
    let run = world.run(plain()).await;

    let drained = world.store.drain_worker(call("nas")).await.applied();
    let drain = drained.worker.drain.clone().unwrap();
    assert_eq!((drain.by.as_str(), drain.why.as_deref()), ("local:1000", Some("new disk")));
    assert_eq!(drained, world.worker(&machine.id).await);
    assert_eq!(drained.session.unwrap().state, SessionState::Active, "the session is the agent's own");
    assert_eq!(world.unchanged(world.try_take(&session, run)).await.unwrap_err(), DRAINING);
    let pull = world.store.recover_asks(session.clone(), vec![world.ask()]).await.unwrap().into_result().unwrap();
    assert_eq!((pull.takes_work, pull.free_slots), (false, 0));

    // What it was granted before, it is granted again, starts and ends.
    assert_eq!(world.lease(&claimed).await.attempt, claimed.attempt);
    world.start(&claimed).await;
    world.renewal(&running).await.unwrap();
    world.end(&running, exited(0)).await.applied();

    let resumed = world.store.resume_worker(call("nas")).await.applied();
    assert_eq!(resumed.worker.drain, None);
    world.take(&session, run).await;
}

/// A directive is in every answer until a beat says that it is obeyed; so it is with its end.
pub async fn a_drain_is_told_until_it_is_obeyed(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let beat = async |obeys_drain| {
        let said = Said { slots: 0, obeys_drain };
        let version = world.version(&session).await;
        let beat = Heartbeat { session: session.clone(), version, said, faults: None, renewals: Vec::new() };
        world.store.heartbeat(beat).await.applied().directives
    };
    let pull = async || {
        let pull = world.store.recover_asks(session.clone(), Vec::new()).await.unwrap();
        pull.into_result().unwrap().directives
    };
    assert_eq!((beat(false).await, pull().await), (vec![], vec![]));
    world.store.drain_worker(call("nas")).await.applied();
    for _ in 0..2 {
        assert_eq!((beat(false).await, pull().await), (vec![Directive::Drain], vec![Directive::Drain]));
    }
    assert_eq!((beat(true).await, pull().await), (vec![], vec![]));
    world.store.resume_worker(call("nas")).await.applied();
    for _ in 0..2 {
        assert_eq!((beat(true).await, pull().await), (vec![Directive::Resume], vec![Directive::Resume]));
    }
    assert_eq!((beat(false).await, pull().await), (vec![], vec![]));
}

/// The wish stands on the worker: a new session, another boot and a new enrollment find it as it was.
pub async fn a_drain_outlives_sessions_and_enrollments(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, first) = world.agent("nas").await;
    world.store.drain_worker(call("nas")).await.applied();
    let run = world.run(plain()).await;
    world.offline(&first).await.applied();
    let second = world.session(&machine, "boot-b").await;
    assert_eq!(world.try_take(&second, run).await.unwrap_err(), DRAINING);
    assert_eq!(world.beat(&second, &[]).await.applied().directives, [Directive::Drain]);
    let machine = world.machine("nas").await;
    let third = world.session(&machine, "boot-b").await;
    assert_eq!(world.try_take(&third, run).await.unwrap_err(), DRAINING);
    world.store.resume_worker(call("nas")).await.applied();
    world.take(&third, run).await;
}

/// The first wish stands with its author; a repeat changes nothing, and each change is one audit row.
pub async fn a_drain_is_idempotent_and_audited_once(harness: &dyn Harness) {
    let world = World::new(harness);
    world.machine("nas").await;
    let before = world.audit().await.len();
    let first = world.store.drain_worker(call("nas")).await.applied();
    let origin = Origin::Address([192, 0, 2, 1].into());
    let ci = Actor::ApiToken { token: world.token_id(), name: "ci".to_owned(), origin };
    let other = DrainWorker { actor: ci, why: None, ..call("nas") };
    assert_eq!(world.unchanged(world.store.drain_worker(other.clone())).await.replayed(), first);
    world.store.resume_worker(other.clone()).await.applied();
    world.unchanged(world.store.resume_worker(other)).await.replayed();
    for unknown in [world.store.drain_worker(call("box")), world.store.resume_worker(call("box"))] {
        assert_eq!(world.unchanged(unknown).await.refused(), Unmet::NotFound("worker"));
    }
    let rows = world.audit().await.split_off(before);
    let told = rows.iter().map(|row| (row.action.as_str(), row.actor.as_str(), row.origin.as_deref().unwrap()));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [("drain_worker", "local:1000", "admin socket"), ("resume_worker", "token:ci", "192.0.2.1")]
    );
    assert!(rows.iter().all(|row| row.subject == "worker/nas"));
    assert_eq!(rows[0].facts.get("why").map(String::as_str), Some("new disk"));
}

/// Once a drain is answered nothing more is claimed, however close the two come.
pub async fn a_drain_and_a_claim_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let name = format!("nas-{round}");
        let (machine, session) = world.agent(&name).await;
        let run = world.run(plain()).await;
        let (store, claim) = (world.store.clone(), world.claim_call(&session, &world.ask(), run));
        let claim = async move { store.claim(claim).await.unwrap() };
        let (store, drain) = (world.store.clone(), call(&name));
        let drain = async move { store.drain_worker(drain).await.unwrap() };
        let (claimed, drained) = both(claim, drain).await;
        let Outcome::Applied(drained) = drained else { panic!("{drained:?}") };
        let active = world.worker(&machine.id).await.active;
        // Claimed before the drain, whose answer shows it; or not at all.
        let held = match claimed {
            Outcome::Applied(grant) => vec![grant.attempt.id],
            Outcome::Refused(refused) => {
                assert_eq!(refused, DRAINING);
                Vec::new()
            }
            Outcome::Replayed(grant) => panic!("{grant:?}"),
        };
        assert_eq!((&drained.active, &active), (&held, &held));
    }
}

/// The worker's word on its faults is kept as it said it last: replaced whole, kept where it says nothing, gone with a new
/// enrollment.
pub async fn faults_are_kept_as_they_were_said_last(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let fault =
        |kind, attempt, detail: &str| Fault { kind, attempt, detail: detail.to_owned(), since: UtcMillis::new(7) };
    let low = fault(FaultKind::DiskLow, None, "12 MiB left on /");
    let damaged = fault(FaultKind::RecordDamaged, Some(world.attempt_id()), "it \"contradicts\" the disk, ü");
    let beat = async |faults: Option<Vec<Fault>>| {
        let version = world.version(&session).await;
        let said = Said::default();
        let beat = Heartbeat { session: session.clone(), version, said, faults, renewals: Vec::new() };
        world.store.heartbeat(beat).await.applied();
        world.worker(&machine.id).await.faults
    };
    assert_eq!(beat(None).await, []);
    let both = vec![low.clone(), damaged];
    assert_eq!(beat(Some(both.clone())).await, both);
    assert_eq!(beat(None).await, both, "nothing said is nothing changed");
    assert_eq!(beat(Some(both.clone())).await, both);
    let one = vec![low.clone()];
    assert_eq!(beat(Some(one.clone())).await, one);
    assert_eq!(world.store.workers(None, 10).await.unwrap()[0].faults, one);
    assert_eq!(beat(Some(vec![])).await, []);
    beat(Some(vec![low])).await;
    world.machine("nas").await;
    assert_eq!(world.worker(&machine.id).await.faults, [], "another machine now");
}

fn grant(world: &World<'_>) -> GrantTakeover {
    let expires_at = world.clock().utc().plus(seconds(60));
    GrantTakeover { actor: admin(), worker: "nas".parse().unwrap(), why: Some("new board".to_owned()), expires_at }
}

/// A grant lets one registration in that would have to wait, and one whose ticket was spent; the old session is fenced.
pub async fn a_granted_takeover_lets_one_registration_in(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, old) = world.agent("nas").await;
    let spent = tickets().first(&machine.id, machine.enrollment);
    for (instead_of, ticket) in
        [(RefusalCode::SessionLive, world.ticket(&machine).await), (RefusalCode::TicketSpent, spent)]
    {
        let call = world.registration(&machine, world.session_id(), ticket.clone(), "boot-b");
        assert_code(&world.store.register_session(call.clone()).await.refused(), instead_of);
        let granted = world.store.grant_takeover(grant(&world)).await.applied();
        let takeover = granted.worker.takeover.unwrap();
        assert_eq!((takeover.by.as_str(), takeover.why.as_deref()), ("local:1000", Some("new board")));
        world.store.register_session(call.clone()).await.applied();
        world.unchanged(world.store.register_session(call)).await.replayed();
        assert_eq!(world.worker(&machine.id).await.worker.takeover, None, "used up");
        let again = world.registration(&machine, world.session_id(), ticket, "boot-c");
        assert_code(&world.store.register_session(again).await.refused(), RefusalCode::TicketSpent);
        let rows = world.audit().await;
        let row = rows.iter().rfind(|row| row.action == "take_over").unwrap();
        assert_eq!(row.facts.get("instead_of").map(String::as_str), Some(instead_of.as_str()));
        assert_eq!((row.facts.get("granted_by").unwrap().as_str(), row.actor.as_str()), ("local:1000", "worker:nas"));
        assert_eq!(row.origin.as_deref(), Some("192.0.2.7"));
    }
    assert_eq!(world.audited("take_over").await, 2);
    assert_eq!(world.audited("grant_takeover").await, 2);
    let step = crate::call::SessionStep { session: old, version: world.current(&machine.id).await.version };
    assert_code(&world.store.drain_session(step).await.refused(), RefusalCode::SessionFenced);
}

/// A grant ends by itself, is left by who needs none, opens nothing for a fenced session, and a repeat is no second one.
pub async fn a_grant_is_for_its_time_and_for_who_needs_it(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, first) = world.agent("nas").await;
    let call = grant(&world);
    let granted = world.store.grant_takeover(call.clone()).await.applied();
    assert_eq!(world.unchanged(world.store.grant_takeover(call)).await.replayed(), granted);
    let second = world.session(&machine, "boot-a").await;
    assert!(world.worker(&machine.id).await.worker.takeover.is_some(), "a good ticket needs no grant");
    let late = world.registration(&machine, first.session, tickets().first(&machine.id, machine.enrollment), "boot-a");
    assert_code(&world.store.register_session(late).await.refused(), RefusalCode::SessionFenced);
    world.pass(seconds(61));
    world.beat(&second, &[]).await.refused();
    let spent = tickets().first(&machine.id, machine.enrollment);
    let copy = world.registration(&machine, world.session_id(), spent, "boot-b");
    assert_code(&world.store.register_session(copy).await.refused(), RefusalCode::TicketSpent);
    let unknown = GrantTakeover { worker: "box".parse().unwrap(), ..grant(&world) };
    assert_eq!(world.unchanged(world.store.grant_takeover(unknown)).await.refused(), Unmet::NotFound("worker"));
}
