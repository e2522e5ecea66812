//! `POST …/end`: the attempt ended; the answer settles the worker's record.

use axum::extract::State;
use leasehold_control::SessionRef;
use leasehold_control::end::End;
use leasehold_wire::Message as _;
use leasehold_wire::v1::end::{EndAnswer, EndRequest, parse_end};

use super::Ingress;
use super::request::{Answer, Answered, AtAttempt, Caller, Raw};

pub(super) async fn end(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtAttempt(session, attempt): AtAttempt,
    Raw(body): Raw<{ EndRequest::LIMIT }>,
) -> Answered<EndAnswer> {
    let call = parse_end(worker.worker().clone(), session, attempt, &body)?;
    let session = SessionRef { id: call.session.session, generation: call.session.generation };
    let end = End {
        lease: call.lease,
        ending: call.ending,
        callback: call.callback,
        running: call.running,
        log: call.log,
        usage: call.usage,
        left: call.left,
        body: call.body,
    };
    let ended = ingress.control.end(&worker, session, end).await?;
    Ok(Answer((&ended).into()))
}
