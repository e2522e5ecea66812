//! The engine's calls as messages of the wire, and the wire's answers as the engine's.

use bytes::Bytes;
use hyper::Method;
use leasehold_core::directive::Directive;
use leasehold_core::refusal::Refusal;
use leasehold_wire::v1::drain::{DrainAnswer, DrainRequest};
use leasehold_wire::v1::end::{Completion, EndAnswer, EndRequest};
use leasehold_wire::v1::fence::LeaseProof;
use leasehold_wire::v1::heartbeat::{HeartbeatAnswer, HeartbeatRequest, Renewal};
use leasehold_wire::v1::logs::{self, LogFence, LogsAnswer};
use leasehold_wire::v1::offline::{OfflineAnswer, OfflineRequest};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::projection::Directive as WireDirective;
use leasehold_wire::v1::pull::{AskRequest, AskVerdict, PullAnswer, PullRequest};
use leasehold_wire::v1::register::{RegisterAnswer, RegisterRequest};
use leasehold_wire::v1::release::{ReleaseAnswer, ReleaseRequest};
use leasehold_wire::v1::running::{RunningAnswer, RunningRequest};
use leasehold_wire::v1::starting::{StartingAnswer, StartingRequest};
use leasehold_wire::{Message, encode, parse, route};

use super::{Answered, answer};
use crate::engine::RegistrationFacts;
use crate::engine::port::{Answer, AskAnswer, Call, End, HeldLease, Outcome, SessionNumbers};
use crate::fault::steps::{self, Step};

