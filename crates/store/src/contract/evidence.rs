//! What becomes known of a lost attempt, and whether something of it may still live.

use std::collections::BTreeSet;

use leasehold_core::attempt::{AttemptState, EvidenceKind, Left, Resolution, StopReason};
use leasehold_core::end::{EndCall, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::occupancy::occupies;
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, Machine, Taken, World, exited, failed_when_lost, plain, seconds, stopped};

async fn lost(world: &World<'_>, machine: &Machine, revision: leasehold_core::revision::Revision) -> Taken {
    let session = world.session(machine, "boot-a").await;
    let taken = world.running(&session, revision).await;
    world.expire(&taken).await;
    taken.held_by(&world.session(machine, "boot-a").await)
}

fn saying(evidence: EvidenceKind) -> Ending {
    Ending::Lost { evidence }
}

async fn evidence(world: &World<'_>, taken: &Taken) -> BTreeSet<EvidenceKind> {
    world.view(taken.run).await.attempts[0].evidence.clone()
}

async fn occupied(world: &World<'_>, taken: &Taken) -> bool {
    let view = world.view(taken.run).await;
    occupies(&view.run, &view.attempts[0], &view.revision.policy())
}

/// What is known only grows, whoever comes with it, and closes nothing by itself.
pub async fn what_is_known_of_a_lost_attempt_grows(harness: &dyn Harness) {
    use EvidenceKind::{LauncherKilledAllGone, LeaseExpired, StoppedForLease};
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, plain()).await;
    assert_eq!(evidence(&world, &taken).await, [LeaseExpired].into());
    world.end(&taken, saying(LauncherKilledAllGone)).await.applied();
    assert_eq!(evidence(&world, &taken).await, [LeaseExpired, LauncherKilledAllGone].into());
    world.end(&taken, stopped(StopReason::Lease)).await.applied();
    assert_eq!(evidence(&world, &taken).await, [LeaseExpired, LauncherKilledAllGone, StoppedForLease].into());
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].resolution), (RunState::Lost, Resolution::None));

    // The same words, under the lease.
    let session = world.session(&machine, "boot-a").await;
    for (ending, kind) in
        [(saying(LauncherKilledAllGone), LauncherKilledAllGone), (stopped(StopReason::Lease), StoppedForLease)]
    {
        let taken = world.running(&session, plain()).await;
        world.end(&taken, ending).await.applied();
        assert_eq!(evidence(&world, &taken).await, [kind].into());
        assert_eq!(world.state(taken.run).await, RunState::Lost);
    }
}

/// That something may live keeps its places, also when it is said late and whatever became of the run; a proof frees them,
/// and stands against a later doubt.
pub async fn a_doubt_that_comes_late_keeps_its_places_until_refuted(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for revision in [plain(), failed_when_lost()] {
        let taken = lost(&world, &machine, revision).await;
        assert!(!occupied(&world, &taken).await, "without `mutex`, silence keeps nothing");
        world.end(&taken, saying(EvidenceKind::LauncherKilledMayLive)).await.applied();
        assert!(occupied(&world, &taken).await);
        world.end(&taken, saying(EvidenceKind::LauncherKilledAllGone)).await.applied();
        assert!(!occupied(&world, &taken).await);
        world.end(&taken, saying(EvidenceKind::LauncherKilledMayLive)).await.unwrap();
        assert!(!occupied(&world, &taken).await, "refuted for good");
    }
    let taken = lost(&world, &machine, plain()).await;
    world.end(&taken, saying(EvidenceKind::LauncherKilledMayLive)).await.applied();
    world.end(&taken, exited(0)).await.applied();
    assert!(!occupied(&world, &taken).await, "its own receipt says that it is over");
}

/// That the machine started anew is believed from another boot only, and refutes that something may live.
pub async fn a_machine_that_started_anew_leaves_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, plain()).await;
    world.end(&taken, saying(EvidenceKind::LauncherKilledMayLive)).await.applied();
    world.end(&taken, saying(EvidenceKind::MachineRebooted)).await.applied();
    assert!(occupied(&world, &taken).await, "from the boot that ran it this is no proof");
    assert!(!evidence(&world, &taken).await.contains(&EvidenceKind::MachineRebooted));
    world.pass(seconds(60));
    let mut call =
        taken.held_by(&world.session(&machine, "boot-b").await).end_call(saying(EvidenceKind::MachineRebooted));
    call.body = taken.completion("another body");
    world.store.end(call).await.applied();
    assert!(!occupied(&world, &taken).await);
    assert!(evidence(&world, &taken).await.contains(&EvidenceKind::MachineRebooted));
    assert_eq!(world.state(taken.run).await, RunState::Lost);
}

