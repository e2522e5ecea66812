//! Who calls, and may they: before anything of the request but its path and headers is looked at.
//!
//! On the admin socket the kernel says who it is; elsewhere a bearer token does. *Not known* (401) and *known, but not
//! allowed* (403) are never mixed up, and a wrong token is not told from an expired one.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use leasehold_control::Caller;
use leasehold_core::actor::Origin;
use leasehold_core::crypto::ApiToken;

use super::describe::{Contract, Schemas, Takes};
use super::problem::ApiError;
use super::registry::Needs;
use super::{Api, header, webhooks};
use crate::listener::Peer;

/// Lets a request pass that its route's permission allows, with its caller attached.
pub(super) async fn guard(State((api, needs)): State<(Api, Needs)>, mut request: Request, next: Next) -> Response {
    if needs == Needs::Webhook {
        return match webhooks::identify(&api, request).await {
            Ok(request) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    }
    if let Needs::Role(needed) = needs {
        let claim = claimed(request.extensions().get(), request.headers());
        let caller = match identify(&api, claim).await {
            Ok(caller) => caller,
            Err(error) => return error.into_response(),
        };
        if !caller.role.includes(needed) {
            tracing::info!(actor = %caller.actor, origin = %caller.origin, role = %caller.role, "refused: {needed} needed");
            return ApiError::forbidden(caller.role, needed).into_response();
        }
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// Who a request says it comes from.
enum Claim {
    /// A user of this machine, by the kernel's word.
    Local(u32),
    /// Whoever holds this token.
    Holder(ApiToken, IpAddr),
}

fn claimed(peer: Option<&Peer>, headers: &HeaderMap) -> Result<Claim, ApiError> {
    match peer {
        Some(Peer::AdminSocket { uid }) => Ok(Claim::Local(*uid)),
        Some(Peer::Operator { address }) => Ok(Claim::Holder(bearer(headers)?, address.ip())),
        Some(Peer::Ingress { .. }) | None => {
            Err(ApiError::unauthenticated("the operator API is not served to workers"))
        }
    }
}

async fn identify(api: &Api, claim: Result<Claim, ApiError>) -> Result<Caller, ApiError> {
    match claim? {
        Claim::Local(uid) => Ok(Caller::local(uid)),
        Claim::Holder(token, from) => {
            let caller = api.control.authenticate(&token, Origin::Address(from)).await?;
            caller.ok_or_else(|| ApiError::unauthenticated("this API token is unknown, revoked or expired"))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Result<ApiToken, ApiError> {
    let said = header::once(headers, header::AUTHORIZATION)?.ok_or_else(|| {
        ApiError::unauthenticated(
            "an API token is needed: send `Authorization: Bearer <token>` (the command line reads LEASEHOLD_TOKEN)",
        )
    })?;
    // Never repeated in the answer: it may be a secret of another place.
    let refused =
        || ApiError::unauthenticated("the Authorization header does not hold an API token: expected `Bearer <token>`");
    let (scheme, token) = said.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(refused)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused());
    }
    ApiToken::parse(token.trim()).map_err(|_| refused())
}

/// The caller that [`guard`] found.
pub(super) struct By(pub(super) Caller);

impl FromRequestParts<Api> for By {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        // Only a handler of a route that needs nothing could miss it.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(Self).ok_or_else(|| ApiError::unauthenticated("this route has no caller"))
    }
}

impl Takes for By {
    fn takes(_: &mut Contract, _: &mut Schemas) {}
}
