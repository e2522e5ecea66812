//! A history that holds, and for each check one that does not: a checker that cannot fail is worthless.

use super::*;
use crate::chaos::history::{Drained, EVERY, Event, Happened, Log, Mark, Outcome, What, Word};
use crate::chaos::jobs::{Job, Kind, Places, Verb};

const RUN: &str = "run";

fn job() -> Job {
    Job {
        number: 0,
        kind: Kind::Plain,
        works_for: 1_000,
        exit: 0,
        lines: 12,
        on_lost: OnLost::Hold,
        attempts: 1,
        timeout: None,
        cancel_after: None,
        word: None,
        lease: 25_000,
        places: Places::default(),
    }
}

fn mark(what: What, attempt: u64, at: u64, number: u64) -> Mark {
    let (worker, run) = ("worker-1".to_owned(), RUN.to_owned());
    Mark { worker, what, run, attempt, pid: u32::try_from(100 + attempt).unwrap(), at, number }
}

fn event(sequence: u64, kind: &str, attempt: Option<&str>) -> Event {
    Event { sequence, kind: kind.to_owned(), attempt: attempt.map(str::to_owned), ..Event::default() }
}

fn outcome(kind: &str) -> Outcome {
    Outcome { kind: kind.to_owned(), ..Outcome::default() }
}

fn exited(code: u64) -> Outcome {
    Outcome { exit_code: Some(code), ..outcome("exited") }
}

fn lost(evidence: &str) -> Outcome {
    Outcome { evidence: Some(evidence.to_owned()), ..outcome("lost") }
}

fn stopped(reason: &str) -> Outcome {
    Outcome { reason: Some(reason.to_owned()), signal: Some(15), ..outcome("stopped") }
}

/// An attempt that ended with this, and whose log is whole.
fn attempt(number: u64, state: &str, outcome: Option<Outcome>) -> Attempt {
    let log = Log {
        state: "complete".to_owned(),
        stdout: output(RUN, number, Stream::Stdout, 12),
        stderr: output(RUN, number, Stream::Stderr, 12),
    };
    let (id, worker, resolution) = (format!("attempt-{number}"), Some("worker-1".to_owned()), "none".to_owned());
    let state = state.to_owned();
    Attempt { id, number, state, worker, outcome, resolution, log, ..Attempt::default() }
}

/// One run that succeeded at its first attempt.
fn sound() -> History {
    let events =
        ["run.admitted", "attempt.claimed", "attempt.starting", "attempt.running", "attempt.ended", "run.ended"];
    let events = events.iter().zip(1..).map(|(kind, sequence)| event(sequence, kind, Some("attempt-1"))).collect();
    let run = Run {
        id: RUN.to_owned(),
        state: "succeeded".to_owned(),
        end_not_observed: false,
        outcome: Some(exited(0)),
        attempts: vec![attempt(1, "succeeded", Some(exited(0)))],
        events,
    };
    History {
        submitted: BTreeMap::from([(RUN.to_owned(), Submitted { job: job(), cancelled: false, words: Vec::new() })]),
        marks: vec![mark(What::Start, 1, 1_000, 1), mark(What::Beat, 1, 2_000, 12), mark(What::End, 1, 2_000, 0)],
        runs: vec![run],
        slots: 2,
        ..History::default()
    }
}

/// A run that was lost, retried by its policy, and then succeeded; the first attempt lived until 3 s, the second from 5 s.
fn retried() -> History {
    let mut history = sound();
    history.submitted.get_mut(RUN).unwrap().job.on_lost = OnLost::Retry;
    history.marks = vec![
        mark(What::Start, 1, 1_000, 1),
        mark(What::Beat, 1, 3_000, 4),
        mark(What::Start, 2, 5_000, 2),
        mark(What::Beat, 2, 6_000, 12),
        mark(What::End, 2, 6_000, 0),
    ];
    let mut first = attempt(1, "lost", Some(lost("lease_expired")));
    first.log = Log { state: "incomplete".to_owned(), ..Log::default() };
    history.runs[0].attempts = vec![first, attempt(2, "succeeded", Some(exited(0)))];
    history.runs[0].events = vec![
        event(1, "attempt.claimed", Some("attempt-1")),
        event(2, "attempt.lost", Some("attempt-1")),
        event(3, "run.retry_wait", None),
        event(4, "attempt.claimed", Some("attempt-2")),
        event(5, "attempt.ended", Some("attempt-2")),
        event(6, "run.ended", None),
    ];
    history
}

