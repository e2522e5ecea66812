//! A pass: one way round all lanes, over as many cycles as its budgets make of it, and what it found that kept lanes from
//! those who wait.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::crypto::Digest;
use leasehold_core::id::WorkerId;
use leasehold_core::placement::MismatchClass;
use leasehold_store::view::{HeadKey, Lane, LaneKey};

use super::Landed;
use crate::open_pulls::Waiter;

/// Passes in a row that may be futile; then the next hint or scan is waited for.
const FUTILE_PASSES: u32 = 8;

/// Where the dispatcher stands between two reads.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last lane that was read.
    pub(super) cursor: Option<LaneKey>,
    /// How far the lanes behind the cursor were read, that could not be read to their ends: at most a page of them.
    pub(super) inside: HashMap<LaneKey, Option<HeadKey>>,
    pass: Option<Pass>,
    /// Passes in a row whose claims all found that the state had moved on.
    futile: u32,
}

/// One way round all lanes.
#[derive(Debug)]
struct Pass {
    /// Where it began.
    start: Option<LaneKey>,
    /// Whether it came past the last lane.
    wrapped: bool,
    /// The most that came of its claims: more may be found by another pass.
    landed: Landed,
    /// What it found that kept lanes from those who wait.
    tally: Tally,
}

/// What kept lanes from those who wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// By capabilities: how many lanes they did not get, by what.
    kept_from: HashMap<Digest, BTreeMap<MismatchClass, u32>>,
    /// By worker: how many lanes had nothing but what it gave back a moment ago.
    given_back: HashMap<WorkerId, u32>,
    /// By worker: how many lanes wait for devices of it that are in use.
    in_use: HashMap<WorkerId, u32>,
    /// Lanes whose limit is full, although somebody matches them.
    pub(super) full: u32,
    /// Lanes that nobody matches.
    pub(super) unmatched: u32,
}

impl Tally {
    /// One lane more that `class` keeps from workers with these capabilities.
    pub(super) fn keep(&mut self, capabilities: Digest, class: MismatchClass) {
        *self.kept_from.entry(capabilities).or_default().entry(class).or_insert(0) += 1;
    }

    /// One lane more that waits for devices of a worker.
    pub(super) fn wants_devices(&mut self, worker: &WorkerId) {
        *self.in_use.entry(worker.clone()).or_insert(0) += 1;
    }

    /// One lane more that holds nothing for a worker but what it gave back.
    pub(super) fn gave_back(&mut self, worker: &WorkerId) {
        *self.given_back.entry(worker.clone()).or_insert(0) += 1;
    }

    /// What another part of the same pass found, too.
    fn add(&mut self, other: Self) {
        for (capabilities, classes) in other.kept_from {
            let kept = self.kept_from.entry(capabilities).or_default();
            for (class, lanes) in classes {
                *kept.entry(class).or_insert(0) += lanes;
            }
        }
        for (mine, others) in [(&mut self.given_back, other.given_back), (&mut self.in_use, other.in_use)] {
            for (worker, lanes) in others {
                *mine.entry(worker).or_insert(0) += lanes;
            }
        }
        self.full = self.full.saturating_add(other.full);
        self.unmatched = self.unmatched.saturating_add(other.unmatched);
    }

    pub(super) fn of(&self, waiter: &Waiter) -> BTreeMap<MismatchClass, u32> {
        let mut counts = self.kept_from.get(&waiter.digest).cloned().unwrap_or_default();
        if let Some(lanes) = self.given_back.get(&waiter.fence.worker) {
            counts.insert(MismatchClass::RefusedByWorker, *lanes);
        }
        if let Some(lanes) = self.in_use.get(&waiter.fence.worker) {
            *counts.entry(MismatchClass::Gpu).or_insert(0) += lanes;
        }
        counts
    }
}

/// Where a page began, to read it once more.
#[derive(Debug, Clone)]
pub(super) struct PageStart {
    cursor: Option<LaneKey>,
    wrapped: bool,
}

impl Progress {
    /// Nobody waits any more.
    pub(super) fn abandon(&mut self) {
        self.pass = None;
        self.inside.clear();
    }

    /// Where the next page begins.
    pub(super) fn page_start(&self) -> PageStart {
        let wrapped = self.pass.as_ref().is_some_and(|pass| pass.wrapped);
        PageStart { cursor: self.cursor.clone(), wrapped }
    }

    /// A page of lanes was read from the cursor on: leaves of it what this pass has not been at, and answers whether the
    /// pass is over with it.
    pub(super) fn read(&mut self, lanes: &mut Vec<Lane>, full: bool) -> bool {
        let cursor = self.cursor.clone();
        let last = lanes.last().map(|lane| lane.key.clone());
        self.cursor = if full { last } else { None };
        let pass = self.pass.get_or_insert_with(|| Pass {
            start: cursor,
            wrapped: false,
            landed: Landed::Nothing,
            tally: Tally::default(),
        });
        match &pass.start {
            None => !full,
            Some(start) if pass.wrapped => {
                // Beyond its own beginning the pass has been.
                let met = lanes.iter().position(|lane| lane.key > *start);
                lanes.truncate(met.unwrap_or(lanes.len()));
                if met.is_some() {
                    self.cursor = Some(start.clone());
                }
                met.is_some() || !full
            }
            Some(_) => {
                pass.wrapped = !full;
                false
            }
        }
    }

    /// The page that began there is read once more by the next cycle, from `inside` its lanes on.
    pub(super) fn read_again(&mut self, start: PageStart, inside: HashMap<LaneKey, Option<HeadKey>>) {
        self.cursor = start.cursor;
        self.inside = inside;
        if let Some(pass) = &mut self.pass {
            pass.wrapped = start.wrapped;
        }
    }

    /// A page was done with; this is what kept its lanes from those who wait.
    pub(super) fn page_done(&mut self, found: Tally) {
        self.inside.clear();
        if let Some(pass) = &mut self.pass {
            pass.tally.add(found);
        }
    }

    /// Notes how a cycle ended; answers whether there may be more to do at once, and what the pass tallied so far.
    pub(super) fn cycle_ended(&mut self, landed: Landed, complete: bool) -> (bool, Tally) {
        let Some(pass) = &mut self.pass else {
            return (false, Tally::default());
        };
        pass.landed = pass.landed.max(landed);
        if !complete {
            return (true, pass.tally.clone());
        }
        let (landed, tally) = (pass.landed, std::mem::take(&mut pass.tally));
        self.pass = None;
        self.futile = if landed == Landed::Moved { self.futile.saturating_add(1) } else { 0 };
        (landed != Landed::Nothing && self.futile <= FUTILE_PASSES, tally)
    }
}
