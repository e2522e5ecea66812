//! `POST …/running`: the attempt's process runs.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_wire::v1::running::{RunningAnswer, RunningRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtAttempt, Caller, Said};

pub(super) async fn running(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtAttempt(session, attempt): AtAttempt,
    Said(said): Said<RunningRequest>,
) -> Answered<RunningAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    let fence = said.lease.fence(attempt);
    let projection = ingress.control.running(&worker, session, fence, (&said.running).into()).await?;
    Ok(Answer(RunningAnswer { lease: (&projection).into() }))
}
