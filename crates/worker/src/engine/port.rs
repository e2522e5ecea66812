//! What crosses the edge of the engine: what happened (inputs), what is to be done (effects), and what calls say.
//!
//! Core types only: no wire message, no file, no process. The driver carries an effect out and answers with the
//! operation it named; an effect that is never answered is a crash. The agent is a step function over ports for
//! time, network, disk and processes, so that the simulation drives the real one. (Proof, *Simulation*.)

use leasehold_core::attempt::{
    Callback, EvidenceKind, Handle, Left, LogPin, RejectReason, RunningCall, Starting, StopReason, Usage,
};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::{LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion};
use leasehold_core::crypto::{CompletionToken, LeaseToken, Ticket};
use leasehold_core::directive::Directive;
use leasehold_core::end::{Ended, Ending};
use leasehold_core::fault::Fault;
use leasehold_core::id::{AttemptId, OfferId, SessionId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::offer::Offer;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Said, SessionProjection};
use leasehold_core::time::{BootInstant, Millis, UtcMillis};
use leasehold_core::verdict::{BarrierFact, LockFact};

use crate::inbox::record::Record;
use crate::session_file::SessionFile;

/// Names one effect whose outcome is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The two clocks of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Judges deadlines.
    pub boot: BootInstant,
    /// Shown to people.
    pub utc: UtcMillis,
}

/// What a process is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Drain, then leave; a second one stops the jobs too.
    Terminate,
    /// Leave at once; the launchers stay.
    LeaveRunning,
    /// Start over: look at the machine again, keep the jobs.
    StartOver,
}

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// The engine was made; it may act now.
    Start,
    /// The timer that the engine set is due.
    Timer,
    /// A call to the control plane has its outcome.
    Answer {
        /// Which call.
        op: OpId,
        /// What became of it.
        outcome: Outcome,
        /// What the control plane wants beside the answer.
        directives: Vec<Directive>,
    },
    /// A disk write or another local effect is done, or is known to have failed.
    Done {
        /// Which effect.
        op: OpId,
        /// Why it failed, for people.
        result: Result<(), String>,
    },
    /// The launcher answered, or did not.
    Launched {
        /// Which launch.
        op: OpId,
        /// What it said.
        answer: LaunchAnswer,
    },
    /// An attempt was observed.
    Observed {
        /// Which observation.
        op: OpId,
        /// What is there; or why it cannot be read.
        found: Result<Box<Found>, String>,
    },
    /// Whether the control connection of a running launcher is there now.
    Attached {
        /// Which attempt to attach.
        op: OpId,
        /// Whether it succeeded.
        attached: bool,
    },
    /// The log of an attempt whose launcher said no last word, as it stands on disk; none: there is none.
    LogMeasured {
        /// Which effect.
        op: OpId,
        /// Its whole frames.
        log: Option<LogPin>,
    },
    /// What was left of an attempt was stopped, as far as that could be verified.
    Remains {
        /// Which effect.
        op: OpId,
        /// What is known now.
        evidence: EvidenceKind,
    },
    /// The control connection of a launcher ended: it is gone, or about to be.
    HungUp {
        /// Whose.
        offer: OfferId,
    },
    /// A launcher that cannot write its receipt said it over its control connection.
    Said {
        /// Whose.
        offer: OfferId,
        /// Its last word.
        receipt: Box<Receipt>,
    },
    /// What a launcher that stops its job cannot kill has changed.
    Left {
        /// Whose.
        offer: OfferId,
        /// What there is now.
        left: Option<Left>,
    },
    /// Whether the state directory's disk is too low for new work; said when it changes.
    Disk {
        /// It is.
        low: bool,
    },
    /// The log of an attempt has grown.
    LogGrew {
        /// Whose.
        offer: OfferId,
        /// Framed bytes in it.
        length: u64,
    },
    /// A person at this machine drains this worker, or resumes it; durable already.
    DrainedHere(bool),
    /// A signal.
    Signal(Signal),
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

/// What the launcher said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchAnswer {
    /// The user's process was started; the control connection is there.
    Started(Handle),
    /// Nothing of the user's ran.
    Rejected {
        /// Which step refused.
        reason: RejectReason,
        /// In the launcher's words.
        detail: String,
    },
    /// Neither is certain.
    Unknown(String),
}

/// What is on disk about one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whether its directory is there.
    pub directory: bool,
    /// Whose name stands on the spawn barrier.
    pub barrier: BarrierFact,
    /// The child that the barrier names.
    pub handle: Option<Handle>,
    /// The launcher's last word.
    pub receipt: Option<Receipt>,
    /// Whether a launcher, or its child before the exec, lives.
    pub lock: LockFact,
    /// Framed bytes of the log.
    pub log: u64,
}

/// A launcher's last word, not yet known to be authentic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// How it ended: exited, stopped or rejected.
    pub ending: Ending,
    /// Which launch says so.
    pub callback: Callback,
    /// The token whose digest the inbox record holds.
    pub token: CompletionToken,
    /// The log, complete.
    pub log: Option<LogPin>,
    /// What the job used up.
    pub usage: Option<Usage>,
    /// What the kernel would not let go when the launcher stopped it, unless it went since.
    pub left: Option<Left>,
    /// Something was left, and went.
    pub left_gone: bool,
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

