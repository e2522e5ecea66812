//! Claims: one winner, one lease per ask, and the same offer for the same ask.

use leasehold_core::attempt::AttemptState;
use leasehold_core::claim::{Ask, NotClaimed, ReleaseReason};
use leasehold_core::counter::{FenceNumber, LeaseGeneration, LeaseVersion};
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::event::EventKind;
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, World, exited, plain, seconds, taken};
use super::race::both;
use crate::call::{Claim, Release};
use crate::outcome::Outcome;
use crate::port::{ClaimRefused, Store};
use crate::view::{AskState, Grant};

async fn claims(store: std::sync::Arc<dyn Store>, call: Claim) -> Outcome<Grant, ClaimRefused> {
    store.claim(call).await.unwrap()
}

/// A claim makes a lease for the claim window, and moves run and attempt together.
pub async fn a_claim_moves_run_and_attempt_together(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let run = world.run(plain()).await;
    let ask = world.ask();
    let grant = world.store.claim(world.claim_call(&session, &ask, run)).await.applied();
    assert_eq!((grant.run.state, grant.attempt.state), (RunState::Dispatching, AttemptState::Claimed));
    assert_eq!((grant.lease.generation, grant.lease.version), (LeaseGeneration::FIRST, LeaseVersion::FIRST));
    assert_eq!((grant.lease.fence, grant.run.fence), (FenceNumber::FIRST, Some(FenceNumber::FIRST)));
    assert_eq!((grant.lease.offer, grant.lease.token, grant.lease.score), (ask.offer, ask.token, 7));
    assert_eq!(grant.lease.expires.since(grant.now.lease), seconds(20));
    assert_eq!((grant.revision.digest(), grant.revision), (grant.run.revision, plain()));
    let view = world.view(run).await;
    assert_eq!((&view.run, &view.attempts[..]), (&grant.run, &[grant.attempt.clone()][..]));
    assert_eq!(view.attempts[0].worker.as_ref(), Some(&machine.id));
    assert_eq!(world.worker(&machine.id).await.active, [grant.attempt.id]);
    assert_eq!(world.story(run).await, [EventKind::RunAdmitted, EventKind::AttemptClaimed]);
}

/// The same ask again is the same offer, by whichever way it comes, also after it started.
pub async fn the_same_ask_is_the_same_offer(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let run = world.run(plain()).await;
    let other = world.run(plain()).await;
    let call = world.claim_call(&session, &world.ask(), run);
    let grant = world.store.claim(call.clone()).await.applied();
    assert_eq!(world.unchanged(world.store.claim(call.clone())).await.replayed(), grant);
    let elsewhere = Claim { run: other, ..call.clone() };
    assert_eq!(world.unchanged(world.store.claim(elsewhere)).await.replayed(), grant, "an ask is claimed with once");
    let asks = vec![world.ask(), call.ask.clone()];
    let pull = world.unchanged(world.store.recover_asks(session.clone(), asks)).await.replayed();
    assert_eq!(pull.asks, [AskState::Open, AskState::Granted(Box::new(grant.clone()))]);
    assert_eq!((pull.free_slots, pull.session.id), (3, session.session));
    world.start(&taken(&session, grant)).await;
    let pull = world.store.recover_asks(session.clone(), vec![call.ask]).await.replayed();
    let AskState::Granted(again) = &pull.asks[0] else { panic!("{pull:?}") };
    assert_eq!(again.attempt.state, AttemptState::Starting);
}

/// A later session of the worker gets the same offer, and the lease with it.
pub async fn a_later_session_gets_the_same_offer(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, old) = world.agent("nas").await;
    let run = world.run(plain()).await;
    let call = world.claim_call(&old, &world.ask(), run);
    let grant = world.store.claim(call.clone()).await.applied();
    let new = world.session(&machine, "boot-a").await;
    let pull = world.store.recover_asks(new.clone(), vec![call.ask.clone()]).await.applied();
    let AskState::Granted(again) = &pull.asks[0] else { panic!("{pull:?}") };
    assert_eq!((again.lease.session, again.lease.session_generation), (new.session, new.generation));
    assert_eq!((again.lease.offer, again.lease.generation), (grant.lease.offer, grant.lease.generation));
    assert_eq!(again.lease.version, grant.lease.version.next());
    assert_eq!(world.story(run).await.last(), Some(&EventKind::LeaseRebound));
    world.unchanged(world.store.recover_asks(new.clone(), vec![call.ask.clone()])).await.replayed();
    let again = world.unchanged(world.store.claim(Claim { session: new, ..call })).await.replayed();
    assert_eq!(again.run.id, run);
}

