//! A worker's session: it registers, beats, drains and leaves.
//!
//! All decisions are core's: [`leasehold_core::registration`], [`leasehold_core::session`], [`leasehold_core::lease::renew`].
//! (Protocol, *Sessions*.)

use leasehold_core::counter::SessionVersion;
use leasehold_core::crypto::Ticket;
use leasehold_core::fault::Fault;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::Registration;
use leasehold_core::session::{Said, SessionProjection};
use leasehold_store::call::{Heartbeat, RegisterSession, Renewal, SessionStep};
use leasehold_store::view::Beaten;

use crate::error::{ServiceError, WorkerResult, settle};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::{SessionRef, WorkerPrincipal};

/// The protocol versions that this control plane speaks.
pub const PROTOCOLS: std::ops::RangeInclusive<u16> = 1..=1;

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The session now.
    pub session: SessionProjection,
    /// What the next registration of this worker spends.
    pub ticket: Ticket,
}

impl ControlPlane {
    /// A session takes its place, or repeats its registration.
    pub async fn register(&self, worker: &WorkerPrincipal, registration: Registration) -> WorkerResult<Registered> {
        check(&registration).map_err(ServiceError::Refused)?;
        let session = registration.session;
        let call = RegisterSession {
            worker: worker.worker().clone(),
            registration,
            tickets: self.keys().tickets().clone(),
            cadence: self.settings().cadence,
            origin: worker.origin(),
        };
        let projection = settle(self.store().register_session(call).await)?;
        // An open pull of the session that was replaced finds out now.
        self.hints().changed(&Topic::Worker(worker.worker().clone()));
        let ticket = self.keys().tickets().next(worker.worker(), session, projection.generation);
        Ok(Registered { session: projection, ticket })
    }

    /// The session speaks, and renews the leases that it holds.
    pub async fn heartbeat(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        version: SessionVersion,
        said: Said,
        faults: Option<Vec<Fault>>,
        renewals: Vec<Renewal>,
    ) -> WorkerResult<Beaten> {
        if renewals.len() > limits::HEARTBEAT_RENEWALS {
            return Err(over("renewals", renewals.len(), limits::HEARTBEAT_RENEWALS));
        }
        let named = faults.as_ref().map_or(0, Vec::len);
        if named > limits::FAULTS {
            return Err(over("faults", named, limits::FAULTS));
        }
        let call = Heartbeat { session: worker.fence(session), version, said, faults, renewals };
        settle(self.store().heartbeat(call).await)
    }

    /// The session takes nothing new from now on.
    pub async fn drain(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        version: SessionVersion,
    ) -> WorkerResult<SessionProjection> {
        let call = SessionStep { session: worker.fence(session), version };
        let projection = settle(self.store().drain_session(call).await)?;
        self.hints().changed(&Topic::Worker(worker.worker().clone()));
        Ok(projection)
    }

    /// The session leaves; refused while the worker holds a lease.
    pub async fn offline(
        &self,
        worker: &WorkerPrincipal,
        session: SessionRef,
        version: SessionVersion,
    ) -> WorkerResult<SessionProjection> {
        let call = SessionStep { session: worker.fence(session), version };
        let projection = settle(self.store().offline_session(call).await)?;
        self.hints().changed(&Topic::Worker(worker.worker().clone()));
        Ok(projection)
    }
}

/// What needs no state to be refused.
fn check(registration: &Registration) -> Result<(), Refusal> {
    if !PROTOCOLS.contains(&registration.protocol) {
        let (first, last) = (PROTOCOLS.start(), PROTOCOLS.end());
        let spoken = if first == last { format!("version {first}") } else { format!("versions {first} to {last}") };
        let message = format!("this control plane speaks protocol {spoken}, not {}", registration.protocol);
        return Err(Refusal::new(RefusalCode::UnsupportedProtocol, message));
    }
    if registration.max_runs == 0 || u32::from(registration.max_runs) > limits::SLOTS {
        let message = format!("max_runs: got {}, allowed is 1 to {}", registration.max_runs, limits::SLOTS);
        return Err(Refusal::new(RefusalCode::InvalidRequest, message));
    }
    Ok(())
}

/// More of something than fits into one call.
pub(crate) fn over(what: &str, got: usize, allowed: usize) -> ServiceError<Refusal> {
    let message = format!("{what}: got {got}, allowed is at most {allowed}");
    ServiceError::Refused(Refusal::new(RefusalCode::LimitExceeded, message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::{Digest, Domain};
    use leasehold_core::id::SessionId;
    use leasehold_core::time::{Clock, Millis};

    use super::*;
    use crate::fixture::{World, capabilities};

    #[tokio::test]
    async fn what_needs_no_state_is_refused_before_the_store_and_spends_no_ticket() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let before = world.store.dump();
        let registration = Registration {
            session: SessionId::new(world.clock.utc(), &*world.entropy),
            ticket: Ticket::from_bytes([0; 32]),
            capabilities: capabilities(),
            max_runs: 1,
            boot: "another-boot".parse().unwrap(),
            software: "0.1.0".to_owned(),
            protocol: 1,
            body: Digest::of(Domain::Registration, b"body"),
        };
        let cases = [
            (RefusalCode::UnsupportedProtocol, Registration { protocol: 2, ..registration.clone() }),
            (RefusalCode::InvalidRequest, Registration { max_runs: 0, ..registration.clone() }),
            (RefusalCode::InvalidRequest, Registration { max_runs: 257, ..registration }),
        ];
        for (expected, registration) in cases {
            match world.plane.register(&agent.principal, registration).await {
                Err(ServiceError::Refused(refusal)) => assert_eq!(refusal.code, expected),
                other => panic!("not refused: {other:?}"),
            }
        }
        assert_eq!(world.store.dump(), before);
    }

    #[tokio::test]
    async fn a_session_beats_drains_and_leaves_by_its_version() {
        let world = World::new().await;
        let agent = world.agent("nas", 2).await;
        let version = agent.version().await;
        let beaten = world
            .plane
            .heartbeat(
                &agent.principal,
                agent.session,
                version,
                Said { slots: 2, obeys_drain: false },
                None,
                Vec::new(),
            )
            .await
            .unwrap();
        assert_eq!(beaten.session.version, version.next());
        world.clock.advance(Millis::from_secs(1));
        let stale = world.plane.drain(&agent.principal, agent.session, version).await;
        assert!(matches!(stale, Err(ServiceError::Refused(refusal)) if refusal.code == RefusalCode::VersionConflict));
        let drained = world.plane.drain(&agent.principal, agent.session, version.next()).await.unwrap();
        let offline = world.plane.offline(&agent.principal, agent.session, drained.version).await.unwrap();
        assert_eq!(offline.remaining, Millis::ZERO);
        let late = world
            .plane
            .heartbeat(&agent.principal, agent.session, offline.version, Said::default(), None, Vec::new())
            .await;
        assert!(matches!(late, Err(ServiceError::Refused(refusal)) if refusal.code == RefusalCode::SessionFenced));
    }
}
