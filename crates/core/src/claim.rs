//! May this worker have this run: the claim, its recovery by the same ask, and giving it back unstarted.
//!
//! The server claims before it answers; what a worker has not been granted it never sees. The same offer id and token
//! again rebuilds the same offer, also for a later session of the same worker. (Protocol, *Asks and offers*.)

use std::collections::BTreeSet;

use crate::attempt::{Attempt, AttemptState, Held, Outcome};
use crate::change::Change;
use crate::counter::{FenceNumber, LeaseGeneration, LeaseVersion};
use crate::crypto::Digest;
use crate::device::{DeviceId, Devices};
use crate::event::{EventKind, NewEvent};
use crate::id::OfferId;
use crate::lease::{Lease, LeaseFence, LeaseState, check_active, check_boot, check_holder, rebound_event};
use crate::limits;
use crate::occupancy::{LimitOf, Limited};
use crate::placement::{GpuRequirement, pick_gpus};
use crate::refusal::{Refusal, RefusalCode};
use crate::run::{Policy, Run, RunState};
use crate::session::Session;
use crate::time::{LeaseInstant, Now};
use crate::worker::Worker;

/// What a worker asks with: an offer id of its own choice, and the digest of the lease token that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Chosen by the worker; durable there before it asks.
    pub offer: OfferId,
    /// Digest of the token that the worker sent.
    pub token: Digest,
}

/// What an earlier lease says about an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskVerdict {
    /// Never claimed with: may claim now.
    Open,
    /// Claimed by this worker and still active: rebuild the offer. The change rebinds the lease if it must.
    Granted(Box<(Lease, Change)>),
    /// Another worker's, another token, or ended: the worker drops the ask.
    Gone,
}

/// What the lease with this ask's offer id (or token) says, for the live session that asks. A session that does not know
/// the devices of the claim cannot use them: its machine changed, or its software is of before there were any.
pub fn recover_ask(ask: &Ask, known: Option<(&Lease, &Attempt)>, session: &Session, now: Now) -> AskVerdict {
    let Some((lease, attempt)) = known else {
        return AskVerdict::Open;
    };
    let same = lease.offer == ask.offer && lease.token == ask.token && lease.worker == session.worker;
    let knows = lease.devices.are_of(&session.capabilities);
    if !same || !knows || check_active(lease, attempt, now.lease).is_err() || check_boot(attempt, session).is_err() {
        return AskVerdict::Gone;
    }
    let (next, rebound) = lease.rebound_to(session);
    let mut change = Change::default();
    if rebound {
        change.events.push(rebound_event(&next, session));
        change.lease = Some(next.clone());
    }
    AskVerdict::Granted(Box::new((next, change)))
}

/// Why a claim did not happen although the caller may ask: the state moved on since the candidates were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotClaimed {
    /// The run no longer waits.
    Taken,
    /// The worker's slots are all held.
    NoFreeSlot,
    /// The worker drains.
    Draining,
    /// The ask was used up: the worker drops it.
    AskGone,
    /// Other runs hold every place of this limit.
    Limit(LimitOf),
    /// Too few of the worker's devices that fit are free.
    NoFreeDevice,
}

/// A run that waits, as a store loaded it.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its latest attempt.
    pub attempt: &'a Attempt,
    /// The pinned policy of its revision.
    pub policy: &'a Policy,
    /// The limits that it is under, counted under the locks of its project and its task.
    pub limits: Limited,
    /// The GPUs that it wants for itself.
    pub gpu: Option<&'a GpuRequirement>,
    /// The asking worker's devices that something is, or may be, using: see [`crate::occupancy`]. Read under the session's
    /// lock, where the run wants any.
    pub busy: &'a BTreeSet<DeviceId>,
}

