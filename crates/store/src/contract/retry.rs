//! Attempt N+1: only by the pinned policy, bounded, and without anything of attempt N.

use leasehold_core::attempt::{Attempt, AttemptState, StopReason};
use leasehold_core::cancel::StopDirective;
use leasehold_core::canonical::Value;
use leasehold_core::counter::{AttemptNumber, AttemptVersion};
use leasehold_core::directive::Directive;
use leasehold_core::end::Ending;
use leasehold_core::event::EventKind;
use leasehold_core::limits;
use leasehold_core::revision::Revision;
use leasehold_core::run::{RunState, StopIntentReason};

use super::Harness;
use super::fixture::{
    Expect, Machine, Taken, World, exited, plain, retried_when_lost, revision_with, seconds, stopped,
};
use super::race::both;

fn retrying(attempts: i64, on: &str) -> Revision {
    let on = Value::List(vec![Value::text(on)]);
    let limits = Value::map([("timeout", Value::text("30s"))]);
    revision_with([("retry", Value::map([("max_attempts", Value::Int(attempts)), ("on", on)])), ("limits", limits)])
}

/// The run's waiting attempt, running in a new session.
async fn run_next(world: &World<'_>, machine: &Machine, run: leasehold_core::id::RunId) -> Taken {
    let session = world.session(machine, "boot-a").await;
    let taken = world.take(&session, run).await;
    world.start(&taken).await;
    world.acknowledge_running(&taken).await.applied();
    taken
}

/// A new attempt inherits no fence, handle, token or sequence; only the fence number goes on.
pub async fn a_new_attempt_inherits_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let first = world.running(&session, retrying(2, "failed")).await;
    world.end(&first, exited(1)).await.applied();
    let view = world.view(first.run).await;
    assert_eq!((view.run.state, view.run.failures), (RunState::RetryWait, 1));
    assert!(view.run.due.is_some());
    let next = world.next_attempt(first.run).await;
    let view = world.view(first.run).await;
    assert_eq!((view.run.state, view.run.latest), (RunState::Pending, AttemptNumber::FIRST.next()));
    assert_eq!(view.run.due, None);
    assert_eq!(view.attempts[1], Attempt::pending(next, first.run, AttemptNumber::FIRST.next()));
    assert_eq!(view.attempts[1].version, AttemptVersion::FIRST);
    assert!(world.story(first.run).await.ends_with(&[EventKind::RunRetryWait, EventKind::RunPending]));

    let second = run_next(&world, &machine, first.run).await;
    assert_eq!(second.grant.lease.fence, first.grant.lease.fence.next());
    world.end(&second, exited(1)).await.applied();
    let view = world.view(first.run).await;
    assert_eq!((view.run.state, view.run.failures), (RunState::Failed, 1));
    assert_eq!(view.attempts.iter().map(|attempt| attempt.state).collect::<Vec<_>>(), [AttemptState::Failed; 2]);
}

/// What the policy does not name is not retried.
pub async fn only_what_the_policy_names_is_retried(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    for (revision, ending, state) in [
        (plain(), exited(1), RunState::Failed),
        (retrying(3, "timed_out"), exited(1), RunState::Failed),
        (retrying(3, "failed"), stopped(StopReason::Timeout), RunState::TimedOut),
        (retrying(3, "failed"), stopped(StopReason::Cancel), RunState::Cancelled),
        (retrying(3, "failed"), exited(0), RunState::Succeeded),
        (retrying(3, "failed"), exited(1), RunState::RetryWait),
        (retrying(3, "timed_out"), stopped(StopReason::Timeout), RunState::RetryWait),
    ] {
        let taken = world.running(&session, revision).await;
        world.end(&taken, ending.clone()).await.applied();
        assert_eq!(world.state(taken.run).await, state, "{ending:?}");
    }
}

/// What never ran is tried again three times, and no more.
pub async fn what_never_ran_is_tried_again_three_times(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let run = world.run(plain()).await;
    for round in 0..=limits::MACHINERY_RETRIES {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.take(&session, run).await;
        world.start(&taken).await;
        world.end(&taken, Ending::NeverSpawned).await.applied();
        if round < limits::MACHINERY_RETRIES {
            assert_eq!(world.state(run).await, RunState::RetryWait);
            world.next_attempt(run).await;
        }
    }
    let view = world.view(run).await;
    assert_eq!((view.run.state, view.attempts.len()), (RunState::Failed, 4));
    assert_eq!((view.run.failures, view.run.machinery_failures), (0, 3));
}

/// A lost run that declares it safe is tried again three times, and no more: a poison task does not take down every worker.
pub async fn losses_are_bounded(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let run = world.run(retried_when_lost()).await;
    for round in 0..=limits::MACHINERY_RETRIES {
        let taken = run_next(&world, &machine, run).await;
        world.expire(&taken).await;
        if round < limits::MACHINERY_RETRIES {
            world.next_attempt(run).await;
        }
    }
    let view = world.view(run).await;
    assert_eq!((view.run.state, view.attempts.len()), (RunState::Failed, 4));
    assert!(view.run.closing.unwrap().unobserved);
}

