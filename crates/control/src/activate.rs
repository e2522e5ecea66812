//! A claimed attempt starts, runs, or is given back unstarted.
//!
//! Three facts, three transactions, none inferred from another: [`leasehold_core::attempt::starting`],
//! [`leasehold_core::attempt::running`], [`leasehold_core::claim::release`]. (Protocol, *Attempts*.)

use leasehold_core::attempt::{RunningCall, Starting};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::lease::{LeaseFence, LeaseProjection};
use leasehold_store::call::{AcknowledgeRunning, AttemptStep, Release};

use crate::error::{WorkerResult, settle};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::{SessionRef, WorkerPrincipal};

impl ControlPlane {
    /// May the attempt start now: `claimed → starting`; under a stored wish to stop, its end instead.
    pub async fn starting(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        lease: LeaseFence,
    ) -> WorkerResult<Starting> {
        let attempt = lease.attempt;
        let step = AttemptStep { session: worker.fence(session), lease };
        let starting = settle(self.store().acknowledge_starting(step).await)?;
        self.hints().changed(&Topic::Attempt(attempt));
        if matches!(starting, Starting::Stopped(_)) {
            self.slot_is_free(worker);
        }
        Ok(starting)
    }

    /// Its process runs: `starting → running`.
    pub async fn running(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        lease: LeaseFence,
        call: RunningCall,
    ) -> WorkerResult<LeaseProjection> {
        let attempt = lease.attempt;
        let step = AttemptStep { session: worker.fence(session), lease };
        let projection = settle(self.store().acknowledge_running(AcknowledgeRunning { step, call }).await)?;
        self.hints().changed(&Topic::Attempt(attempt));
        Ok(projection)
    }

    /// The worker gives it back unstarted: `claimed → pending`.
    pub async fn release(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        lease: LeaseFence,
        reason: ReleaseReason,
    ) -> WorkerResult<()> {
        let attempt = lease.attempt;
        let step = AttemptStep { session: worker.fence(session), lease };
        settle(self.store().release(Release { step, reason }).await)?;
        self.hints().changed(&Topic::Attempt(attempt));
        // The run waits again, and another worker may have it at once.
        self.slot_is_free(worker);
        Ok(())
    }

    /// An open pull of `worker` may be given more than before; and where a limit has a place again, anybody's.
    pub(crate) fn slot_is_free(&self, worker: &WorkerPrincipal) {
        self.hints().changed(&Topic::Worker(worker.worker().clone()));
        self.hints().dispatch();
    }
}
