//! The dispatcher: brings waiting runs and open pulls together.
//!
//! One task, owned by [`ControlPlane::run`]. A cycle reads a bounded number of lanes, drops those that no waiting worker
//! matches, and claims from the heads of the rest by priority, then first come first served. A pass over all lanes may
//! take several cycles; the cursor goes round, so whatever blocks a lane (nobody matches it, its limit is full) costs one
//! row. Hints begin a pass at once, a slow scan begins one without any. What is chosen here is a proposal: the claim's
//! transaction decides. (Control design, *Placement*.)
//!
//! Every replica does this for the workers whose pulls are open at it. Of those at the others it knows what they announced:
//! a run that is due for less than a moment is left to a better-placed one of them. All judge by one order, so in the ordinary
//! case exactly one replica claims a new run, and it wakes exactly one of its waiting workers.

mod fitting;
mod left;
mod pass;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::claim::NotClaimed;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_store::call::{Claim, LaneAfter};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::ClaimRefused;
use leasehold_store::view::{Grant, HeadKey, Lane, LaneKey};

use crate::announce::Why;
use crate::error::ServiceError;
use crate::hints::Topic;
use crate::open_pulls::Reasons;
use crate::plane::ControlPlane;
use fitting::{Fitting, Fleet, Matches, Proposal, Proposed, propose};
use left::Left;
use pass::{Progress, Tally};

