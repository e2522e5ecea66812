//! `POST …/starting`: may the attempt start now.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_wire::v1::starting::{StartingAnswer, StartingRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtAttempt, Caller, Said};

pub(super) async fn starting(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtAttempt(session, attempt): AtAttempt,
    Said(said): Said<StartingRequest>,
) -> Answered<StartingAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    let starting = ingress.control.starting(&worker, session, said.lease.fence(attempt)).await?;
    Ok(Answer((&starting).into()))
}
