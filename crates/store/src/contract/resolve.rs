//! A person's word on a lost run: what it does, and who is first when evidence comes too.

use leasehold_core::attempt::{Attempt, AttemptState, Resolution};
use leasehold_core::counter::AttemptNumber;
use leasehold_core::end::Ended;
use leasehold_core::event::EventKind;
use leasehold_core::limits;
use leasehold_core::resolve::{Resolve, ResolveRefused, Verb};
use leasehold_core::run::RunState;

use super::Harness;
use super::fixture::{Expect, Machine, Taken, World, exited, plain, seconds};
use super::race::both;
use crate::call::ResolveRun;
use crate::outcome::Outcome;
use crate::port::Unmet;
use crate::view::RunView;

/// A running attempt whose lease ran out and was declared, with a live session of the same boot.
async fn lost(world: &World<'_>, machine: &Machine) -> Taken {
    let session = world.session(machine, "boot-a").await;
    let taken = world.running(&session, plain()).await;
    world.expire(&taken).await;
    taken.held_by(&world.session(machine, "boot-a").await)
}

async fn say(world: &World<'_>, call: &ResolveRun) -> (Resolve, RunView) {
    world.store.resolve_run(call.clone()).await.applied()
}

fn refused(refused: ResolveRefused) -> Unmet {
    Unmet::Resolve(refused)
}

/// Each word closes the question once; a second one, the same or another, changes nothing.
pub async fn a_word_closes_the_question_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for (verb, state) in [
        (Verb::Retry, RunState::RetryWait),
        (Verb::MarkFailed, RunState::Failed),
        (Verb::MarkSucceeded, RunState::Succeeded),
    ] {
        let taken = lost(&world, &machine).await;
        let before = world.view(taken.run).await;
        let call = world.resolve_call(taken.run, verb);
        let (resolve, view) = say(&world, &call).await;
        assert_eq!((resolve, view.run.state), (Resolve::Closed, state), "{verb}");
        assert_eq!(view, world.view(taken.run).await, "the answer shows the run as it is then");
        let attempt = &view.attempts[0];
        assert_eq!((attempt.state, attempt.resolution), (AttemptState::Lost, Resolution::Person), "{verb}");
        assert_eq!(attempt.outcome, before.attempts[0].outcome, "a terminal attempt never changes");
        let word = attempt.word.clone().unwrap();
        assert_eq!((word.verb, word.by.as_str()), (verb, "local:1000"));
        assert_eq!(word.why.as_deref(), Some("looked at the machine"));
        if let Some(closing) = view.run.closing {
            assert_eq!((Some(closing.outcome), closing.unobserved), (attempt.outcome.clone(), true));
        }
        let end = if verb == Verb::Retry { EventKind::RunRetryWait } else { EventKind::RunEnded };
        assert!(world.story(taken.run).await.ends_with(&[EventKind::RunLost, EventKind::ResolveRequested, end]));
        let (again, _) = world.unchanged(world.store.resolve_run(call)).await.replayed();
        assert_eq!(again, Resolve::AlreadyClosed);
        for other in Verb::ALL.iter().filter(|other| **other != verb) {
            let call = world.resolve_call(taken.run, *other);
            let expected =
                if state.is_terminal() { ResolveRefused::AlreadyEnded(state) } else { ResolveRefused::NotLost(state) };
            let answer = world.unchanged(world.store.resolve_run(call)).await.refused();
            assert_eq!(answer, refused(expected), "{other} after {verb}");
        }
    }
}

/// Waiting is noted in the story and in the audit, and changes nothing else.
pub async fn waiting_changes_no_record(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine).await;
    let before = world.view(taken.run).await;
    for times in 1..=3 {
        let (resolve, view) = say(&world, &world.resolve_call(taken.run, Verb::Wait)).await;
        assert_eq!((resolve, &view), (Resolve::Noted, &before));
        let story = world.story(taken.run).await;
        assert_eq!(story.iter().filter(|kind| **kind == EventKind::ResolveRequested).count(), times);
        assert_eq!(world.audited("resolve_run").await, times);
    }
    world.end(&taken, exited(0)).await.applied();
    assert_eq!(world.state(taken.run).await, RunState::Succeeded, "what was waited for came");
}

/// Where nothing is lost there is no question.
pub async fn what_is_not_lost_has_no_question(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let pending = world.run(plain()).await;
    let running = world.running(&session, plain()).await;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    for verb in Verb::ALL {
        for (run, expected) in [
            (pending, refused(ResolveRefused::NotLost(RunState::Pending))),
            (running.run, refused(ResolveRefused::NotLost(RunState::Running))),
            (ended.run, refused(ResolveRefused::AlreadyEnded(RunState::Succeeded))),
            (world.run_id(), Unmet::NotFound("run")),
        ] {
            let call = world.resolve_call(run, *verb);
            assert_eq!(world.unchanged(world.store.resolve_run(call)).await.refused(), expected, "{verb}");
        }
    }
}

