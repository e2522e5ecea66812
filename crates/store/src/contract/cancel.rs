//! Cancelling, in each state; and a stop that the truth overtakes.

use leasehold_core::attempt::{AttemptState, Resolution, StopReason};
use leasehold_core::cancel::{Cancel, CancelRefused, StopDirective};
use leasehold_core::directive::Directive;
use leasehold_core::end::{Ended, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::run::{RunState, StopIntentReason};

use super::Harness;
use super::fixture::{Expect, World, exited, plain, retried_when_lost, seconds, stopped};
use super::race::both;
use crate::outcome::Outcome;
use crate::port::Unmet;

/// Where nothing is held, the run ends at once.
pub async fn what_nobody_holds_ends_at_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let pending = world.run(plain()).await;
    let failed = world.starting(&session, plain()).await;
    world.end(&failed, Ending::NeverSpawned).await.applied();
    assert_eq!(world.state(failed.run).await, RunState::RetryWait);
    for (run, attempt) in [(pending, AttemptState::Cancelled), (failed.run, AttemptState::Failed)] {
        let (cancel, view) = world.store.cancel_run(world.cancel_call(run)).await.applied();
        assert_eq!((&cancel, view.run.state, view.attempts[0].state), (&Cancel::Ended, RunState::Cancelled, attempt));
        assert_eq!(view, world.view(run).await, "the answer shows the run as it is then");
        let intent = view.run.intent.unwrap();
        assert_eq!((intent.reason, intent.by.as_str()), (StopIntentReason::Cancel, "local:1000"));
        assert_eq!(intent.why.as_deref(), Some("no longer needed"));
        assert!(world.story(run).await.ends_with(&[EventKind::CancelRequested, EventKind::RunEnded]));
        let (again, _) = world.unchanged(world.store.cancel_run(world.cancel_call(run))).await.replayed();
        assert_eq!(again, Cancel::AlreadyCancelled);
    }
    world.pass(seconds(3600));
    assert_eq!(world.store.begin_retries(vec![world.attempt_id()]).await.unwrap().runs, []);
}

/// What somebody holds is told to stop, in every answer until the end is known.
pub async fn what_somebody_holds_is_told_until_its_end(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let held = [
        world.claimed(&session, plain()).await,
        world.starting(&session, plain()).await,
        world.running(&session, plain()).await,
    ];
    let untouched = world.running(&session, plain()).await;
    for taken in &held {
        let before = world.state(taken.run).await;
        let (cancel, view) = world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
        assert_eq!((cancel, view.run.state), (Cancel::Requested, before));
        let (again, _) = world.unchanged(world.store.cancel_run(world.cancel_call(taken.run))).await.replayed();
        assert_eq!(again, Cancel::AlreadyRequested);
    }
    let mut told: Vec<_> = held.iter().map(|taken| taken.attempt).collect();
    told.sort_unstable();
    for _ in 0..2 {
        let beaten = world.beat(&session, &[&untouched]).await.applied();
        let pull = world.store.recover_asks(session.clone(), Vec::new()).await.unwrap().into_result().unwrap();
        for directives in [beaten.directives, pull.directives] {
            let stop = |directive: &Directive| match directive {
                Directive::Stop(stop) if stop.reason == StopIntentReason::Cancel => stop.attempt,
                other => panic!("not a cancel: {other:?}"),
            };
            let mut attempts: Vec<_> = directives.iter().map(stop).collect();
            attempts.sort_unstable();
            assert_eq!(attempts, told);
        }
    }
    world.end(&held[2], stopped(StopReason::Cancel)).await.applied();
    assert_eq!(world.state(held[2].run).await, RunState::Cancelled);
    let beaten = world.beat(&session, &[]).await.applied();
    let ended = StopDirective { attempt: held[2].attempt, reason: StopIntentReason::Cancel };
    assert!(!beaten.directives.contains(&Directive::Stop(ended)));
    assert_eq!(beaten.directives.len(), 2);
}

/// What never ran under a cancel is cancelled, and never tried again.
pub async fn what_never_ran_under_a_cancel_is_cancelled(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    world.end(&taken, Ending::NeverSpawned).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
}

/// A process that had ended by itself keeps its own outcome; the story says that a stop was on its way.
pub async fn a_process_that_ended_by_itself_keeps_its_outcome(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    for (code, state) in [(0, RunState::Succeeded), (3, RunState::Failed)] {
        let taken = world.running(&session, plain()).await;
        world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
        world.end(&taken, exited(code)).await.applied();
        assert_eq!(world.state(taken.run).await, state);
        assert!(world.story(taken.run).await.contains(&EventKind::StopOvertaken));
    }
}

/// A run with an intent whose lease ends is cancelled, says that nobody saw it, and is never tried again.
pub async fn a_lost_attempt_under_a_cancel_is_cancelled_unobserved(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for revision in [plain(), retried_when_lost()] {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.running(&session, revision).await;
        world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
        world.expire(&taken).await;
        let view = world.view(taken.run).await;
        assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Lost));
        assert!(view.run.closing.unwrap().unobserved);
        let taken = taken.held_by(&world.session(&machine, "boot-a").await);
        let answer = world.end(&taken, exited(0)).await.applied();
        let Ended::AlreadyTerminal(projection) = answer else { panic!("{answer:?}") };
        assert_eq!((projection.run, projection.resolution), (RunState::Cancelled, Resolution::Policy));
    }
}

/// A claim that runs out under a cancel ends the run.
pub async fn a_claim_that_runs_out_under_a_cancel_ends_the_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    world.pass(seconds(22));
    world.store.expire_leases(64).await.unwrap();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
}

/// What ended otherwise, what is lost and what is unknown is refused, and nothing is written.
pub async fn what_cannot_be_cancelled_is_refused(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    let lost = world.running(&session, plain()).await;
    world.expire(&lost).await;
    for (run, refused) in [
        (ended.run, Unmet::Cancel(CancelRefused::AlreadyEnded(RunState::Succeeded))),
        (lost.run, Unmet::Cancel(CancelRefused::Lost)),
        (world.run_id(), Unmet::NotFound("run")),
    ] {
        assert_eq!(world.unchanged(world.store.cancel_run(world.cancel_call(run))).await.refused(), refused);
    }
}

/// An attempt never starts after its cancel was accepted while it was claimed, however close the two come.
pub async fn a_cancel_and_a_start_at_the_same_instant_agree(harness: &dyn Harness) {
    use leasehold_core::attempt::Starting;
    let world = World::new(harness);
    for round in 0..16 {
        let (_, session) = world.agent(&format!("nas-{round}")).await;
        let taken = world.claimed(&session, plain()).await;
        let (store, step) = (world.store.clone(), taken.step.clone());
        let start = async move { store.acknowledge_starting(step).await.unwrap() };
        let (store, call) = (world.store.clone(), world.cancel_call(taken.run));
        let cancel = async move { store.cancel_run(call).await.unwrap() };
        let (started, cancelled) = both(start, cancel).await;
        let Outcome::Applied((Cancel::Requested, _)) = cancelled else { panic!("{cancelled:?}") };
        let attempt = world.view(taken.run).await.attempts[0].state;
        match started {
            Outcome::Applied(Starting::Accepted(_)) => assert_eq!(attempt, AttemptState::Starting),
            Outcome::Applied(Starting::Stopped(_)) => assert_eq!(attempt, AttemptState::Cancelled),
            other => panic!("{other:?}"),
        }
    }
}
