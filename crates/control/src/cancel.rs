//! A person's wish that a run stop. Decided by [`leasehold_core::cancel::cancel`].

use leasehold_core::cancel::Cancel;
use leasehold_core::id::RunId;
use leasehold_store::call::CancelRun;
use leasehold_store::view::RunView;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::why;

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// What the cancel did.
    pub cancel: Cancel,
    /// The run as it is then.
    pub run: RunView,
}

impl ControlPlane {
    /// Ends the run if nothing of it started; otherwise stores the wish, and tells the worker at once if it listens.
    pub async fn cancel(&self, caller: &Caller, run: RunId, why: Option<String>) -> OperatorResult<Cancelled> {
        why::check(why.as_deref()).map_err(ServiceError::Refused)?;
        let call = CancelRun { actor: caller.actor.clone(), run, why };
        let (cancel, view) = self
            .store()
            .cancel_run(call)
            .await?
            .into_result()
            .map_err(|unmet| Denied::of(&unmet, &run))
            .map_err(ServiceError::Refused)?;
        tracing::info!(run.id = %run, actor = %caller.actor, origin = %caller.origin, outcome = ?cancel, "run cancel");
        self.hints().changed(&Topic::Run(run));
        if let Some(latest) = view.attempts.last() {
            self.hints().changed(&Topic::Attempt(latest.id));
            if let Some(worker) = &latest.worker {
                self.hints().changed(&Topic::Worker(worker.clone()));
            }
        }
        // A lost run may have kept a place until now.
        self.hints().dispatch();
        Ok(Cancelled { cancel, run: view })
    }
}
