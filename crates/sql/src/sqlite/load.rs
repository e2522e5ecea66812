//! Loading the records that a decision needs, by their keys.

use leasehold_core::attempt::Attempt;
use leasehold_core::counter::AttemptNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{AttemptId, OfferId, RunId, SessionId, WorkerId};
use leasehold_core::lease::{Lease, LeaseFence, not_held};
use leasehold_core::refusal::Refusal;
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_core::session::{Session, SessionFence, check_live};
use leasehold_core::worker::Worker;

use super::column::values;
use super::rows::{self, attempt_columns, lease_columns, run_columns, session_columns, worker_columns};
use super::transaction::{Fault, Tx};

/// What was loaded for one of many; none if its rows are damaged, which is logged: one broken run must not keep every
/// other run of the installation waiting.
pub(super) fn readable<T>(what: &str, loaded: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match loaded {
        Ok(loaded) => Ok(Some(loaded)),
        Err(Fault::Damaged(reason)) => {
            tracing::error!(what, reason, "a damaged row was passed over");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// The run with this id.
pub(super) fn run(tx: &Tx<'_>, id: RunId) -> Result<Option<Run>, Fault> {
    tx.first(concat!("SELECT ", run_columns!(""), " FROM run WHERE id = ?1"), values![id], rows::run)
}

/// The attempt with this id.
pub(super) fn attempt(tx: &Tx<'_>, id: AttemptId) -> Result<Option<Attempt>, Fault> {
    tx.first(concat!("SELECT ", attempt_columns!(""), " FROM attempt WHERE id = ?1"), values![id], rows::attempt)
}

/// The attempt of a run with this number.
pub(super) fn attempt_numbered(tx: &Tx<'_>, run: RunId, number: AttemptNumber) -> Result<Option<Attempt>, Fault> {
    let sql = concat!("SELECT ", attempt_columns!(""), " FROM attempt WHERE run = ?1 AND number = ?2");
    tx.first(sql, values![run, number], rows::attempt)
}

/// An attempt of a run by its number; the run's row says that it is there.
pub(super) fn numbered_attempt(tx: &Tx<'_>, run: RunId, number: AttemptNumber) -> Result<Attempt, Fault> {
    let attempt = attempt_numbered(tx, run, number)?;
    attempt.ok_or_else(|| Fault::Damaged(format!("run {run} has no attempt {number}")))
}

/// The run's latest attempt.
pub(super) fn latest_attempt(tx: &Tx<'_>, run: &Run) -> Result<Attempt, Fault> {
    numbered_attempt(tx, run.id, run.latest)
}

/// The run of an attempt; the attempt's row says that it is there.
pub(super) fn run_of(tx: &Tx<'_>, attempt: &Attempt) -> Result<Run, Fault> {
    run(tx, attempt.run)?.ok_or_else(|| Fault::Damaged(format!("attempt {} has no run", attempt.id)))
}

/// The attempt's latest lease, if it was ever claimed.
pub(super) fn latest_lease(tx: &Tx<'_>, attempt: &Attempt) -> Result<Option<Lease>, Fault> {
    let Some(generation) = attempt.lease_generation else { return Ok(None) };
    let sql = concat!("SELECT ", lease_columns!(""), " FROM lease WHERE attempt = ?1 AND generation = ?2");
    let lease = tx.first(sql, values![attempt.id, generation], rows::lease)?;
    match lease {
        Some(lease) => Ok(Some(lease)),
        None => Err(Fault::Damaged(format!("attempt {} has no lease {generation}", attempt.id))),
    }
}

/// The lease that was claimed with this offer id or this token.
pub(super) fn lease_of_ask(tx: &Tx<'_>, offer: OfferId, token: Digest) -> Result<Option<Lease>, Fault> {
    let by_offer = concat!("SELECT ", lease_columns!(""), " FROM lease WHERE offer = ?1");
    let by_token = concat!("SELECT ", lease_columns!(""), " FROM lease WHERE token = ?1");
    match tx.first(by_offer, values![offer], rows::lease)? {
        Some(lease) => Ok(Some(lease)),
        None => tx.first(by_token, values![token], rows::lease),
    }
}

/// What runs of this digest execute; its run's row says that it is there.
pub(super) fn revision(tx: &Tx<'_>, digest: Digest) -> Result<Revision, Fault> {
    let sql = "SELECT canonical FROM revision WHERE digest = ?1";
    let revision = tx.first(sql, values![digest], rows::column)?;
    revision.ok_or_else(|| Fault::Damaged(format!("there is no revision {digest}")))
}

/// The worker with this name.
pub(super) fn worker(tx: &Tx<'_>, id: &WorkerId) -> Result<Option<Worker>, Fault> {
    tx.first(concat!("SELECT ", worker_columns!(""), " FROM worker WHERE id = ?1"), values![*id], rows::worker)
}

/// One session of a worker.
fn session(tx: &Tx<'_>, worker: &WorkerId, id: SessionId) -> Result<Session, Fault> {
    let sql = concat!(
        "SELECT ",
        session_columns!(),
        " FROM session s JOIN capabilities c ON c.digest = s.capabilities WHERE s.id = ?1"
    );
    let session = tx.first(sql, values![id], rows::session)?;
    match session {
        Some(session) if session.worker == *worker => Ok(session),
        _ => Err(Fault::Damaged(format!("worker {worker} has no session {id}"))),
    }
}

/// The worker's session now, if it ever registered.
pub(super) fn current_session(tx: &Tx<'_>, worker: &Worker) -> Result<Option<Session>, Fault> {
    worker.current.map(|id| session(tx, &worker.id, id)).transpose()
}

/// Who speaks: the worker and its session now.
pub(super) struct Speaker {
    pub(super) worker: Option<Worker>,
    pub(super) current: Option<Session>,
}

impl Speaker {
    /// What is known of the one who says it is `fence`.
    pub(super) fn of(tx: &Tx<'_>, fence: &SessionFence) -> Result<Self, Fault> {
        let worker = worker(tx, &fence.worker)?;
        let current = worker.as_ref().map(|worker| current_session(tx, worker)).transpose()?.flatten();
        Ok(Self { worker, current })
    }

    /// The truth of revocation, inside the transaction.
    pub(super) fn check_trusted(&self) -> Result<(), Refusal> {
        self.worker.as_ref().map_or(Ok(()), Worker::check_trusted)
    }

    /// The live session, if that is who speaks.
    pub(super) fn live(&self, tx: &Tx<'_>, fence: &SessionFence) -> Result<&Session, Refusal> {
        self.check_trusted()?;
        check_live(self.current.as_ref(), fence, tx.now.lease)
    }
}

/// The records of an attempt that a fenced call names.
pub(super) struct Named {
    pub(super) run: Run,
    pub(super) attempt: Attempt,
    pub(super) lease: Option<Lease>,
}

impl Named {
    /// The records behind a lease fence; an unknown attempt is refused in the words for a foreign one.
    pub(super) fn of(tx: &Tx<'_>, fence: &LeaseFence) -> Result<Result<Self, Refusal>, Fault> {
        let Some(attempt) = attempt(tx, fence.attempt)? else {
            return Ok(Err(not_held()));
        };
        let run = run_of(tx, &attempt)?;
        let lease = latest_lease(tx, &attempt)?;
        Ok(Ok(Self { run, attempt, lease }))
    }
}

/// How many leases of the worker are active.
pub(super) fn active_leases(tx: &Tx<'_>, worker: &WorkerId) -> Result<usize, Fault> {
    let sql = "SELECT count(*) FROM lease WHERE worker = ?1 AND state = 'active'";
    tx.only(sql, values![*worker], rows::column)
}
