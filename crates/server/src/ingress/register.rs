//! `PUT /worker/v1/sessions/{session}`: a session takes its place, or repeats its registration.

use axum::extract::State;
use leasehold_wire::Message as _;
use leasehold_wire::v1::register::{RegisterAnswer, RegisterRequest, parse_registration};

use super::Ingress;
use super::request::{Answer, Answered, AtSession, Caller, Raw};

pub(super) async fn register(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtSession(session): AtSession,
    Raw(body): Raw<{ RegisterRequest::LIMIT }>,
) -> Answered<RegisterAnswer> {
    let registration = parse_registration(session, &body)?;
    let registered = ingress.control.register(&worker, registration).await?;
    Ok(Answer(RegisterAnswer { session: (&registered.session).into(), ticket: registered.ticket }))
}
