//! What the methods of the port are asked, one record per method. Tokens appear as digests only.

use std::collections::BTreeMap;

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::attempt::{Left, RunningCall};
use leasehold_core::claim::{Ask, ReleaseReason};
use leasehold_core::counter::{AttemptNumber, EventSequence, LeaseVersion, RevisionNumber, SessionVersion};
use leasehold_core::crypto::Digest;
use leasehold_core::fault::Fault;
use leasehold_core::id::{
    ApiTokenId, AttemptId, EnrollmentId, ProjectName, RunId, TaskName, TriggerName, TrustDomain, WorkerId,
};
use leasehold_core::lease::LeaseFence;
use leasehold_core::project::Settings;
use leasehold_core::registration::{Cadence, Registration};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::role::Role;
use leasehold_core::run::RunState;
use leasehold_core::session::{Said, SessionFence};
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::UtcMillis;
use leasehold_core::trigger::TriggerKey;

use crate::view::{HeadKey, LaneKey, LedgerKey};

/// What one installation is: written once, at first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The name in every certificate.
    pub trust_domain: TrustDomain,
    /// The CA's certificate, DER.
    pub ca_certificate: Vec<u8>,
    /// The CA's private key, sealed under the master key.
    pub ca_key: Vec<u8>,
    /// The key that registration tickets are derived from, sealed under the master key.
    pub ticket_key: Vec<u8>,
    /// When it was made.
    pub created_at: UtcMillis,
}

/// An API token to store: its digest, never itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiToken {
    /// Its public id.
    pub id: ApiTokenId,
    /// A name for people.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Digest of the token.
    pub digest: Digest,
    /// When it was made.
    pub created_at: UtcMillis,
    /// When it stops working, if ever.
    pub expires_at: Option<UtcMillis>,
}

/// A permission for one machine to become a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEnrollment {
    /// Its id.
    pub id: EnrollmentId,
    /// The worker it makes.
    pub worker: WorkerId,
    /// Labels the worker gets.
    pub labels: BTreeMap<String, String>,
    /// Digest of the enrollment token.
    pub token: Digest,
    /// When the token stops working.
    pub expires_at: UtcMillis,
}

/// A machine enrolls.
#[derive(Debug, Clone)]
pub struct Enroll {
    /// Digest of the token it sent.
    pub token: Digest,
    /// Digest of the public key of its request: within the token's life, the same key gets the same certificate.
    pub public_key: Digest,
    /// The certificate chain to hand out if the call is applied, DER, leaf first.
    pub certificate: Vec<u8>,
    /// When the certificate ends.
    pub certificate_expires_at: UtcMillis,
    /// From where the machine called, for the audit.
    pub origin: Option<Origin>,
}

/// A session registers.
#[derive(Debug, Clone)]
pub struct RegisterSession {
    /// The worker, from the certificate.
    pub worker: WorkerId,
    /// What it says of itself.
    pub registration: Registration,
    /// What tickets are derived from.
    pub tickets: TicketKey,
    /// The cadence to give it.
    pub cadence: Cadence,
    /// From where it called, for the audit.
    pub origin: Option<Origin>,
}

/// One lease to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The proof of holding it.
    pub fence: LeaseFence,
    /// The version its holder knows; it orders renewals and refuses nothing.
    pub version: LeaseVersion,
    /// What the kernel does not let go of while the job is being stopped, by its holder's word.
    pub left: Option<Left>,
}

/// A session beats and renews what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who speaks.
    pub session: SessionFence,
    /// The session version it expects.
    pub version: SessionVersion,
    /// What it says of itself.
    pub said: Said,
    /// Its current faults, where they have changed; at most [`leasehold_core::limits::FAULTS`].
    pub faults: Option<Vec<Fault>>,
    /// The leases it holds; at most [`leasehold_core::limits::HEARTBEAT_RENEWALS`].
    pub renewals: Vec<Renewal>,
}

/// A session drains or leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStep {
    /// Who speaks.
    pub session: SessionFence,
    /// The session version it expects.
    pub version: SessionVersion,
}

/// A caller's key, and what was asked with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyed {
    /// The key.
    pub key: String,
    /// The digest of what was asked: the same key with another is refused, whatever the first request became since.
    pub asked: Digest,
}

/// A run is submitted.
#[derive(Debug, Clone)]
pub struct AdmitRun {
    /// Who submits it.
    pub actor: Actor,
    /// The id it gets if it is new.
    pub run: RunId,
    /// The id of its first attempt.
    pub attempt: AttemptId,
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task, if of one.
    pub task: Option<TaskName>,
    /// Which revision of the task this was made from: the task must have it still. None for a run that says all by itself.
    pub of: Option<RevisionNumber>,
    /// What to execute.
    pub revision: Revision,
    /// The caller's key: the same key with the same request gives the same run, with another is refused.
    pub idempotency_key: Option<Keyed>,
}

/// A live session claims a run with an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub session: SessionFence,
    /// What it asks with.
    pub ask: Ask,
    /// Which run.
    pub run: RunId,
    /// The placement's score for this worker.
    pub score: i64,
}

/// A fenced step of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptStep {
    /// Who speaks.
    pub session: SessionFence,
    /// The proof of holding the lease.
    pub lease: LeaseFence,
}

/// A worker gives a claim back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Who, for which lease.
    pub step: AttemptStep,
    /// Why.
    pub reason: ReleaseReason,
}

/// A worker's process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgeRunning {
    /// Who, for which lease.
    pub step: AttemptStep,
    /// What runs.
    pub call: RunningCall,
}

/// A worker ships a piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendLog {
    /// Who, for which lease (which may have ended: up to the pinned length).
    pub step: AttemptStep,
    /// Where the piece begins.
    pub offset: u64,
    /// Framed bytes, at most [`leasehold_core::limits::LOG_CHUNK`].
    pub bytes: Vec<u8>,
}

