//! A run lease: the one row that says who may run this attempt now.
//!
//! Claimed atomically, renewed by heartbeats, ended once. Its fence is attempt, offer, generation and token; the version
//! only orders renewals. A lease belongs to the worker's *current* session that proves its token: the first call
//! that does so rebinds it. A started lease never crosses a boot. (ADR-0012 §3; protocol, *Attempts*.)

use crate::attempt::{Attempt, AttemptState, Left};
use crate::change::Change;
use crate::counter::{FenceNumber, LeaseGeneration, LeaseVersion, SessionGeneration};
use crate::crypto::Digest;
use crate::device::Devices;
use crate::event::{EventKind, NewEvent};
use crate::id::{AttemptId, OfferId, RunId, SessionId, WorkerId};
use crate::refusal::{Refusal, RefusalCode};
use crate::session::Session;
use crate::time::{LeaseInstant, Millis, UtcMillis};

names! {
    /// Whether a lease still authorises anything.
    pub enum LeaseState as "lease state" {
        /// Authorises its holder, until it expires.
        Active = "active",
        /// Given back before anything started.
        Released = "released",
        /// Ran out.
        Expired = "expired",
        /// Its attempt ended under it.
        Ended = "ended",
    }
}

impl LeaseState {
    /// Whether the one table of lease transitions allows this step.
    pub const fn may_become(self, to: Self) -> bool {
        matches!((self, to), (Self::Active, Self::Released | Self::Expired | Self::Ended))
    }
}

/// A run lease as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The attempt it authorises.
    pub attempt: AttemptId,
    /// That attempt's run.
    pub run: RunId,
    /// The offer that the worker asked with; unique over all leases.
    pub offer: OfferId,
    /// Digest of the worker's token; unique over all leases. The token itself is never stored.
    pub token: Digest,
    /// Which claim of the attempt this is.
    pub generation: LeaseGeneration,
    /// Orders renewals.
    pub version: LeaseVersion,
    /// Who holds it.
    pub worker: WorkerId,
    /// The session that it belongs to now.
    pub session: SessionId,
    /// That session's generation.
    pub session_generation: SessionGeneration,
    /// The run's fence number at this claim.
    pub fence: FenceNumber,
    /// How long each renewal makes it last.
    pub length: Millis,
    /// When it runs out.
    pub expires: LeaseInstant,
    /// Whether it still authorises.
    pub state: LeaseState,
    /// Why this worker: the placement's score.
    pub score: i64,
    /// The devices that the attempt has for itself: what it was claimed with, for good.
    pub devices: Devices,
    /// When it was claimed, for people.
    pub claimed_at: UtcMillis,
}

/// What a worker is shown of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseProjection {
    /// Which claim of the attempt.
    pub generation: LeaseGeneration,
    /// The version now.
    pub version: LeaseVersion,
    /// How long it still runs; zero when it has ended.
    pub remaining: Millis,
    /// How long each renewal makes it last.
    pub length: Millis,
    /// Where the attempt stands.
    pub attempt_state: AttemptState,
}

/// The proof that a caller holds a lease: every part must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFence {
    /// The attempt, from the path.
    pub attempt: AttemptId,
    /// The offer it was claimed with.
    pub offer: OfferId,
    /// Which claim of the attempt.
    pub generation: LeaseGeneration,
    /// Digest of the token that the caller sent.
    pub token: Digest,
}

impl Lease {
    /// What the worker is shown.
    pub fn projection(&self, attempt: &Attempt, now: LeaseInstant) -> LeaseProjection {
        let remaining = if self.state == LeaseState::Active { self.expires.since(now) } else { Millis::ZERO };
        LeaseProjection {
            generation: self.generation,
            version: self.version,
            remaining,
            length: self.length,
            attempt_state: attempt.state,
        }
    }