/// A run that waits for a person: contact was lost.
fn held() -> History {
    let mut history = sound();
    history.marks.truncate(2);
    history.runs[0].state = "lost".to_owned();
    history.runs[0].outcome = None;
    history.runs[0].attempts = vec![attempt(1, "lost", Some(lost("lease_expired")))];
    history.runs[0].events = vec![event(1, "attempt.lost", Some("attempt-1")), event(2, "run.lost", None)];
    history.seen_over.insert((RUN.to_owned(), EVERY), 30_000);
    history
}

/// A held run of which a person said this, and the product's word for it.
fn resolved(verb: Verb, taken: Option<bool>) -> History {
    let mut history = held();
    let word = Word { attempt: 1, verb, times: 1, taken };
    history.submitted.get_mut(RUN).unwrap().words.push(word);
    let run = &mut history.runs[0];
    let mut said = event(3, "resolve.requested", Some("attempt-1"));
    said.facts = format!("{{\"verb\":\"{}\"}}", verb.name());
    run.events.push(said);
    if verb != Verb::Wait {
        let attempt = &mut run.attempts[0];
        (attempt.resolution, attempt.word) = ("person".to_owned(), Some(verb.name().to_owned()));
        (run.outcome, run.end_not_observed) = (attempt.outcome.clone(), true);
    }
    match verb {
        Verb::MarkFailed => run.state = "failed".to_owned(),
        Verb::MarkSucceeded => run.state = "succeeded".to_owned(),
        _ => {}
    }
    history
}

/// A held run that a person had tried again, and whose second attempt succeeded.
fn tried_again() -> History {
    let mut history = retried();
    let submitted = history.submitted.get_mut(RUN).unwrap();
    submitted.job.on_lost = OnLost::Hold;
    submitted.words.push(Word { attempt: 1, verb: Verb::Retry, times: 1, taken: Some(true) });
    let run = &mut history.runs[0];
    let first = &mut run.attempts[0];
    (first.resolution, first.word) = ("person".to_owned(), Some("retry".to_owned()));
    let mut said = event(3, "resolve.requested", Some("attempt-1"));
    said.facts = "{\"verb\":\"retry\"}".to_owned();
    run.events.insert(2, said);
    for (event, sequence) in run.events.iter_mut().zip(1..) {
        event.sequence = sequence;
    }
    history
}

/// A held run whose machine is gone, on a person's word.
fn destroyed() -> History {
    let mut history = held();
    history.faults.push(happened(Fault::Destroy(0), None));
    history.runs[0].attempts[0].outcome = Some(lost("destroyed"));
    history.runs[0].attempts[0].evidence = vec!["destroyed".to_owned()];
    history
}

fn happened(fault: Fault, attempt: Option<&str>) -> Happened {
    Happened { fault, at: 1_500, until: 1_500, attempt: attempt.map(str::to_owned), missed: false }
}

/// The invariants that are broken in `history` after `change`.
#[track_caller]
fn broken(mut history: History, change: impl FnOnce(&mut History)) -> Vec<u8> {
    let before = violations(&history);
    assert!(before.is_empty(), "it was unsound before the change: {before:?}");
    change(&mut history);
    let found = violations(&history);
    // The story of any history can be told.
    assert!(!history.story(RUN).is_empty());
    found.into_iter().map(|violation| violation.invariant).collect()
}

#[track_caller]
fn breaks(invariant: u8, history: History, change: impl FnOnce(&mut History)) {
    let found = broken(history, change);
    assert!(found.contains(&invariant), "invariant {invariant} was not found broken: {found:?}");
}

