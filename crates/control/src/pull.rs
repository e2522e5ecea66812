//! The pull: a worker asks for work and directives, and the answer waits until there is some.
//!
//! What earlier claims say about the asks comes first, so the same ask always gets the same offer again. That is also what
//! makes a pull that is cut off harmless: a run that was claimed for it and never answered stays claimed under the ask's
//! own offer id and token, and the next pull with that ask recovers it; if none comes, the claim window ends and the run
//! waits again. (Protocol, *Asks and offers*; control design, *Placement*.)

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::claim::Ask;
use leasehold_core::directive::Directive;
use leasehold_core::id::OfferId;
use leasehold_core::limits;
use leasehold_core::offer::{Offer, RUN_FACTS};
use leasehold_core::placement::MismatchClass;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::{Session, SessionFence};
use leasehold_core::time::Millis;
use leasehold_store::view::{AskState, Grant, PullState};

use crate::error::{ServiceError, WorkerResult, settle};
use crate::hints::Topic;
use crate::open_pulls::{Delivery, Place, Refreshed};
use crate::plane::ControlPlane;
use crate::principal::{SessionRef, WorkerPrincipal};

/// A directive that this session was told before is repeated after this long, so that a lost answer costs no more.
const DIRECTIVE_REPEAT: Millis = Millis::from_secs(1);

/// How long beyond its wait a pull is kept for the first dispatch cycle that looks for work for it.
const FIRST_LOOK: Millis = Millis::from_secs(1);

/// A pull as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// The session that asks.
    pub session: SessionRef,
    /// What it asks with: at most [`limits::PULL_ASKS`]; none waits for directives only.
    pub asks: Vec<Ask>,
    /// How long the answer may wait; at most [`limits::PULL_WAIT`] counts.
    pub wait: Millis,
}

/// The answer to a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// What became of each ask, in the order they were asked.
    pub asks: Vec<(OfferId, AskAnswer)>,
    /// What the worker is to do.
    pub directives: Vec<Directive>,
    /// How long the answer waited, by the boot-time clock.
    pub held: Millis,
}

/// What became of one ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskAnswer {
    /// A run, under a lease.
    Granted(Box<Offer>),
    /// Nothing for now; the ask stays good.
    None(NoneReason),
    /// To be dropped: another worker's, another token's, or ended.
    Gone,
}

/// Why there was nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoneReason {
    /// How many kinds of waiting runs (lanes) this worker did not get, by what kept it from them first. For a worker
    /// without room no lane is looked at: that itself is counted, once.
    pub counts: BTreeMap<MismatchClass, u32>,
    /// Whether the answer came before every lane was looked at.
    pub truncated: bool,
}

impl ControlPlane {
    /// Answers what the worker's asks got, once there is something to say or `wait` is over.
    pub async fn pull(&self, worker: &WorkerPrincipal, pull: Pull) -> WorkerResult<Pulled> {
        check(&pull.asks).map_err(ServiceError::Refused)?;
        let began = self.clock().boot();
        let fence = worker.fence(pull.session);
        // Subscribed before the first look: a cancel, a freed slot or a replacement in between wakes.
        let mut hinted = self.hints().subscribe(Topic::Worker(worker.worker().clone()));
        let deadline = tokio::time::sleep(pull.wait.min(limits::PULL_WAIT).to_std());
        let first_look = tokio::time::sleep(pull.wait.min(limits::PULL_WAIT).plus(FIRST_LOOK).to_std());
        tokio::pin!(deadline, first_look);
        let mut place: Option<Place> = None;
        let (state, delivery) = loop {
            let state = match settle(self.store().recover_asks(fence.clone(), pull.asks.clone()).await) {
                Ok(state) => state,
                Err(error) => {
                    if let Some(place) = place {
                        place.close().await;
                    }
                    return Err(error);
                }
            };
            let answered = state.asks.iter().any(|ask| *ask != AskState::Open);
            let news = self.open_pulls().has_news(&fence, &state.directives);
            if answered || news || self.is_draining() {
                let delivery = match place {
                    Some(place) => place.close().await,
                    None => Delivery::default(),
                };
                break (state, delivery);
            }
            if place.is_none() {
                let (entered, superseded) = self.open_pulls().enter(&fence, &state.session, &pull.asks);
                place = Some(entered);
                if superseded {
                    // Looked at again: the pull whose place this is may have been given a run since.
                    continue;
                }
            }
            let Some(waiting) = &place else { continue };
            let Refreshed { room, look_again } = waiting.refresh(state.free_slots, &state.busy_devices);
            if look_again {
                self.hints().asked();
            }
            let over = async {
                (&mut deadline).await;
                // Also a pull that does not wait is looked for work for once.
                if room > 0 {
                    waiting.looked().await;
                }
            };
            let repeat = async {
                if state.directives.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(DIRECTIVE_REPEAT.to_std()).await;
            };
            tokio::select! {
                () = waiting.settled() => {}
                () = over => {}
                () = &mut first_look => {}
                () = repeat => {}
                () = self.drained() => {}
                () = hinted.hinted() => continue,
                () = tokio::time::sleep(self.settings().pull_refresh.to_std()) => continue,
            }
            let delivery = match place.take() {
                Some(place) => place.close().await,
                None => Delivery::default(),
            };
            break (state, delivery);
        };
        let pulled = answer(state, delivery, &pull.asks)?;
        self.open_pulls().told(&fence, &pulled.directives);
        Ok(Pulled { held: self.clock().boot().since(began), ..pulled })
    }
}

