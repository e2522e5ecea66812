//! Webhooks: their tokens are made, and they are called.
//!
//! Who calls is known by the token of that one webhook, before anything of the request but its path and headers is looked at.
//! Everybody else hears the same: no such task, no such trigger, no token, another token. Only calls with the right token are
//! counted: what others send can never keep its holder out.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold_control::error::Denied;
use leasehold_control::webhook::{Call, Called, WebhookCaller};
use leasehold_core::actor::Origin;
use leasehold_core::crypto::WebhookToken;
use leasehold_core::time::Millis;
use leasehold_core::trigger::TriggerKey;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::request::Nothing;
use leasehold_wire::api::schedule::TriggerId;
use leasehold_wire::api::secret::SecretText;
use leasehold_wire::api::task::RunTask;
use leasehold_wire::api::webhook::{CallAnswer, WebhookTokenAnswer};

use super::Api;
use super::access::By;
use super::answer::{self, Fresh};
use super::describe::{Answers, Contract, Schemas, Takes};
use super::header;
use super::problem::ApiError;
use super::request::{AtProject, AtTask, AtTrigger, IdempotencyKey, JsonBody, Unkeyed};
use crate::listener::Peer;
use crate::rates::Key;

/// `POST …/tasks/{task}/triggers/{trigger}/token`: a new token; one that the webhook had stops at once.
pub(super) async fn make_token(
    State(api): State<Api>,
    By(caller): By,
    AtProject(project): AtProject,
    AtTask(task): AtTask,
    AtTrigger(name): AtTrigger,
    _: Unkeyed,
    JsonBody(Nothing {}): JsonBody<Nothing>,
) -> Result<Fresh<WebhookTokenAnswer>, ApiError> {
    let key = TriggerKey { project, task, name };
    let made = api.control.make_webhook_token(&caller, key.clone()).await?;
    let id = TriggerId::from(key);
    Ok(Fresh(WebhookTokenAnswer {
        path: id.hook(),
        id,
        token: SecretText::new(made.token.reveal()),
        made_at: made.made.at.into(),
    }))
}

/// `POST /api/v1/hooks/{project}/{task}/{trigger}`: 201 for a new run; 200 for what the same key started before, and where a
/// run stands in the way.
pub(super) async fn call(
    State(api): State<Api>,
    ByWebhook(caller): ByWebhook,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    JsonBody(RunTask { params }): JsonBody<RunTask>,
) -> Result<CallMade, ApiError> {
    let call = Call { parameters: params, idempotency_key };
    Ok(CallMade(api.control.call_webhook(&caller, call).await?))
}

/// What became of a call.
pub(super) struct CallMade(Called);

impl IntoResponse for CallMade {
    fn into_response(self) -> Response {
        let (status, said) = match self.0 {
            Called::Admitted { run, replayed: false } => (StatusCode::CREATED, CallAnswer::admitted(run)),
            Called::Admitted { run, replayed: true } => (StatusCode::OK, CallAnswer::admitted(run)),
            Called::Skipped(run) => (StatusCode::OK, CallAnswer::skipped(run)),
        };
        answer::json_response(status, &said)
    }
}

impl Answers for CallMade {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        let form = ("application/json", schemas.of_answer::<CallAnswer>());
        contract.answer(StatusCode::CREATED, "It started this run.", std::slice::from_ref(&form));
        let about =
            "The same call had started this run before; or a run of the task stands in the way, and none was started.";
        contract.answer(StatusCode::OK, about, &[form]);
        contract.problem(StatusCode::CONFLICT);
        contract.problem(StatusCode::TOO_MANY_REQUESTS);
    }
}

/// Who calls a webhook, by the token of that webhook alone.
pub(super) async fn identify(api: &Api, request: Request) -> Result<Request, ApiError> {
    let (mut parts, body) = request.into_parts();
    let origin = origin(parts.extensions.get())?;
    let caller = match (trigger(&mut parts, api).await, bearer(&parts.headers)?) {
        (Some(trigger), Some(token)) => holder(api, trigger, &token, origin).await?,
        // A name that none can have, or a text that no token is.
        _ => None,
    };
    parts.extensions.insert(caller.ok_or_else(not_callable)?);
    Ok(Request::from_parts(parts, body))
}

/// What everybody hears who may not call.
pub(super) fn not_callable() -> ApiError {
    ApiError::new(ProblemCode::Unauthenticated, Denied::NotCallable.to_string()).fix(
        "send `Authorization: Bearer <token>` with the token of this webhook; an operator makes one with \
         `leasehold task token`",
    )
}

fn origin(peer: Option<&Peer>) -> Result<Origin, ApiError> {
    match peer {
        Some(Peer::AdminSocket { .. }) => Ok(Origin::AdminSocket),
        Some(Peer::Operator { address }) => Ok(Origin::Address(IpAddr::to_canonical(&address.ip()))),
        Some(Peer::Ingress { .. }) | None => Err(not_callable()),
    }
}

async fn trigger(parts: &mut Parts, api: &Api) -> Option<TriggerKey> {
    let params = RawPathParams::from_request_parts(parts, api).await.ok()?;
    let named = |wanted: &str| params.iter().find(|(key, _)| *key == wanted).map(|(_, text)| text);
    Some(TriggerKey {
        project: named("project")?.parse().ok()?,
        task: named("task")?.parse().ok()?,
        name: named("trigger")?.parse().ok()?,
    })
}

/// The token of the one `Authorization`; two of them are refused whatever there is, before anything is looked for.
fn bearer(headers: &HeaderMap) -> Result<Option<WebhookToken>, ApiError> {
    let said = header::once(headers, header::AUTHORIZATION)?;
    let token = said.and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| WebhookToken::parse(token.trim()).ok())?
    });
    Ok(token)
}

async fn holder(
    api: &Api,
    trigger: TriggerKey,
    token: &WebhookToken,
    origin: Origin,
) -> Result<Option<WebhookCaller>, ApiError> {
    let caller = api.control.webhook_caller(trigger.clone(), token, origin).await?;
    if caller.is_some() {
        api.rates.draw(Key::Webhook(trigger)).map_err(too_often)?;
    }
    Ok(caller)
}

fn too_often(after: Millis) -> ApiError {
    ApiError::later(ProblemCode::RateLimited, "too many calls: this one started nothing", after)
}

/// The caller that [`identify`] found.
pub(super) struct ByWebhook(WebhookCaller);

impl FromRequestParts<Api> for ByWebhook {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        // Only a handler of another route could miss it.
        parts.extensions.get::<WebhookCaller>().cloned().map(Self).ok_or_else(not_callable)
    }
}

impl Takes for ByWebhook {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        let name = serde_json::json!({ "type": "string" });
        for (part, about) in [
            ("project", "The name of the project."),
            ("task", "The name of the task."),
            ("trigger", "The webhook's name in its task; `webhook` unless the task's file says another."),
        ] {
            contract.path_known_to_its_caller(part, about, &name);
        }
    }
}
