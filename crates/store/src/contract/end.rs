//! `end` under a lease: what each ending makes of attempt and run, and whose word counts.

use leasehold_core::attempt::{
    AttemptState, EvidenceKind, LimitMeans, LimitsKept, RejectReason, Resolution, StopReason, Usage,
};
use leasehold_core::end::{EndProjection, Ended, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;
use leasehold_core::time::Millis;

use super::Harness;
use super::fixture::{
    Expect, Taken, World, assert_code, exited, failed_when_lost, log_pin, plain, retried_when_lost, seconds, stopped,
};

fn rejected(reason: RejectReason) -> Ending {
    Ending::Rejected { reason, detail: "no such file".to_owned() }
}

fn lost(evidence: EvidenceKind) -> Ending {
    Ending::Lost { evidence }
}

/// What each ending of a running attempt makes of attempt and run, in one step with the lease.
pub async fn each_ending_means_one_thing(harness: &dyn Harness) {
    use AttemptState as A;
    use RunState as R;
    let world = World::new(harness);
    let (machine, _) = world.agent("nas").await;
    for (revision, ending, attempt, run) in [
        (plain(), exited(0), A::Succeeded, R::Succeeded),
        (plain(), exited(3), A::Failed, R::Failed),
        (plain(), stopped(StopReason::Cancel), A::Cancelled, R::Cancelled),
        (plain(), stopped(StopReason::Shutdown), A::Cancelled, R::Cancelled),
        (plain(), stopped(StopReason::Timeout), A::TimedOut, R::TimedOut),
        (plain(), stopped(StopReason::Lease), A::Lost, R::Lost),
        (plain(), rejected(RejectReason::Exec), A::Failed, R::Failed),
        (plain(), rejected(RejectReason::Spawn), A::Failed, R::RetryWait),
        (plain(), lost(EvidenceKind::LauncherKilledAllGone), A::Lost, R::Lost),
        (failed_when_lost(), lost(EvidenceKind::LauncherKilledAllGone), A::Lost, R::Failed),
        (retried_when_lost(), lost(EvidenceKind::LauncherKilledAllGone), A::Lost, R::RetryWait),
    ] {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.running(&session, revision).await;
        let mut call = taken.end_call(ending.clone());
        // A receipt names its launch.
        if !ending.is_inferred() {
            call.callback = Some(taken.callback());
        }
        let answer = world.store.end(call).await.applied();
        let Ended::Accepted(projection) = answer else { panic!("{ending:?}: {answer:?}") };
        assert_eq!((projection.attempt, projection.run), (attempt, run), "{ending:?}");
        let view = world.view(taken.run).await;
        assert_eq!((view.attempts[0].state, view.run.state), (attempt, run), "{ending:?}");
        assert!(view.attempts[0].outcome.is_some() && view.attempts[0].ended_at.is_some());
        assert_eq!(view.run.closing.is_some(), run.is_terminal(), "{ending:?}");
        if let Some(closing) = &view.run.closing {
            assert_eq!(closing.unobserved, matches!(ending, Ending::Lost { .. }), "{ending:?}");
        }
        assert_eq!(world.worker(&machine.id).await.active, [], "{ending:?}");
    }
}

/// From *starting*, an end carries what *running* would have; both are written at once.
pub async fn an_end_from_starting_carries_running(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    let mut bare = taken.end_call(exited(0));
    bare.running = None;
    assert_code(&world.store.end(bare).await.refused(), RefusalCode::LeaseFenced);
    let mut call = taken.end_call(exited(0));
    call.log = Some(log_pin(b"whole log"));
    let limits = LimitsKept { memory: Some(LimitMeans::Rlimit), cpu: Some(LimitMeans::None), pids: None };
    call.usage =
        Some(Usage { user: Millis::new(12), system: Millis::new(3), max_rss_kib: 900, oom_killed: false, limits });
    world.store.end(call.clone()).await.applied();
    let view = world.view(taken.run).await;
    let attempt = &view.attempts[0];
    assert_eq!((attempt.state, view.run.state), (AttemptState::Succeeded, RunState::Succeeded));
    assert_eq!(
        (attempt.handle.as_ref(), attempt.log, attempt.usage),
        (Some(&taken.running_call().handle), call.log, call.usage)
    );
    let story = world.story(taken.run).await;
    assert!(story.ends_with(&[EventKind::AttemptRunning, EventKind::AttemptEnded, EventKind::RunEnded]), "{story:?}");
}

/// From *starting* without *running*: that nothing ran is a proof, and the run is tried again.
pub async fn what_never_ran_is_tried_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, _) = world.agent("nas").await;
    for ending in [Ending::NeverSpawned, rejected(RejectReason::Tombstone), rejected(RejectReason::Deadline)] {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.starting(&session, plain()).await;
        world.end(&taken, ending).await.applied();
        let view = world.view(taken.run).await;
        assert_eq!((view.attempts[0].state, view.run.state), (AttemptState::Failed, RunState::RetryWait));
        assert_eq!((view.run.failures, view.run.machinery_failures), (0, 1));
    }
}