fn check(asks: &[Ask]) -> Result<(), Refusal> {
    if asks.len() > limits::PULL_ASKS {
        let message = format!("asks: got {}, allowed is at most {}", asks.len(), limits::PULL_ASKS);
        return Err(Refusal::new(RefusalCode::LimitExceeded, message));
    }
    let offers: BTreeSet<OfferId> = asks.iter().map(|ask| ask.offer).collect();
    if offers.len() < asks.len() {
        return Err(Refusal::new(RefusalCode::InvalidRequest, "asks: each offer id may stand there once"));
    }
    Ok(())
}

/// What was found for the asks before anything was claimed, with what was claimed for them since.
fn answer(state: PullState, delivery: Delivery, asks: &[Ask]) -> WorkerResult<Pulled> {
    // An ask whose claim is not known either way makes the whole answer unknown: never a guess.
    if let Some(failure) = delivery.failure {
        return Err(failure);
    }
    let mut granted: BTreeMap<OfferId, Grant> =
        delivery.grants.into_iter().map(|grant| (grant.lease.offer, grant)).collect();
    let none = match no_room(&state) {
        Some(class) => NoneReason { counts: BTreeMap::from([(class, 1)]), truncated: false },
        None => NoneReason { counts: delivery.reasons.counts, truncated: delivery.reasons.truncated },
    };
    let asks = asks
        .iter()
        .zip(state.asks)
        .map(|(ask, found)| {
            let answer = match (granted.remove(&ask.offer), found) {
                (Some(grant), _) => AskAnswer::Granted(Box::new(offer(&state.session, grant))),
                (None, AskState::Granted(grant)) => AskAnswer::Granted(Box::new(offer(&state.session, *grant))),
                (None, AskState::Gone) => AskAnswer::Gone,
                (None, AskState::Open) if delivery.gone.contains(&ask.offer) => AskAnswer::Gone,
                (None, AskState::Open) => AskAnswer::None(none.clone()),
            };
            (ask.offer, answer)
        })
        .collect();
    let mut directives = state.directives;
    directives.truncate(limits::DIRECTIVES);
    Ok(Pulled { asks, directives, held: Millis::ZERO })
}

/// What keeps every run from a worker that has no room.
fn no_room(state: &PullState) -> Option<MismatchClass> {
    match state.free_slots {
        0 if !state.takes_work => Some(MismatchClass::Draining),
        0 => Some(MismatchClass::NoFreeSlot),
        _ => None,
    }
}

/// A claimed run as it is handed out to the worker of this session.
fn offer(session: &Session, grant: Grant) -> Offer {
    let Grant { lease, run, attempt, revision, now } = grant;
    let understands = session.capabilities.features.contains(RUN_FACTS);
    Offer {
        offer: lease.offer,
        run: run.id,
        attempt: attempt.id,
        number: attempt.number,
        project: run.project,
        task: run.task,
        digest: run.revision,
        revision,
        fence: lease.fence,
        lease_generation: lease.generation,
        lease_version: lease.version,
        remaining: lease.expires.since(now.lease),
        lease: lease.length,
        score: lease.score,
        devices: lease.devices,
        created_at: run.created_at,
        after: run.after.filter(|_| understands),
        scheduled_at: run.scheduled.filter(|_| understands).map(|scheduled| scheduled.at),
    }
}

/// Whether two fences name one session.
pub(crate) fn same_session(one: &SessionFence, other: &SessionFence) -> bool {
    one.session == other.session && one.generation == other.generation
}

#[cfg(test)]
mod tests;
