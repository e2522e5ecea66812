//! A run for people: where it stands, why, and every attempt.

use std::io::{self, Write};

use leasehold_core::attempt::{Left, LimitMeans, Resolution};
use leasehold_core::run::RunState;
use leasehold_core::{lost, remains};
use leasehold_wire::api::run::{AttemptDetail, Outcome, OutcomeKind, RunDetail};

use crate::exit::Exit;
use crate::log_words;
use crate::output::on_one_line;
use crate::times::TimeArgs;

/// The exit code that tells how a run stands.
pub(crate) fn exit_of(state: RunState) -> Exit {
    match state {
        RunState::Succeeded => Exit::Done,
        RunState::Failed => Exit::RunFailed,
        RunState::Cancelled => Exit::Cancelled,
        RunState::TimedOut => Exit::TimedOut,
        RunState::Lost => Exit::Lost,
        RunState::Pending | RunState::Dispatching | RunState::Running | RunState::RetryWait => Exit::StillPending,
    }
}

/// An outcome in words.
pub(crate) fn words(outcome: &Outcome) -> String {
    let ended = match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => String::new(),
    };
    let reason = outcome.reason.as_deref().unwrap_or("unknown reason");
    match outcome.kind {
        OutcomeKind::Exited => ended,
        OutcomeKind::Stopped => format!("stopped ({reason}), {ended}"),
        OutcomeKind::Rejected => match &outcome.detail {
            Some(detail) => format!("nothing was started ({reason}): {detail}"),
            None => format!("nothing was started ({reason})"),
        },
        OutcomeKind::NeverSpawned => "nothing was started: the worker closed the way first".to_owned(),
        OutcomeKind::NotStarted => format!("stopped before it started ({reason})"),
        OutcomeKind::Lost => {
            let evidence = outcome.evidence.as_deref().unwrap_or("no evidence");
            format!("nobody saw its end: {}", evidence_in_words(evidence))
        }
        OutcomeKind::Superseded => "superseded by late evidence of another attempt".to_owned(),
        OutcomeKind::Other => "an end that this version does not know".to_owned(),
    }
}

/// How a limit was kept, in words.
const fn kept_in_words(means: LimitMeans) -> &'static str {
    match means {
        LimitMeans::Cgroup => "kept by a control group",
        LimitMeans::Rlimit => "kept as well as its worker could, by an rlimit (best_effort)",
        LimitMeans::None => "not kept: its worker cannot (best_effort)",
    }
}

/// A kind of evidence in words; one that this version does not know, by its name.
fn evidence_in_words(name: &str) -> String {
    name.parse().map_or_else(|_| name.to_owned(), |kind| lost::meaning(kind).to_owned())
}

/// Writes the page of a run.
pub(crate) fn write(out: &mut dyn Write, run: &RunDetail, times: TimeArgs) -> io::Result<()> {
    let item = &run.item;
    let mut line = |name: &str, value: &str| writeln!(out, "{:<10} {}", format!("{name}:"), on_one_line(value));
    line("Run", &item.id.to_string())?;
    line("Name", &item.name)?;
    line("Project", item.project.as_str())?;
    if let Some(task) = &item.task {
        line("Task", task.as_str())?;
    }
    match (&item.trigger, item.scheduled_at) {
        (Some(trigger), Some(at)) => line("Scheduled", &format!("{} by {trigger}", times.show(at.0)))?,
        (Some(trigger), None) => line("Called", &format!("by webhook {trigger}"))?,
        (None, _) => {}
    }

    for (task, run) in &item.after {
        line("After", &format!("run {run} of task {task}"))?;
    }
    let unobserved = if item.end_not_observed { " (its own end was not observed)" } else { "" };
    line("State", &format!("{}{unobserved}", item.state))?;
    if let Some(outcome) = &item.outcome {
        line("Outcome", &words(outcome))?;
    }
    if let Some(stop) = &item.stop {
        let why = stop.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        line("Stop", &format!("{} by {} at {}{why}", stop.reason, stop.by, times.show(stop.at.0)))?;
    }
    line("Priority", &item.priority.to_string())?;
    line("Submitted", &times.show(item.created_at.0))?;
    if let Some(at) = item.started_at {
        line("Started", &times.show(at.0))?;
    }
    if let Some(at) = item.ended_at {
        line("Ended", &times.show(at.0))?;
    }
    for attempt in &run.attempts {
        write_attempt(out, attempt, times)?;
    }
    Ok(())
}

