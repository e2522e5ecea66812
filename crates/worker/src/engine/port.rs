//! What crosses the edge of the engine: what happened (inputs), what is to be done (effects), and what calls say.
//!
//! Core types only: no wire message, no file, no process. The driver carries an effect out and answers with the
//! operation it named; an effect that is never answered is a crash. The agent is a step function over ports for
//! time, network, disk and processes, so that the simulation drives the real one. (Proof, *Simulation*.)

use leasehold_core::attempt::{EvidenceKind, Left, LogPin, StopReason};
use leasehold_core::directive::Directive;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::time::{BootInstant, Millis, UtcMillis};

use crate::inbox::record::Record;
use crate::session_file::SessionFile;

mod call;
mod exit;
mod launch;

pub use call::{Answer, Ask, AskAnswer, Call, End, HeldLease, Outcome, Renewal, SessionNumbers};
pub use exit::Exit;
pub use launch::{Found, Launch, LaunchAnswer, Receipt};

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