/// An `end` is the answer to the question as long as nobody has declared the lease expired.
pub async fn a_lease_that_nobody_declared_expired_still_ends_its_attempt(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    world.pass(taken.grant.lease.length.plus(seconds(60)));
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    assert!(matches!(world.end(&taken, exited(0)).await.applied(), Ended::Accepted(_)));
    assert_eq!(world.state(taken.run).await, RunState::Succeeded);
}

/// The repeat of an end is answered as settled and changes nothing.
pub async fn the_repeat_of_an_end_settles_and_changes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, _) = world.agent("nas").await;
    for ending in [exited(0), exited(9), stopped(StopReason::Timeout), stopped(StopReason::Lease)] {
        let session = world.session(&machine, "boot-a").await;
        let taken = world.running(&session, plain()).await;
        let Ended::Accepted(first) = world.end(&taken, ending.clone()).await.applied() else { panic!("{ending:?}") };
        let again = world.unchanged(world.end(&taken, ending.clone())).await.replayed();
        assert_eq!(again, Ended::AlreadyTerminal(first), "{ending:?}");
    }
}

/// The launch that is known is the one that may speak; another's word is refused, and kept once.
pub async fn another_launch_is_refused_and_its_word_kept_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let before = world.view(taken.run).await;
    let forged = |taken: &Taken, code| {
        let mut call = taken.end_call(exited(code));
        call.callback =
            Some(leasehold_core::attempt::Callback { token: taken.completion("another launch"), ..taken.callback() });
        call
    };
    assert_code(&world.store.end(forged(&taken, 0)).await.refused(), RefusalCode::LeaseFenced);
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::EvidenceKept));
    assert_code(&world.unchanged(world.store.end(forged(&taken, 0))).await.refused(), RefusalCode::LeaseFenced);
    for code in 1..=20 {
        world.store.end(forged(&taken, code)).await.refused();
    }
    let kept = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::EvidenceKept).count();
    assert_eq!(kept, 8, "what is kept is bounded");
    assert_eq!(world.view(taken.run).await, before);

    let mut silent = taken.end_call(exited(0));
    silent.callback = None;
    assert_code(&world.store.end(silent).await.refused(), RefusalCode::LeaseFenced);
    world.end(&taken, exited(0)).await.applied();
}

/// That nothing was spawned is no proof about an attempt that is known to run.
pub async fn never_spawned_says_nothing_about_a_running_attempt(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    assert_code(&world.end(&taken, Ending::NeverSpawned).await.refused(), RefusalCode::LeaseFenced);
    assert_eq!(world.state(taken.run).await, RunState::Running);
    assert_eq!(world.story(taken.run).await.last(), Some(&EventKind::EvidenceKept));
}

/// Another boot may bring the launcher's receipt, but infers nothing.
pub async fn another_boot_brings_receipts_and_infers_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let starting = world.starting(&session, plain()).await;
    let running = world.running(&session, plain()).await;
    world.pass(seconds(23));
    let rebooted = world.session(&machine, "boot-b").await;
    for taken in [&starting, &running] {
        let taken = taken.held_by(&rebooted);
        let before = world.view(taken.run).await;
        for ending in [Ending::NeverSpawned, lost(EvidenceKind::MachineRebooted)] {
            assert_code(&world.end(&taken, ending).await.refused(), RefusalCode::LeaseFenced);
        }
        assert_eq!(world.view(taken.run).await, before);
        let kept = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::EvidenceKept).count();
        assert_eq!(kept, 2);
        world.end(&taken, exited(0)).await.applied();
        assert_eq!(world.state(taken.run).await, RunState::Succeeded);
    }
}

/// A claim that did not start has nothing to end.
pub async fn a_claim_that_did_not_start_has_no_end(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.claimed(&session, plain()).await;
    for ending in [exited(0), Ending::NeverSpawned, lost(EvidenceKind::RecordDamaged)] {
        assert_code(&world.unchanged(world.end(&taken, ending)).await.refused(), RefusalCode::LeaseFenced);
    }
}

/// What may still live is remembered with the attempt.
pub async fn what_may_still_live_is_remembered(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, failed_when_lost()).await;
    let answer = world.end(&taken, lost(EvidenceKind::LauncherKilledMayLive)).await.applied();
    let expected = EndProjection { attempt: AttemptState::Lost, run: RunState::Failed, resolution: Resolution::Policy };
    assert_eq!(answer, Ended::Accepted(expected));
    assert!(world.view(taken.run).await.attempts[0].may_live);
    world.end(&taken, exited(0)).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.attempts[0].may_live, view.run.state), (false, RunState::Failed));
}
