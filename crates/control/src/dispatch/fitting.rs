//! Which of those who wait a lane fits, which of its runs have a place, and who is proposed what.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use leasehold_core::capability::Capabilities;
use leasehold_core::crypto::Digest;
use leasehold_core::device::{DeviceId, Devices};
use leasehold_core::id::{ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::limits;
use leasehold_core::occupancy::Places;
use leasehold_core::placement::{Candidate, MismatchClass, Score, left_to_another, matches, pick_gpus, rank};
use leasehold_core::time::Millis;
use leasehold_store::view::{Candidate as Head, HeadKey, Lane};

use super::pass::Tally;
use crate::neighbours::{Neighbour, Source};
use crate::open_pulls::{Reserved, Waiter};

/// Matches that are remembered; then all are forgotten.
const CACHED_MATCHES: usize = 16 * 1024;

/// Capabilities, placement, and the worker where the placement names workers.
type MatchKey = (Digest, String, Option<WorkerId>);

/// Whether capabilities meet a placement, remembered: neither ever changes under its digest.
#[derive(Debug, Default)]
pub(super) struct Matches(HashMap<MatchKey, Result<Score, MismatchClass>>);

impl Matches {
    fn verdict(
        &mut self,
        lane: &Lane,
        digest: Digest,
        capabilities: &Capabilities,
        worker: &WorkerId,
    ) -> Result<Score, MismatchClass> {
        if self.0.len() > CACHED_MATCHES {
            self.0.clear();
        }
        let named = names_workers(lane).then(|| worker.clone());
        let key = (digest, lane.key.placement.clone(), named);
        *self.0.entry(key).or_insert_with(|| {
            matches(&lane.placement, capabilities, worker)
                .map_err(|lacks| lacks.first().map_or(MismatchClass::WorkerId, |lack| lack.class))
        })
    }
}

fn names_workers(lane: &Lane) -> bool {
    !lane.placement.require().worker_ids.is_empty()
}

/// Those who wait here, by what they can do: a fleet has many machines and few kinds; and those who wait elsewhere.
pub(super) struct Fleet {
    kinds: BTreeMap<[u8; 32], Vec<Arc<Waiter>>>,
    pub(super) elsewhere: Vec<Neighbour>,
}

impl Fleet {
    pub(super) fn of(waiters: &[Arc<Waiter>], elsewhere: Vec<Neighbour>) -> Self {
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for waiter in waiters {
            kinds.entry(*waiter.digest.as_bytes()).or_default().push(Arc::clone(waiter));
        }
        Self { kinds, elsewhere }
    }

    /// The lane with those that it fits; none if it fits nobody, or none of its runs has a place. Notes what keeps it from
    /// whom.
    pub(super) fn fit(&self, lane: Lane, known: &mut Matches, tally: &mut Tally) -> Option<Fitting> {
        let mut waiters = Vec::new();
        let full = lane.heads.first().is_some_and(|head| free(&lane, head) == 0);
        for kind in self.kinds.values() {
            // One verdict serves a whole kind, unless the placement names workers.
            let judged = if names_workers(&lane) { kind.len() } else { 1 };
            let verdicts: Vec<_> = kind
                .iter()
                .take(judged)
                .map(|waiter| known.verdict(&lane, waiter.digest, &waiter.capabilities, &waiter.fence.worker))
                .collect();
            let before = waiters.len();
            for (place, waiter) in kind.iter().enumerate() {
                let Some(Ok(score)) = verdicts.get(place).or(verdicts.last()) else { continue };
                if devices(&lane, waiter, &BTreeSet::new()).is_some() {
                    waiters.push((Arc::clone(waiter), *score));
                } else {
                    tally.wants_devices(&waiter.fence.worker);
                }
            }
            let kept = if waiters.len() > before { full.then_some(MismatchClass::Limit) } else { None };
            let lacking = verdicts.iter().find_map(|verdict| verdict.err());
            if let (Some(class), Some(waiter)) = (kept.or(lacking), kind.first()) {
                tally.keep(waiter.digest, class);
            }
        }
        if waiters.is_empty() {
            tally.unmatched += 1;
            return None;
        }
        if full {
            tally.full += 1;
            return None;
        }
        let mut elsewhere = Vec::new();
        for (place, Neighbour { waits, capabilities, .. }) in self.elsewhere.iter().enumerate() {
            if let Ok(score) = known.verdict(&lane, waits.capabilities, capabilities, &waits.worker) {
                elsewhere.push((place, score));
            }
        }
        Some(Fitting { lane, waiters, elsewhere, over: false })
    }
}

/// The devices that a run of the lane would get of `waiter`, were those of `promised` in use as well; none: too few are free.
fn devices(lane: &Lane, waiter: &Waiter, promised: &BTreeSet<DeviceId>) -> Option<Devices> {
    let Some(gpu) = &lane.placement.require().gpu else { return Some(Devices::default()) };
    let busy = waiter.busy();
    if promised.is_empty() {
        return pick_gpus(gpu, &waiter.capabilities, &busy);
    }
    pick_gpus(gpu, &waiter.capabilities, &busy.union(promised).cloned().collect())
}

/// How many runs more may have a place where `head` wants one, by what the lane's read counted: of its task's limit, and of
/// its project's.
fn free_of_each(lane: &Lane, head: &Head) -> [u32; 2] {
    let own = u32::from(head.holds);
    let free = |places: Option<Places>| {
        let others = |places: Places| Places { occupied: places.occupied.saturating_sub(own), ..places };
        places.map_or(u32::MAX, |places| others(places).free())
    };
    let limit = lane.key.task.as_ref().and(head.concurrency);
    [free(limit.map(|limit| Places { limit, occupied: lane.task_occupied })), free(lane.project)]
}

/// How many runs more may have a place where `head` wants one.
fn free(lane: &Lane, head: &Head) -> u32 {
    let [of_task, of_project] = free_of_each(lane, head);
    of_task.min(of_project)
}

/// A lane that somebody who waits matches.
pub(super) struct Fitting {
    pub(super) lane: Lane,
    /// Who, and how well.
    waiters: Vec<(Arc<Waiter>, Score)>,
    /// Who of those that wait elsewhere, by their place among them, and how well.
    elsewhere: Vec<(usize, Score)>,
    /// Whether its heads are all the runs it has.
    over: bool,
}

impl Fitting {
    /// Behind which of its runs the lane is read on. A run that holds a place stands first out of its order.
    pub(super) fn last(&self) -> Option<HeadKey> {
        match self.lane.heads.as_slice() {
            [first] if first.holds => None,
            heads => heads.last().map(Head::key),
        }
    }

    /// Further runs of the lane, of at most `asked`.
    pub(super) fn read_on(&mut self, more: Vec<Head>, asked: usize) {
        self.over = more.len() < asked;
        let first = self.lane.heads.first().filter(|head| head.holds).map(|head| head.run);
        self.lane.heads.extend(more.into_iter().filter(|head| Some(head.run) != first));
    }

    /// Whether somebody who waits could be given more of the lane than of what was read of it: `wanted` runs, unless its
    /// limits have fewer places.
    pub(super) fn hides(&self, wanted: usize) -> bool {
        let Some(first) = self.lane.heads.first() else { return false };
        if self.over {
            return false;
        }
        let places = usize::try_from(free(&self.lane, first)).unwrap_or(usize::MAX);
        let wanted = wanted.min(places);
        let open = |waiter: &Waiter| {
            self.lane
                .heads
                .iter()
                .filter(|head| !gave_back(&self.lane, head, &waiter.fence.worker))
                .take(wanted)
                .count()
        };
        self.waiters.iter().any(|(waiter, _)| open(waiter) < wanted)
    }

    /// Notes for whom the lane holds nothing but what they gave back.
    pub(super) fn count_given_back(&self, tally: &mut Tally) {
        for (waiter, _) in &self.waiters {
            if self.lane.heads.iter().all(|head| gave_back(&self.lane, head, &waiter.fence.worker)) {
                tally.gave_back(&waiter.fence.worker);
            }
        }
    }
}

/// Whether `worker` gave the run back and is not to be asked yet.
fn gave_back(lane: &Lane, head: &Head, worker: &WorkerId) -> bool {
    head.refused.iter().any(|(who, refused)| who == worker && refused.until > lane.now.lease)
}

/// A run proposed to an ask.
pub(super) struct Proposal {
    pub(super) reserved: Reserved,
    pub(super) run: RunId,
    pub(super) score: Score,
}

/// Places and devices that are proposed already, of limits and workers that several lanes may share.
#[derive(Default)]
struct Promised<'a> {
    tasks: HashMap<(&'a ProjectName, &'a TaskName), u32>,
    projects: HashMap<&'a ProjectName, u32>,
    devices: HashMap<WorkerId, BTreeSet<DeviceId>>,
}