#[test]
fn each_of_the_twelve_is_judged_or_says_why_not() {
    let numbers: Vec<u8> = JUDGED.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<u8>>());
    assert!(JUDGED.iter().all(|(_, what, not)| !what.is_empty() || !not.is_empty()));
}

#[test]
fn one_an_attempt_that_starts_twice() {
    breaks(1, sound(), |history| history.marks.push(Mark { pid: 7, ..mark(What::Start, 1, 1_500, 1) }));
}

#[test]
fn one_an_attempt_that_nobody_knows_or_that_ran_elsewhere() {
    breaks(1, sound(), |history| history.marks.push(mark(What::Start, 2, 9_000, 2)));
    breaks(1, sound(), |history| history.runs[0].attempts[0].worker = Some("worker-2".to_owned()));
}

#[test]
fn one_a_fence_number_that_does_not_grow() {
    breaks(1, retried(), |history| history.marks[2].number = 1);
}

#[test]
fn two_attempts_that_live_at_once() {
    breaks(2, retried(), |history| history.marks.insert(2, mark(What::Beat, 1, 5_100, 4)));
}

#[test]
fn two_a_daemon_that_outlives_its_attempt_is_allowed_only_where_its_launcher_was_killed() {
    let late = |history: &mut History| history.marks.insert(2, mark(What::Daemon, 1, 5_100, 0));
    breaks(2, retried(), late);
    let killed = |attempt: &str| {
        let mut history = retried();
        history.faults.push(happened(Fault::KillLauncher(0), Some(attempt)));
        history
    };
    assert_eq!(broken(killed("attempt-1"), late), [0; 0]);
    breaks(2, killed("attempt-2"), late);
    // Its direct child dies with its launcher: no exception for it.
    breaks(2, killed("attempt-1"), |history| history.marks.insert(2, mark(What::Beat, 1, 5_100, 4)));
}

#[test]
fn two_a_second_start_that_nobody_called_safe() {
    breaks(2, retried(), |history| history.submitted.get_mut(RUN).unwrap().job.on_lost = OnLost::Fail);
}

#[test]
fn two_a_retry_of_what_had_not_failed() {
    breaks(2, retried(), |history| {
        history.runs[0].attempts[0].outcome = Some(exited(0));
        history.runs[0].attempts[0].state = "succeeded".to_owned();
    });
}

#[test]
fn two_a_job_that_lives_after_its_run_was_called_over() {
    let mut ended = sound();
    ended.seen_over.insert((RUN.to_owned(), EVERY), 2_100);
    breaks(2, ended, |history| history.marks.push(mark(What::Daemon, 1, 2_101, 0)));
    breaks(2, held(), |history| history.marks.push(mark(What::Beat, 1, 30_001, 12)));
    breaks(2, held(), |history| history.marks.push(mark(What::Daemon, 1, 30_001, 0)));
    // Of a run that goes on, only what came before its present attempt.
    let mut next = retried();
    next.seen_over.insert((RUN.to_owned(), 1), 3_500);
    breaks(2, next, |history| history.marks.insert(2, mark(What::Beat, 1, 3_501, 4)));
}

#[test]
fn three_a_run_that_never_ends_or_is_held_against_its_policy() {
    for state in ["pending", "dispatching", "running", "retry_wait"] {
        breaks(3, held(), |history| history.runs[0].state = state.to_owned());
    }
    breaks(3, held(), |history| history.submitted.get_mut(RUN).unwrap().job.on_lost = OnLost::Fail);
    breaks(3, held(), |history| history.runs[0].attempts[0].outcome = None);
    breaks(3, sound(), |history| history.runs[0].attempts[0].state = "running".to_owned());
    let known = broken(held(), |history| history.runs[0].attempts[0].outcome = Some(stopped("lease")));
    assert_eq!(known, [0; 0]);
}

#[test]
fn three_a_run_that_is_forgotten_doubled_or_made_up() {
    breaks(3, sound(), |history| history.runs.clear());
    breaks(3, sound(), |history| history.runs.push(history.runs[0].clone()));
    breaks(3, sound(), |history| history.submitted.clear());
}

