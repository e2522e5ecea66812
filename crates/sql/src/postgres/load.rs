//! Loading the records that a decision needs, by their keys. What is loaded together is asked for together.

use futures_util::future::{try_join, try_join3};
use leasehold_core::attempt::Attempt;
use leasehold_core::counter::AttemptNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{AttemptId, OfferId, RunId, WorkerId};
use leasehold_core::lease::{Lease, LeaseFence, not_held};
use leasehold_core::refusal::Refusal;
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_core::session::{Session, SessionFence, check_live};
use leasehold_core::worker::Worker;

use super::column::values;
use super::rows::{self, Columns, attempt_columns, lease_columns, run_columns, session_columns, worker_columns};
use super::transaction::{Connection, Fault, Tx};

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
pub(super) async fn run(db: &Connection, id: RunId) -> Result<Option<Run>, Fault> {
    db.first(concat!("SELECT ", run_columns!("r."), " FROM run r WHERE r.id = $1"), values![id], rows::run).await
}

/// The attempt with this id.
pub(super) async fn attempt(db: &Connection, id: AttemptId) -> Result<Option<Attempt>, Fault> {
    let sql = concat!("SELECT ", attempt_columns!("a."), " FROM attempt a WHERE a.id = $1");
    db.first(sql, values![id], rows::attempt).await
}

/// The attempt of a run with this number.
pub(super) async fn attempt_numbered(
    db: &Connection,
    run: RunId,
    number: AttemptNumber,
) -> Result<Option<Attempt>, Fault> {
    let sql = concat!("SELECT ", attempt_columns!("a."), " FROM attempt a WHERE a.run = $1 AND a.number = $2");
    db.first(sql, values![run, number], rows::attempt).await
}

/// The run's latest attempt.
pub(super) async fn latest_attempt(db: &Connection, run: &Run) -> Result<Attempt, Fault> {
    let attempt = attempt_numbered(db, run.id, run.latest).await?;
    attempt.ok_or_else(|| Fault::Damaged(format!("run {} has no attempt {}", run.id, run.latest)))
}

/// The lease that was claimed with this offer id or this token, and its attempt.
pub(super) async fn lease_of_ask(
    db: &Connection,
    offer: OfferId,
    token: Digest,
) -> Result<Option<(Lease, Attempt)>, Fault> {
    let by_offer = concat!(
        "SELECT ",
        lease_columns!("l."),
        ", ",
        attempt_columns!("a."),
        " FROM lease l JOIN attempt a ON a.id = l.attempt WHERE l.offer = $1"
    );
    let by_token = concat!(
        "SELECT ",
        lease_columns!("l."),
        ", ",
        attempt_columns!("a."),
        " FROM lease l JOIN attempt a ON a.id = l.attempt WHERE l.token = $1"
    );
    let both = |columns: &mut Columns<'_>| Ok((rows::lease(columns)?, rows::attempt(columns)?));
    let (of_offer, of_token) =
        try_join(db.first(by_offer, values![offer], both), db.first(by_token, values![token], both)).await?;
    Ok(of_offer.or(of_token))
}

/// What the run of an attempt executes, asked for by the attempt so that it need not be waited for.
pub(super) async fn revision_of(db: &Connection, attempt: AttemptId) -> Result<Option<Revision>, Fault> {
    let sql = "SELECT v.canonical FROM attempt a JOIN run r ON r.id = a.run JOIN revision v ON v.digest = r.revision \
               WHERE a.id = $1";
    db.first(sql, values![attempt], rows::column).await
}

/// The latest attempt of an attempt's run.
pub(super) async fn latest_beside(db: &Connection, attempt: AttemptId) -> Result<Option<Attempt>, Fault> {
    let sql = concat!(
        "SELECT ",
        attempt_columns!("a."),
        " FROM attempt named JOIN run r ON r.id = named.run JOIN attempt a ON a.run = r.id AND a.number = r.latest \
         WHERE named.id = $1"
    );
    db.first(sql, values![attempt], rows::attempt).await
}

/// The worker with this name.
pub(super) async fn worker(db: &Connection, id: &WorkerId) -> Result<Option<Worker>, Fault> {
    let sql = concat!("SELECT ", worker_columns!("w."), " FROM worker w WHERE w.id = $1");
    db.first(sql, values![*id], rows::worker).await
}

