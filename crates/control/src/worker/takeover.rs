//! A person grants a takeover: the worker's next registration that would be kept out is let in, once.
//!
//! Decided by [`leasehold_core::registration`], in the transaction of the registration. (Protocol, *Sessions*.)

use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_store::call::GrantTakeover;
use leasehold_store::view::WorkerView;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::why;

impl ControlPlane {
    /// Lets one registration in that would be kept out, within `ttl` ([`limits::TAKEOVER_TTL`] if nothing is said).
    pub async fn grant_takeover(
        &self,
        caller: &Caller,
        worker: WorkerId,
        ttl: Option<Millis>,
        why: Option<String>,
    ) -> OperatorResult<WorkerView> {
        why::check(why.as_deref()).map_err(ServiceError::Refused)?;
        let ttl = ttl.unwrap_or(limits::TAKEOVER_TTL);
        if ttl == Millis::ZERO || ttl > limits::TAKEOVER_TTL_MAX {
            return Err(ServiceError::Refused(Denied::Invalid {
                field: "ttl".to_owned(),
                got: ttl.to_string(),
                allowed: format!("more than 0 and at most {}", limits::TAKEOVER_TTL_MAX),
            }));
        }
        let expires_at = self.utc().plus(ttl);
        let call = GrantTakeover { actor: caller.actor.clone(), worker: worker.clone(), why, expires_at };
        let granted = self.store().grant_takeover(call).await?.into_result();
        let view = granted.map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &worker)))?;
        tracing::info!(worker.id = %worker, actor = %caller.actor, origin = %caller.origin, "worker takeover granted");
        Ok(view)
    }
}