/// An ask that was used by another, with another token, or up to its end is gone, in a pull and in a claim.
pub async fn a_used_ask_is_gone(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let (_, other) = world.agent("box").await;
    let run = world.run(plain()).await;
    let held = world.claimed(&session, plain()).await;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    let released = world.claimed(&session, plain()).await;
    world.store.release(Release { step: released.step.clone(), reason: ReleaseReason::DiskLow }).await.applied();

    let ask = |lease: &leasehold_core::lease::LeaseFence| Ask { offer: lease.offer, token: lease.token };
    let mine = ask(&held.step.lease);
    let token = Digest::of(Domain::LeaseToken, b"another");
    for (who, used, why) in [
        (&other, mine.clone(), "another worker's"),
        (&session, Ask { token, ..mine.clone() }, "the offer with another token"),
        (&session, Ask { offer: world.offer_id(), ..mine.clone() }, "the token with another offer"),
        (&session, ask(&ended.step.lease), "its attempt ended"),
        (&session, ask(&released.step.lease), "given back"),
    ] {
        let pull = world.unchanged(world.store.recover_asks(who.clone(), vec![used.clone()])).await.replayed();
        assert_eq!(pull.asks, [AskState::Gone], "{why}");
        let claim = world.unchanged(world.store.claim(world.claim_call(who, &used, run))).await.refused();
        assert_eq!(claim, ClaimRefused::NotClaimed(NotClaimed::AskGone), "{why}");
    }
    world.pass(seconds(20));
    let pull = world.store.recover_asks(session, vec![mine]).await.replayed();
    assert_eq!(pull.asks, [AskState::Gone], "run out, though nobody declared it");
}

/// What does not wait is taken: unknown, held, ended, cancelled.
pub async fn what_does_not_wait_is_taken(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let held = world.claimed(&session, plain()).await.run;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    let cancelled = world.run(plain()).await;
    world.store.cancel_run(world.cancel_call(cancelled)).await.applied();
    for run in [world.run_id(), held, ended.run, cancelled] {
        let refused = world.unchanged(world.try_take(&session, run)).await.unwrap_err();
        assert_eq!(refused, ClaimRefused::NotClaimed(NotClaimed::Taken));
    }
}

/// A worker never holds more leases than it has slots, by the store's count.
pub async fn the_slots_are_counted_by_the_store(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let first = world.running(&session, plain()).await;
    for _ in 1..4 {
        world.claimed(&session, plain()).await;
    }
    let run = world.run(plain()).await;
    let refused = world.unchanged(world.try_take(&session, run)).await.unwrap_err();
    assert_eq!(refused, ClaimRefused::NotClaimed(NotClaimed::NoFreeSlot));
    world.end(&first, exited(0)).await.applied();
    world.take(&session, run).await;
}

/// Two workers want one attempt at the same instant: one has it, the other hears that it is taken.
pub async fn one_of_two_callers_claims_an_attempt(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let (_, nas) = world.agent(&format!("nas-{round}")).await;
        let (_, other) = world.agent(&format!("box-{round}")).await;
        let run = world.run(plain()).await;
        let (one, two) = both(
            claims(world.store.clone(), world.claim_call(&nas, &world.ask(), run)),
            claims(world.store.clone(), world.claim_call(&other, &world.ask(), run)),
        )
        .await;
        let lost = if one.is_applied() { &two } else { &one };
        assert_eq!(u8::from(one.is_applied()) + u8::from(two.is_applied()), 1, "{one:?} {two:?}");
        assert_eq!(*lost, Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::Taken)));
        assert_eq!(world.view(run).await.run.fence, Some(FenceNumber::FIRST));
    }
}

/// One worker claims two runs with its last slot at the same instant: it gets one.
pub async fn the_last_slot_is_taken_once(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let (machine, session) = world.agent(&format!("nas-{round}")).await;
        for _ in 0..3 {
            world.claimed(&session, plain()).await;
        }
        let calls = [world.run(plain()).await, world.run(plain()).await];
        let [one, two] = calls.map(|run| claims(world.store.clone(), world.claim_call(&session, &world.ask(), run)));
        let (one, two) = both(one, two).await;
        assert_eq!(u8::from(one.is_applied()) + u8::from(two.is_applied()), 1, "{one:?} {two:?}");
        let lost = if one.is_applied() { two } else { one };
        assert_eq!(lost, Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::NoFreeSlot)));
        assert_eq!(world.worker(&machine.id).await.active.len(), 4);
    }
}

/// A pull that was sent twice claims two runs with one ask at the same instant: one lease, one offer.
pub async fn one_ask_is_one_lease(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let (machine, session) = world.agent(&format!("nas-{round}")).await;
        let ask = world.ask();
        let calls = [world.run(plain()).await, world.run(plain()).await];
        let [one, two] = calls.map(|run| claims(world.store.clone(), world.claim_call(&session, &ask, run)));
        let (one, two) = both(one, two).await;
        let (one, two) = (one.into_result().unwrap(), two.into_result().unwrap());
        assert_eq!(one.lease, two.lease);
        assert_eq!(world.worker(&machine.id).await.active, [one.attempt.id]);
    }
}