/// What the kernel would not let go is told with the end, under the lease and after it, and keeps its places.
pub async fn what_the_kernel_would_not_let_go_is_remembered(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let left = Left { count: 3, pids: vec![77, 78, 79] };
    let session = world.session(&machine, "boot-a").await;
    let taken = world.running(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    let mut call = taken.end_call(stopped(StopReason::Cancel));
    call.left = Some(left.clone());
    world.store.end(call.clone()).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
    assert_eq!((view.attempts[0].left.as_ref(), view.attempts[0].may_live), (Some(&left), true));
    assert!(world.story(taken.run).await.contains(&EventKind::CancelIncomplete));
    assert!(occupied(&world, &taken).await);
    world.unchanged(world.store.end(call.clone())).await.replayed();
    gone_after_all(&world, &taken, call).await;

    let taken = lost(&world, &machine, plain()).await;
    let mut call = taken.end_call(stopped(StopReason::Lease));
    call.left = Some(left.clone());
    world.store.end(call.clone()).await.applied();
    let view = world.view(taken.run).await;
    assert_eq!((view.run.state, view.attempts[0].left.as_ref()), (RunState::Lost, Some(&left)));
    assert!(occupied(&world, &taken).await, "it was stopped, and not all of it went");
    world.unchanged(world.store.end(call.clone())).await.replayed();
    gone_after_all(&world, &taken, call).await;
    let told = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::CancelIncomplete).count();
    assert_eq!(told, 1);
}

/// While a job is being stopped, the beats say what the kernel does not let go of: kept as it changes, told by no event,
/// and replaced by the word of the end. Where no end comes, the last that was said stands, and keeps its places.
pub async fn what_the_kernel_does_not_let_go_of_is_said_by_beats(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let session = world.session(&machine, "boot-a").await;
    let left = Left { count: 2, pids: vec![77, 78] };
    let beat = async |taken: &Taken, left: Option<&Left>| {
        let mut call = world.beat_call(&taken.step.session, &[taken]).await;
        call.renewals[0].left = left.cloned();
        assert!(world.store.heartbeat(call).await.applied().leases[0].1.is_ok());
        world.view(taken.run).await.attempts.remove(0)
    };
    let taken = world.running(&session, plain()).await;
    world.store.cancel_run(world.cancel_call(taken.run)).await.applied();
    let before = beat(&taken, None).await;
    let story = world.story(taken.run).await;
    let said = beat(&taken, Some(&left)).await;
    assert_eq!((said.left.as_ref(), said.may_live, said.version), (Some(&left), false, before.version.next()));
    assert_eq!(beat(&taken, Some(&left)).await, said, "said again, nothing is written");
    let less = Left { count: 1, pids: vec![78] };
    assert_eq!(beat(&taken, Some(&less)).await.left.as_ref(), Some(&less));
    assert_eq!(beat(&taken, None).await.left, None);
    beat(&taken, Some(&left)).await;
    assert_eq!(world.story(taken.run).await, story, "a beat makes no event");
    world.end(&taken, stopped(StopReason::Cancel)).await.applied();
    let ended = world.view(taken.run).await.attempts.remove(0);
    assert_eq!((ended.state, ended.left, ended.may_live), (AttemptState::Cancelled, None, false));

    let taken = world.running(&session, plain()).await;
    beat(&taken, Some(&left)).await;
    world.expire(&taken).await;
    let lost = world.view(taken.run).await.attempts.remove(0);
    assert_eq!((lost.state, lost.left.as_ref(), lost.may_live), (AttemptState::Lost, Some(&left), true));
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    let mut call = taken.end_call(stopped(StopReason::Lease));
    call.left = Some(left);
    world.store.end(call.clone()).await.applied();
    gone_after_all(&world, &taken, call).await;
    let told = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::CancelIncomplete).count();
    assert_eq!(told, 1, "once, with the loss");
}

/// The launch says its end again without what was left: it is gone, and no late duplicate brings it back.
async fn gone_after_all(world: &World<'_>, taken: &Taken, first: EndCall) {
    let before = world.view(taken.run).await.run;
    let mut again = first.clone();
    (again.left, again.body) = (None, taken.completion("gone"));
    world.store.end(again.clone()).await.applied();
    assert!(!occupied(world, taken).await);
    for call in [again, first] {
        world.unchanged(world.store.end(call)).await.replayed();
    }
    let view = world.view(taken.run).await;
    assert_eq!((view.attempts[0].left.as_ref(), view.run), (None, before));
    let told = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::CancelCompleted).count();
    assert_eq!(told, 1);
}

/// A launcher's word without its token is nobody's word.
pub async fn a_late_word_without_its_token_closes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, plain()).await;
    for ending in [exited(0), stopped(StopReason::Lease)] {
        let mut call = taken.end_call(ending);
        call.callback = None;
        world.unchanged(world.store.end(call)).await.replayed();
    }
    assert_eq!(world.state(taken.run).await, RunState::Lost);
}
