//! Invariant 4: whether what the product says of an end is what happened, and whether a next attempt had a right to be.

use super::evidence::{is_possible, was_hit};
use super::person::{ended_by_a_person, overtaken, retried};
use crate::chaos::fault::Fault;
use crate::chaos::history::{Attempt, History, Life, Outcome, Run, Submitted};
use crate::chaos::jobs::OnLost;

/// What in an attempt's end did not happen.
pub(super) fn untrue(
    history: &History,
    attempt: &Attempt,
    life: Option<&Life>,
    submitted: &Submitted,
) -> Option<String> {
    let Some(outcome) = &attempt.outcome else { return None };
    let started = life.is_some_and(|life| !life.starts.is_empty());
    let Outcome { kind, exit_code, signal, reason, evidence } = outcome;
    let happened = |is: fn(&Fault) -> bool| was_hit(history, attempt, is);
    match kind.as_str() {
        "exited" => match (exit_code, signal) {
            (Some(code), _) if life.and_then(|life| life.end) == Some(*code) => None,
            // Only the death of a whole machine kills a job and leaves its launcher a moment to say so.
            (None, Some(9)) if started && happened(|fault| matches!(fault, Fault::Boot(_) | Fault::Destroy(_))) => None,
            _ => Some(format!("said {outcome:?}, and its process wrote the end {:?}", life.and_then(|life| life.end))),
        },
        "stopped" => {
            let asked = match reason.as_deref() {
                Some("cancel") => submitted.cancelled,
                Some("timeout") => submitted.job.timeout.is_some(),
                Some("shutdown") => happened(|fault| matches!(fault, Fault::DrainAgent(_))),
                Some("lease") => true,
                _ => false,
            };
            if !started {
                Some(format!("said to be stopped for {reason:?}, and never started"))
            } else if !asked {
                Some(format!("said to be stopped for {reason:?}, and nobody wished that"))
            } else {
                None
            }
        }
        "rejected" | "never_spawned" | "not_started" | "superseded" => {
            started.then(|| format!("said {kind} ({reason:?}), and it ran"))
        }
        "lost" => {
            let possible = evidence.as_deref().is_some_and(|evidence| is_possible(history, attempt, evidence));
            (!possible).then(|| format!("lost with the evidence {evidence:?}, and nothing of the kind happened"))
        }
        _ => Some(format!("an unknown outcome: {outcome:?}")),
    }
}

/// Where a run's state is not what its outcome says.
pub(super) fn unlike_its_outcome(run: &Run, submitted: &Submitted) -> Option<String> {
    let Some(outcome) = &run.outcome else { return None };
    if let Some((state, latest)) = ended_by_a_person(run, submitted) {
        // What was observed stands beside the person's word.
        let observed = latest.outcome.as_ref().is_none_or(|observed| observed == outcome);
        let told = run.state == state && observed && run.end_not_observed == (outcome.kind == "lost");
        return (!told).then(|| {
            format!(
                "a person said that it {state}, and it is {} with {outcome:?} ({})",
                run.state, run.end_not_observed
            )
        });
    }
    let allowed: &[&str] = match (outcome.kind.as_str(), outcome.exit_code, outcome.reason.as_deref()) {
        ("exited", Some(0), _) => &["succeeded"],
        ("stopped" | "not_started", _, Some("cancel" | "shutdown")) => &["cancelled"],
        ("stopped" | "not_started", _, Some("timeout")) => &["timed_out"],
        // Nobody but its policy says that what is lost has failed; a wish that it stop says so otherwise.
        ("lost", ..) if run.end_not_observed && submitted.job.on_lost == OnLost::Hold => &["cancelled", "timed_out"],
        ("lost", ..) | ("stopped", _, Some("lease")) if run.end_not_observed => &["failed", "cancelled", "timed_out"],
        // Nothing ran, and a wish that it stop was stored.
        ("rejected" | "never_spawned", ..) if run.state != "failed" => &["cancelled", "timed_out"],
        // The last: contact was lost, its end is known, and the policy for what is lost says that this is a failure.
        ("exited" | "rejected" | "never_spawned", ..) | ("stopped", _, Some("lease")) => &["failed"],
        _ => &[],
    };
    let by_a_shutdown = outcome.reason.as_deref() == Some("shutdown");
    let wished = match run.state.as_str() {
        "cancelled" => submitted.cancelled || by_a_shutdown,
        "timed_out" => submitted.job.timeout.is_some(),
        _ => true,
    };
    // How a run ended is how one of its attempts did.
    let of_an_attempt =
        run.attempts.iter().any(|attempt| attempt.outcome.as_ref() == Some(outcome) || attempt.state == "lost");
    let told = wished && allowed.contains(&run.state.as_str()) && (of_an_attempt || outcome.kind == "not_started");
    (!told).then(|| {
        format!("the run is {}, its outcome {outcome:?}, end_not_observed {}", run.state, run.end_not_observed)
    })
}

/// Why a next attempt had no right to be.
pub(super) fn unjustified(before: &Attempt, next: &Attempt, submitted: &Submitted) -> Option<String> {
    let kind = before.outcome.as_ref().map(|outcome| outcome.kind.as_str());
    let allowed = match (before.state.as_str(), kind) {
        (_, Some("never_spawned" | "rejected")) => true,
        ("lost", _) => {
            submitted.job.on_lost == OnLost::Retry || retried(submitted, before) || overtaken(submitted, before, next)
        }
        ("failed", Some("exited")) => submitted.job.attempts > 1,
        _ => false,
    };
    (!allowed).then(|| {
        format!("attempt {} followed attempt {}, which is {} {kind:?}", next.number, before.number, before.state)
    })
}
