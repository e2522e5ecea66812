//! The worker's side of the protocol over mTLS: calls of the engine become messages, and every outcome becomes one of
//! answered, refused, certainly not done, unknown.
//!
//! Two connections: control (heartbeat, pull, acknowledgements, end), and bulk (logs), opened on demand and closed when
//! idle, so that no transfer delays a heartbeat. (Protocol.)

pub mod connection;
mod messages;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::HeaderValue;
use leasehold_core::counter::SessionGeneration;
use leasehold_core::directive::Directive;
use leasehold_core::id::SessionId;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_wire::v1::problem::{Done, Problem};
use leasehold_wire::{Message, parse};
use tokio::sync::watch;

use crate::engine::RegistrationFacts;
use crate::engine::port::{Answer, Call, Outcome, SessionNumbers};
use crate::identity::Identity;
use connection::reach::{self, Failed};
use connection::{Connection, Response, Unanswered};
use messages::Prepared;

/// An unused bulk connection is closed after this.
const BULK_IDLE: Duration = Duration::from_secs(30);

/// Addresses of one control plane that are visited at most.
const ADDRESSES: usize = 8;

/// A client of one control plane.
#[derive(Debug)]
pub struct Client {
    control: Connection,
    bulk: Connection,
    uses: watch::Sender<u64>,
}

/// The outcome of a call, with what the control plane wants beside it.
pub type Answered = (Outcome, Vec<Directive>);

impl Client {
    /// A client that speaks as this worker.
    pub fn new(identity: &Identity) -> Result<Self, rustls::Error> {
        let tls = Arc::new(tls::worker_config(identity)?);
        Ok(Self {
            control: Connection::new(&identity.address, Arc::clone(&tls)),
            bulk: Connection::new(&identity.address, tls),
            uses: watch::Sender::new(0),
        })
    }

    /// Makes a call. `log` is the piece of log that goes with [`Call::Log`].
    pub async fn call(&self, call: &Call, log: Bytes, timeout: Millis) -> Answered {
        let Some((request, limit, read)) = request(call, log) else {
            return (Outcome::NotDone("the request cannot be spelled".to_owned()), Vec::new());
        };
        let bulk = matches!(call, Call::Log { .. });
        let connection = if bulk { &self.bulk } else { &self.control };
        let sent = tokio::time::timeout(timeout.to_std(), connection.send(call.step(), request, limit)).await;
        let outcome = match sent {
            // A piece of a log is split whoever finds it too large, something on the way included.
            Ok(Ok(response)) if bulk && response.status == 413 => {
                let refusal = Refusal::new(RefusalCode::LimitExceeded, "the piece of log is too large for the way");
                (Outcome::Refused(refusal), Vec::new())
            }
            Ok(Ok(response)) => concluded(&response, read),
            Ok(Err(Unanswered::NotSent(why))) => (Outcome::NotDone(why), Vec::new()),
            Ok(Err(Unanswered::MayHaveArrived(why))) => (Outcome::Unknown(why), Vec::new()),
            Err(_) => {
                // The connection may be half-open; the next request makes another.
                connection.close().await;
                (Outcome::Unknown(format!("no answer within {timeout}")), Vec::new())
            }
        };
        if bulk {
            self.uses.send_modify(|uses| *uses += 1);
        }
        outcome
    }

    /// Closes the bulk connection whenever nothing used it for a while. Sleeps while it is closed; never returns.
    pub async fn close_idle_bulk(&self) {
        let mut uses = self.uses.subscribe();
        // The sender lives as long as this client, so waiting for a use never fails.
        while uses.changed().await.is_ok() {
            while let Ok(Ok(())) = tokio::time::timeout(BULK_IDLE, uses.changed()).await {}
            self.bulk.close().await;
        }
    }
}

type Read = fn(&[u8]) -> Result<Answered, String>;

/// A call as a request, with how much of the answer is read, and how; none: it cannot be spelled.
fn request(call: &Call, log: Bytes) -> Option<(Request<Full<Bytes>>, usize, Read)> {
    let Prepared { method, path, body, headers, limit, read } = messages::prepare(call, log);
    let mut request = Request::builder().method(method).uri(format!("https://control{path}"));
    for (name, value, sensitive) in headers {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(sensitive);
        request = request.header(name, value);
    }
    Some((request.body(Full::new(body)).ok()?, limit, read))
}

/// One address of a control plane, and how far one comes there.
#[derive(Debug)]
pub struct Visit {
    /// Which.
    pub address: SocketAddr,
    /// What was said, and its clock; or the step that failed.
    pub heard: Result<(Outcome, Option<UtcMillis>), Failed>,
}

/// Goes to every address of this worker's control plane, as this worker, and asks something that changes nothing: a pull
/// for a session that never was.
pub async fn visit(identity: &Identity, nobody: SessionId) -> Result<Vec<Visit>, Failed> {
    let tls =
        tls::worker_config(identity).map_err(|error| Failed { step: reach::Step::Tls, why: error.to_string() })?;
    let tls = Arc::new(tls);
    let host = identity.address.rsplit_once(':').map_or(identity.address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let session = SessionNumbers { session: nobody, generation: SessionGeneration::FIRST };
    let call = Call::Pull { session, asks: Vec::new(), wait: Millis::ZERO };
    let mut visits = Vec::new();
    for address in reach::resolve(&identity.address).await?.into_iter().take(ADDRESSES) {
        let Some((request, limit, read)) = request(&call, Bytes::new()) else { break };
        let heard = reach::reach(host, address, &tls, request, limit).await;
        let heard = heard.map(|heard| (concluded(&heard.response, read).0, heard.date));
        visits.push(Visit { address, heard });
    }
    Ok(visits)
}

/// The exact body of a registration.
pub fn spell(facts: &RegistrationFacts<'_>) -> String {
    messages::registration(facts)
}

fn concluded(response: &Response, read: fn(&[u8]) -> Result<Answered, String>) -> Answered {
    if (200..300).contains(&response.status) {
        return match read(&response.body) {
            Ok(answered) => answered,
            Err(why) => (Outcome::Unknown(format!("the answer makes no sense: {why}")), Vec::new()),
        };
    }
    (refused(response), Vec::new())
}

/// A refusal in the protocol's own words; anything else proves nothing.
pub(crate) fn refused(response: &Response) -> Outcome {
    match parse::<Problem>(&response.body) {
        Ok(Problem { done: Some(Done::Unknown), detail, .. }) => Outcome::Unknown(detail),
        Ok(problem) => Outcome::Refused(Refusal::from(&problem)),
        Err(_) => Outcome::Unknown(format!("status {} without a problem of this protocol", response.status)),
    }
}

fn answer<T: Message>(bytes: &[u8], to: impl FnOnce(&T) -> Answer) -> Result<Answered, String> {
    let message = parse::<T>(bytes).map_err(|error| error.to_string())?;
    Ok((Outcome::Answered(to(&message)), Vec::new()))
}
