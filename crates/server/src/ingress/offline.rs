//! `POST …/offline`: the session leaves; refused while the worker holds a lease.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_wire::v1::offline::{OfflineAnswer, OfflineRequest};

use super::Ingress;
use super::request::{Answer, Answered, AtSession, Caller, Said};

pub(super) async fn offline(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtSession(session): AtSession,
    Said(said): Said<OfflineRequest>,
) -> Answered<OfflineAnswer> {
    let session = SessionRef { id: session, generation: said.session_generation };
    let projection = ingress.control.offline(&worker, session, said.session_version).await?;
    Ok(Answer(OfflineAnswer { session: (&projection).into() }))
}
