//! The one lock order: project → task → worker session → runs by id → leases by attempt. Nothing else takes a row lock before a decision.
//!
//! The order itself stands in the schema (`lock_in_order` and its likes), so that all locks of a call and the clock that
//! is read behind them cost one round trip. A worker's row is the lock of its session; a run's row is the lock of its
//! attempts. An active lease is written under its own lock and that of its run or worker. (Control design, *Store*.)

use leasehold_core::claim::Ask;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName, WorkerId};
use leasehold_core::lease::LeaseFence;
use leasehold_core::session::SessionFence;
use leasehold_store::call::Renewal;

use super::column::{Bound, Column as _, list};
use super::rows;
use super::transaction::{Connection, Fault};

/// What a call needs to itself.
pub(super) enum Locks<'a> {
    /// Rows by their keys.
    Named {
        /// The worker and its session.
        worker: Option<&'a WorkerId>,
        /// Runs, with their attempts.
        runs: Vec<RunId>,
        /// Attempts, with their runs and leases.
        attempts: Vec<AttemptId>,
    },
    /// A session, and the leases that it renews.
    Renewals(&'a SessionFence, &'a [Renewal]),
    /// A session, what was claimed with these asks, and the run that is to be claimed.
    Asks(&'a SessionFence, &'a [Ask], Option<RunId>),
    /// A run that is submitted to a project.
    Submission(&'a ProjectName, RunId),
    /// A task that a call of a webhook may start a run of.
    Call(&'a ProjectName, &'a TaskName),
    /// A project and its limit.
    Project(&'a ProjectName),
    /// The tasks of a project, and the runs of those that go.
    Tasks {
        /// Whose namespace.
        project: &'a ProjectName,
        /// What goes.
        leaving: &'a [TaskName],
        /// What does not go.
        kept: &'a [TaskName],
        /// Whether all but those goes.
        pruned: bool,
    },
}

impl<'a> Locks<'a> {
    /// Nothing: what is written is new, or unique by itself.
    pub(super) fn none() -> Self {
        Self::Named { worker: None, runs: Vec::new(), attempts: Vec::new() }
    }

    /// The worker and its session.
    pub(super) fn worker(worker: &'a WorkerId) -> Self {
        Self::Named { worker: Some(worker), runs: Vec::new(), attempts: Vec::new() }
    }

    /// A run and its attempts.
    pub(super) fn run(run: RunId) -> Self {
        Self::Named { worker: None, runs: vec![run], attempts: Vec::new() }
    }

    /// A worker, and these attempts with their runs and leases.
    pub(super) fn held(worker: &'a WorkerId, attempts: Vec<AttemptId>) -> Self {
        Self::Named { worker: Some(worker), runs: Vec::new(), attempts }
    }

    /// What a fenced step of one attempt needs.
    pub(super) fn step(session: &'a SessionFence, lease: &LeaseFence) -> Self {
        Self::held(&session.worker, vec![lease.attempt])
    }

    /// Takes them, waiting for who has them; answers the clock behind the last one.
    pub(super) async fn take(&self, db: &Connection) -> Result<i64, Fault> {
        match self {
            Self::Named { worker, runs, attempts } => {
                let worker = worker.map_or(Bound::Null, |worker| worker.bind());
                let values = [worker, list(runs), list(attempts)];
                db.only("SELECT lock_in_order($1, $2, $3)", values, rows::column).await
            }
            Self::Renewals(fence, renewals) => {
                let attempts: Vec<_> = renewals.iter().map(|renewal| renewal.fence.attempt).collect();
                let telling = renewals.iter().filter(|renewal| renewal.left.is_some());
                let telling: Vec<_> = telling.map(|renewal| renewal.fence.attempt).collect();
                let values = [fence.worker.bind(), fence.session.bind(), list(&attempts), list(&telling)];
                db.only("SELECT lock_renewals($1, $2, '{}', $3, $4)", values, rows::column).await
            }
            Self::Asks(fence, asks, run) => {
                let offers: Vec<_> = asks.iter().map(|ask| ask.offer).collect();
                let tokens: Vec<_> = asks.iter().map(|ask| ask.token).collect();
                let values = [fence.worker.bind(), fence.session.bind(), list(&offers), list(&tokens), run.bind()];
                db.only("SELECT lock_asks($1, $2, $3, $4, $5)", values, rows::column).await
            }
            Self::Submission(project, run) => {
                db.only("SELECT lock_submission($1, $2)", [project.bind(), run.bind()], rows::column).await
            }
            Self::Call(project, task) => {
                db.only("SELECT lock_call($1, $2)", [project.bind(), task.bind()], rows::column).await
            }
            Self::Tasks { project, leaving, kept, pruned } => {
                let values = [project.bind(), list(*leaving), list(*kept), pruned.bind()];
                db.only("SELECT lock_tasks($1, $2, $3, $4)", values, rows::column).await
            }
            Self::Project(name) => db.only("SELECT lock_project($1)", [name.bind()], rows::column).await,
        }
    }
}

/// Takes those of `attempts` whose run nobody else has; answers them in the order they were given.
pub(super) async fn free_attempts(db: &Connection, attempts: &[AttemptId]) -> Result<Vec<AttemptId>, Fault> {
    let free: Vec<AttemptId> = db.all("SELECT lock_free($1)", [list(attempts)], rows::column).await?;
    Ok(attempts.iter().copied().filter(|attempt| free.contains(attempt)).collect())
}

/// Takes those of these tasks that nobody else has, with their triggers; answers which those are.
pub(super) async fn free_tasks(
    db: &Connection,
    tasks: &[(ProjectName, TaskName)],
) -> Result<Vec<(ProjectName, TaskName)>, Fault> {
    let (projects, names) = (list(tasks.iter().map(|(project, _)| project)), list(tasks.iter().map(|(_, task)| task)));
    let sql = "SELECT of_project, of_task FROM lock_free_tasks($1, $2)";
    db.all(sql, [projects, names], |columns| Ok((columns.next()?, columns.next()?))).await
}

/// Takes one more run, behind a task.
pub(super) async fn one_run(db: &Connection, run: RunId) -> Result<(), Fault> {
    db.only("SELECT lock_in_order(NULL, $1, '{}')", [list(&[run])], rows::column::<i64, _>).await.map(drop)
}

/// Takes those of `runs` that nobody else has; answers them in the order they were given.
pub(super) async fn free_runs(db: &Connection, runs: &[RunId]) -> Result<Vec<RunId>, Fault> {
    let sql = "SELECT id FROM run WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED";
    let free: Vec<RunId> = db.all(sql, [list(runs)], rows::column).await?;
    Ok(runs.iter().copied().filter(|run| free.contains(run)).collect())
}

/// Tasks that nobody else has, and whether somebody has others.
pub(super) type Followers = (Vec<(ProjectName, TaskName)>, bool);

/// Takes those followers of the first `limit` new successes that nobody else has, with their tasks.
pub(super) async fn followers(db: &Connection, limit: usize) -> Result<Followers, Fault> {
    let read = |row: &mut rows::Columns<'_>| Ok(((row.next()?, row.next()?), row.next()?));
    let all: Vec<((ProjectName, TaskName), bool)> =
        db.all("SELECT of_project, of_task, taken FROM lock_followers($1)", [limit.bind()], read).await?;
    let skipped = all.iter().any(|(_, taken)| !taken);
    Ok((all.into_iter().filter(|(_, taken)| *taken).map(|(follower, _)| follower).collect(), skipped))
}
