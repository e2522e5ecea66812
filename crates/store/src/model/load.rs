//! What methods load: records by their keys, and the answers that are built from them. Changes nothing.

use leasehold_core::attempt::Attempt;
use leasehold_core::cancel::directive;
use leasehold_core::directive::{self, Directive};
use leasehold_core::id::{AttemptId, RunId, WorkerId};
use leasehold_core::lease::{Lease, LeaseState};
use leasehold_core::limits;
use leasehold_core::refusal::Refusal;
use leasehold_core::revision::Revision;
use leasehold_core::run::Run;
use leasehold_core::session::{Session, SessionFence, check_live};
use leasehold_core::worker::Worker;

use super::Transaction;
use crate::outcome::StoreError;
use crate::view::{Grant, RunView};

/// An attempt with everything that is decided about it.
pub(super) struct Loaded {
    pub(super) run: Run,
    pub(super) attempt: Attempt,
    /// Its latest lease.
    pub(super) lease: Option<Lease>,
    /// The latest attempt of its run.
    pub(super) latest: Attempt,
    pub(super) revision: Revision,
}

fn missing(what: &str, key: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { reason: format!("{what} {key} is named by another row but not there") }
}

impl Transaction<'_> {
    /// The current session of a worker, if it ever registered.
    pub(super) fn current(&self, worker: &WorkerId) -> Option<&Session> {
        let current = self.state.workers.get(worker)?.current?;
        self.state.sessions.get(&current)
    }

    /// Whether anybody may speak for the worker.
    pub(super) fn check_trusted(&self, worker: &WorkerId) -> Result<(), Refusal> {
        self.state.workers.get(worker).map_or(Ok(()), Worker::check_trusted)
    }

    /// The session of `fence`, if it is current and live.
    pub(super) fn live(&self, fence: &SessionFence) -> Result<Session, Refusal> {
        self.check_trusted(&fence.worker)?;
        check_live(self.current(&fence.worker), fence, self.now.lease).cloned()
    }

    pub(super) fn load(&self, attempt: AttemptId) -> Result<Option<Loaded>, StoreError> {
        let Some(attempt) = self.state.attempts.get(&attempt) else { return Ok(None) };
        let run = self.state.runs.get(&attempt.run).ok_or_else(|| missing("run", attempt.run))?;
        let lease = attempt.lease_generation.and_then(|generation| self.state.leases.get(&(attempt.id, generation)));
        Ok(Some(Loaded {
            run: run.clone(),
            attempt: attempt.clone(),
            lease: lease.cloned(),
            latest: self.latest(run)?.clone(),
            revision: self.revision(run)?.clone(),
        }))
    }

    pub(super) fn latest(&self, run: &Run) -> Result<&Attempt, StoreError> {
        let id = self.state.attempts_of.get(&(run.id, run.latest));
        id.and_then(|id| self.state.attempts.get(id)).ok_or_else(|| missing("latest attempt of run", run.id))
    }

    pub(super) fn revision(&self, run: &Run) -> Result<&Revision, StoreError> {
        self.state.revisions.get(run.revision.as_bytes()).ok_or_else(|| missing("revision", run.revision))
    }

    /// The attempts of a run, in order.
    pub(super) fn attempts(&self, run: RunId) -> impl Iterator<Item = &Attempt> {
        let rows = self.state.attempts_of.iter().skip_while(move |((of, _), _)| *of != run);
        rows.take_while(move |((of, _), _)| *of == run).filter_map(|(_, id)| self.state.attempts.get(id))
    }

    /// The leases that a worker holds by the store's word, whatever the clock says, in the order of their attempts.
    pub(super) fn active_leases(&self, worker: &WorkerId) -> impl Iterator<Item = &Lease> {
        self.state.leases.values().filter(move |lease| lease.state == LeaseState::Active && lease.worker == *worker)
    }

    /// What the worker of a session is to do.
    pub(super) fn directives(&self, session: &Session) -> Vec<Directive> {
        let drain = self.state.workers.get(&session.worker).and_then(|worker| directive::of_drain(worker, session));
        let held = self
            .active_leases(&session.worker)
            .filter_map(|lease| directive(self.state.runs.get(&lease.run)?, self.state.attempts.get(&lease.attempt)?));
        drain.into_iter().chain(held.map(Directive::Stop)).take(limits::DIRECTIVES).collect()
    }

    /// The worker of a session that speaks.
    pub(super) fn worker_of(&self, session: &Session) -> Result<&Worker, StoreError> {
        self.state.workers.get(&session.worker).ok_or_else(|| missing("worker", &session.worker))
    }

    pub(super) fn grant(&self, lease: &Lease) -> Result<Grant, StoreError> {
        let loaded = self.load(lease.attempt)?.ok_or_else(|| missing("attempt", lease.attempt))?;
        let Loaded { run, attempt, revision, .. } = loaded;
        Ok(Grant { lease: lease.clone(), run, attempt, revision, now: self.now })
    }

    pub(super) fn run_view(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        let Some(run) = self.state.runs.get(&run) else { return Ok(None) };
        let attempts: Vec<_> = self.attempts(run.id).cloned().collect();
        let received = |log: &Vec<u8>| u64::try_from(log.len()).unwrap_or(u64::MAX);
        let logs =
            attempts.iter().filter_map(|attempt| Some((attempt.id, received(self.state.logs.get(&attempt.id)?))));
        Ok(Some(RunView { logs: logs.collect(), run: run.clone(), revision: self.revision(run)?.clone(), attempts }))
    }

    /// The view of a run that this transaction has just written.
    pub(super) fn written(&self, run: RunId) -> Result<RunView, StoreError> {
        self.run_view(run)?.ok_or_else(|| missing("run", run))
    }
}
