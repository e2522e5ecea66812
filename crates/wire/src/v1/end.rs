//! `end`: how the attempt ended, or what is known of it. Every `end` of the token's holder is answered.

use leasehold_core::attempt::{
    AttemptState, Callback as CoreCallback, EvidenceKind, ExitStatus, Left, LimitMeans, LimitsKept as CoreLimitsKept,
    LogPin, RejectReason, Resolution, StopReason, Usage as CoreUsage,
};
use leasehold_core::counter::{CallbackSequence, SessionGeneration};
use leasehold_core::crypto::{CompletionToken, Digest, Domain};
use leasehold_core::end::{EndCall, EndProjection, Ended, Ending as CoreEnding};
use leasehold_core::frame::{Cut as CoreCut, CutReason};
use leasehold_core::id::{AttemptId, SessionId, WorkerId};
use leasehold_core::limits;
use leasehold_core::run::RunState;
use leasehold_core::time::{Millis, UtcMillis};
use serde::{Deserialize, Serialize};

use super::fence::{LeaseProof, session_fence};
use super::running::Running;
use crate::error::WireError;
use crate::field;
use crate::parse::{Message, parse_with_digest};

/// Most characters of a rejection's detail.
pub const DETAIL: usize = 512;
/// The highest signal number of any supported platform.
const SIGNALS: i32 = 64;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// The proof of holding the lease, or of having held it.
    pub lease: LeaseProof,
    /// What the worker says.
    pub ending: Ending,
    /// Which launch says it: with `exited`, `stopped`, and a receipt's `rejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// What `running` would have carried, when it was never acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// The log's length and digest, where there is a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    /// What it used up, where the launcher measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the kernel would not let go, where the launcher could not stop everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_incomplete: Option<CancelIncomplete>,
}

/// What the worker says about the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ending {
    /// The process ended by itself.
    Exited {
        /// How.
        status: Exit,
        /// When, by the worker's wall clock.
        #[serde(with = "field::utc")]
        at_ms: UtcMillis,
    },
    /// The launcher stopped it.
    Stopped {
        /// Why.
        #[serde(with = "field::text")]
        reason: StopReason,
        /// How the process then ended.
        status: Exit,
        /// When, by the worker's wall clock.
        #[serde(with = "field::utc")]
        at_ms: UtcMillis,
    },
    /// The launcher is sure that nothing of the user's ran.
    Rejected {
        /// Which step refused.
        #[serde(with = "field::text")]
        reason: RejectReason,
        /// In the launcher's words, at most 512 characters.
        detail: String,
    },
    /// Recovery is sure that nothing of the user's ran.
    NeverSpawned,
    /// Nobody saw the end.
    Lost {
        /// What is known.
        #[serde(with = "field::text")]
        evidence: EvidenceKind,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With an exit code, 0 to 255.
    Code(u8),
    /// By a signal, 1 to 64.
    Signal(i32),
}

/// The proof that a launch says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// Which launch.
    #[serde(with = "field::number")]
    pub sequence: CallbackSequence,
    /// Its completion token.
    #[serde(with = "field::token")]
    pub token: CompletionToken,
}

/// The log as the end pins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Framed bytes.
    pub length: u64,
    /// Their digest.
    #[serde(with = "field::text")]
    pub digest: Digest,
    /// What the launcher could not keep of the output, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Whether the launcher brought the log to its end; `false` where it died and this is what it left.
    pub finished: bool,
}

/// Output that is missing from the log, over all its cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Why; the worst, where there are several.
    #[serde(with = "field::text")]
    pub reason: CutReason,
    /// Missing bytes of standard output.
    pub stdout: u64,
    /// Missing bytes of standard error.
    pub stderr: u64,
}

/// What the machine used up for the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Processor time in user mode.
    #[serde(with = "field::number")]
    pub user_ms: Millis,
    /// Processor time in the kernel.
    #[serde(with = "field::number")]
    pub system_ms: Millis,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
    /// Whether the kernel killed something of it for lack of memory.
    pub oom_killed: bool,
    /// How each limit that its revision asks for was kept.
    pub limits: LimitsKept,
}

/// How each limit that a revision asks for was kept: `cgroup`, `rlimit` or `none`; absent where it asks for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsKept {
    /// `limits.memory_mib`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub memory: Option<LimitMeans>,
    /// `limits.cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub cpu: Option<LimitMeans>,
    /// `limits.pids`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "field::text::option")]
    pub pids: Option<LimitMeans>,
}

