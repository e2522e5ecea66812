//! May this session register: tickets, exact repeats, replacement, and the newcomer that has to wait.
//!
//! One ticket is one registration, so two processes with one credential cannot chase each other: the loser stops for
//! good; a person may grant one registration past that. An exact repeat gets the same answer; a session that the server accepted before is fenced, never taken
//! for a copy. (Protocol, *Sessions*; ADR-0012 §2.)

use crate::capability::Capabilities;
use crate::counter::{SessionGeneration, SessionVersion};
use crate::crypto::{Digest, Ticket};
use crate::id::{BootId, SessionId};
use crate::limits;
use crate::refusal::{Refusal, RefusalCode};
use crate::session::{Session, SessionState};
use crate::ticket::TicketKey;
use crate::time::{Millis, Now};
use crate::worker::{Rival, Takeover, Worker};

/// What a session says of itself when it registers.
#[derive(Debug, Clone)]
pub struct Registration {
    /// The new session.
    pub session: SessionId,
    /// The ticket of the previous answer (or of enrollment).
    pub ticket: Ticket,
    /// What the machine can do.
    pub capabilities: Capabilities,
    /// How many runs it takes at most: 1 to 256.
    pub max_runs: u16,
    /// The boot of the machine.
    pub boot: BootId,
    /// The worker's software version.
    pub software: String,
    /// The protocol version it speaks.
    pub protocol: u16,
    /// Digest of the whole body, the ticket included.
    pub body: Digest,
}

/// What the control plane decides about a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistrationVerdict {
    /// The session takes its place; store worker and session.
    Accepted {
        /// The worker, now pointing at the session.
        worker: Box<Worker>,
        /// The new session.
        session: Box<Session>,
        /// The grant that let it in where it would have been kept out; used up by this. To be audited.
        took_over: Option<TookOver>,
    },
    /// The exact registration of the current session again: answer as before, change nothing.
    Repeated,
    /// Refused. When `rival` is set, store it on the worker; when `copied`, write the audit `credential_replayed`.
    Refused {
        /// What the caller is told.
        refusal: Refusal,
        /// The waiting newcomer, as the worker row should now say.
        rival: Option<Rival>,
        /// Whether this is evidence of a copied credential, to be audited.
        copied: bool,
    },
}

/// A registration that a person's grant let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TookOver {
    /// The grant.
    pub grant: Takeover,
    /// What the registration would have been answered without it.
    pub instead_of: RefusalCode,
}

/// The cadence that a control plane gives its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cadence {
    /// How long a session may be silent.
    pub lease: Millis,
    /// How often it should beat.
    pub interval: Millis,
}

impl Default for Cadence {
    fn default() -> Self {
        Self { lease: limits::SESSION_LEASE, interval: limits::HEARTBEAT_INTERVAL }
    }
}

impl Cadence {
    /// Beats this far apart, from [`limits::HEARTBEAT_INTERVAL_MIN`] to [`limits::HEARTBEAT_INTERVAL_MAX`]; a session
    /// survives two that are lost, as with the default.
    pub fn every(interval: Millis) -> Option<Self> {
        let allowed = limits::HEARTBEAT_INTERVAL_MIN..=limits::HEARTBEAT_INTERVAL_MAX;
        allowed.contains(&interval).then(|| Self { lease: interval.times(3), interval })
    }
}

