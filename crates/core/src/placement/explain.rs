//! Why is this run still pending? A pure answer from what is known of the run and of every worker.
//!
//! "No registered worker can ever run this" is told apart from "capable workers are busy": the first needs a
//! person, the second needs time. (Control design, *Placement*.)

use std::collections::{BTreeMap, BTreeSet};

use super::{Mismatch, MismatchClass, Placement, Score, limited, matches, pick_gpus};
use crate::capability::Capabilities;
use crate::device::DeviceId;
use crate::id::WorkerId;
use crate::occupancy::LimitFact;
use crate::time::{Millis, UtcMillis};

/// May a worker be given anything at all?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// Its session is live.
    Online,
    /// Its session is live and takes nothing new.
    Draining,
    /// It has no live session.
    Offline,
    /// It takes nothing new by its own word: a person drained it at its machine, or it lacks room.
    Paused,
    /// It speaks a protocol that gets no work.
    UnsupportedProtocol,
}

/// What is known of one worker when the question is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFacts {
    /// Which worker.
    pub worker: WorkerId,
    /// What it declared last; none if it was enrolled and never registered.
    pub capabilities: Option<Capabilities>,
    /// May it be given anything at all?
    pub state: Availability,
    /// How many runs more it can take.
    pub free_slots: u32,
    /// Its devices that something is, or may be, using.
    pub busy_devices: BTreeSet<DeviceId>,
    /// How long this run is not offered to it again, because it gave the run back.
    pub refused_for: Option<Millis>,
}

names! {
    /// What to expect.
    pub enum Outlook as "outlook" {
        /// No worker has ever registered.
        NoWorkers = "no_workers",
        /// No registered worker can ever run this.
        Never = "never",
        /// Capable workers exist; none can take it now.
        Busy = "busy",
        /// A limit of the task or project is full.
        Limited = "limited",
        /// A worker can take it at its next pull.
        Ready = "ready",
    }
}

/// The part of one worker in an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerExplanation {
    /// Which worker.
    pub worker: WorkerId,
    /// Has it ever registered? Before that nobody knows what it can do.
    pub registered: bool,
    /// Has it everything that is required, whatever its state now?
    pub capable: bool,
    /// How well it fits, if it is capable.
    pub score: Option<Score>,
    /// Everything that keeps it from taking the run now; none: it can.
    pub mismatches: Vec<Mismatch>,
}

/// Why a run is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What to expect.
    pub outlook: Outlook,
    /// Every worker, by id.
    pub workers: Vec<WorkerExplanation>,
    /// How many workers each class keeps back; every class once per worker.
    pub classes: BTreeMap<MismatchClass, u32>,
    /// The class that is worth storing with the run; none when it is ready or there are no workers.
    pub leading: Option<MismatchClass>,
    /// What the nearest worker lacks, or what is waited for, in words.
    pub nearest: String,
}

/// Explains a pending run with `placement`, which is under `limits`, to a person.
pub fn explain(placement: &Placement, limits: &[LimitFact], workers: &[WorkerFacts], now: UtcMillis) -> Explanation {
    let full: Vec<_> = limits.iter().filter(|limit| limit.places.free() == 0).collect();
    let mut explained: Vec<_> = workers.iter().map(|facts| explain_worker(placement, &full, facts)).collect();
    explained.sort_by(|a, b| a.worker.cmp(&b.worker));
    let mut classes = BTreeMap::new();
    for worker in &explained {
        let once: BTreeSet<_> = worker.mismatches.iter().map(|mismatch| mismatch.class).collect();
        for class in once {
            *classes.entry(class).or_insert(0) += 1;
        }
    }
    let outlook = if !explained.iter().any(|worker| worker.registered) {
        Outlook::NoWorkers
    } else if !explained.iter().any(|worker| worker.capable) {
        Outlook::Never
    } else if !full.is_empty() {
        Outlook::Limited
    } else if explained.iter().any(|worker| worker.mismatches.is_empty()) {
        Outlook::Ready
    } else {
        Outlook::Busy
    };
    let leading = match outlook {
        Outlook::NoWorkers | Outlook::Ready => None,
        Outlook::Limited => Some(MismatchClass::Limit),
        Outlook::Never => most(explained.iter().filter(|worker| worker.registered)),
        Outlook::Busy => most(explained.iter().filter(|worker| worker.capable)),
    };
    let nearest = nearest(outlook, &full, &explained, now);
    Explanation { outlook, workers: explained, classes, leading, nearest }
}

