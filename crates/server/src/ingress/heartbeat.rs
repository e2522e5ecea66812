//! `POST …/heartbeat`: the session lives on, and renews what it holds.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_control::view::Renewal;
use leasehold_core::session::Said as Word;
use leasehold_wire::v1::heartbeat::{HeartbeatAnswer, HeartbeatRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtSession, Caller, Said};

pub(super) async fn heartbeat(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtSession(session): AtSession,
    Said(said): Said<HeartbeatRequest>,
) -> Answered<HeartbeatAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    let renewals = said
        .renewals
        .iter()
        .map(|renewal| Renewal {
            fence: renewal.lease.fence(renewal.attempt_id),
            version: renewal.version,
            left: renewal.cancel_incomplete.as_ref().map(Into::into),
        })
        .collect();
    let faults = said.faults.as_ref().map(|faults| faults.iter().map(Into::into).collect());
    let word = Word { slots: said.slots, obeys_drain: said.draining };
    let beaten = ingress.control.heartbeat(&worker, session, said.session_version, word, faults, renewals).await?;
    Ok(Answer(HeartbeatAnswer::new(&beaten.session, &beaten.leases, &beaten.directives, ingress.clock.utc())))
}