fn write_attempt(out: &mut dyn Write, attempt: &AttemptDetail, times: TimeArgs) -> io::Result<()> {
    writeln!(out, "\nAttempt {}: {}", attempt.number, attempt.state)?;
    let mut line = |name: &str, value: &str| writeln!(out, "  {:<10} {}", format!("{name}:"), on_one_line(value));
    if let Some(worker) = &attempt.worker {
        line("Worker", worker.as_str())?;
    }
    let steps = [
        ("Claimed", attempt.claimed_at),
        ("Starting", attempt.starting_at),
        ("Running", attempt.running_at),
        ("Ended", attempt.ended_at),
    ];
    for (name, at) in steps {
        if let Some(at) = at {
            line(name, &times.show(at.0))?;
        }
    }
    if let Some(process) = &attempt.process {
        line("Process", &format!("pid {}", process.pid))?;
    }
    if let Some(outcome) = &attempt.outcome {
        line("Outcome", &words(outcome))?;
    }
    let told = attempt.outcome.as_ref().and_then(|outcome| outcome.evidence.as_ref());
    for kind in attempt.evidence.iter().filter(|kind| Some(*kind) != told) {
        line("Evidence", &evidence_in_words(kind))?;
    }
    if let Some(left) = &attempt.cancel_incomplete {
        let left = remains::processes(&Left { count: left.count, pids: left.pids.clone() });
        let text = if attempt.state.is_live() {
            format!("the kernel does not let go of {left}: it ends when they are gone")
        } else {
            format!("the kernel did not let go of {left}")
        };
        line("Left", &text)?;
    }
    if attempt.may_live {
        line("Warning", "something that it started may still live on its machine, and keeps its places")?;
    }
    if attempt.resolution != Resolution::None {
        line("Resolution", &resolution_in_words(attempt, times))?;
    }
    if let Some(usage) = &attempt.usage {
        let killed = if usage.oom_killed { ", killed for lack of memory" } else { "" };
        let used = format!(
            "{} ms user, {} ms system, {} KiB resident at most{killed}",
            usage.user_ms, usage.system_ms, usage.max_rss_kib
        );
        line("Used", &used)?;
        let limits = &usage.limits;
        for (limit, means) in [("memory", limits.memory), ("cpu", limits.cpu), ("pids", limits.pids)] {
            if let Some(means) = means {
                line("Limit", &format!("{limit} {}", kept_in_words(means)))?;
            }
        }
    }
    line("Log", &log_words::line(&attempt.log))
}

/// What closed the question of a lost attempt.
fn resolution_in_words(attempt: &AttemptDetail, times: TimeArgs) -> String {
    let said = attempt.word.as_ref().map(|word| {
        let why = word.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{} by {} at {}{why}", word.verb, word.by, times.show(word.at.0))
    });
    match (attempt.resolution, said) {
        (Resolution::Person, Some(said)) => format!("person ({said})"),
        // A receipt that came before anybody took the attempt that a person wanted.
        (resolution, Some(said)) => format!("{resolution}, after {said}"),
        (resolution, None) => resolution.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_the_exit_code_of_the_product() {
        for (state, code) in [
            (RunState::Succeeded, 0),
            (RunState::Failed, 5),
            (RunState::Cancelled, 6),
            (RunState::TimedOut, 7),
            (RunState::Lost, 8),
            (RunState::Pending, 9),
            (RunState::Running, 9),
        ] {
            assert_eq!(exit_of(state).code(), code, "{state}");
        }
    }

    #[test]
    fn outcomes_are_told_in_words() {
        let outcome = |json: &str| words(&serde_json::from_str::<Outcome>(json).unwrap());
        assert_eq!(outcome(r#"{"kind":"exited","exit_code":3}"#), "exit code 3");
        assert_eq!(outcome(r#"{"kind":"exited","signal":9}"#), "signal 9");
        assert_eq!(outcome(r#"{"kind":"stopped","reason":"cancel","signal":15}"#), "stopped (cancel), signal 15");
        assert_eq!(
            outcome(r#"{"kind":"rejected","reason":"exec","detail":"no such program: x"}"#),
            "nothing was started (exec): no such program: x"
        );
        assert_eq!(outcome(r#"{"kind":"a_new_kind"}"#), "an end that this version does not know");
    }
}
