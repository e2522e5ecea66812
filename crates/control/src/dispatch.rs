//! The dispatcher: brings waiting runs and open pulls together.
//!
//! One task, owned by [`ControlPlane::run`]. A cycle reads a bounded number of lanes, drops those that no waiting worker
//! matches, and claims from the heads of the rest by priority, then first come first served. A pass over all lanes may
//! take several cycles; the cursor goes round, so whatever blocks a lane costs one row. Hints begin a pass at once, a slow scan
//! begins one without any. What is chosen here is a proposal: the claim's transaction decides. (Control design,
//! *Placement*.)

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::claim::NotClaimed;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::limits;
use leasehold_core::placement::{Candidate, MismatchClass, Score, matches, rank};
use leasehold_store::call::Claim;
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::ClaimRefused;
use leasehold_store::view::{Candidate as Head, Grant, Lane, LaneKey};

use crate::error::ServiceError;
use crate::hints::Topic;
use crate::open_pulls::{Reasons, Reserved, Waiter};
use crate::plane::ControlPlane;

/// Passes in a row that may be futile; then the next hint or scan is waited for.
const FUTILE_PASSES: u32 = 8;
/// Matches that are remembered; then all are forgotten.
const CACHED_MATCHES: usize = 16 * 1024;

/// What the dispatcher carries from cycle to cycle.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    /// The last lane that was read.
    cursor: Option<LaneKey>,
    pass: Option<Pass>,
    /// Passes in a row whose claims all found that the state had moved on.
    futile: u32,
    matches: HashMap<MatchKey, Result<Score, MismatchClass>>,
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
struct Tally {
    /// By capabilities: how many lanes did not match, by what.
    mismatched: HashMap<Digest, BTreeMap<MismatchClass, u32>>,
    /// By worker: how many lanes had nothing but what it gave back a moment ago.
    given_back: HashMap<WorkerId, u32>,
}

impl Tally {
    fn of(&self, waiter: &Waiter) -> BTreeMap<MismatchClass, u32> {
        let mut counts = self.mismatched.get(&waiter.digest).cloned().unwrap_or_default();
        if let Some(lanes) = self.given_back.get(&waiter.fence.worker) {
            counts.insert(MismatchClass::RefusedByWorker, *lanes);
        }
        counts
    }
}

/// Capabilities, placement, and the worker where the placement names workers.
type MatchKey = (Digest, String, Option<WorkerId>);

/// How a cycle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CycleEnd {
    /// Nobody waits with room.
    Idle,
    /// Every lane was looked at and nothing more can be done now.
    Settled,
    /// There may be more to do at once.
    Again,
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Landed {
    /// Nothing.
    Nothing,
    /// The state had moved on: what was read is out of date.
    Moved,
    /// A run went out.
    Granted,
}

/// A run proposed to an ask.
struct Proposal {
    reserved: Reserved,
    run: RunId,
    score: Score,
}

/// A lane that somebody who waits matches.
struct Fitting {
    lane: Lane,
    /// Who, and how well.
    waiters: Vec<(Arc<Waiter>, Score)>,
}

impl Fitting {
    /// Whether the lane goes on behind its `asked` heads, and somebody who waits can be given fewer than `heads` of them.
    fn hides(&self, asked: usize, heads: usize) -> bool {
        let open = |waiter: &Waiter| {
            self.lane.heads.iter().filter(|head| !gave_back(&self.lane, head, &waiter.fence.worker)).count()
        };
        self.lane.heads.len() >= asked && self.waiters.iter().any(|(waiter, _)| open(waiter) < heads)
    }
}