#[test]
fn four_a_success_that_never_was() {
    breaks(4, sound(), |history| history.marks.truncate(2));
    breaks(4, sound(), |history| history.marks[2].number = 3);
    breaks(4, sound(), |history| history.runs[0].state = "failed".to_owned());
}

#[test]
fn four_a_stop_that_nobody_wished() {
    for reason in ["cancel", "timeout", "shutdown"] {
        breaks(4, sound(), |history| {
            history.runs[0].attempts[0].outcome = Some(stopped(reason));
            history.runs[0].outcome = Some(stopped(reason));
            history.runs[0].state = if reason == "timeout" { "timed_out" } else { "cancelled" }.to_owned();
        });
    }
}

#[test]
fn four_a_cancelled_run_that_nobody_cancelled() {
    let never = || {
        let mut history = sound();
        history.marks.clear();
        history.runs[0].attempts = vec![attempt(1, "cancelled", Some(outcome("never_spawned")))];
        history.runs[0].attempts[0].log = Log { state: "complete".to_owned(), ..Log::default() };
        history.runs[0].outcome = Some(outcome("never_spawned"));
        history.runs[0].state = "cancelled".to_owned();
        history.submitted.get_mut(RUN).unwrap().cancelled = true;
        history
    };
    breaks(4, never(), |history| history.submitted.get_mut(RUN).unwrap().cancelled = false);
}

#[test]
fn four_a_job_that_outlives_its_time_limit() {
    let limited = |history: &mut History| history.submitted.get_mut(RUN).unwrap().job.timeout = Some(1_000);
    assert_eq!(broken(sound(), limited), [0; 0]);
    let outlives = |history: &mut History| {
        limited(history);
        history.marks.push(mark(What::Daemon, 1, 5_001, 0));
    };
    breaks(4, sound(), outlives);
    let mut frozen = sound();
    frozen.faults.push(happened(Fault::FreezeLauncher(0), Some("attempt-1")));
    assert_eq!(broken(frozen, outlives), [0; 0]);
}

#[test]
fn four_a_start_that_is_denied() {
    for kind in ["rejected", "never_spawned", "not_started"] {
        breaks(4, sound(), |history| history.runs[0].attempts[0].outcome = Some(outcome(kind)));
    }
}

#[test]
fn four_evidence_of_what_did_not_happen() {
    for evidence in ["machine_rebooted", "launcher_killed_all_gone", "record_damaged"] {
        breaks(4, held(), |history| history.runs[0].attempts[0].outcome = Some(lost(evidence)));
    }
    let mut rebooted = held();
    rebooted.faults.push(happened(Fault::Boot(0), None));
    assert_eq!(
        broken(rebooted, |history| history.runs[0].attempts[0].outcome = Some(lost("machine_rebooted"))),
        [0; 0]
    );
}

#[test]
fn three_a_persons_word_that_is_not_told_or_that_nobody_said() {
    for verb in [Verb::Wait, Verb::MarkFailed, Verb::MarkSucceeded] {
        // Without an answer nobody knows whether it was taken.
        for taken in [Some(true), None] {
            assert_eq!(broken(resolved(verb, taken), |_| {}), [0; 0], "{verb:?} {taken:?}");
            breaks(3, resolved(verb, taken), |history| history.submitted.get_mut(RUN).unwrap().words.clear());
        }
        breaks(3, resolved(verb, Some(true)), |history| {
            history.runs[0].events.pop();
        });
        breaks(3, resolved(verb, Some(true)), |history| {
            history.submitted.get_mut(RUN).unwrap().words[0].taken = Some(false);
        });
    }
}