fn explain_worker(placement: &Placement, full: &[&LimitFact], facts: &WorkerFacts) -> WorkerExplanation {
    let mut mismatches = Vec::new();
    let mut add = |class, wanted: &str, have: String| mismatches.push(Mismatch::new(class, wanted, have));
    let Some(capabilities) = &facts.capabilities else {
        add(MismatchClass::Offline, "a registered worker", "enrolled, never registered".to_owned());
        return WorkerExplanation {
            worker: facts.worker.clone(),
            registered: false,
            capable: false,
            score: None,
            mismatches,
        };
    };
    match facts.state {
        Availability::Online => {}
        Availability::Draining => add(MismatchClass::Draining, "a worker that takes work", "draining".to_owned()),
        Availability::Offline => add(MismatchClass::Offline, "a live session", "offline".to_owned()),
        Availability::Paused => {
            let have = "takes nothing new, by its last heartbeat: drained at its machine, or short of room there";
            add(MismatchClass::Paused, "a worker that takes work", have.to_owned());
        }
        Availability::UnsupportedProtocol => {
            add(MismatchClass::ProtocolVersion, "a supported protocol version", "an unsupported one".to_owned());
        }
    }
    if facts.state == Availability::Online && facts.free_slots == 0 {
        add(MismatchClass::NoFreeSlot, "a free slot", "every slot taken".to_owned());
    }
    if let Some(wait) = facts.refused_for {
        add(
            MismatchClass::RefusedByWorker,
            "a worker that did not give it back",
            format!("not offered again for {wait}"),
        );
    }
    for limit in full {
        add(MismatchClass::Limit, "a free place", limited::held(limit));
    }
    let score = match matches(placement, capabilities, &facts.worker) {
        Ok(score) => {
            if let Some(gpu) = &placement.require().gpu
                && pick_gpus(gpu, capabilities, &facts.busy_devices).is_none()
            {
                let have = gpu.in_use(capabilities, &facts.busy_devices);
                mismatches.push(Mismatch::new(MismatchClass::Gpu, gpu.to_string(), have));
            }
            Some(score)
        }
        Err(lacks) => {
            mismatches.splice(0..0, lacks);
            None
        }
    };
    WorkerExplanation { worker: facts.worker.clone(), registered: true, capable: score.is_some(), score, mismatches }
}

/// The class that keeps most workers back; among equals the first of the list. Where a worker lacks something for
/// good, its passing state does not count.
fn most<'a>(workers: impl Iterator<Item = &'a WorkerExplanation>) -> Option<MismatchClass> {
    let mut counts: BTreeMap<MismatchClass, usize> = BTreeMap::new();
    for worker in workers {
        let counted = worker.mismatches.iter().map(|mismatch| mismatch.class);
        let once: BTreeSet<_> = counted.filter(|class| worker.capable || class.is_lasting()).collect();
        for class in once {
            *counts.entry(class).or_insert(0) += 1;
        }
    }
    counts.into_iter().max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class))).map(|(class, _)| class)
}

fn nearest(outlook: Outlook, full: &[&LimitFact], workers: &[WorkerExplanation], now: UtcMillis) -> String {
    let fewest = |capable: bool| {
        let those = workers.iter().filter(|worker| worker.registered && worker.capable == capable);
        let missing = |worker: &WorkerExplanation| {
            worker.mismatches.iter().filter(|mismatch| capable || mismatch.class.is_lasting()).count()
        };
        // A better score first among those that are equally near, then the first by id.
        those.min_by_key(|worker| (missing(worker), std::cmp::Reverse(worker.score)))
    };
    match outlook {
        Outlook::NoWorkers if !workers.is_empty() => {
            "no worker has registered yet: start `leasehold-worker run` on an enrolled machine".to_owned()
        }
        Outlook::NoWorkers => "no worker is registered: enroll one with `leasehold worker enroll`".to_owned(),
        Outlook::Ready => fewest(true).map_or_else(String::new, |worker| format!("{} can take it", worker.worker)),
        Outlook::Limited => full.iter().map(|limit| limited::waiting(limit, now)).collect::<Vec<_>>().join("; "),
        Outlook::Busy => fewest(true)
            .map_or_else(String::new, |worker| format!("waiting for {}: {}", worker.worker, haves(&worker.mismatches))),
        Outlook::Never => fewest(false).map_or_else(String::new, |worker| {
            let lasting: Vec<_> = worker.mismatches.iter().filter(|m| m.class.is_lasting()).cloned().collect();
            format!("no registered worker can ever run this; nearest is {}: {}", worker.worker, wants(&lasting))
        }),
    }
}

fn wants(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(|m| format!("wants {}, has {}", m.wanted, m.have)).collect::<Vec<_>>().join("; ")
}

fn haves(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(|m| m.have.as_str()).collect::<Vec<_>>().join(", ")
}
