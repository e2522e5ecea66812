//! `POST …/release`: the claim is given back unstarted.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_wire::v1::release::{ReleaseAnswer, ReleaseRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtAttempt, Caller, Said};

pub(super) async fn release(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtAttempt(session, attempt): AtAttempt,
    Said(said): Said<ReleaseRequest>,
) -> Answered<ReleaseAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    ingress.control.release(&worker, session, said.lease.fence(attempt), said.reason).await?;
    Ok(Answer(ReleaseAnswer {}))
}