/// Processes that could not be killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelIncomplete {
    /// How many: at least one.
    pub count: u64,
    /// The process ids of the first of them, at most 16.
    pub pids: Vec<u32>,
}

impl CancelIncomplete {
    /// `at` is where it stands in its message.
    pub(super) fn check(&self, at: &str) -> Result<(), WireError> {
        let named = self.pids.len();
        if named > limits::LEFT_PIDS {
            let allowed = format!("at most {}", limits::LEFT_PIDS);
            return Err(WireError::limit(format!("{at}.pids"), format!("{named} process ids"), allowed));
        }
        let least = u64::try_from(named).unwrap_or(u64::MAX).max(1);
        if self.count < least {
            let got = format!("got {}", self.count);
            return Err(WireError::invalid(format!("{at}.count"), got, format!("at least {least}")));
        }
        Ok(())
    }
}

impl From<&Left> for CancelIncomplete {
    /// The pids are cut to what the wire allows.
    fn from(core: &Left) -> Self {
        Self { count: core.count, pids: core.pids.iter().copied().take(limits::LEFT_PIDS).collect() }
    }
}

impl From<&CancelIncomplete> for Left {
    fn from(wire: &CancelIncomplete) -> Self {
        Self { count: wire.count, pids: wire.pids.clone() }
    }
}

impl Message for EndRequest {
    const SCHEMA: &'static str = "leasehold/end/v1";
    const LIMIT: usize = limits::JSON_BODY;

    fn check(&self) -> Result<(), WireError> {
        self.cancel_incomplete.as_ref().map_or(Ok(()), |left| left.check("cancel_incomplete"))?;
        match &self.ending {
            Ending::Exited { status, .. } => status.check("ending.exited.status.signal"),
            Ending::Stopped { status, .. } => status.check("ending.stopped.status.signal"),
            Ending::Rejected { detail, .. } if detail.chars().count() > DETAIL => {
                let got = format!("{} characters", detail.chars().count());
                Err(WireError::limit("ending.rejected.detail", got, format!("at most {DETAIL} characters")))
            }
            Ending::Lost { evidence } if !evidence.is_workers_word() => {
                let allowed: Vec<_> = EvidenceKind::ALL.iter().filter(|kind| kind.is_workers_word()).collect();
                let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
                let allowed = format!("what a worker can know: {}", allowed.join(", "));
                Err(WireError::invalid("ending.lost.evidence", format!("got {evidence}"), allowed))
            }
            Ending::Rejected { .. } | Ending::NeverSpawned | Ending::Lost { .. } => Ok(()),
        }
    }
}