impl ControlPlane {
    /// Runs cycles until the control plane drains.
    pub(crate) async fn dispatch_loop(&self) {
        let mut dispatcher = Dispatcher::default();
        while !self.is_draining() {
            let end = match self.dispatch_cycle(&mut dispatcher).await {
                Ok(end) => end,
                Err(error) => {
                    tracing::warn!(error = %error, "a dispatch cycle failed; it is repeated");
                    CycleEnd::Settled
                }
            };
            let scan = async {
                if end == CycleEnd::Idle {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(self.settings().dispatch_scan.to_std()).await;
            };
            if end == CycleEnd::Again {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.hints().dispatch_hinted() => {}
                () = scan => {}
                () = self.drained() => break,
            }
        }
    }

    /// One cycle, within the budgets of the design.
    pub(crate) async fn dispatch_cycle(&self, dispatcher: &mut Dispatcher) -> Result<CycleEnd, StoreError> {
        let waiters = self.open_pulls().with_room();
        if waiters.is_empty() {
            dispatcher.pass = None;
            return Ok(CycleEnd::Idle);
        }
        if !self.room().takes_work() {
            // Looked at again with the next hint or scan.
            return Ok(CycleEnd::Settled);
        }
        let room: usize = waiters.iter().map(|waiter| usize::from(waiter.room())).sum();
        let heads = room.clamp(1, limits::DISPATCH_CLAIMS);
        let mut fitting = Vec::new();
        let mut complete = false;
        for _ in 0..limits::DISPATCH_PAGES {
            let before = dispatcher.cursor.clone();
            let (lanes, over) = self.dispatch_page(dispatcher).await?;
            let found: Vec<_> = lanes.into_iter().filter_map(|lane| dispatcher.fit(lane, &waiters)).collect();
            fitting.extend(self.with_heads(before, found, heads).await?);
            if over {
                complete = true;
                break;
            }
        }
        dispatcher.count_given_back(&fitting);
        let proposals = propose(&fitting, room);
        let landed = self.claim_all(proposals).await?;
        let (again, tally) = dispatcher.cycle_ended(landed, complete);
        for waiter in &waiters {
            waiter.cycle_ended(Reasons { counts: tally.of(waiter), truncated: !complete });
        }
        Ok(if again { CycleEnd::Again } else { CycleEnd::Settled })
    }

    /// The next page of lanes, and whether the pass is over with it.
    async fn dispatch_page(&self, dispatcher: &mut Dispatcher) -> Result<(Vec<Lane>, bool), StoreError> {
        let cursor = dispatcher.cursor.clone();
        let mut lanes = self.store().lanes(cursor.clone(), limits::DISPATCH_PAGE, 1).await?;
        let full = lanes.len() >= limits::DISPATCH_PAGE;
        let last = lanes.last().map(|lane| lane.key.clone());
        dispatcher.cursor = if full { last } else { None };
        let pass = dispatcher.pass.get_or_insert_with(|| Pass {
            start: cursor,
            wrapped: false,
            landed: Landed::Nothing,
            tally: Tally::default(),
        });
        let over = match &pass.start {
            None => !full,
            Some(start) if pass.wrapped => {
                // Beyond its own beginning the pass has been.
                let met = lanes.iter().position(|lane| lane.key > *start);
                lanes.truncate(met.unwrap_or(lanes.len()));
                if met.is_some() {
                    dispatcher.cursor = Some(start.clone());
                }
                met.is_some() || !full
            }
            Some(_) => {
                pass.wrapped = !full;
                false
            }
        };
        Ok((lanes, over))
    }

    /// The lanes of the page after `before` that somebody matches, with more of their heads: a lane that nobody matches
    /// costs one row, however many runs wait in it.
    async fn with_heads(
        &self,
        before: Option<LaneKey>,
        mut found: Vec<Fitting>,
        heads: usize,
    ) -> Result<Vec<Fitting>, StoreError> {
        let (mut asked, mut wanted) = (1, heads);
        loop {
            if !found.is_empty() && wanted > asked {
                let mut whole = self.store().lanes(before.clone(), limits::DISPATCH_PAGE, wanted).await?;
                for fitting in &mut found {
                    if let Some(place) = whole.iter().position(|lane| lane.key == fitting.lane.key) {
                        fitting.lane = whole.swap_remove(place);
                    }
                }
                asked = wanted;
            }
            // What a worker gave back must not hide from it what waits behind.
            if asked >= limits::DISPATCH_CLAIMS || !found.iter().any(|fitting| fitting.hides(asked, heads)) {
                return Ok(found);
            }
            wanted = asked.saturating_mul(4).min(limits::DISPATCH_CLAIMS);
        }
    }

    /// Claims, all at once; answers the most that came of it.
    async fn claim_all(&self, proposals: Vec<Proposal>) -> Result<Landed, StoreError> {
        let claims = proposals.into_iter().map(|proposal| self.claim_one(proposal));
        let mut most = Landed::Nothing;
        let mut failure = None;
        for landed in join_all(claims).await {
            match landed {
                Ok(landed) => most = most.max(landed),
                Err(error) => failure = Some(error),
            }
        }
        // What was claimed is answered; what was not is proposed again after a pause.
        match failure {
            Some(error) if most == Landed::Nothing => Err(error),
            _ => Ok(most),
        }
    }

    async fn claim_one(&self, proposal: Proposal) -> Result<Landed, StoreError> {
        let Proposal { reserved, run, score } = proposal;
        let call = Claim { session: reserved.waiter.fence.clone(), ask: reserved.ask.clone(), run, score: score.get() };
        match self.store().claim(call).await {
            Ok(Outcome::Applied(grant) | Outcome::Replayed(grant)) => {
                self.claimed(&grant);
                let worker = grant.lease.worker.clone();
                let waiter = Arc::clone(&reserved.waiter);
                reserved.granted(grant);
                if waiter.is_closing() {
                    // Its pull may be gone: the worker's next one has asked already, and would find this only later.
                    self.hints().changed(&Topic::Worker(worker));
                }
                Ok(Landed::Granted)
            }
            Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::Taken))) => {
                reserved.returned();
                Ok(Landed::Moved)
            }
            Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::AskGone))) => {
                reserved.gone();
                Ok(Landed::Moved)
            }
            Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::NoFreeSlot | NotClaimed::Draining))) => {
                reserved.full();
                Ok(Landed::Moved)
            }
            Ok(Outcome::Refused(ClaimRefused::Refused(refusal))) => {
                reserved.failed(ServiceError::Refused(refusal));
                Ok(Landed::Moved)
            }
            Err(StoreError::Unknown { reason }) => {
                reserved.failed(ServiceError::Unknown { reason });
                Ok(Landed::Moved)
            }
            Err(error @ StoreError::NotDone { .. }) => {
                reserved.returned();
                Err(error)
            }
            Err(StoreError::Damaged { reason }) => {
                // One bad row must not keep the others from being served.
                tracing::error!(run.id = %run, reason, "a run cannot be claimed");
                reserved.returned();
                Ok(Landed::Nothing)
            }
        }
    }

    fn claimed(&self, grant: &Grant) {
        tracing::debug!(
            run.id = %grant.run.id,
            attempt.id = %grant.attempt.id,
            worker.id = %grant.lease.worker,
            score = grant.lease.score,
            "run claimed"
        );
        self.hints().changed(&Topic::Run(grant.run.id));
        self.hints().changed(&Topic::Attempt(grant.attempt.id));
        self.hints().recovery();
    }
}

