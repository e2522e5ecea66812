//! Who may speak at all: the holder of an API token, and a worker whose certificate still counts.

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::crypto::ApiToken;
use leasehold_core::refusal::{Refusal, RefusalCode};

use crate::error::OperatorResult;
use crate::plane::ControlPlane;
use crate::principal::{Caller, WorkerPrincipal};

impl ControlPlane {
    /// The caller that `token` makes of a request from `origin`; none if there is no such token, or it has expired.
    pub async fn authenticate(&self, token: &ApiToken, origin: Origin) -> OperatorResult<Option<Caller>> {
        let known = self.store().find_api_token(token.digest()).await?;
        Ok(known.map(|known| Caller {
            actor: Actor::ApiToken { token: known.id, name: known.name, origin },
            role: known.role,
            origin,
        }))
    }

    /// Whether the worker's certificate still counts: asked for each request, because a connection may outlive it.
    pub fn admits(&self, worker: &WorkerPrincipal) -> Result<(), Refusal> {
        if self.utc() < worker.expires_at() {
            return Ok(());
        }
        let message = "the worker's certificate has expired: enroll the machine again with `leasehold worker enroll`";
        Err(Refusal::new(RefusalCode::Unauthenticated, message))
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::limits;
    use leasehold_core::role::Role;
    use leasehold_store::port::Store;

    use super::*;
    use crate::fixture::World;

    #[tokio::test]
    async fn a_certificate_counts_until_it_ends_and_not_longer() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        assert_eq!(world.plane.admits(&agent.principal), Ok(()));
        world.clock.advance(limits::CERTIFICATE_TTL);
        assert_eq!(world.plane.admits(&agent.principal).unwrap_err().code, RefusalCode::Unauthenticated);
    }

    #[tokio::test]
    async fn a_token_makes_its_caller_and_an_unknown_one_nobody() {
        let world = World::new().await;
        let known = ApiToken::from_bytes([5; 32]);
        let origin = Origin::Address("192.0.2.1".parse().unwrap());
        assert_eq!(world.plane.authenticate(&known, origin).await, Ok(None));
        let first = world.first_token.clone();
        let caller = world.plane.authenticate(&first, origin).await.unwrap().unwrap();
        assert_eq!((caller.role, caller.origin), (Role::Admin, origin));
        let known = world.store.find_api_token(first.digest()).await.unwrap().unwrap();
        assert_eq!(caller.actor, Actor::ApiToken { token: known.id, name: known.name, origin });
    }
}
