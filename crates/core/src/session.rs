//! A session: one life of an agent, and the fence that makes an earlier life powerless.
//!
//! A session says who the worker is *now*. Its liveness never authorises a run: that is the run lease's part
//! ([`crate::lease`]). Registration is decided in [`crate::registration`]. (ADR-0012 §2; protocol, *Sessions*.)

use crate::capability::Capabilities;
use crate::counter::{SessionGeneration, SessionVersion};
use crate::crypto::Digest;
use crate::id::{BootId, SessionId, WorkerId};
use crate::refusal::{Refusal, RefusalCode};
use crate::time::{LeaseInstant, Millis, Now, UtcMillis};

names! {
    /// What a session may do. That its lease has ended is not a state: the clock decides it at each call.
    pub enum SessionState as "session state" {
        /// Takes work.
        Active = "active",
        /// Finishes what it holds, takes nothing new.
        Draining = "draining",
        /// Has left in an orderly way.
        Offline = "offline",
    }
}

impl SessionState {
    /// Whether the one table of session transitions allows this step.
    pub const fn may_become(self, to: Self) -> bool {
        match self {
            Self::Active => matches!(to, Self::Draining | Self::Offline),
            Self::Draining => matches!(to, Self::Offline),
            Self::Offline => false,
        }
    }
}

/// Who speaks: the numbers that fence a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFence {
    /// The worker, from the certificate.
    pub worker: WorkerId,
    /// The session, from the path.
    pub session: SessionId,
    /// Its generation, as its registration was answered.
    pub generation: SessionGeneration,
}

/// A session as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Whose life.
    pub worker: WorkerId,
    /// Which life.
    pub id: SessionId,
    /// Its place among the worker's lives.
    pub generation: SessionGeneration,
    /// How many of its beats were accepted, carried on from the session it replaced.
    pub version: SessionVersion,
    /// What it may do.
    pub state: SessionState,
    /// The boot of the machine that registered it.
    pub boot: BootId,
    /// Digest of the registration's body: a repeat must be exact.
    pub registration: Digest,
    /// What the machine can do, the enrollment's labels included.
    pub capabilities: Capabilities,
    /// How many runs it takes at most: 1 to 256.
    pub max_runs: u16,
    /// How many runs it would take now, by its own word.
    pub slots: u16,
    /// Whether it takes nothing new because a person drains its worker, by its own word.
    pub obeys_drain: bool,
    /// How long it may be silent.
    pub lease: Millis,
    /// How often it should beat.
    pub interval: Millis,
    /// When its lease ends.
    pub expires: LeaseInstant,
    /// When it last spoke (registration, heartbeat, drain).
    pub spoke_at: LeaseInstant,
    /// The worker's software version.
    pub software: String,
    /// The protocol version it speaks.
    pub protocol: u16,
    /// When it registered, for people.
    pub registered_at: UtcMillis,
}

/// What a worker is shown of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProjection {
    /// Its generation.
    pub generation: SessionGeneration,
    /// Its version now.
    pub version: SessionVersion,
    /// What it may do.
    pub state: SessionState,
    /// How long its lease still runs; zero when it has ended.
    pub remaining: Millis,
    /// How often it should beat.
    pub interval: Millis,
}

impl Session {
    /// Whether its lease has ended.
    pub fn is_expired(&self, now: LeaseInstant) -> bool {
        now >= self.expires
    }

    /// Whether it is the worker's live voice: not offline, lease running.
    pub fn is_live(&self, now: LeaseInstant) -> bool {
        self.state != SessionState::Offline && !self.is_expired(now)
    }

    /// What the worker is shown.
    pub fn projection(&self, now: LeaseInstant) -> SessionProjection {
        SessionProjection {
            generation: self.generation,
            version: self.version,
            state: self.state,
            remaining: self.expires.since(now),
            interval: self.interval,
        }
    }
}

fn is_of(session: &Session, fence: &SessionFence) -> bool {
    session.worker == fence.worker && session.id == fence.session && session.generation == fence.generation
}