/// A word that names its attempt never speaks about another: the repeat of a lost answer starts nothing twice.
pub async fn a_word_about_an_earlier_attempt_is_not_about_the_latest(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine).await;
    let first = AttemptNumber::FIRST;
    let about = |number| ResolveRun { attempt: Some(number), ..world.resolve_call(taken.run, Verb::Retry) };
    let call = about(first);
    say(&world, &call).await;
    world.next_attempt(taken.run).await;
    let session = world.session(&machine, "boot-a").await;
    let second = world.take(&session, taken.run).await;
    world.start(&second).await;
    world.expire(&second).await;
    assert_eq!(world.state(taken.run).await, RunState::Lost);
    let (again, view) = world.unchanged(world.store.resolve_run(call)).await.replayed();
    assert_eq!((again, view.run.state), (Resolve::AlreadyClosed, RunState::Lost));
    let other = ResolveRun { verb: Verb::MarkFailed, ..about(first) };
    let answer = world.unchanged(world.store.resolve_run(other)).await.refused();
    assert_eq!(answer, refused(ResolveRefused::OtherAttempt { named: first, latest: first.next() }));
    let unknown = about(first.next().next());
    assert_eq!(world.unchanged(world.store.resolve_run(unknown)).await.refused(), Unmet::NotFound("attempt"));
    assert_eq!(say(&world, &about(first.next())).await.0, Resolve::Closed);
}

/// A person's retry backs off no time and is bound by no counter of the machinery; the next attempt inherits nothing.
pub async fn a_persons_retry_begins_at_once_whatever_the_bounds(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let run = lost(&world, &machine).await.run;
    for round in 1..=limits::MACHINERY_RETRIES + 2 {
        say(&world, &world.resolve_call(run, Verb::Retry)).await;
        let next = world.attempt_id();
        assert_eq!(world.store.begin_retries(vec![next]).await.unwrap().runs, [run], "round {round}");
        let view = world.view(run).await;
        let latest = view.attempts.last().unwrap();
        assert_eq!(*latest, Attempt::pending(next, run, view.run.latest));
        assert_eq!(view.attempts.len(), usize::try_from(round + 1).unwrap());
        let session = world.session(&machine, "boot-a").await;
        let taken = world.take(&session, run).await;
        world.start(&taken).await;
        world.acknowledge_running(&taken).await.applied();
        world.expire(&taken).await;
    }
}

/// What comes after a word that ended the run is answered, told once, and changes nothing.
pub async fn evidence_after_a_word_is_news_of_the_past(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    let taken = lost(&world, &machine).await;
    say(&world, &world.resolve_call(taken.run, Verb::MarkFailed)).await;
    let run = world.view(taken.run).await.run;
    for _ in 0..2 {
        let answer = world.end(&taken, exited(0)).await.unwrap().into_result().unwrap();
        let Ended::AlreadyTerminal(projection) = answer else { panic!("{answer:?}") };
        assert_eq!((projection.run, projection.resolution), (RunState::Failed, Resolution::Person));
    }
    assert_eq!(world.view(taken.run).await.run, run);
    let late = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::EvidenceLate).count();
    assert_eq!(late, 1);
}

/// A receipt that comes before anybody took the attempt that a person wanted closes the run: nothing starts twice.
pub async fn evidence_closes_what_a_person_wanted_tried_again(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for begun in [false, true] {
        let taken = lost(&world, &machine).await;
        say(&world, &world.resolve_call(taken.run, Verb::Retry)).await;
        if begun {
            world.next_attempt(taken.run).await;
        }
        let taken = taken.held_by(&world.session(&machine, "boot-a").await);
        world.end(&taken, exited(0)).await.applied();
        let view = world.view(taken.run).await;
        assert_eq!((view.run.state, view.attempts[0].resolution), (RunState::Succeeded, Resolution::Receipt));
        assert!(view.attempts[0].word.is_some(), "what was said is not forgotten");
        world.pass(seconds(3600));
        assert_eq!(world.store.begin_retries(vec![world.attempt_id()]).await.unwrap().runs, []);
    }
}

/// A word and evidence at the same instant: one of them closes the question, and both are told the same.
pub async fn a_word_and_evidence_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    let machine = world.machine("nas").await;
    for _ in 0..16 {
        let taken = lost(&world, &machine).await;
        let (one, two) = (world.store.clone(), world.store.clone());
        let (word, evidence) = (world.resolve_call(taken.run, Verb::MarkFailed), taken.end_call(exited(0)));
        let word = async move { one.resolve_run(word).await.unwrap() };
        let (said, ended) = both(word, async move { two.end(evidence).await.unwrap() }).await;
        let Ended::AlreadyTerminal(projection) = ended.into_result().unwrap() else { panic!("it was terminal") };
        let view = world.view(taken.run).await;
        assert_eq!((view.run.state, view.attempts[0].resolution), (projection.run, projection.resolution));
        match said {
            Outcome::Applied((Resolve::Closed, _)) => {
                assert_eq!((projection.run, projection.resolution), (RunState::Failed, Resolution::Person));
            }
            Outcome::Refused(Unmet::Resolve(ResolveRefused::AlreadyEnded(RunState::Succeeded))) => {
                assert_eq!((projection.run, projection.resolution), (RunState::Succeeded, Resolution::Receipt));
            }
            other => panic!("{other:?}"),
        }
        let ends = world.story(taken.run).await.iter().filter(|kind| **kind == EventKind::RunEnded).count();
        assert_eq!(ends, 1, "closed once");
    }
}