    /// The same lease held by `session`, and whether that is news.
    pub fn rebound_to(&self, session: &Session) -> (Self, bool) {
        if self.session == session.id {
            return (self.clone(), false);
        }
        let lease = Self {
            session: session.id,
            session_generation: session.generation,
            version: self.version.next(),
            ..self.clone()
        };
        (lease, true)
    }
}

fn fenced(why: &str) -> Refusal {
    Refusal::new(RefusalCode::LeaseFenced, why)
}

/// The refusal of a caller that holds no such lease: one sentence for foreign, unknown and wrong-token alike, so that a
/// prober learns nothing.
pub fn not_held() -> Refusal {
    fenced("this worker holds no such lease")
}

/// Whether the holder of `fence` ever held this lease of the attempt, leaving its state and clock aside.
pub fn check_holder<'a>(lease: Option<&'a Lease>, fence: &LeaseFence, worker: &WorkerId) -> Result<&'a Lease, Refusal> {
    let lease = lease.ok_or_else(not_held)?;
    let holds = lease.attempt == fence.attempt
        && lease.offer == fence.offer
        && lease.generation == fence.generation
        && lease.worker == *worker
        && lease.token == fence.token;
    if holds { Ok(lease) } else { Err(not_held()) }
}

/// Whether the lease still authorises: active, and not run out.
pub fn check_active(lease: &Lease, attempt: &Attempt, now: LeaseInstant) -> Result<(), Refusal> {
    let projection = || lease.projection(attempt, now);
    match lease.state {
        LeaseState::Active if now < lease.expires => Ok(()),
        LeaseState::Active | LeaseState::Expired => {
            Err(Refusal::new(RefusalCode::LeaseExpired, "the lease ran out").showing_lease(projection()))
        }
        LeaseState::Released | LeaseState::Ended => Err(fenced("the lease has ended").showing_lease(projection())),
    }
}

/// Whether a session of this boot may carry a started attempt on: *a started lease never crosses a boot*.
pub fn check_boot(attempt: &Attempt, session: &Session) -> Result<(), Refusal> {
    match &attempt.boot {
        Some(boot) if *boot != session.boot => Err(fenced("the attempt was started in another boot of this machine")),
        _ => Ok(()),
    }
}

/// Renews a lease for the live session that proves its token, and notes what its holder says that the kernel does not let
/// go of, where that has changed. A beat makes no event: what is left when the attempt ends is told with its end.
///
/// A claimed attempt's lease is not extended (the claim window decides); one that has not reported *running* within its
/// start window is not either: the lease's end decides.
pub fn renew(
    lease: Option<&Lease>,
    attempt: &Attempt,
    fence: &LeaseFence,
    session: &Session,
    left: Option<&Left>,
    now: crate::time::Now,
) -> Result<(LeaseProjection, Change), Refusal> {
    let lease = check_holder(lease, fence, &session.worker)?;
    check_active(lease, attempt, now.lease)?;
    check_boot(attempt, session)?;
    let (mut next, rebound) = lease.rebound_to(session);
    let extend = match attempt.state {
        AttemptState::Running => true,
        AttemptState::Starting => attempt.start_by.is_none_or(|by| now.lease < by),
        _ => false,
    };
    if extend {
        next.expires = now.lease.plus(lease.length);
        if !rebound {
            next.version = lease.version.next();
        }
    }
    let mut change = Change::default();
    if rebound {
        change.events.push(rebound_event(&next, session));
    }
    let projection = next.projection(attempt, now.lease);
    if next != *lease {
        change.lease = Some(next);
    }
    if attempt.state.is_started() && attempt.left.as_ref() != left {
        change.attempt = Some(Attempt { left: left.cloned(), ..attempt.moved(attempt.state) });
    }
    Ok((projection, change))
}

/// The event of a lease that a later session of its worker took over.
pub fn rebound_event(lease: &Lease, session: &Session) -> NewEvent {
    NewEvent::by_worker(EventKind::LeaseRebound, lease.run, Some(lease.attempt), session)
        .with("session", session.id)
        .with("generation", session.generation)
}