#[test]
fn three_a_persons_word_that_was_taken_and_closed_nothing() {
    for verb in [Verb::MarkFailed, Verb::MarkSucceeded] {
        breaks(3, resolved(verb, Some(true)), |history| history.runs[0].attempts[0].resolution = "receipt".to_owned());
        breaks(3, resolved(verb, Some(true)), |history| history.runs[0].attempts[0].word = Some("retry".to_owned()));
    }
    // A retry that was taken, and then the receipt came before anybody claimed the next attempt.
    let mut overtaken = sound();
    let lost = lost("lease_expired");
    overtaken.runs[0].attempts[0].outcome = Some(lost);
    overtaken.runs[0].attempts[0].state = "lost".to_owned();
    overtaken.runs[0].attempts[0].resolution = "receipt".to_owned();
    let word = Word { attempt: 1, verb: Verb::Retry, times: 1, taken: Some(true) };
    overtaken.submitted.get_mut(RUN).unwrap().words.push(word);
    overtaken.runs[0].events[4].kind = "attempt.lost".to_owned();
    let said = Event { facts: "{\"verb\":\"retry\"}".to_owned(), ..event(6, "resolve.requested", Some("attempt-1")) };
    overtaken.runs[0].events.insert(5, said);
    overtaken.runs[0].events[6].sequence = 7;
    assert_eq!(broken(overtaken, |_| {}), [0; 0]);
}

#[test]
fn four_a_run_that_ended_otherwise_than_the_person_said() {
    breaks(4, resolved(Verb::MarkFailed, Some(true)), |history| history.runs[0].state = "succeeded".to_owned());
    breaks(4, resolved(Verb::MarkSucceeded, Some(true)), |history| history.runs[0].state = "failed".to_owned());
    breaks(4, resolved(Verb::MarkSucceeded, Some(true)), |history| history.runs[0].end_not_observed = false);
    breaks(4, resolved(Verb::MarkFailed, Some(true)), |history| history.runs[0].outcome = Some(exited(1)));
    // What is held has not failed because of that.
    breaks(4, held(), |history| {
        history.runs[0].state = "failed".to_owned();
        history.runs[0].outcome = Some(lost("lease_expired"));
        history.runs[0].end_not_observed = true;
    });
}

#[test]
fn two_a_second_start_that_a_person_wanted_and_one_that_they_did_not() {
    assert_eq!(broken(tried_again(), |_| {}), [0; 0]);
    breaks(2, tried_again(), |history| history.submitted.get_mut(RUN).unwrap().words.clear());
    breaks(2, tried_again(), |history| history.runs[0].attempts[0].resolution = "policy".to_owned());
    // Before the next attempt is claimed, the receipt of the first may still come.
    let overtaken = |history: &mut History| {
        history.marks.truncate(2);
        history.marks[1].number = 12;
        history.marks.push(mark(What::End, 1, 3_000, 0));
        history.runs[0].attempts[0] =
            Attempt { resolution: "receipt".to_owned(), ..attempt(1, "lost", Some(lost("lease_expired"))) };
        history.runs[0].attempts[1] = attempt(2, "cancelled", Some(outcome("superseded")));
        history.runs[0].attempts[1].log = Log { state: "complete".to_owned(), ..Log::default() };
    };
    assert_eq!(broken(tried_again(), overtaken), [0; 0]);
    breaks(2, tried_again(), |history| {
        overtaken(history);
        history.submitted.get_mut(RUN).unwrap().words.clear();
    });
    // Their word is about one attempt, and a loss is a loss.
    breaks(2, tried_again(), |history| history.submitted.get_mut(RUN).unwrap().words[0].attempt = 2);
    breaks(2, tried_again(), |history| history.marks.insert(2, mark(What::Beat, 1, 5_100, 4)));
}

#[test]
fn four_a_machine_that_was_not_destroyed() {
    assert_eq!(broken(destroyed(), |_| {}), [0; 0]);
    breaks(4, destroyed(), |history| history.faults.clear());
    breaks(4, destroyed(), |history| history.faults[0].fault = Fault::Destroy(1));
    breaks(4, destroyed(), |history| history.faults[0].missed = true);
    breaks(4, destroyed(), |history| history.runs[0].attempts[0].may_live = true);
    breaks(2, destroyed(), |history| history.marks.push(mark(What::Daemon, 1, 30_001, 0)));
    // What is known beside the outcome needs a cause as well.
    breaks(4, held(), |history| history.runs[0].attempts[0].evidence.push("destroyed".to_owned()));
}