/// The wait is kept: nothing begins early, everything begins once, in pages.
pub async fn a_wait_is_kept_and_ends_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let taken = world.starting(&session, plain()).await;
        world.end(&taken, Ending::NeverSpawned).await.applied();
        let now = world.store.now().await.unwrap().lease;
        waits.push((world.view(taken.run).await.run.due.unwrap().since(now), taken.run));
    }
    waits.sort_unstable();
    let (first, last) = (waits[0].0, waits[2].0);
    assert!(last <= limits::RETRY_INITIAL, "full jitter below the first back-off");
    if first > leasehold_core::time::Millis::ZERO {
        let scanned = world.unchanged(world.store.begin_retries(vec![world.attempt_id()])).await.unwrap();
        assert_eq!((scanned.runs, scanned.next), (vec![], Some(first)));
    }
    world.pass(last);
    let scanned = world.store.begin_retries(vec![world.attempt_id(), world.attempt_id()]).await.unwrap();
    assert_eq!((scanned.runs.len(), scanned.more), (2, true));
    let scanned = world.store.begin_retries(vec![world.attempt_id(), world.attempt_id()]).await.unwrap();
    assert_eq!((scanned.runs.len(), scanned.more, scanned.next), (1, false, None));
    for (_, run) in waits {
        assert_eq!((world.state(run).await, world.view(run).await.attempts.len()), (RunState::Pending, 2));
    }
}

/// Two scans at the same instant begin each attempt once.
pub async fn two_scans_begin_an_attempt_once(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..8 {
        let (_, session) = world.agent(&format!("nas-{round}")).await;
        let taken = world.starting(&session, plain()).await;
        world.end(&taken, Ending::NeverSpawned).await.applied();
        world.pass(limits::RETRY_INITIAL);
        let scan = |ids| {
            let store = world.store.clone();
            async move { store.begin_retries(ids).await.unwrap() }
        };
        let (one, two) = both(scan(vec![world.attempt_id()]), scan(vec![world.attempt_id()])).await;
        assert_eq!([one.runs, two.runs].concat(), [taken.run]);
        assert_eq!(world.view(taken.run).await.attempts.len(), 2);
    }
}

/// The control plane's backstop stores the wish to stop when the time is up, once, and tells the worker.
pub async fn the_backstop_stops_what_is_overdue(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let unlimited = world.running(&session, plain()).await;
    let taken = world.running(&session, retrying(1, "failed")).await;
    world.pass(seconds(29));
    let scanned = world.unchanged(world.store.stop_overdue(64)).await.unwrap();
    assert_eq!((scanned.runs, scanned.next), (vec![], Some(seconds(1))));
    world.pass(seconds(1));
    assert_eq!(world.store.stop_overdue(64).await.unwrap().runs, [taken.run]);
    let scanned = world.unchanged(world.store.stop_overdue(64)).await.unwrap();
    assert_eq!((scanned.runs, scanned.next), (vec![], None));
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::TimeoutReached));
    let beaten = world.beat(&session, &[&unlimited, &taken]).await.applied();
    assert_eq!(beaten.directives.len(), 1);
    let stop = StopDirective { attempt: taken.attempt, reason: StopIntentReason::Timeout };
    assert_eq!(beaten.directives, [Directive::Stop(stop)]);
    world.end(&taken, stopped(StopReason::Timeout)).await.applied();
    assert_eq!(world.state(taken.run).await, RunState::TimedOut);
}

/// The backstop leaves the policy for timeouts in force, and does not stop the next attempt.
pub async fn the_backstop_leaves_the_retry_policy_in_force(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let first = world.running(&session, retrying(2, "timed_out")).await;
    world.pass(seconds(30));
    world.store.stop_overdue(64).await.unwrap();
    world.end(&first, stopped(StopReason::Timeout)).await.applied();
    assert_eq!(world.state(first.run).await, RunState::RetryWait);
    world.next_attempt(first.run).await;
    let second = run_next(&world, &machine, first.run).await;
    assert_eq!(world.beat(&second.step.session, &[&second]).await.applied().directives, []);
    world.end(&second, exited(0)).await.applied();
    assert_eq!(world.state(first.run).await, RunState::Succeeded);
}

/// A wait is stored, not counted in memory: a control plane that starts again keeps the rest of it.
pub async fn a_wait_goes_on_after_a_restart(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let backoff = Value::map([("initial", Value::text("7d")), ("max", Value::text("7d"))]);
    let retry = Value::map([("max_attempts", Value::Int(2)), ("backoff", backoff)]);
    let taken = world.running(&session, revision_with([("retry", retry)])).await;
    world.end(&taken, exited(1)).await.applied();
    let due = world.view(taken.run).await.run.due.unwrap();
    let wait = due.since(world.store.now().await.unwrap().lease);
    assert!(wait > seconds(60), "this run's jitter leaves something to wait for: {wait}");
    world.pass(seconds(60));
    let before = world.dump().await;
    let Some(store) = harness.reopened().await else { return };
    assert_eq!(world.dump().await, before);
    let scanned = store.begin_retries(vec![world.attempt_id()]).await.unwrap();
    let left = scanned.next.unwrap();
    // What passed while nothing was open may not count, so at most that much is waited longer.
    assert!(scanned.runs.is_empty() && left <= wait && left.plus(seconds(60)) >= wait, "{left} of {wait}");
    world.pass(left);
    assert_eq!(store.begin_retries(vec![world.attempt_id()]).await.unwrap().runs, [taken.run]);
    assert_eq!(store.run(taken.run).await.unwrap().unwrap().attempts.len(), 2);
}