/// A worker's session now, if it ever registered.
pub(super) async fn current_session(db: &Connection, worker: &WorkerId) -> Result<Option<Session>, Fault> {
    let sql = concat!(
        "SELECT ",
        session_columns!(),
        " FROM worker w JOIN session s ON s.id = w.current_session JOIN capabilities c ON c.digest = s.capabilities \
         WHERE w.id = $1"
    );
    db.first(sql, values![*worker], rows::session).await
}

/// Who speaks: the worker and its session now.
pub(super) struct Speaker {
    pub(super) worker: Option<Worker>,
    pub(super) current: Option<Session>,
}

impl Speaker {
    /// What is known of the one who says it is `fence`.
    pub(super) async fn of(db: &Connection, fence: &SessionFence) -> Result<Self, Fault> {
        Self::named(db, &fence.worker).await
    }

    /// What is known of a worker.
    pub(super) async fn named(db: &Connection, id: &WorkerId) -> Result<Self, Fault> {
        let (worker, current) = try_join(worker(db, id), current_session(db, id)).await?;
        if worker.as_ref().is_some_and(|worker| worker.current != current.as_ref().map(|session| session.id)) {
            return Err(Fault::Damaged(format!("worker {id} has not the session that it names")));
        }
        Ok(Self { worker, current })
    }

    /// The truth of revocation, inside the transaction.
    pub(super) fn check_trusted(&self) -> Result<(), Refusal> {
        self.worker.as_ref().map_or(Ok(()), Worker::check_trusted)
    }

    /// The live session, if that is who speaks.
    pub(super) fn live(&self, tx: &Tx, fence: &SessionFence) -> Result<&Session, Refusal> {
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
    pub(super) async fn of(db: &Connection, fence: &LeaseFence) -> Result<Result<Self, Refusal>, Fault> {
        Ok(Self::attempt(db, fence.attempt).await?.ok_or_else(not_held))
    }

    /// The records of an attempt, if there is one: its run, and its latest lease if it was ever claimed.
    pub(super) async fn attempt(db: &Connection, id: AttemptId) -> Result<Option<Self>, Fault> {
        let run = concat!("SELECT ", run_columns!("r."), " FROM attempt a JOIN run r ON r.id = a.run WHERE a.id = $1");
        let lease = concat!(
            "SELECT ",
            lease_columns!("l."),
            " FROM attempt a JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation WHERE a.id = $1"
        );
        let (attempt, run, lease) = try_join3(
            attempt(db, id),
            db.first(run, values![id], rows::run),
            db.first(lease, values![id], rows::lease),
        )
        .await?;
        match (attempt, run) {
            (None, _) => Ok(None),
            (Some(attempt), None) => Err(Fault::Damaged(format!("attempt {} has no run", attempt.id))),
            (Some(attempt), Some(_)) if attempt.lease_generation.is_some() && lease.is_none() => {
                Err(Fault::Damaged(format!("attempt {} has not the lease that it names", attempt.id)))
            }
            (Some(attempt), Some(run)) => Ok(Some(Self { run, attempt, lease })),
        }
    }
}

/// How many leases of the worker are active: a statement of its own, under the session's lock.
pub(super) async fn active_leases(db: &Connection, worker: &WorkerId) -> Result<usize, Fault> {
    let sql = "SELECT count(*) FROM lease WHERE worker = $1 AND state = 'active'";
    db.only(sql, values![*worker], rows::column).await
}

/// A run with its latest attempt and what it executes.
pub(super) struct Latest {
    pub(super) run: Run,
    pub(super) attempt: Attempt,
    pub(super) revision: Revision,
}

impl Latest {
    /// Those of a run, if there is one.
    pub(super) async fn of(db: &Connection, id: RunId) -> Result<Option<Self>, Fault> {
        let attempt = concat!(
            "SELECT ",
            attempt_columns!("a."),
            " FROM run r JOIN attempt a ON a.run = r.id AND a.number = r.latest WHERE r.id = $1"
        );
        let revision = "SELECT v.canonical FROM run r JOIN revision v ON v.digest = r.revision WHERE r.id = $1";
        let (run, attempt, revision) = try_join3(
            run(db, id),
            db.first(attempt, values![id], rows::attempt),
            db.first(revision, values![id], rows::column),
        )
        .await?;
        match (run, attempt, revision) {
            (None, _, _) => Ok(None),
            (Some(run), Some(attempt), Some(revision)) => Ok(Some(Self { run, attempt, revision })),
            (Some(run), _, _) => {
                Err(Fault::Damaged(format!("run {} has not the attempt or revision that it names", run.id)))
            }
        }
    }
}