/// A person cancels a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRun {
    /// Who.
    pub actor: Actor,
    /// Which run.
    pub run: RunId,
    /// The person's words.
    pub why: Option<String>,
}

/// A person drains a worker, or ends the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainWorker {
    /// Who.
    pub actor: Actor,
    /// Which worker.
    pub worker: WorkerId,
    /// The person's words.
    pub why: Option<String>,
}

/// A person says what is to become of a lost run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRun {
    /// Who.
    pub actor: Actor,
    /// Which run.
    pub run: RunId,
    /// What they say.
    pub verb: Verb,
    /// The person's words.
    pub why: Option<String>,
    /// The attempt that they say it about; none: the run's latest, whichever that is by then.
    pub attempt: Option<AttemptNumber>,
}

/// A person lets the next registration in that would be kept out otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTakeover {
    /// Who.
    pub actor: Actor,
    /// Which worker.
    pub worker: WorkerId,
    /// The person's words.
    pub why: Option<String>,
    /// Until when it counts.
    pub expires_at: UtcMillis,
}

/// A person deletes a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteWorker {
    /// Who.
    pub actor: Actor,
    /// Which worker.
    pub worker: WorkerId,
    /// Whether the person is sure that the machine is gone, with everything that ran there.
    pub destroyed: bool,
    /// How many attempts this transaction settles at most, if so.
    pub limit: usize,
    /// The person's words.
    pub why: Option<String>,
}

/// A person makes a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateProject {
    /// Who.
    pub actor: Actor,
    /// Its name.
    pub name: ProjectName,
    /// How many of its runs may hold a place at once; none: any number.
    pub concurrency: Option<u32>,
    /// The caller's key, if there is one: the same request again finds what it made, whatever became of that.
    pub idempotency_key: Option<String>,
}

/// A person sets a project's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetProject {
    /// Who.
    pub actor: Actor,
    /// Which project.
    pub name: ProjectName,
    /// How many of its runs may hold a place at once from now on; none: any number.
    pub concurrency: Option<u32>,
    /// The settings that the person saw, where they say so: others are not overwritten.
    pub seen: Option<Settings>,
}

/// A person deletes a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteProject {
    /// Who.
    pub actor: Actor,
    /// Which project.
    pub name: ProjectName,
    /// The settings that the person saw, where they say so: a project with others is not deleted.
    pub seen: Option<Settings>,
}

/// A person says what the tasks of a project are.
#[derive(Debug, Clone)]
pub struct ApplyTasks {
    /// Who.
    pub actor: Actor,
    /// Whose namespace.
    pub project: ProjectName,
    /// The revision of each; at most [`leasehold_core::limits::APPLY_TASKS`].
    pub tasks: BTreeMap<TaskName, Revision>,
    /// Whether what is not named here goes.
    pub prune: bool,
    /// Whether what goes takes its runs with it.
    pub cascade: bool,
    /// The digest of the plan that the person was shown: no other is carried out. None: whichever it is.
    pub plan: Option<Digest>,
}

/// A person deletes a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteTask {
    /// Who.
    pub actor: Actor,
    /// Whose namespace.
    pub project: ProjectName,
    /// Which task.
    pub name: TaskName,
    /// Whether its runs that have not ended are cancelled with it.
    pub cascade: bool,
    /// The revision that the person saw, where they say so: a task with another is not deleted.
    pub seen: Option<Digest>,
}

/// Which triggers to list, in the order of their tasks and names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggersAfter {
    /// Whose namespace.
    pub project: ProjectName,
    /// Only of this task.
    pub task: Option<TaskName>,
    /// Only those after this one (the cursor).
    pub after: Option<(TaskName, TriggerName)>,
}

/// A person pauses schedules, or lets them go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseTriggers {
    /// Who.
    pub actor: Actor,
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task.
    pub task: TaskName,
    /// Which of its triggers; none: the task, which is another word than those of its triggers.
    pub trigger: Option<TriggerName>,
    /// The person's words.
    pub why: Option<String>,
}

/// A person wants the runs of instants that have passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillTrigger {
    /// Who.
    pub actor: Actor,
    /// Which trigger.
    pub trigger: TriggerKey,
    /// From this nominal time on.
    pub first: UtcMillis,
    /// Up to this one.
    pub last: UtcMillis,
}

/// A page of a task's schedule ledger, the newest nominal time first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPage {
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task.
    pub task: TaskName,
    /// Only of this trigger.
    pub trigger: Option<TriggerName>,
    /// Only the lines before this one (the cursor).
    pub before: Option<LedgerKey>,
}

/// Where a page of a lane's runs begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneAfter {
    /// Which lane.
    pub lane: LaneKey,
    /// Behind this run; none: at the lane's head.
    pub after: Option<HeadKey>,
}

/// Which runs to list; newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this project.
    pub project: Option<ProjectName>,
    /// Only in these states; empty means all.
    pub states: Vec<RunState>,
    /// Only of this task.
    pub task: Option<TaskName>,
    /// Only those submitted at or after this time.
    pub since: Option<UtcMillis>,
    /// Only those older than this one (the cursor).
    pub before: Option<RunId>,
}

/// A page of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditPage {
    /// Oldest first: the rows after this one.
    Oldest {
        /// The last row of the page before.
        after: Option<u64>,
    },
    /// Newest first: the rows before this one.
    Newest {
        /// The last row of the page before.
        before: Option<u64>,
    },
}

/// A page of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsAfter {
    /// Which run.
    pub run: RunId,
    /// Only events after this one.
    pub after: Option<EventSequence>,
}