/// The numbers of the live session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionNumbers {
    /// Which session.
    pub session: SessionId,
    /// Its generation.
    pub generation: SessionGeneration,
}

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

/// Everything a launcher needs to start one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The offer.
    pub offer: Offer,
    /// When the lease may end.
    pub lease_deadline: BootInstant,
    /// How long a renewal makes it last.
    pub lease: Millis,
    /// When the process has run long enough.
    pub timeout_at: Option<BootInstant>,
    /// Which launch this is.
    pub callback: Callback,
    /// Proves that a receipt is this launch's.
    pub token: CompletionToken,
}

/// Something to be done.
#[derive(Debug)]
pub enum Effect {
    /// Call the control plane.
    Call {
        /// Its name.
        op: OpId,
        /// The call.
        call: Call,
        /// After which the outcome is unknown.
        timeout: Millis,
    },
    /// Give up waiting for a call; its outcome arrives as unknown, or not at all.
    CancelCall {
        /// Which.
        op: OpId,
    },
    /// Publish or update an inbox record, durably.
    WriteRecord {
        /// Its name.
        op: OpId,
        /// The record; version one is published, later ones replace their predecessor.
        record: Box<Record>,
    },
    /// Remove a settled record.
    RemoveRecord {
        /// Its name.
        op: OpId,
        /// Which.
        offer: OfferId,
    },
    /// Write `session.json`, durably.
    WriteSession {
        /// Its name.
        op: OpId,
        /// What it holds.
        file: Box<SessionFile>,
    },
    /// Write `pending-claims.json`, durably.
    WriteAsks {
        /// Its name.
        op: OpId,
        /// What it holds.
        asks: Vec<Ask>,
    },
    /// Make the attempt's directory; it must not exist.
    CreateDirectory {
        /// Its name.
        op: OpId,
        /// Whose.
        attempt: AttemptId,
    },
    /// Remove the attempt's directory with everything in it; it may be gone already.
    RemoveDirectory {
        /// Its name.
        op: OpId,
        /// Whose.
        attempt: AttemptId,
    },
    /// Start a launcher and wait for its answer.
    Launch {
        /// Its name.
        op: OpId,
        /// What to start.
        launch: Box<Launch>,
    },
    /// Observe an attempt's directory.
    Observe {
        /// Its name.
        op: OpId,
        /// Whose.
        attempt: AttemptId,
        /// Whether recovery links its tombstone to the spawn barrier first.
        tombstone: bool,
    },
    /// Connect to the control socket of a running launcher.
    Attach {
        /// Its name.
        op: OpId,
        /// For which record.
        offer: OfferId,
        /// Whose.
        attempt: AttemptId,
    },
    /// Stop what the barrier's identity and cgroup name, the launcher included, and verify that it is gone.
    StopRemains {
        /// Its name.
        op: OpId,
        /// Whose.
        attempt: AttemptId,
    },
    /// Measure the log of an attempt whose launcher is gone.
    MeasureLog {
        /// Its name.
        op: OpId,
        /// Whose.
        attempt: AttemptId,
    },
    /// Tell a launcher that its lease lasts longer.
    SendDeadline {
        /// Whose.
        attempt: AttemptId,
        /// When the lease may end now.
        deadline: BootInstant,
    },
    /// Tell a launcher to stop its job.
    SendStop {
        /// Whose.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
    },
    /// Wake the engine at this instant; replaces the timer before.
    SetTimer(BootInstant),
    /// Tell people; nothing else depends on it.
    Report(Report),
    /// The agent is done.
    Exit(Exit),
}

/// How bad a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The ordinary course of things.
    Info,
    /// Something is wrong and is being dealt with.
    Warning,
    /// A worker fault: a person should look.
    Fault,
}

/// One sentence for people. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How bad it is.
    pub level: Level,
    /// The attempt it is about.
    pub attempt: Option<AttemptId>,
    /// The sentence.
    pub text: String,
}

/// Why the agent is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// In an orderly way.
    Done,
    /// To begin again by the start path, with the launchers untouched: to look at the machine again.
    StartOver,
    /// The same because the session's lease has ended: as long as no new one beats, no lease here is renewed, so the
    /// machine is taken to be what it was.
    Expired,
    /// Another session took its place: never register again by itself.
    Fenced,
    /// The worker's identity was revoked.
    Revoked,
    /// The server does not speak this protocol.
    ProtocolRefused,
    /// The drain timed out, or the control plane did not confirm that the worker is offline.
    DrainTimedOut,
    /// The registration ticket was spent by another.
    TicketSpent,
    /// The disk does not take what must be durable.
    Error,
}

impl Exit {
    /// Whether this very process takes the start path again.
    pub const fn begins_again(self) -> bool {
        matches!(self, Self::StartOver | Self::Expired)
    }

    /// The exit code of the process; none where it begins again.
    pub const fn code(self) -> Option<u8> {
        match self {
            Self::Done => Some(0),
            Self::StartOver | Self::Expired => None,
            Self::Error => Some(1),
            Self::Fenced => Some(20),
            Self::Revoked => Some(21),
            Self::ProtocolRefused => Some(22),
            Self::DrainTimedOut => Some(23),
            Self::TicketSpent => Some(25),
        }
    }
}
