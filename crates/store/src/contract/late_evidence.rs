//! `end` after the fact: a terminal attempt is always answered, and closes its run only while the question is open.

use leasehold_core::attempt::{
    AttemptState, Callback, EvidenceKind, ExitStatus, Outcome, RejectReason, Resolution, StopReason,
};
use leasehold_core::end::{Ended, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{
    Expect, Machine, Taken, World, assert_code, exited, failed_when_lost, plain, retried_when_lost, seconds, stopped,
};

/// A running attempt whose lease ran out and was declared, with a live session of the same boot.
async fn lost(world: &World<'_>, machine: &Machine, revision: Revision) -> Taken {
    let session = world.session(machine, "boot-a").await;
    let taken = world.running(&session, revision).await;
    world.expire(&taken).await;
    taken.held_by(&world.session(machine, "boot-a").await)
}

fn settled(answer: Ended) -> (AttemptState, RunState, Resolution) {
    match answer {
        Ended::AlreadyTerminal(projection) => (projection.attempt, projection.run, projection.resolution),
        Ended::Accepted(projection) => panic!("the attempt had ended before: {projection:?}"),
    }
}

async fn late_events(world: &World<'_>, taken: &Taken) -> usize {
    world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::EvidenceLate).count()
}

/// What each late ending makes of a run whose question is open; and that its repeat makes nothing more of it.
pub async fn an_open_question_is_closed_by_what_the_evidence_says(harness: &dyn Harness) {
    use RunState as R;
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let exec = Ending::Rejected { reason: RejectReason::Exec, detail: String::new() };
    // Whether it was known to run when it was lost, what is said of it then, and what becomes of the run.
    for (ran, ending, run, resolution) in [
        (true, exited(0), R::Succeeded, Resolution::Receipt),
        (false, exited(0), R::Succeeded, Resolution::Receipt),
        (true, exited(3), R::Failed, Resolution::Receipt),
        (true, stopped(StopReason::Cancel), R::Cancelled, Resolution::Receipt),
        (true, stopped(StopReason::Shutdown), R::Cancelled, Resolution::Receipt),
        (true, stopped(StopReason::Timeout), R::TimedOut, Resolution::Receipt),
        (true, stopped(StopReason::Lease), R::Lost, Resolution::None),
        (true, Ending::NeverSpawned, R::Lost, Resolution::None),
        (false, Ending::NeverSpawned, R::RetryWait, Resolution::Receipt),
        (false, exec, R::Failed, Resolution::Receipt),
        (true, Ending::Lost { evidence: EvidenceKind::RecordDamaged }, R::Lost, Resolution::None),
    ] {
        let taken = if ran {
            lost(&world, &machine, plain()).await
        } else {
            let session = world.session(&machine, "boot-a").await;
            let taken = world.starting(&session, plain()).await;
            world.expire(&taken).await;
            taken.held_by(&world.session(&machine, "boot-a").await)
        };
        assert_eq!(world.state(taken.run).await, R::Lost);
        let answer = settled(world.end(&taken, ending.clone()).await.applied());
        assert_eq!(answer, (AttemptState::Lost, run, resolution), "{ending:?}");
        let view = world.view(taken.run).await;
        assert_eq!((view.run.state, view.attempts[0].resolution), (run, resolution), "{ending:?}");
        assert_eq!(view.attempts[0].state, AttemptState::Lost, "a terminal attempt never changes");
        assert_eq!(view.attempts[0].outcome, Some(Outcome::Lost(EvidenceKind::LeaseExpired)));
        assert!(view.run.closing.is_none_or(|closing| !closing.unobserved), "{ending:?}");
        assert_eq!(late_events(&world, &taken).await, 1);
        let again = settled(world.unchanged(world.end(&taken, ending.clone())).await.replayed());
        assert_eq!(again, answer, "{ending:?}");
    }
}