/// What the dispatcher carries from cycle to cycle.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    progress: Progress,
    matches: Matches,
    left: Left,
    /// Pages that a cycle may read inside lanes.
    pages_inside: usize,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self {
            progress: Progress::default(),
            matches: Matches::default(),
            left: Left::default(),
            pages_inside: limits::DISPATCH_PAGES,
        }
    }
}

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
                let scan = self.settings().dispatch_scan;
                // Sooner, if a run will have been left to another for long enough.
                let left = dispatcher.left.look_again(self.clock().boot()).map(|wait| wait.plus(Millis::new(1)));
                tokio::time::sleep(left.map_or(scan, |left| left.min(scan)).to_std()).await;
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

    /// One cycle, within the budgets of the design: so many pages of lanes, and as many of the runs in them.
    pub(crate) async fn dispatch_cycle(&self, dispatcher: &mut Dispatcher) -> Result<CycleEnd, StoreError> {
        let waiters = self.open_pulls().with_room();
        if waiters.is_empty() {
            dispatcher.progress.abandon();
            return Ok(CycleEnd::Idle);
        }
        if !self.room().takes_work() {
            // Looked at again with the next hint or scan.
            return Ok(CycleEnd::Settled);
        }
        let room: usize = waiters.iter().map(|waiter| usize::from(waiter.room())).sum();
        let wanted = room.clamp(1, limits::DISPATCH_CLAIMS);
        let now = self.clock().boot();
        dispatcher.left.forget(now);
        let fleet = Fleet::of(&waiters, self.neighbours().waiting(now, &waiters));
        let mut pages_inside = dispatcher.pages_inside;
        let mut fitting = Vec::new();
        let mut complete = false;
        for _ in 0..limits::DISPATCH_PAGES {
            let start = dispatcher.progress.page_start();
            let (lanes, over) = self.dispatch_page(dispatcher).await?;
            let mut tally = Tally::default();
            let lanes = lanes.into_iter();
            let found = lanes.filter_map(|lane| fleet.fit(lane, &mut dispatcher.matches, &mut tally)).collect();
            let (found, unread) =
                self.with_heads(found, &dispatcher.progress.inside, wanted, &mut pages_inside).await?;
            if unread.is_empty() {
                for fitting in &found {
                    fitting.count_given_back(&mut tally);
                }
                dispatcher.progress.page_done(tally);
                complete = over;
            } else {
                // The next cycle goes on inside these lanes.
                dispatcher.progress.read_again(start, unread);
            }
            fitting.extend(found);
            if complete || !dispatcher.progress.inside.is_empty() {
                break;
            }
        }
        let landed = self.claim_all(self.propose(dispatcher, &fitting, &fleet, room)).await?;
        let (again, tally) = dispatcher.progress.cycle_ended(landed, complete);
        if complete {
            self.settings().metrics.lanes_blocked(tally.full, tally.unmatched);
        }
        for waiter in &waiters {
            waiter.cycle_ended(Reasons { counts: tally.of(waiter), truncated: !complete });
        }
        if landed == Landed::Granted {
            self.announce(Why::Claimed);
        }
        Ok(if again { CycleEnd::Again } else { CycleEnd::Settled })
    }

    /// What is claimed for those who wait here; what goes to others is left to them, for a moment.
    fn propose(&self, dispatcher: &mut Dispatcher, fitting: &[Fitting], fleet: &Fleet, room: usize) -> Vec<Proposal> {
        let (now, left) = (self.clock().boot(), &mut dispatcher.left);
        let Proposed { proposals, left: leaving } = propose(fitting, &fleet.elsewhere, room, |lane, head| {
            let submitted = head.submitted.map(|submitted| lane.now.utc.since(submitted));
            left.due_for(head.run, submitted, now)
        });
        for (run, due_for, to) in leaving {
            left.leave(run, due_for, to, now);
        }
        self.neighbours().leaves(left.look_again(now).is_some());
        for proposal in &proposals {
            if let Some(source) = left.taken_back(proposal.run, now) {
                self.neighbours().doubt(source);
            }
        }
        proposals
    }

    /// The next page of lanes, each with its first run, and whether the pass is over with it.
    async fn dispatch_page(&self, dispatcher: &mut Dispatcher) -> Result<(Vec<Lane>, bool), StoreError> {
        let cursor = dispatcher.progress.cursor.clone();
        let mut lanes = self.store().lanes(cursor, limits::DISPATCH_PAGE, 1).await?;
        let full = lanes.len() >= limits::DISPATCH_PAGE;
        let over = dispatcher.progress.read(&mut lanes, full);
        Ok((lanes, over))
    }

    /// The lanes that somebody matches with more of their runs, until everybody could be given `wanted` of each: a lane that
    /// nobody matches costs one row, however many runs wait in it, and what a worker gave back hides nothing from it. Also
    /// answers how far those were read that the budget did not suffice for.
    async fn with_heads(
        &self,
        mut found: Vec<Fitting>,
        inside: &HashMap<LaneKey, Option<HeadKey>>,
        wanted: usize,
        pages: &mut usize,
    ) -> Result<(Vec<Fitting>, HashMap<LaneKey, Option<HeadKey>>), StoreError> {
        let mut asked = if inside.is_empty() { wanted } else { limits::DISPATCH_PAGE_MAX };
        // An earlier cycle has been at what lies before: it is passed over, but for the first, which says what places are left.
        let mut passed = inside.clone();
        loop {
            let mut hiding: Vec<_> = found.iter_mut().filter(|fitting| fitting.hides(wanted)).collect();
            let behind = hiding.iter().map(|fitting| {
                let lane = fitting.lane.key.clone();
                let after = passed.remove(&lane).unwrap_or_else(|| fitting.last());
                LaneAfter { lane, after }
            });
            let behind: Vec<_> = behind.collect();
            if behind.is_empty() {
                return Ok((found, HashMap::new()));
            }
            if *pages == 0 {
                let unread = behind.into_iter().map(|page| (page.lane, page.after)).collect();
                return Ok((found, unread));
            }
            *pages -= 1;
            let read = self.store().heads(behind, asked).await?;
            for (fitting, more) in hiding.iter_mut().zip(read) {
                fitting.read_on(more, asked);
            }
            asked = limits::DISPATCH_PAGE_MAX;
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
            Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::Taken | NotClaimed::Limit(_)))) => {
                reserved.returned();
                Ok(Landed::Moved)
            }
            Ok(Outcome::Refused(ClaimRefused::NotClaimed(NotClaimed::NoFreeDevice))) => {
                let worker = reserved.waiter.fence.worker.clone();
                reserved.returned();
                // What is in use is read anew: until then the run would be proposed to it again, instead of others.
                self.hints().changed(&Topic::Worker(worker));
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
            Err(error @ (StoreError::NotDone { .. } | StoreError::NotAllowed { .. })) => {
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

#[cfg(test)]
mod across;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod postgres_tests;
#[cfg(test)]
mod tests;
