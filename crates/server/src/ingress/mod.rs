//! The worker routes: one file each, and the order in which a request is judged before its handler.
//!
//! Certificate (its expiry now, not at the handshake), rate, path, body limit, schema; only then the service, whose transaction
//! judges revocation and fences. The body never says who calls: that is the certificate's and the path's part.
//! (Protocol, all of it.)

mod drain;
mod end;
mod enroll;
mod heartbeat;
mod logs;
mod offline;
mod pull;
mod refused;
mod register;
mod release;
mod request;
mod running;
mod starting;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{post, put};
use leasehold_control::{ControlPlane, WorkerPrincipal};
use leasehold_core::actor::Origin;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Clock;
use leasehold_wire::route;

use crate::listener::{Peer, Presented};
use crate::rates::{Key, Rates};
use refused::Refused;

/// What the worker routes share.
#[derive(Clone)]
pub(crate) struct Ingress {
    /// The services.
    control: ControlPlane,
    /// Judges the expiry of certificates.
    clock: Arc<dyn Clock>,
    rates: Arc<Rates>,
}

impl Ingress {
    /// What the worker routes of `control` share.
    pub(crate) fn new(control: ControlPlane, clock: Arc<dyn Clock>) -> Self {
        Self { control, rates: Arc::new(Rates::new(Arc::clone(&clock))), clock }
    }
}

/// Every worker route.
pub(crate) fn router(ingress: Ingress) -> Router {
    Router::new()
        .route(route::ENROLL, post(enroll::enroll))
        .route(route::SESSION, put(register::register))
        .route(route::HEARTBEAT, post(heartbeat::heartbeat))
        .route(route::DRAIN, post(drain::drain))
        .route(route::OFFLINE, post(offline::offline))
        .route(route::PULL, post(pull::pull))
        .route(route::STARTING, post(starting::starting))
        .route(route::RUNNING, post(running::running))
        .route(route::RELEASE, post(release::release))
        .route(route::LOGS, post(logs::logs))
        .route(route::END, post(end::end))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(ingress.clone(), admit))
        .with_state(ingress)
}

/// Nothing but `enroll` is looked at without a certificate that names a worker and has not expired; not even whether
/// there is such a route. Then the rate, before any byte of the body.
async fn admit(State(ingress): State<Ingress>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let key = if path == route::ENROLL {
        let address = match request.extensions().get::<Peer>() {
            Some(Peer::Ingress { address, .. }) => address.ip(),
            _ => return Refused::from(unauthenticated("the worker routes are not served here")).into_response(),
        };
        request.extensions_mut().insert(Origin::Address(address));
        Key::Address(address)
    } else {
        let principal = match principal(&ingress, request.extensions().get::<Peer>()) {
            Ok(principal) => principal,
            Err(refusal) => return Refused::from(refusal).into_response(),
        };
        let vital = path.ends_with("/heartbeat") || path.ends_with("/end");
        let worker = principal.worker().clone();
        request.extensions_mut().insert(principal);
        if vital { Key::Vital(worker) } else { Key::Worker(worker) }
    };
    if let Err(wait) = ingress.rates.draw(key) {
        let refusal = Refusal::new(RefusalCode::RateLimited, "too many calls: slow down").retry_after(wait);
        return Refused::from(refusal).into_response();
    }
    next.run(request).await
}

fn principal(ingress: &Ingress, peer: Option<&Peer>) -> Result<WorkerPrincipal, Refusal> {
    let principal = match peer {
        Some(Peer::Ingress { presented: Presented::Worker(principal), .. }) => principal,
        Some(Peer::Ingress { presented: Presented::Other(refused), .. }) => {
            return Err(unauthenticated(&format!(
                "{refused}: enroll this machine and use the certificate it then gets"
            )));
        }
        _ => {
            return Err(unauthenticated(
                "this route needs the client certificate that the worker got when it enrolled: \
                 ask an administrator for an enrollment and join again",
            ));
        }
    };
    if principal.expires_at() < ingress.clock.utc() {
        return Err(unauthenticated("the worker's certificate has expired: enroll this machine again"));
    }
    Ok(principal.clone())
}

fn unauthenticated(why: &str) -> Refusal {
    Refusal::new(RefusalCode::Unauthenticated, why)
}

async fn unknown_route(method: Method, uri: Uri) -> Refused {
    Refused::at(StatusCode::NOT_FOUND, format!("there is no {method} {}", cut(uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> Refused {
    Refused::at(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not know {method}", cut(uri.path())))
}

fn cut(path: &str) -> String {
    path.chars().take(200).collect()
}