/// A lost attempt that provably never ran is one failure of the machinery, not two; and it is tried again.
pub async fn a_loss_that_never_ran_is_counted_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let session = world.session(&machine, "boot-a").await;
    let taken = world.starting(&session, plain()).await;
    world.expire(&taken).await;
    assert_eq!(world.view(taken.run).await.run.machinery_failures, 1);
    let taken = taken.held_by(&world.session(&machine, "boot-a").await);
    settled(world.end(&taken, Ending::NeverSpawned).await.applied());
    let run = world.view(taken.run).await.run;
    assert_eq!((run.state, run.machinery_failures, run.failures), (RunState::RetryWait, 1, 0));
    world.next_attempt(taken.run).await;
}

/// A run that its policy closed stays closed: every variant is answered, and is one event.
pub async fn a_closed_run_stays_closed(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, failed_when_lost()).await;
    let run = world.view(taken.run).await.run;
    assert_eq!(run.state, RunState::Failed);
    assert!(run.closing.as_ref().unwrap().unobserved, "nobody saw its end");
    for (ending, events) in
        [(exited(0), 1), (exited(0), 1), (stopped(StopReason::Cancel), 2), (Ending::NeverSpawned, 3)]
    {
        let answer = settled(world.end(&taken, ending).await.unwrap().into_result().unwrap());
        assert_eq!(answer, (AttemptState::Lost, RunState::Failed, Resolution::Policy));
        assert_eq!(late_events(&world, &taken).await, events);
    }
    assert_eq!(world.view(taken.run).await.run, run);
}

/// A variant of an end that was accepted is answered, kept as one event, and changes nothing.
pub async fn a_variant_of_an_accepted_end_changes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    let mut call = taken.end_call(exited(0));
    call.log = None;
    world.store.end(call).await.applied();
    let before = world.view(taken.run).await;
    for ending in [exited(1), stopped(StopReason::Cancel), Ending::NeverSpawned] {
        let answer = settled(world.end(&taken, ending.clone()).await.applied());
        assert_eq!(answer, (AttemptState::Succeeded, RunState::Succeeded, Resolution::None));
        settled(world.unchanged(world.end(&taken, ending)).await.replayed());
    }
    assert_eq!(world.view(taken.run).await, before);
    assert_eq!(late_events(&world, &taken).await, 3);
    for code in 10..30 {
        world.end(&taken, exited(code)).await.unwrap();
    }
    assert_eq!(late_events(&world, &taken).await, 8, "what is kept is bounded");
}

/// The end of a replaced session is answered, and closes nothing.
pub async fn a_replaced_session_closes_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, plain()).await;
    let successor = world.session(&machine, "boot-a").await;
    let answer = settled(world.unchanged(world.end(&taken, exited(0))).await.replayed());
    assert_eq!(answer, (AttemptState::Lost, RunState::Lost, Resolution::None));
    let answer = settled(world.end(&taken.held_by(&successor), exited(0)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Succeeded, Resolution::Receipt));
}

/// The lease's holder is asked for its proof after the end as before.
pub async fn a_late_end_needs_the_leases_proof(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, plain()).await;
    let (_, thief) = world.agent("box").await;
    let refusal = world.unchanged(world.end(&taken.held_by(&thief), exited(0))).await.refused();
    assert_code(&refusal, RefusalCode::LeaseFenced);
    let mut guess = taken.clone();
    guess.step.lease.generation = guess.step.lease.generation.next();
    assert_code(&world.unchanged(world.end(&guess, exited(0))).await.refused(), RefusalCode::LeaseFenced);
    let mut forged = taken.end_call(exited(0));
    forged.callback = Some(Callback { token: taken.completion("another launch"), ..taken.callback() });
    settled(world.unchanged(world.store.end(forged)).await.replayed());
    assert_eq!(world.state(taken.run).await, RunState::Lost, "another launch's word closes nothing");
}