#[test]
fn five_a_log_that_went_with_its_machine_is_allowed_to_lack_its_end() {
    let cut = |history: &mut History| {
        history.runs[0].attempts[0].log.stdout.truncate(20);
        history.runs[0].attempts[0].log.state = "partial".to_owned();
    };
    let mut gone = sound();
    gone.faults.push(happened(Fault::Destroy(0), None));
    assert_eq!(broken(gone.clone(), cut), [0; 0]);
    breaks(5, gone.clone(), |history| history.runs[0].attempts[0].log.stdout.push(b'x'));
    breaks(5, gone, |history| {
        cut(history);
        history.faults[0].at = 100_000;
        history.faults[0].until = 100_000;
    });
}

#[test]
fn four_what_was_left_is_told_until_it_is_gone() {
    let with = |kinds: &[&str]| {
        let mut history = sound();
        for kind in kinds {
            let sequence = history.runs[0].events.len() as u64 + 1;
            history.runs[0].events.push(event(sequence, kind, Some("attempt-1")));
        }
        history
    };
    assert_eq!(broken(with(&["cancel.incomplete", "cancel.completed"]), |_| {}), [0; 0]);
    breaks(4, with(&["cancel.incomplete"]), |history| {
        (history.runs[0].attempts[0].is_left, history.runs[0].attempts[0].may_live) = (true, true);
    });
    breaks(4, with(&["cancel.incomplete", "cancel.completed"]), |history| {
        history.runs[0].events.remove(6);
        history.runs[0].events[6].sequence = 7;
    });
    breaks(4, with(&["cancel.incomplete", "cancel.completed"]), |history| history.runs[0].attempts[0].may_live = true);
    breaks(4, held(), |history| history.runs[0].attempts[0].may_live = true);
    let mut killed = held();
    killed.faults.push(happened(Fault::KillLauncher(0), Some("attempt-1")));
    let known = broken(killed, |history| {
        history.runs[0].attempts[0].may_live = true;
        history.runs[0].attempts[0].evidence.push("launcher_killed_may_live".to_owned());
    });
    assert_eq!(known, [0; 0]);
}

#[test]
fn five_a_log_that_lacks_a_byte_or_has_one_too_many() {
    breaks(5, sound(), |history| history.runs[0].attempts[0].log.stdout.truncate(20));
    breaks(5, sound(), |history| history.runs[0].attempts[0].log.stderr.push(b'x'));
    // Of a job that was cut short too: what it surely wrote is there, and nothing that it never wrote.
    breaks(5, held(), |history| history.runs[0].attempts[0].log.stdout.clear());
    breaks(5, held(), |history| history.runs[0].attempts[0].log.stdout[0] = b'x');
}

#[test]
fn five_a_log_that_never_became_whole() {
    breaks(5, sound(), |history| history.runs[0].attempts[0].log.state = "partial".to_owned());
    breaks(5, sound(), |history| history.runs[0].attempts[0].log.state = "incomplete".to_owned());
    breaks(5, held(), |history| history.runs[0].attempts[0].log.state = "open".to_owned());
}

#[test]
fn six_a_change_after_the_end() {
    breaks(6, sound(), |history| history.runs[0].events.push(event(7, "attempt.running", Some("attempt-1"))));
    breaks(6, sound(), |history| history.runs[0].events.push(event(7, "attempt.lost", Some("attempt-1"))));
    breaks(6, sound(), |history| history.runs[0].events.push(event(7, "run.ended", None)));
    breaks(6, sound(), |history| history.runs[0].events.push(event(9, "evidence.late", Some("attempt-1"))));
    breaks(6, sound(), |history| history.contradictions.push("a row".to_owned()));
}

#[test]
fn seven_a_token_where_it_does_not_belong() {
    breaks(7, sound(), |history| history.leaks.push("the admin token stands in a file".to_owned()));
}