impl Dispatcher {
    /// The lane with those of `waiters` that match it, if any do; notes what keeps the others from it.
    fn fit(&mut self, lane: Lane, waiters: &[Arc<Waiter>]) -> Option<Fitting> {
        if self.matches.len() > CACHED_MATCHES {
            self.matches.clear();
        }
        let names_workers = !lane.placement.require().worker_ids.is_empty();
        let mut counted = HashSet::new();
        let mut fitting = Vec::new();
        for waiter in waiters {
            let worker = &waiter.fence.worker;
            let key = (waiter.digest, lane.key.placement.clone(), names_workers.then(|| worker.clone()));
            let verdict = self.matches.entry(key).or_insert_with(|| {
                matches(&lane.placement, &waiter.capabilities, worker)
                    .map_err(|lacks| lacks.first().map_or(MismatchClass::WorkerId, |lack| lack.class))
            });
            match verdict {
                Ok(score) => fitting.push((Arc::clone(waiter), *score)),
                Err(class) => {
                    let class = *class;
                    if counted.insert(waiter.digest)
                        && let Some(pass) = &mut self.pass
                    {
                        *pass.tally.mismatched.entry(waiter.digest).or_default().entry(class).or_insert(0) += 1;
                    }
                }
            }
        }
        (!fitting.is_empty()).then_some(Fitting { lane, waiters: fitting })
    }

    /// Notes which lanes hold nothing for a worker but what it gave back.
    fn count_given_back(&mut self, fitting: &[Fitting]) {
        let Some(pass) = &mut self.pass else { return };
        for fit in fitting {
            for (waiter, _) in &fit.waiters {
                if fit.lane.heads.iter().all(|head| gave_back(&fit.lane, head, &waiter.fence.worker)) {
                    *pass.tally.given_back.entry(waiter.fence.worker.clone()).or_insert(0) += 1;
                }
            }
        }
    }

    /// Notes how a cycle ended; answers whether there may be more to do at once, and what the pass tallied so far.
    fn cycle_ended(&mut self, landed: Landed, complete: bool) -> (bool, Tally) {
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

/// Whether `worker` gave the run back and is not to be asked yet.
fn gave_back(lane: &Lane, head: &Head, worker: &WorkerId) -> bool {
    head.refused.iter().any(|(who, refused)| who == worker && refused.until > lane.now.lease)
}

/// Brings heads and asks together: heads by priority, then in the order they came; for each the best worker with room.
fn propose(fitting: &[Fitting], room: usize) -> Vec<Proposal> {
    let mut heads: Vec<_> = fitting.iter().flat_map(|fit| fit.lane.heads.iter().map(move |head| (fit, head))).collect();
    heads.sort_by_key(|(_, head)| (std::cmp::Reverse(head.priority), head.run));
    let mut proposals = Vec::new();
    for (fit, head) in heads {
        if proposals.len() >= room.min(limits::DISPATCH_CLAIMS) {
            break;
        }
        let candidates = fit
            .waiters
            .iter()
            .filter(|(waiter, _)| waiter.room() > 0 && !gave_back(&fit.lane, head, &waiter.fence.worker));
        let ranked = rank(
            candidates
                .map(|(waiter, score)| Candidate {
                    worker: waiter.fence.worker.clone(),
                    score: *score,
                    free_slots: u32::from(waiter.free()),
                })
                .collect(),
        );
        for candidate in ranked {
            let found = fit.waiters.iter().find(|(waiter, _)| waiter.fence.worker == candidate.worker);
            if let Some(reserved) = found.and_then(|(waiter, _)| waiter.reserve()) {
                proposals.push(Proposal { reserved, run: head.run, score: candidate.score });
                break;
            }
        }
    }
    proposals
}

#[cfg(test)]
mod tests;