/// A run that waits for its next attempt is closed by evidence of the one before.
pub async fn evidence_closes_a_run_that_waits(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, retried_when_lost()).await;
    assert_eq!(world.state(taken.run).await, RunState::RetryWait);
    let answer = settled(world.end(&taken, exited(0)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Succeeded, Resolution::Receipt));
    world.pass(seconds(3600));
    let scanned = world.store.begin_retries(vec![world.attempt_id()]).await.unwrap();
    assert_eq!(scanned.runs, [], "what is closed is not tried again");
}

/// Attempt N+1 that nobody holds is superseded by evidence of attempt N.
pub async fn evidence_supersedes_an_attempt_that_nobody_holds(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine, retried_when_lost()).await;
    let next = world.next_attempt(taken.run).await;
    let answer = settled(world.end(&taken, exited(3)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Failed, Resolution::Receipt));
    let view = world.view(taken.run).await;
    assert_eq!(view.attempts.len(), 2);
    assert_eq!((view.attempts[1].id, view.attempts[1].state), (next, AttemptState::Cancelled));
    assert_eq!(view.attempts[1].outcome, Some(Outcome::Superseded));
    assert_eq!(view.run.closing.unwrap().outcome, Outcome::Exited(ExitStatus::Code(3)));
}

/// Once attempt N+1 is claimed, evidence of attempt N is news of the past.
pub async fn evidence_does_not_touch_an_attempt_that_somebody_holds(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let old = lost(&world, &machine, retried_when_lost()).await;
    world.next_attempt(old.run).await;
    let session = world.session(&machine, "boot-a").await;
    let old = old.held_by(&session);
    let new = world.take(&session, old.run).await;
    for started in [false, true] {
        if started {
            world.start(&new).await;
        }
        let before = world.view(old.run).await.run;
        let answer = settled(world.end(&old, exited(u8::from(started))).await.applied());
        assert_eq!(answer, (AttemptState::Lost, RunState::Dispatching, Resolution::Policy));
        assert_eq!(world.view(old.run).await.run, before);
    }
    world.acknowledge_running(&new).await.applied();
    world.end(&new, exited(0)).await.applied();
    let answer = settled(world.end(&old, exited(7)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Succeeded, Resolution::Policy));
}

/// How an earlier attempt's process ended closes the question of a later one; that it never ran does not.
pub async fn evidence_of_an_earlier_attempt_closes_a_later_question(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let old = lost(&world, &machine, retried_when_lost()).await;
    world.next_attempt(old.run).await;
    let session: SessionFence = world.session(&machine, "boot-a").await;
    let new = world.take(&session, old.run).await;
    world.start(&new).await;
    world.acknowledge_running(&new).await.applied();
    world.expire(&new).await;
    let session = world.session(&machine, "boot-a").await;
    let (old, new) = (old.held_by(&session), new.held_by(&session));
    assert_eq!(world.state(old.run).await, RunState::RetryWait);

    let answer = settled(world.end(&old, Ending::NeverSpawned).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::RetryWait, Resolution::Policy), "no news of the latest");
    let answer = settled(world.end(&old, exited(0)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Succeeded, Resolution::Receipt));
    let answer = settled(world.end(&new, exited(3)).await.applied());
    assert_eq!(answer, (AttemptState::Lost, RunState::Succeeded, Resolution::Policy));
}

/// A session of another boot settles its record, but that nothing ran is not for it to say.
pub async fn another_boot_settles_and_judges_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.starting(&session, plain()).await;
    world.expire(&taken).await;
    let taken = taken.held_by(&world.session(&machine, "boot-b").await);
    for ending in [Ending::NeverSpawned, Ending::Lost { evidence: EvidenceKind::MachineRebooted }] {
        let answer = settled(world.end(&taken, ending).await.applied());
        assert_eq!(answer, (AttemptState::Lost, RunState::Lost, Resolution::None));
    }
    let answer = settled(world.end(&taken, exited(0)).await.applied());
    assert_eq!(
        answer,
        (AttemptState::Lost, RunState::Succeeded, Resolution::Receipt),
        "a receipt speaks from any boot"
    );
}