impl Exit {
    fn check(self, field: &str) -> Result<(), WireError> {
        match self {
            Self::Signal(signal) if !(1..=SIGNALS).contains(&signal) => {
                Err(WireError::invalid(field, format!("got {signal}"), format!("an integer from 1 to {SIGNALS}")))
            }
            _ => Ok(()),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(core: ExitStatus) -> Self {
        match core {
            ExitStatus::Code(code) => Self::Code(code),
            ExitStatus::Signal(signal) => Self::Signal(signal),
        }
    }
}

impl From<Exit> for ExitStatus {
    fn from(wire: Exit) -> Self {
        match wire {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}

impl From<&CoreEnding> for Ending {
    /// The detail of a rejection is cut to what the wire allows.
    fn from(core: &CoreEnding) -> Self {
        match core {
            CoreEnding::Exited { status, at } => Self::Exited { status: (*status).into(), at_ms: *at },
            CoreEnding::Stopped { reason, status, at } => {
                Self::Stopped { reason: *reason, status: (*status).into(), at_ms: *at }
            }
            CoreEnding::Rejected { reason, detail } => {
                Self::Rejected { reason: *reason, detail: detail.chars().take(DETAIL).collect() }
            }
            CoreEnding::NeverSpawned => Self::NeverSpawned,
            CoreEnding::Lost { evidence } => Self::Lost { evidence: *evidence },
        }
    }
}

impl From<&Ending> for CoreEnding {
    fn from(wire: &Ending) -> Self {
        match wire {
            Ending::Exited { status, at_ms } => Self::Exited { status: (*status).into(), at: *at_ms },
            Ending::Stopped { reason, status, at_ms } => {
                Self::Stopped { reason: *reason, status: (*status).into(), at: *at_ms }
            }
            Ending::Rejected { reason, detail } => Self::Rejected { reason: *reason, detail: detail.clone() },
            Ending::NeverSpawned => Self::NeverSpawned,
            Ending::Lost { evidence } => Self::Lost { evidence: *evidence },
        }
    }
}

impl From<LogPin> for Log {
    fn from(core: LogPin) -> Self {
        let cut = core.cut.map(|cut| Cut { reason: cut.reason, stdout: cut.stdout, stderr: cut.stderr });
        Self { length: core.length, digest: core.digest, cut, finished: core.finished }
    }
}

impl From<Log> for LogPin {
    fn from(wire: Log) -> Self {
        let cut = wire.cut.map(|cut| CoreCut { reason: cut.reason, stdout: cut.stdout, stderr: cut.stderr });
        Self { length: wire.length, digest: wire.digest, cut, finished: wire.finished }
    }
}

impl From<CoreUsage> for Usage {
    fn from(core: CoreUsage) -> Self {
        Self {
            user_ms: core.user,
            system_ms: core.system,
            max_rss_kib: core.max_rss_kib,
            oom_killed: core.oom_killed,
            limits: LimitsKept { memory: core.limits.memory, cpu: core.limits.cpu, pids: core.limits.pids },
        }
    }
}

/// The call of a body, for the worker of the certificate and the session and attempt of the path. The one place that
/// defines the body's digest.
pub fn parse_end(worker: WorkerId, session: SessionId, attempt: AttemptId, body: &[u8]) -> Result<EndCall, WireError> {
    let (request, digest) = parse_with_digest::<EndRequest>(body, Domain::Body)?;
    Ok(EndCall {
        session: session_fence(worker, session, request.session_generation),
        lease: request.lease.fence(attempt),
        ending: (&request.ending).into(),
        callback: request.completion.map(|said| CoreCallback { sequence: said.sequence, token: said.token.digest() }),
        running: request.running.as_ref().map(Into::into),
        log: request.log.map(Into::into),
        usage: request.usage.map(|usage| CoreUsage {
            user: usage.user_ms,
            system: usage.system_ms,
            max_rss_kib: usage.max_rss_kib,
            oom_killed: usage.oom_killed,
            limits: CoreLimitsKept { memory: usage.limits.memory, cpu: usage.limits.cpu, pids: usage.limits.pids },
        }),
        left: request.cancel_incomplete.as_ref().map(Into::into),
        body: digest,
    })
}

/// The answer; it settles the worker's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndAnswer {
    /// Whether the attempt ended by this call.
    pub verdict: EndVerdict,
    /// The attempt now.
    #[serde(with = "field::text")]
    pub attempt_state: AttemptState,
    /// The run now.
    #[serde(with = "field::text")]
    pub run_state: RunState,
    /// What closed a lost attempt's question, if anything.
    #[serde(with = "field::text")]
    pub resolution: Resolution,
}

/// Whether an attempt ended by this call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndVerdict {
    /// By this call.
    Accepted,
    /// Before it.
    AlreadyTerminal,
}

impl From<&Ended> for EndAnswer {
    fn from(core: &Ended) -> Self {
        let (verdict, projection) = match core {
            Ended::Accepted(projection) => (EndVerdict::Accepted, projection),
            Ended::AlreadyTerminal(projection) => (EndVerdict::AlreadyTerminal, projection),
        };
        Self {
            verdict,
            attempt_state: projection.attempt,
            run_state: projection.run,
            resolution: projection.resolution,
        }
    }
}

impl From<&EndAnswer> for Ended {
    fn from(wire: &EndAnswer) -> Self {
        let projection =
            EndProjection { attempt: wire.attempt_state, run: wire.run_state, resolution: wire.resolution };
        match wire.verdict {
            EndVerdict::Accepted => Self::Accepted(projection),
            EndVerdict::AlreadyTerminal => Self::AlreadyTerminal(projection),
        }
    }
}

impl Message for EndAnswer {
    const SCHEMA: &'static str = "leasehold/end-answer/v1";
    const LIMIT: usize = limits::JSON_BODY;
}