/// Whether the holder of `fence` is the worker's current session, leaving its lease aside.
/// `current` is the worker's current session, if it ever registered.
pub fn check_current<'a>(current: Option<&'a Session>, fence: &SessionFence) -> Result<&'a Session, Refusal> {
    let fenced = |why: &str| Refusal::new(RefusalCode::SessionFenced, why);
    let Some(session) = current else {
        return Err(fenced("this worker has no session"));
    };
    if !is_of(session, fence) {
        return Err(fenced("another session of this worker has taken its place"));
    }
    if session.state == SessionState::Offline {
        return Err(fenced("this session went offline"));
    }
    Ok(session)
}

/// Whether the holder of `fence` may act now: current, and its session lease running.
pub fn check_live<'a>(
    current: Option<&'a Session>,
    fence: &SessionFence,
    now: LeaseInstant,
) -> Result<&'a Session, Refusal> {
    let session = check_current(current, fence)?;
    if session.is_expired(now) {
        return Err(Refusal::new(RefusalCode::SessionExpired, "the session's lease has ended: register a new session"));
    }
    Ok(session)
}

fn check_version(session: &Session, expected: SessionVersion, now: LeaseInstant) -> Result<(), Refusal> {
    if session.version == expected {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::VersionConflict,
        format!("the session is at version {}, not {expected}", session.version),
    )
    .showing_session(session.projection(now)))
}

/// What an agent says of itself with a beat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Said {
    /// How many runs it would take now.
    pub slots: u16,
    /// Whether it takes nothing new because it was told so by a directive.
    pub obeys_drain: bool,
}

/// A heartbeat's part that concerns the session: extends its lease, counts the beat, notes what it says of itself.
pub fn beat(
    current: Option<&Session>,
    fence: &SessionFence,
    expected: SessionVersion,
    said: Said,
    now: Now,
) -> Result<Session, Refusal> {
    let session = check_live(current, fence, now.lease)?;
    check_version(session, expected, now.lease)?;
    let mut next = session.clone();
    next.version = session.version.next();
    next.slots = if session.state == SessionState::Active { said.slots.min(session.max_runs) } else { 0 };
    next.obeys_drain = said.obeys_drain;
    next.expires = now.lease.plus(session.lease);
    next.spoke_at = now.lease;
    Ok(next)
}

/// The session takes nothing new from now on. Repeating it is harmless: it counts as a beat.
pub fn drain(
    current: Option<&Session>,
    fence: &SessionFence,
    expected: SessionVersion,
    now: Now,
) -> Result<Session, Refusal> {
    let obeys_drain = current.is_some_and(|session| session.obeys_drain);
    let mut next = beat(current, fence, expected, Said { slots: 0, obeys_drain }, now)?;
    next.state = SessionState::Draining;
    Ok(next)
}

/// The session leaves. Only when no lease of the worker is active: a node is never reported as safely stopped
/// without proof. The exact repeat of a call that took the session offline finds it as it is, and changes nothing.
pub fn offline(
    current: Option<&Session>,
    fence: &SessionFence,
    expected: SessionVersion,
    active_leases: usize,
    now: Now,
) -> Result<Session, Refusal> {
    if let Some(gone) = current.filter(|session| session.state == SessionState::Offline && is_of(session, fence))
        && gone.version == expected.next()
    {
        return Ok(gone.clone());
    }
    let session = check_live(current, fence, now.lease)?;
    check_version(session, expected, now.lease)?;
    if active_leases > 0 {
        return Err(Refusal::new(
            RefusalCode::VersionConflict,
            format!(
                "{active_leases} run leases are still active: end or release them, or let them expire, then go offline"
            ),
        )
        .showing_session(session.projection(now.lease)));
    }
    let mut next = session.clone();
    next.version = session.version.next();
    next.state = SessionState::Offline;
    next.slots = 0;
    next.expires = now.lease;
    next.spoke_at = now.lease;
    Ok(next)
}
