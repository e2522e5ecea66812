//! A lost run in plain words: what is known, what is not, and what each of a person's four verbs would do.
//!
//! Written for whoever is asked at 3 a.m. whether it ran. Says nothing that is not on record, and promises nothing.
//! (Control design; protocol, *What the states mean*.)

use crate::attempt::{Attempt, AttemptState, EvidenceKind, Resolution};
use crate::counter::AttemptNumber;
use crate::id::WorkerId;
use crate::occupancy::occupies;
use crate::resolve::Verb;
use crate::revision::{Revision, Safety};
use crate::run::{Run, RunState};

/// The open question of a lost run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The attempt in question: the run's latest.
    pub attempt: AttemptNumber,
    /// Who had it.
    pub worker: Option<WorkerId>,
    /// What is on record, a sentence each.
    pub known: Vec<String>,
    /// What nobody knows, a sentence each.
    pub unknown: Vec<String>,
    /// What a person may say, and what that would do: every verb there is.
    pub options: Vec<(Verb, String)>,
}

/// The question of `run`, whose attempts stand in order; none unless it is lost.
pub fn question(run: &Run, attempts: &[Attempt], revision: &Revision) -> Option<Question> {
    let latest = attempts.last().filter(|_| run.state == RunState::Lost)?;
    Some(Question {
        attempt: latest.number,
        worker: latest.worker.clone(),
        known: known(run, attempts, latest, revision),
        unknown: unknown(latest),
        options: Verb::ALL.iter().map(|verb| (*verb, effect(*verb, latest, revision))).collect(),
    })
}

/// What one kind of evidence means.
pub const fn meaning(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::LeaseExpired => "nothing was heard of it until its lease had ended",
        EvidenceKind::MachineRebooted => "its machine started anew, so nothing of it runs any more",
        EvidenceKind::LauncherKilledAllGone => {
            "its launcher was killed; everything that it had started was found and stopped"
        }
        EvidenceKind::LauncherKilledMayLive => {
            "its launcher was killed, and whether everything that it had started is gone could not be verified"
        }
        EvidenceKind::StoppedForLease => {
            "its launcher stopped it because nobody renewed its lease, so nothing of it runs any more"
        }
        EvidenceKind::RecordDamaged => "the worker's own record of it is damaged",
        EvidenceKind::Destroyed => "a person declared its machine destroyed, so nothing of it runs any more",
    }
}

fn known(run: &Run, attempts: &[Attempt], latest: &Attempt, revision: &Revision) -> Vec<String> {
    let number = latest.number;
    let on = latest.worker.as_ref().map(|worker| format!(" on worker {worker}")).unwrap_or_default();
    let mut known = vec![match &latest.handle {
        Some(handle) => format!("attempt {number} ran{on}, as process {}", handle.pid),
        None => format!("attempt {number} was about to start{on}"),
    }];
    known.extend(latest.evidence.iter().map(|kind| meaning(*kind).to_owned()));
    if latest.evidence.iter().all(|kind| *kind == EvidenceKind::LeaseExpired) {
        known.push("if its launcher lives, it stopped the job before the lease ended".to_owned());
    }
    if let Some(left) = &latest.left {
        let pids: Vec<_> = left.pids.iter().map(ToString::to_string).collect();
        known.push(format!("{} of its processes could not be killed: {}", left.count, pids.join(", ")));
    }
    let earlier = attempts.iter().filter(|attempt| attempt.number != number && attempt.state == AttemptState::Lost);
    for attempt in earlier.filter(|attempt| attempt.resolution != Resolution::Receipt) {
        known.push(format!("attempt {} was lost, too, and was followed by another", attempt.number));
    }
    if occupies(run, latest, &revision.policy()) {
        known.push("it keeps its places until then: what waits for them goes on waiting".to_owned());
    }
    known
}

fn unknown(latest: &Attempt) -> Vec<String> {
    let mut unknown = Vec::new();
    if latest.handle.is_none() {
        unknown.push("whether its process ever started".to_owned());
    }
    unknown.push(if latest.evidence.contains(&EvidenceKind::StoppedForLease) {
        "how much of its work it had done when it was stopped".to_owned()
    } else {
        "whether it did its work, and how it ended".to_owned()
    });
    if latest.may_live {
        unknown.push("whether something that it started still runs".to_owned());
    } else if !latest.is_gone() {
        unknown.push("what its machine says: it has not been heard since".to_owned());
    }
    unknown
}

fn effect(verb: Verb, latest: &Attempt, revision: &Revision) -> String {
    let number = latest.number;
    match verb {
        Verb::Wait => {
            let hope = match &latest.worker {
                Some(worker) if !latest.evidence.contains(&EvidenceKind::Destroyed) => {
                    format!("; if worker {worker} brings a receipt of its end, that closes the question")
                }
                _ => "; nobody is expected to bring a receipt of its end".to_owned(),
            };
            format!("changes nothing, and notes that you looked{hope}")
        }
        Verb::Retry => {
            let safety = match revision.retry().safety {
                Safety::None => format!("what attempt {number} already did may be done twice"),
                declared => format!("its author declares a second start safe ({declared})"),
            };
            let beside = if latest.may_live { "; both may run at the same time" } else { "" };
            format!("starts attempt {} now, on any worker that fits; {safety}{beside}", number.next())
        }
        Verb::MarkFailed => "ends the run as failed, on your word; nothing is started".to_owned(),
        Verb::MarkSucceeded => {
            "ends the run as succeeded, on your word: for when you have seen that its work is done".to_owned()
        }
    }
}
