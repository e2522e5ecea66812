//! `POST …/logs?offset=N`: a piece of an attempt's framed log, as raw bytes; the fences stand in headers.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use leasehold_control::SessionRef;
use leasehold_core::limits;
use leasehold_wire::v1::logs::{LogFence, LogsAnswer, check_chunk, parse_offset};

use super::Ingress;
use super::request::{Answer, Answered, AtAttempt, Caller, Raw};

pub(super) async fn logs(
    State(ingress): State<Ingress>,
    Caller(worker): Caller,
    AtAttempt(session, attempt): AtAttempt,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    Raw(bytes): Raw<{ limits::LOG_CHUNK }>,
) -> Answered<LogsAnswer> {
    let offset = parse_offset(query.as_deref())?;
    let said = LogFence::from_headers(|name| headers.get(name).and_then(|value| value.to_str().ok()))?;
    check_chunk(bytes.len())?;
    let session = SessionRef { id: session, generation: said.session_generation };
    let fence = said.lease.fence(attempt);
    let durable = ingress.control.append_log(&worker, session, fence, offset, bytes.into()).await?;
    Ok(Answer(LogsAnswer { durable }))
}
