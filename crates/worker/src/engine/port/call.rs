//! Calls to the control plane, what proves that they may be made, and what becomes of them.

use leasehold_core::attempt::{Callback, Left, LogPin, RunningCall, Starting, Usage};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::{LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion};
use leasehold_core::crypto::{CompletionToken, LeaseToken, Ticket};
use leasehold_core::end::{Ended, Ending};
use leasehold_core::fault::Fault;
use leasehold_core::id::{AttemptId, OfferId, SessionId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::offer::Offer;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Said, SessionProjection};
use leasehold_core::time::{Millis, UtcMillis};

/// A call to the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `PUT …/sessions/{session}`, the exact stored body.
    Register {
        /// The session.
        session: SessionId,
        /// The body, byte for byte as it is on disk.
        body: String,
    },
    /// `POST …/heartbeat`.
    Heartbeat {
        /// Who.
        session: SessionNumbers,
        /// The session version expected.
        version: SessionVersion,
        /// What it says of itself.
        said: Said,
        /// Its faults, where they have changed.
        faults: Option<Vec<Fault>>,
        /// The leases held.
        renewals: Vec<Renewal>,
    },
    /// `POST …/drain`.
    Drain {
        /// Who.
        session: SessionNumbers,
        /// The session version expected.
        version: SessionVersion,
    },
    /// `POST …/offline`.
    Offline {
        /// Who.
        session: SessionNumbers,
        /// The session version expected.
        version: SessionVersion,
    },
    /// `POST …/pull`.
    Pull {
        /// Who.
        session: SessionNumbers,
        /// What it asks with.
        asks: Vec<Ask>,
        /// How long the answer may be held.
        wait: Millis,
    },
    /// `POST …/starting`.
    Starting {
        /// Who.
        session: SessionNumbers,
        /// For which lease.
        lease: HeldLease,
    },
    /// `POST …/running`.
    Running {
        /// Who.
        session: SessionNumbers,
        /// For which lease.
        lease: HeldLease,
        /// What runs.
        running: RunningCall,
    },
    /// `POST …/release`.
    Release {
        /// Who.
        session: SessionNumbers,
        /// For which lease.
        lease: HeldLease,
        /// Why.
        reason: ReleaseReason,
    },
    /// `POST …/end`.
    End {
        /// Who.
        session: SessionNumbers,
        /// For which lease.
        lease: HeldLease,
        /// What is reported.
        end: Box<End>,
    },
    /// `POST …/logs?offset=N`: the driver reads whole frames from the file, at most [`leasehold_core::limits::LOG_CHUNK`].
    Log {
        /// Who.
        session: SessionNumbers,
        /// For which lease.
        lease: HeldLease,
        /// From where on.
        offset: u64,
        /// At most this many bytes.
        most: usize,
    },
}

impl Call {
    /// Its name, for people.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Register { .. } => "register",
            Self::Heartbeat { .. } => "heartbeat",
            Self::Drain { .. } => "drain",
            Self::Offline { .. } => "offline",
            Self::Pull { .. } => "pull",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Release { .. } => "release",
            Self::End { .. } => "end",
            Self::Log { .. } => "logs",
        }
    }
}

/// The numbers of the live session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionNumbers {
    /// Which session.
    pub session: SessionId,
    /// Its generation.
    pub generation: SessionGeneration,
}

/// A lease that a call proves to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The attempt.
    pub attempt: AttemptId,
    /// The offer it was claimed with.
    pub offer: OfferId,
    /// Which claim of the attempt.
    pub generation: LeaseGeneration,
    /// The secret.
    pub token: LeaseToken,
}

/// One lease to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The proof.
    pub lease: HeldLease,
    /// The version known here.
    pub version: LeaseVersion,
    /// What the kernel does not let go of while its job is being stopped.
    pub left: Option<Left>,
}

/// What a worker asks with; the token is a secret, durable here before the first request that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The offer id.
    pub offer: OfferId,
    /// The lease token.
    pub token: LeaseToken,
}

/// What an ask was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskAnswer {
    /// Work.
    Granted(Box<Offer>),
    /// Nothing now; the ask stays.
    None,
    /// This ask will never be granted: it is dropped.
    Gone,
    /// Work whose revision is not what its digest says: the claim is given back.
    Drifted {
        /// The attempt.
        attempt: AttemptId,
        /// Which claim of it.
        generation: LeaseGeneration,
        /// What is wrong.
        why: String,
    },
}

/// What an `end` reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub ending: Ending,
    /// Which launch says so, with its token, when one does.
    pub callback: Option<(Callback, CompletionToken)>,
    /// What `running` would have carried.
    pub running: Option<RunningCall>,
    /// The log's length and digest.
    pub log: Option<LogPin>,
    /// What the job used up.
    pub usage: Option<Usage>,
    /// What the kernel would not let go when the launcher stopped it.
    pub left: Option<Left>,
}

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// It was refused; nothing changed.
    Refused(Refusal),
    /// It certainly was not carried out: it never left this machine, or was turned away before it was read.
    NotDone(String),
    /// Whether it was carried out is unknown: no answer, or one that makes no sense.
    Unknown(String),
}

/// The answer of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a registration.
    Registered {
        /// The session as it is.
        session: SessionProjection,
        /// The ticket of the next registration.
        ticket: Ticket,
    },
    /// To a heartbeat.
    Beaten {
        /// The session as it is.
        session: SessionProjection,
        /// A verdict per renewal.
        renewals: Vec<(AttemptId, Result<LeaseProjection, Refusal>)>,
        /// The control plane's wall clock.
        now: UtcMillis,
    },
    /// To a drain.
    Drained(SessionProjection),
    /// To an offline.
    Offline,
    /// To a pull.
    Pulled {
        /// How long the control plane held the answer after it had claimed.
        held: Millis,
        /// What each ask was answered.
        asks: Vec<(OfferId, AskAnswer)>,
    },
    /// To a starting.
    Starting(Starting),
    /// To a running.
    Running(LeaseProjection),
    /// To a release.
    Released,
    /// To an end.
    Ended(Ended),
    /// To a piece of a log: where the durable part ends.
    Log {
        /// Framed bytes.
        durable: u64,
    },
}