/// Decides a registration. `current` is the worker's current session; `known` says whether the server has
/// accepted a registration of this session id before.
pub fn register(
    worker: &Worker,
    current: Option<&Session>,
    known: bool,
    call: &Registration,
    tickets: &TicketKey,
    cadence: Cadence,
    now: Now,
) -> RegistrationVerdict {
    let refuse = |code, why: &str| refused(Refusal::new(code, why));
    if let Err(refusal) = worker.check_trusted() {
        return refused(refusal);
    }
    if let Some(session) = current.filter(|session| session.id == call.session) {
        return if session.registration == call.body {
            RegistrationVerdict::Repeated
        } else {
            refuse(RefusalCode::ConflictReplay, "this session registered with other content before")
        };
    }
    if known {
        return refuse(RefusalCode::SessionFenced, "another session of this worker has taken this one's place");
    }
    let expected = match current {
        Some(session) => tickets.next(&worker.id, session.id, session.generation),
        None => tickets.first(&worker.id, worker.enrollment),
    };
    let granted = |instead_of| {
        let grant = worker.takeover.clone().filter(|grant| now.utc < grant.expires_at)?;
        Some(TookOver { grant, instead_of })
    };
    if expected != call.ticket {
        if let Some(took_over) = granted(RefusalCode::TicketSpent) {
            return accept(worker, current, call, cadence, now, Some(took_over));
        }
        return RegistrationVerdict::Refused {
            refusal: Refusal::new(
                RefusalCode::TicketSpent,
                "the registration ticket was spent by another session: if this machine's state was copied, \
                 enroll it again under a name of its own",
            ),
            rival: None,
            copied: true,
        };
    }
    if let Some(live) = current.filter(|session| keeps_newcomer_waiting(session, &call.boot, now)) {
        return match granted(RefusalCode::SessionLive) {
            Some(took_over) => accept(worker, current, call, cadence, now, Some(took_over)),
            None => wait(worker, live, call, now),
        };
    }
    accept(worker, current, call, cadence, now, None)
}

fn refused(refusal: Refusal) -> RegistrationVerdict {
    RegistrationVerdict::Refused { refusal, rival: None, copied: false }
}

/// Whether a registration from `boot` has to wait: the current session is live on another boot and has not been
/// silent for one and a half intervals.
fn keeps_newcomer_waiting(current: &Session, boot: &BootId, now: Now) -> bool {
    current.is_live(now.lease)
        && current.boot != *boot
        && now.lease.since(current.spoke_at) < patience(current.interval)
}

fn patience(interval: Millis) -> Millis {
    interval.plus(interval.part(2))
}

fn wait(worker: &Worker, live: &Session, call: &Registration, now: Now) -> RegistrationVerdict {
    let waiting = worker.rival.as_ref().filter(|rival| rival.session == call.session);
    let waiting = waiting.cloned().unwrap_or(Rival { session: call.session, heard: 0, audited: false });
    // A machine that came up again falls silent under its old session; a copy hears the original speak on.
    let copied = waiting.heard >= 2 && !waiting.audited;
    let rival = Rival { audited: waiting.audited || copied, ..waiting };
    let after = live.spoke_at.plus(patience(live.interval)).since(now.lease).max(Millis::new(500));
    RegistrationVerdict::Refused {
        refusal: Refusal::new(
            RefusalCode::SessionLive,
            "a session of this worker is live on another boot: it must fall silent first",
        )
        .retry_after(after),
        rival: Some(rival),
        copied,
    }
}

fn accept(
    worker: &Worker,
    current: Option<&Session>,
    call: &Registration,
    cadence: Cadence,
    now: Now,
    took_over: Option<TookOver>,
) -> RegistrationVerdict {
    let generation = worker.generation.map_or(SessionGeneration::FIRST, SessionGeneration::next);
    let session = Session {
        worker: worker.id.clone(),
        id: call.session,
        generation,
        version: current.map_or(SessionVersion::FIRST, |old| old.version.next()),
        state: SessionState::Active,
        boot: call.boot.clone(),
        registration: call.body,
        capabilities: call.capabilities.with_labels(&worker.labels),
        max_runs: call.max_runs,
        slots: 0,
        obeys_drain: false,
        lease: cadence.lease,
        interval: cadence.interval,
        expires: now.lease.plus(cadence.lease),
        spoke_at: now.lease,
        software: call.software.clone(),
        protocol: call.protocol,
        registered_at: now.utc,
    };
    // A grant is for one registration that needs it; one that does not leaves it to the one that it was meant for.
    let takeover = worker.takeover.clone().filter(|_| took_over.is_none());
    let (current, generation) = (Some(session.id), Some(generation));
    let worker = Worker { current, generation, rival: None, takeover, ..worker.clone() };
    RegistrationVerdict::Accepted { worker: Box::new(worker), session: Box::new(session), took_over }
}

/// The worker after its live session spoke: a waiting newcomer has heard it once more.
pub fn heard(worker: &Worker) -> Option<Worker> {
    let rival = worker.rival.as_ref()?;
    let rival = Rival { heard: rival.heard.saturating_add(1), ..rival.clone() };
    Some(Worker { rival: Some(rival), ..worker.clone() })
}
