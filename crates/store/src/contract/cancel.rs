//! Cancelling, in each state; and a stop that the truth overtakes.

use leasehold_core::attempt::{AttemptState, EvidenceKind, Resolution, StopReason};
use leasehold_core::cancel::{Cancel, CancelRefused, StopDirective};
use leasehold_core::canonical::Value;
use leasehold_core::directive::Directive;
use leasehold_core::end::{Ended, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::revision::Revision;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{Expect, Taken, World, exited, plain, retried_when_lost, revision_with, seconds, stopped};
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

/// A revision that is tried again whenever its process fails or runs out of time, within 30 s.
fn stubborn() -> Revision {
    let on = Value::texts(["failed", "timed_out"]);
    let retry = Value::map([("max_attempts", Value::Int(5)), ("on", on)]);
    revision_with([("retry", retry), ("limits", Value::map([("timeout", Value::text("30s"))]))])
}

/// A running attempt of a [`stubborn`] run that is to stop, for `reason`.
async fn stopping(world: &World<'_>, session: &SessionFence, reason: StopIntentReason) -> Taken {
    let taken = world.running(session, stubborn()).await;
    match reason {
        StopIntentReason::Cancel => drop(world.store.cancel_run(world.cancel_call(taken.run)).await.applied()),
        StopIntentReason::Timeout => {
            world.pass(seconds(30));
            assert_eq!(world.store.stop_overdue(64).await.unwrap().runs, [taken.run]);
        }
    }
    taken
}

/// Each way in which a process can end while a stop is on its way: the run says what really happened, and the policy is
/// asked about that; a cancelled run is never tried again.
pub async fn every_race_of_a_stop_and_an_end_tells_the_truth(harness: &dyn Harness) {
    use AttemptState as A;
    use RunState as R;
    use StopIntentReason::{Cancel, Timeout};
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let died = Ending::Lost { evidence: EvidenceKind::LauncherKilledAllGone };
    // Which stop, which end, what becomes of attempt and run, and whether the story says that the end overtook the stop.
    for (reason, ending, attempt, run, overtaken) in [
        (Cancel, exited(0), A::Succeeded, R::Succeeded, true),
        (Cancel, exited(1), A::Failed, R::Failed, true),
        (Cancel, stopped(StopReason::Cancel), A::Cancelled, R::Cancelled, false),
        (Cancel, stopped(StopReason::Timeout), A::TimedOut, R::TimedOut, false),
        (Cancel, stopped(StopReason::Shutdown), A::Cancelled, R::Cancelled, false),
        (Cancel, stopped(StopReason::Lease), A::Lost, R::Cancelled, false),
        (Cancel, died.clone(), A::Lost, R::Cancelled, false),
        (Timeout, exited(0), A::Succeeded, R::Succeeded, true),
        (Timeout, exited(1), A::Failed, R::RetryWait, true),
        (Timeout, stopped(StopReason::Timeout), A::TimedOut, R::RetryWait, false),
        (Timeout, stopped(StopReason::Cancel), A::Cancelled, R::Cancelled, false),
        (Timeout, stopped(StopReason::Lease), A::Lost, R::TimedOut, false),
        (Timeout, died, A::Lost, R::TimedOut, false),
    ] {
        let session = world.session(&machine, "boot-a").await;
        let taken = stopping(&world, &session, reason).await;
        world.end(&taken, ending.clone()).await.applied();
        let view = world.view(taken.run).await;
        assert_eq!((view.attempts[0].state, view.run.state), (attempt, run), "{reason} and {ending:?}");
        let story = world.story(taken.run).await;
        assert_eq!(story.contains(&EventKind::StopOvertaken), overtaken, "{reason} and {ending:?}");
        let nobody_saw = view.run.closing.is_some_and(|closing| closing.unobserved);
        assert_eq!(nobody_saw, matches!(ending, Ending::Lost { .. }), "{reason} and {ending:?}");
        if run == R::RetryWait {
            assert_eq!(view.run.intent, None, "what was to stop attempt 1 does not stop attempt 2");
        }
    }
    // And the lease's end, of which nobody says anything.
    for (reason, run) in [(Cancel, R::Cancelled), (Timeout, R::TimedOut)] {
        let session = world.session(&machine, "boot-a").await;
        let taken = stopping(&world, &session, reason).await;
        world.expire(&taken).await;
        let view = world.view(taken.run).await;
        assert_eq!((view.attempts[0].state, view.run.state), (A::Lost, run));
        assert!(view.run.closing.unwrap().unobserved);
    }
}

/// A timeout that is on its way may be followed by another attempt; a person who cancels then ends the run.
pub async fn a_cancel_takes_the_place_of_a_timeout(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = stopping(&world, &session, StopIntentReason::Timeout).await;
    let (cancel, view) = world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    assert_eq!((cancel, view.run.intent.unwrap().reason), (Cancel::Requested, StopIntentReason::Cancel));
    let (again, _) = world.unchanged(world.store.cancel_run(world.cancel_call(taken.run))).await.replayed();
    assert_eq!(again, Cancel::AlreadyRequested);
    assert_eq!(world.unchanged(world.store.stop_overdue(64)).await.unwrap().runs, []);
    world.end(&taken, stopped(StopReason::Timeout)).await.applied();
    assert_eq!(world.state(taken.run).await, RunState::TimedOut, "what happened is told, and nothing follows");
}

/// Where nothing ran: timeout before cancel before failure, whether or not the scan has come by.
pub async fn where_nothing_ran_the_timeout_comes_first(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    for (cancelled, due, scanned, state) in [
        (true, false, false, RunState::Cancelled),
        (true, true, false, RunState::TimedOut),
        (false, true, false, RunState::TimedOut),
        (false, true, true, RunState::TimedOut),
        (false, false, false, RunState::RetryWait),
    ] {
        let taken = world.starting(&session, stubborn()).await;
        if cancelled {
            world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
        }
        if due {
            world.pass(seconds(30));
        }
        if scanned {
            assert_eq!(world.store.stop_overdue(64).await.unwrap().runs, [taken.run]);
        }
        world.beat(&session, &[]).await.applied();
        world.end(&taken, Ending::NeverSpawned).await.applied();
        assert_eq!(world.state(taken.run).await, state, "{cancelled} {due} {scanned}");
    }
}
