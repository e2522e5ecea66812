//! `POST …/drain`: the session finishes what it holds and takes nothing new.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_wire::v1::drain::{DrainAnswer, DrainRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtSession, Caller, Said};

pub(super) async fn drain(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtSession(session): AtSession,
    Said(said): Said<DrainRequest>,
) -> Answered<DrainAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    let projection = ingress.control.drain(&worker, session, said.session_version).await?;
    Ok(Answer(DrainAnswer { session: (&projection).into() }))
}
