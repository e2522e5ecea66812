//! Invariant 4, for what is known of an end that nobody saw: every evidence has a cause, what was left is told until it
//! is gone, and nothing keeps a place for ever that cannot live.

use crate::chaos::fault::{Fault, worker_name};
use crate::chaos::history::{Attempt, History, Run};

/// Whether a fault of this kind hit the machine of an attempt.
pub(super) fn was_hit(history: &History, attempt: &Attempt, is: fn(&Fault) -> bool) -> bool {
    history.faults.iter().any(|happened| {
        is(&happened.fault) && happened.fault.worker().map(worker_name) == attempt.worker && !happened.missed
    })
}

/// Whether this evidence can be true of an attempt.
pub(super) fn is_possible(history: &History, attempt: &Attempt, evidence: &str) -> bool {
    let hit = |is| was_hit(history, attempt, is);
    match evidence {
        "lease_expired" | "stopped_for_lease" => true,
        "machine_rebooted" => hit(|fault| matches!(fault, Fault::Boot(_))),
        "launcher_killed_all_gone" | "launcher_killed_may_live" => {
            hit(|fault| matches!(fault, Fault::KillLauncher(_) | Fault::FreezeLauncher(_) | Fault::Boot(_)))
        }
        "destroyed" => hit(|fault| matches!(fault, Fault::Destroy(_))),
        _ => false,
    }
}

/// What is said to be known, or to be left, and cannot be.
pub(super) fn unfounded(history: &History, run: &Run, attempt: &Attempt) -> Vec<String> {
    let mut found = Vec::new();
    for evidence in attempt.evidence.iter().filter(|evidence| !is_possible(history, attempt, evidence)) {
        found.push(format!("it is known as {evidence}, and nothing of the kind happened"));
    }
    // A word that it is gone follows the word that something is left.
    let kinds = run.events.iter().filter(|event| event.attempt.as_ref() == Some(&attempt.id)).map(|event| &event.kind);
    let mut told = false;
    for kind in kinds {
        told |= kind == "cancel.incomplete";
        if kind == "cancel.completed" && !std::mem::take(&mut told) {
            found.push("what nobody had said to be left is said to be gone".to_owned());
        }
    }
    let has = |name: &str| attempt.evidence.iter().any(|evidence| evidence == name);
    let over = ["machine_rebooted", "destroyed"].iter().any(|name| has(name));
    // Its launcher, which would have said so, died or was never heard of again.
    let silenced = was_hit(history, attempt, |fault| {
        matches!(fault, Fault::KillLauncher(_) | Fault::FreezeLauncher(_) | Fault::Boot(_) | Fault::Destroy(_))
    });
    if attempt.is_left && (over || !silenced) {
        found.push("something is said to be left of it, and nothing is".to_owned());
    }
    if attempt.may_live && (over || !(has("launcher_killed_may_live") || attempt.is_left)) {
        found.push(format!("it may live, with the evidence {:?}", attempt.evidence));
    }
    found
}