/// Claims a waiting run for the live session of `worker` that asks. `active` is the number of active leases of the worker,
/// counted under the session's lock.
pub fn claim(
    worker: &Worker,
    session: &Session,
    active: usize,
    waiting: Waiting<'_>,
    ask: &Ask,
    score: i64,
    now: Now,
) -> Result<(Lease, Change), NotClaimed> {
    let Waiting { run, attempt, policy, limits, gpu, busy } = waiting;
    if !worker.takes_work(session) {
        return Err(NotClaimed::Draining);
    }
    if active >= usize::from(session.max_runs) {
        return Err(NotClaimed::NoFreeSlot);
    }
    if run.state != RunState::Pending || attempt.state != AttemptState::Pending || run.intent.is_some() {
        return Err(NotClaimed::Taken);
    }
    if let Some(full) = limits.full() {
        return Err(NotClaimed::Limit(full));
    }
    let devices = match gpu {
        Some(gpu) => pick_gpus(gpu, &session.capabilities, busy).ok_or(NotClaimed::NoFreeDevice)?,
        None => Devices::default(),
    };
    let generation = attempt.lease_generation.map_or(LeaseGeneration::FIRST, LeaseGeneration::next);
    let fence = run.fence.map_or(FenceNumber::FIRST, FenceNumber::next);
    let lease = Lease {
        attempt: attempt.id,
        run: run.id,
        offer: ask.offer,
        token: ask.token,
        generation,
        version: LeaseVersion::FIRST,
        worker: session.worker.clone(),
        session: session.id,
        session_generation: session.generation,
        fence,
        length: policy.lease,
        // Until `starting`, only the claim window: an unstarted claim must not hold a run for a whole lease.
        expires: now.lease.plus(limits::CLAIM_WINDOW),
        state: LeaseState::Active,
        score,
        devices,
        claimed_at: now.utc,
    };
    let mut next_attempt = attempt.moved(AttemptState::Claimed);
    next_attempt.lease_generation = Some(generation);
    next_attempt.worker = Some(session.worker.clone());
    next_attempt.claimed_at = Some(now.utc);
    let mut next_run = run.moved(RunState::Dispatching);
    next_run.fence = Some(fence);
    let mut event = NewEvent::by_worker(EventKind::AttemptClaimed, run.id, Some(attempt.id), session)
        .with("worker", &session.worker)
        .with("fence", fence);
    if !lease.devices.is_empty() {
        event = event.with("devices", &lease.devices);
    }
    let change = Change {
        run: Some(next_run),
        attempt: Some(next_attempt),
        other_attempt: None,
        lease: Some(lease.clone()),
        events: vec![event],
    };
    Ok((lease, change))
}

names! {
    /// Why a worker gives a claim back.
    pub enum ReleaseReason as "release reason" {
        /// It drains.
        Draining = "draining",
        /// Its disk is nearly full.
        DiskLow = "disk_low",
        /// The machine's own policy does not allow it.
        PolicyRefused = "policy_refused",
        /// The offer is not what its digest says.
        RevisionDrift = "revision_drift",
        /// The lease is about to end.
        LeaseShort = "lease_short",
        /// Its inbox has no room.
        InboxFull = "inbox_full",
    }
}

/// How often a worker gave this run back, and until when it is not asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// How often.
    pub times: u32,
    /// Until when.
    pub until: LeaseInstant,
}

/// `claimed → pending`, unstarted; a repeat is an empty change. Returns what keeps the run from this worker for a while: 30 s, doubling to 10 min.
pub fn release(
    held: Held<'_>,
    fence: &LeaseFence,
    reason: ReleaseReason,
    before: Option<Refused>,
    now: Now,
) -> Result<(Refused, Change), Refusal> {
    let Held { session, run, attempt, lease } = held;
    let lease = check_holder(lease, fence, &session.worker)?;
    if let (LeaseState::Released, Some(before)) = (lease.state, before) {
        // Its own lost answer: nothing changes, and the wait does not grow.
        return Ok((before, Change::default()));
    }
    check_active(lease, attempt, now.lease)?;
    if attempt.state != AttemptState::Claimed {
        return Err(Refusal::new(RefusalCode::LeaseFenced, "only a claim that has not started can be released")
            .showing_lease(lease.projection(attempt, now.lease)));
    }
    let times = before.map_or(0, |refused| refused.times).saturating_add(1);
    let wait = limits::RELEASE_BACKOFF.times(1 << times.saturating_sub(1).min(10)).min(limits::RELEASE_BACKOFF_MAX);
    let refused = Refused { times, until: now.lease.plus(wait) };
    let mut change = unclaim(run, attempt, lease, LeaseState::Released, now);
    change.events.insert(
        0,
        NewEvent::by_worker(EventKind::AttemptReleased, run.id, Some(attempt.id), session)
            .with("worker", &session.worker)
            .with("reason", reason)
            .with("wait", wait),
    );
    Ok((refused, change))
}

/// A claim that ends unstarted: the attempt waits again, or ends if the run was to stop.
pub(crate) fn unclaim(run: &Run, attempt: &Attempt, lease: &Lease, state: LeaseState, now: Now) -> Change {
    let lease = Lease { state, ..lease.clone() };
    if let Some(intent) = &run.intent {
        let (attempt, run) = crate::attempt::stop_unstarted(run, attempt, intent.reason, now);
        let events = vec![
            NewEvent::new(EventKind::AttemptEnded, run.id, Some(attempt.id), crate::actor::Actor::System)
                .with("state", attempt.state),
            NewEvent::new(EventKind::RunEnded, run.id, None, crate::actor::Actor::System).with("state", run.state),
        ];
        return Change { run: Some(run), attempt: Some(attempt), other_attempt: None, lease: Some(lease), events };
    }
    Change {
        run: Some(run.moved(RunState::Pending)),
        attempt: Some(attempt.moved(AttemptState::Pending)),
        other_attempt: None,
        lease: Some(lease),
        events: Vec::new(),
    }
}

/// Whether an outcome proves that nothing of the user's ran. Superseded is only what nobody had claimed.
pub fn nothing_ran(outcome: &Outcome) -> bool {
    use Outcome::{NeverSpawned, NotStarted, Rejected, Superseded};
    matches!(outcome, Rejected { .. } | NeverSpawned | NotStarted(_) | Superseded)
}
