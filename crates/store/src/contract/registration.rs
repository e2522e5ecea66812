//! Registration: tickets, exact repeats, replacement, and the newcomer that has to wait.

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{Expect, World, assert_code, seconds, tickets};
use super::race::both;
use crate::call::RegisterSession;
use crate::outcome::Outcome;

/// The exact repeat of the current session gets the same answer, and revives nothing.
pub async fn an_exact_repeat_gets_the_same_answer_also_after_expiry(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-a");
    let first = world.store.register_session(call.clone()).await.applied();
    assert_eq!(first.remaining, seconds(45));
    assert_eq!(world.unchanged(world.store.register_session(call.clone())).await.replayed(), first);
    world.pass(seconds(46));
    let late = world.unchanged(world.store.register_session(call.clone())).await.replayed();
    assert_eq!((late.generation, late.version, late.state), (first.generation, first.version, first.state));
    assert_eq!(late.remaining, seconds(0));
    let session = SessionFence { worker: machine.id, session: call.registration.session, generation: first.generation };
    assert_code(&world.unchanged(world.beat(&session, &[])).await.refused(), RefusalCode::SessionExpired);
}

/// One session id is one registration.
pub async fn the_same_session_with_other_content_is_refused(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-a");
    world.store.register_session(call.clone()).await.applied();
    let mut other = call;
    other.registration.max_runs = 9;
    other.registration.body = Digest::of(Domain::Registration, b"other");
    assert_code(&world.unchanged(world.store.register_session(other)).await.refused(), RefusalCode::ConflictReplay);
}

/// A session that the server never saw, with a ticket that was spent, is a copied credential.
pub async fn an_unknown_session_with_a_spent_ticket_is_a_copy(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let spent = tickets().first(&machine.id, machine.enrollment);
    let copy = world.registration(&machine, world.session_id(), spent, "boot-b");
    assert_code(&world.store.register_session(copy).await.refused(), RefusalCode::TicketSpent);
    let rows = world.audit().await;
    let row = rows.iter().find(|row| row.action == "credential_replayed").unwrap();
    assert_eq!((row.actor.as_str(), row.subject.as_str()), ("worker:nas", "worker/nas"));
    assert_eq!(row.origin.as_deref(), Some("192.0.2.7"), "from where the copy called");
    world.beat(&session, &[]).await.applied();
}

/// A late duplicate of one's own registration is fenced, and no copy.
pub async fn a_late_duplicate_of_an_accepted_registration_is_fenced_without_an_audit(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-a");
    world.store.register_session(call.clone()).await.applied();
    world.session(&machine, "boot-a").await;
    let refusal = world.unchanged(world.store.register_session(call)).await.refused();
    assert_code(&refusal, RefusalCode::SessionFenced);
    assert_eq!(world.audited("credential_replayed").await, 0);
}

/// While a session speaks, another boot waits; its ticket is unspent, and silence lets it in.
pub async fn another_boot_waits_until_the_session_falls_silent(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    world.pass(seconds(10));
    world.beat(&session, &[]).await.applied();
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-b");
    let refusal = world.store.register_session(call.clone()).await.refused();
    assert_code(&refusal, RefusalCode::SessionLive);
    assert_eq!(refusal.retry_after, Some(seconds(22).plus(leasehold_core::time::Millis::new(500))));
    world.pass(seconds(22));
    assert_code(&world.store.register_session(call.clone()).await.refused(), RefusalCode::SessionLive);
    world.pass(seconds(1));
    let answer = world.store.register_session(call).await.applied();
    assert_eq!(answer.generation, session.generation.next());
    assert!(answer.version.get() > 1, "the version grows on from the replaced session");
    assert_eq!(world.audited("credential_replayed").await, 0, "a rebooted machine is no copy");
}

/// A newcomer that hears the session speak twice is a copy: audited once, however often it asks.
pub async fn a_newcomer_that_hears_the_session_twice_is_audited_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-b");
    let mut audited = Vec::new();
    for beats in [0, 1, 0, 1, 0, 1, 2] {
        for _ in 0..beats {
            world.pass(seconds(5));
            world.beat(&session, &[]).await.applied();
        }
        assert_code(&world.store.register_session(call.clone()).await.refused(), RefusalCode::SessionLive);
        audited.push(world.audited("credential_replayed").await);
    }
    assert_eq!(audited, [0, 0, 0, 1, 1, 1, 1]);
}

/// A newcomer that asks seldom is found out as well.
pub async fn a_newcomer_that_asks_seldom_is_audited_too(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-b");
    assert_code(&world.store.register_session(call.clone()).await.refused(), RefusalCode::SessionLive);
    for _ in 0..3 {
        world.pass(seconds(15));
        world.beat(&session, &[]).await.applied();
    }
    assert_code(&world.store.register_session(call).await.refused(), RefusalCode::SessionLive);
    assert_eq!(world.audited("credential_replayed").await, 1);
}

/// The same boot cannot have two agents that matter: the new session replaces the old one at once.
pub async fn a_session_of_the_same_boot_is_replaced_at_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, old) = world.agent("nas").await;
    let new = world.session(&machine, "boot-a").await;
    assert_eq!(new.generation, old.generation.next());
    assert_eq!(world.current(&machine.id).await.id, new.session);
}

/// A session whose lease has ended, or that went offline, keeps nobody waiting.
pub async fn a_session_that_ended_keeps_nobody_waiting(harness: &dyn Harness) {
    let world = World::new(harness);
    let (expired, _) = world.agent("nas").await;
    world.pass(seconds(45));
    let (left, session) = world.agent("box").await;
    world.offline(&session).await.applied();
    world.session(&expired, "boot-b").await;
    world.session(&left, "boot-b").await;
}

/// Who is no worker cannot register.
pub async fn an_unknown_worker_is_unauthenticated(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, _) = world.agent("nas").await;
    let mut call = world.registration(&machine, world.session_id(), world.ticket(&machine).await, "boot-a");
    call.worker = "stranger".parse().unwrap();
    assert_code(&world.unchanged(world.store.register_session(call)).await.refused(), RefusalCode::Unauthenticated);
}

/// Two processes with one ticket at the same instant: one registers, the other stops for good.
pub async fn one_ticket_is_one_registration(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for round in 1..=16 {
        let ticket = world.ticket(&machine).await;
        let call = |ticket| world.registration(&machine, world.session_id(), ticket, "boot-a");
        let register = |call: RegisterSession| {
            let store = world.store.clone();
            async move { store.register_session(call).await.unwrap() }
        };
        let (one, two) = both(register(call(ticket.clone())), register(call(ticket))).await;
        let (won, lost) = if one.is_applied() { (one, two) } else { (two, one) };
        assert!(won.is_applied(), "{won:?}");
        let Outcome::Refused(refusal) = lost else { panic!("two registrations with one ticket: {lost:?}") };
        assert_code(&refusal, RefusalCode::TicketSpent);
        assert_eq!(world.current(&machine.id).await.generation.get(), round);
    }
}