#[test]
fn nine_what_is_left_and_who_gave_up() {
    breaks(9, sound(), |history| history.left.push("worker-1: inbox/x.json".to_owned()));
    breaks(9, sound(), |history| history.ends.push("the agent ended by itself".to_owned()));
}

#[test]
fn ten_a_copy_where_there_is_none() {
    breaks(10, sound(), |history| history.audit.push("\"credential_replayed\" worker/worker-1".to_owned()));
}

#[test]
fn eleven_one_process_too_many() {
    breaks(11, sound(), |history| history.slots = 0);
}

#[test]
fn eleven_one_process_more_than_a_limit() {
    let limited = |places: Places, project: Option<(&'static str, u32)>| {
        move |history: &mut History| {
            history.submitted.get_mut(RUN).unwrap().job.places = places;
            let mut other = history.submitted[RUN].clone();
            other.job.places.project = project;
            history.submitted.insert("other".to_owned(), other);
            let mut run = history.runs[0].clone();
            run.id = "other".to_owned();
            for stream in Stream::ALL {
                let whole = output("other", 1, stream, 12);
                let log = &mut run.attempts[0].log;
                *(if stream == Stream::Stdout { &mut log.stdout } else { &mut log.stderr }) = whole;
            }
            history.runs.push(run);
            let marks = history.marks.clone();
            history.marks.extend(marks.into_iter().map(|mark| Mark { run: "other".to_owned(), ..mark }));
        }
    };
    let single = Places { task: Some(("t", 1)), ..Places::default() };
    breaks(11, sound(), limited(single, None));
    let lab = Some(("lab", 1));
    breaks(11, sound(), limited(Places { project: lab, ..Places::default() }, lab));
    assert_eq!(broken(sound(), limited(Places { task: Some(("t", 2)), ..Places::default() }, None)), [0; 0]);
    // A task of the same name in another project is another task.
    assert_eq!(broken(sound(), limited(single, Some(("lab", 2)))), [0; 0]);
}

#[test]
fn where_all_succeed_a_loss_or_a_second_start_is_a_violation_however_well_explained() {
    let numbers = |history: &History| -> Vec<u8> {
        violations_where_all_succeed(history).iter().map(|violation| violation.invariant).collect()
    };
    assert_eq!(numbers(&sound()), [0; 0]);
    assert_eq!(numbers(&retried()), [1]);
    assert_eq!(numbers(&held()), [3]);
}

#[test]
fn eleven_a_start_on_a_worker_that_a_person_had_drained() {
    let drained = |worker: &str, held: &[&str], from, until| {
        let drained =
            Drained { worker: worker.to_owned(), from, until, held: held.iter().map(|id| (*id).to_owned()).collect() };
        move |history: &mut History| history.drained.push(drained)
    };
    breaks(11, sound(), drained("worker-1", &[], 500, 3_000));
    breaks(11, sound(), drained("worker-1", &["attempt-2"], 500, 3_000));
    assert_eq!(broken(sound(), drained("worker-1", &["attempt-1"], 500, 3_000)), [0; 0]);
    assert_eq!(broken(sound(), drained("worker-2", &[], 500, 3_000)), [0; 0]);
    assert_eq!(broken(sound(), drained("worker-1", &[], 1_500, 3_000)), [0; 0]);
}

#[test]
fn twelve_a_start_after_a_cancel_of_a_claim() {
    breaks(12, sound(), |history| {
        history.runs[0].events.insert(2, event(3, "cancel.requested", None));
        for (event, sequence) in history.runs[0].events.iter_mut().zip(1..) {
            event.sequence = sequence;
        }
    });
    // While it starts or runs, a cancel is a wish that the process may overtake.
    let running = broken(sound(), |history| {
        history.runs[0].events.insert(4, event(5, "cancel.requested", None));
        for (event, sequence) in history.runs[0].events.iter_mut().zip(1..) {
            event.sequence = sequence;
        }
    });
    assert_eq!(running, [0; 0]);
}