/// A request ready to be sent, and how its answer is read.
pub(super) struct Prepared {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
    /// Name, value, and whether it is a secret.
    pub(super) headers: Vec<(&'static str, String, bool)>,
    pub(super) limit: usize,
    pub(super) read: fn(&[u8]) -> Result<Answered, String>,
}

const JSON: &str = "application/json";

pub(super) fn registration(facts: &RegistrationFacts<'_>) -> String {
    let boot = facts.boot.clone();
    let request = RegisterRequest::new(facts.ticket.clone(), facts.capabilities, facts.max_runs, boot, facts.software);
    String::from_utf8(encode(&request)).expect("JSON is UTF-8")
}

fn post<T: Message, A: Message>(path: String, message: &T, read: fn(&[u8]) -> Result<Answered, String>) -> Prepared {
    Prepared {
        method: Method::POST,
        path,
        body: encode(message).into(),
        headers: vec![("content-type", JSON.to_owned(), false)],
        limit: limit::<A>(),
        read,
    }
}

/// An answer or a problem, whichever is larger.
fn limit<A: Message>() -> usize {
    A::LIMIT.max(Problem::LIMIT)
}

fn proof(lease: &HeldLease) -> LeaseProof {
    LeaseProof { offer_id: lease.offer, generation: lease.generation, token: lease.token.clone() }
}

impl Call {
    /// Its name among the fault points.
    pub(super) const fn step(&self) -> Step {
        match self {
            Self::Register { .. } => steps::CALL_REGISTER,
            Self::Heartbeat { .. } => steps::CALL_HEARTBEAT,
            Self::Drain { .. } => steps::CALL_DRAIN,
            Self::Offline { .. } => steps::CALL_OFFLINE,
            Self::Pull { .. } => steps::CALL_PULL,
            Self::Starting { .. } => steps::CALL_STARTING,
            Self::Running { .. } => steps::CALL_RUNNING,
            Self::Release { .. } => steps::CALL_RELEASE,
            Self::Log { .. } => steps::CALL_LOG,
            Self::End { .. } => steps::CALL_END,
        }
    }
}

pub(super) fn prepare(call: &Call, log: Bytes) -> Prepared {
    match call {
        Call::Register { session, body } => Prepared {
            method: Method::PUT,
            path: route::session(*session),
            body: Bytes::from(body.clone().into_bytes()),
            headers: vec![("content-type", JSON.to_owned(), false)],
            limit: limit::<RegisterAnswer>(),
            read: |bytes| {
                answer::<RegisterAnswer>(bytes, |message| Answer::Registered {
                    session: (&message.session).into(),
                    ticket: message.ticket.clone(),
                })
            },
        },
        Call::Heartbeat { session, version, said, faults, renewals } => {
            let renewals = renewals
                .iter()
                .map(|renewal| Renewal {
                    attempt_id: renewal.lease.attempt,
                    lease: proof(&renewal.lease),
                    version: renewal.version,
                    cancel_incomplete: renewal.left.as_ref().map(Into::into),
                })
                .collect();
            let request = HeartbeatRequest {
                session_generation: session.generation,
                session_version: *version,
                slots: said.slots,
                draining: said.obeys_drain,
                faults: faults.as_ref().map(|faults| faults.iter().map(Into::into).collect()),
                renewals,
            };
            post::<_, HeartbeatAnswer>(route::heartbeat(session.session), &request, read_heartbeat)
        }
        Call::Drain { session, version } => {
            let request = DrainRequest { session_generation: session.generation, session_version: *version };
            post::<_, DrainAnswer>(route::drain(session.session), &request, |bytes| {
                answer::<DrainAnswer>(bytes, |message| Answer::Drained((&message.session).into()))
            })
        }
        Call::Offline { session, version } => {
            let request = OfflineRequest { session_generation: session.generation, session_version: *version };
            post::<_, OfflineAnswer>(route::offline(session.session), &request, |bytes| {
                answer::<OfflineAnswer>(bytes, |_| Answer::Offline)
            })
        }
        Call::Pull { session, asks, wait } => {
            let asks =
                asks.iter().map(|ask| AskRequest { offer_id: ask.offer, lease_token: ask.token.clone() }).collect();
            let request = PullRequest { session_generation: session.generation, asks, wait_ms: *wait };
            post::<_, PullAnswer>(route::pull(session.session), &request, read_pull)
        }
        Call::Starting { session, lease } => {
            let request = StartingRequest { session_generation: session.generation, lease: proof(lease) };
            post::<_, StartingAnswer>(route::starting(session.session, lease.attempt), &request, |bytes| {
                answer::<StartingAnswer>(bytes, |message| Answer::Starting(message.into()))
            })
        }
        Call::Running { session, lease, running } => {
            let request =
                RunningRequest { session_generation: session.generation, lease: proof(lease), running: running.into() };
            post::<_, RunningAnswer>(route::running(session.session, lease.attempt), &request, |bytes| {
                answer::<RunningAnswer>(bytes, |message| Answer::Running((&message.lease).into()))
            })
        }
        Call::Release { session, lease, reason } => {
            let request =
                ReleaseRequest { session_generation: session.generation, lease: proof(lease), reason: *reason };
            post::<_, ReleaseAnswer>(route::release(session.session, lease.attempt), &request, |bytes| {
                answer::<ReleaseAnswer>(bytes, |_| Answer::Released)
            })
        }
        Call::End { session, lease, end } => {
            let request = end_request(*session, lease, end);
            post::<_, EndAnswer>(route::end(session.session, lease.attempt), &request, |bytes| {
                answer::<EndAnswer>(bytes, |message| Answer::Ended(message.into()))
            })
        }
        Call::Log { session, lease, offset, .. } => {
            let fence = LogFence { session_generation: session.generation, lease: proof(lease) };
            let mut headers = vec![("content-type", logs::CONTENT_TYPE.to_owned(), false)];
            headers.extend(fence.headers().into_iter().map(|(name, value)| (name, value, false)));
            let (name, value) = fence.token_header();
            headers.push((name, value.to_string(), true));
            Prepared {
                method: Method::POST,
                path: route::logs(session.session, lease.attempt, *offset),
                body: log,
                headers,
                limit: limit::<LogsAnswer>(),
                read: |bytes| answer::<LogsAnswer>(bytes, |message| Answer::Log { durable: message.durable }),
            }
        }
    }
}

fn end_request(session: SessionNumbers, lease: &HeldLease, end: &End) -> EndRequest {
    EndRequest {
        session_generation: session.generation,
        lease: proof(lease),
        ending: (&end.ending).into(),
        completion: end
            .callback
            .as_ref()
            .map(|(callback, token)| Completion { sequence: callback.sequence, token: token.clone() }),
        running: end.running.as_ref().map(Into::into),
        log: end.log.map(Into::into),
        usage: end.usage.map(Into::into),
        cancel_incomplete: end.left.as_ref().map(Into::into),
    }
}

fn directives(wire: &[WireDirective]) -> Vec<Directive> {
    wire.iter().map(Directive::from).collect()
}

fn read_heartbeat(bytes: &[u8]) -> Result<Answered, String> {
    let message = parse::<HeartbeatAnswer>(bytes).map_err(|error| error.to_string())?;
    let renewals = message
        .leases
        .iter()
        .map(|lease| (lease.attempt_id, lease.verdict.to_result()))
        .collect::<Vec<(_, Result<_, Refusal>)>>();
    let answer = Answer::Beaten { session: (&message.session).into(), renewals, now: message.now_ms };
    Ok((Outcome::Answered(answer), directives(&message.directives)))
}

fn read_pull(bytes: &[u8]) -> Result<Answered, String> {
    let message = parse::<PullAnswer>(bytes).map_err(|error| error.to_string())?;
    let asks = message
        .asks
        .iter()
        .map(|ask| {
            let verdict = match &ask.verdict {
                AskVerdict::Granted(offer) => match offer.to_core() {
                    Ok(core) => AskAnswer::Granted(Box::new(core)),
                    Err(drift) => AskAnswer::Drifted {
                        attempt: offer.attempt_id,
                        generation: offer.lease.generation,
                        why: drift.to_string(),
                    },
                },
                AskVerdict::None => AskAnswer::None,
                AskVerdict::Gone => AskAnswer::Gone,
            };
            (ask.offer_id, verdict)
        })
        .collect();
    Ok((Outcome::Answered(Answer::Pulled { held: message.held_ms, asks }), directives(&message.directives)))
}