impl<'a> Promised<'a> {
    fn has_place(&self, lane: &Lane, head: &Head) -> bool {
        let of_task = lane.key.task.as_ref().and_then(|task| self.tasks.get(&(&lane.key.project, task)));
        let promised = [of_task, self.projects.get(&lane.key.project)].map(|count| count.copied().unwrap_or(0));
        free_of_each(lane, head).into_iter().zip(promised).all(|(free, promised)| free > promised)
    }

    fn promise(&mut self, lane: &'a Lane) {
        if let Some(task) = &lane.key.task {
            *self.tasks.entry((&lane.key.project, task)).or_insert(0) += 1;
        }
        *self.projects.entry(&lane.key.project).or_insert(0) += 1;
    }

    /// The devices that a run of the lane would get of `waiter`; none: too few are left.
    fn devices(&self, lane: &Lane, waiter: &Waiter) -> Option<Devices> {
        devices(lane, waiter, self.devices.get(&waiter.fence.worker).unwrap_or(&BTreeSet::new()))
    }
}

/// What comes of bringing heads and asks together.
#[derive(Default)]
pub(super) struct Proposed {
    pub(super) proposals: Vec<Proposal>,
    /// Runs that are left to those who fit better and wait elsewhere, how long they have been due, and to whom.
    pub(super) left: Vec<(RunId, Millis, Source)>,
}

/// Brings heads and asks together: heads by priority, then in the order they came; for each the best worker with room.
/// Within a lane nothing overtakes a run that waits for a place. `due_for`: how long a run has been due.
pub(super) fn propose(
    fitting: &[Fitting],
    elsewhere: &[Neighbour],
    room: usize,
    due_for: impl Fn(&Lane, &Head) -> Millis,
) -> Proposed {
    let mut heads: Vec<_> = fitting
        .iter()
        .enumerate()
        .flat_map(|(place, fit)| fit.lane.heads.iter().map(move |head| (place, fit, head)))
        .collect();
    heads.sort_by_key(|(_, _, head)| (Reverse(head.priority), head.run));
    let mut proposed = Proposed::default();
    let mut promised = Promised::default();
    // What is left of those who wait elsewhere: each replica goes through the same heads and finds the same.
    let mut others: Vec<(u16, u16)> = elsewhere.iter().map(|there| (there.waits.free, there.waits.room)).collect();
    let mut full = vec![false; fitting.len()];
    for (place, fit, head) in heads {
        if proposed.proposals.len() >= room.min(limits::DISPATCH_CLAIMS) {
            break;
        }
        // Who holds a place itself waits for none that those before it wait for.
        if full[place] && !head.holds {
            continue;
        }
        if !promised.has_place(&fit.lane, head) {
            full[place] = true;
            continue;
        }
        let ranked = ranked(fit, head, &promised);
        let Some(best) = ranked.first() else { continue };
        let due_for = due_for(&fit.lane, head);
        let rivals = fit.elsewhere.iter().filter_map(|(there, score)| {
            let (worker, (free, room)) = (&elsewhere[*there].waits.worker, others[*there]);
            let open = room > 0 && !gave_back(&fit.lane, head, worker);
            open.then(|| Candidate { worker: worker.clone(), score: *score, free_slots: u32::from(free) })
        });
        if let Some(rival) = left_to_another(due_for, best, rivals)
            && let Some(there) = elsewhere.iter().position(|there| there.waits.worker == rival.worker)
        {
            let (free, room) = others[there];
            others[there] = (free.saturating_sub(1), room.saturating_sub(1));
            // It takes a place there.
            promised.promise(&fit.lane);
            proposed.left.push((head.run, due_for, elsewhere[there].source));
            continue;
        }
        for candidate in ranked {
            let found = fit.waiters.iter().find(|(waiter, _)| waiter.fence.worker == candidate.worker);
            let Some((waiter, _)) = found else { continue };
            let devices = promised.devices(&fit.lane, waiter).unwrap_or_default();
            if let Some(reserved) = waiter.reserve() {
                proposed.proposals.push(Proposal { reserved, run: head.run, score: candidate.score });
                promised.promise(&fit.lane);
                if !devices.is_empty() {
                    promised.devices.entry(candidate.worker).or_default().extend(devices.iter().cloned());
                }
                break;
            }
        }
    }
    proposed
}

/// Those who wait here and can be given the run, the best first.
fn ranked(fit: &Fitting, head: &Head, promised: &Promised<'_>) -> Vec<Candidate> {
    let open = fit.waiters.iter().filter(|(waiter, _)| {
        waiter.room() > 0
            && !gave_back(&fit.lane, head, &waiter.fence.worker)
            && promised.devices(&fit.lane, waiter).is_some()
    });
    rank(
        open.map(|(waiter, score)| Candidate {
            worker: waiter.fence.worker.clone(),
            score: *score,
            free_slots: u32::from(waiter.free()),
        })
        .collect(),
    )
}
