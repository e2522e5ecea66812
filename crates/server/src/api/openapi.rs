//! `GET /api/v1/openapi.json`: the API's description (`OpenAPI` 3.1), made from the registry of routes and nothing else.
//!
//! A route is described because it is mounted: its path, permission and words stand in the registry, the rest is read off its
//! handler. It says nothing about this installation, so anybody may read it.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use leasehold_wire::api::problem::Problem;
use leasehold_wire::v1::problem::CONTENT_TYPE as PROBLEM_JSON;
use serde_json::{Map, Value, json};

use super::answer::Json;
use super::describe::{Answers, Contract, Schemas};
use super::registry::{Needs, Route};

const ABOUT: &str = "\
The operator API of Leasehold: runs, tasks, projects and workers.\n\
\n\
* A request names nothing that is not known here: an unknown field, query name or value is refused with its place, what is \
allowed and the nearest known word. There is no `null` in any body, and no header that counts may stand twice.\n\
* Answers may grow fields; a client skips what it does not know.\n\
* A problem is `application/problem+json` with a stable `code`; `overloaded` was certainly not done, `unknown_outcome` only the \
same request again tells.\n\
* Lists come in pages: `next` of one is `after` of the following, and is missing on the last. A page begins behind the last \
item that was seen, so nothing is shown twice or left out because something else came or went.\n\
* `Idempotency-Key` makes creating safe to repeat; `If-Match` lets no edit overwrite another's; streams of server-sent events \
are resumed with `Last-Event-ID`.";

/// The description of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.of_answer::<Problem>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let mut contract = Contract::default();
        (route.describe)(&mut contract, &mut schemas);
        let method = method(&route.info.method);
        paths.entry(route.info.path).or_default().insert(method, operation(route, contract));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leasehold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The control plane that answers this." }],
        "paths": paths,
        "components": {
            "schemas": schemas.definitions(),
            "responses": {
                "Problem": {
                    "description": "It was not done.",
                    "content": { PROBLEM_JSON: { "schema": problem } },
                },
            },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "An API token; none on the admin socket." },
                "webhook": { "type": "http", "scheme": "bearer", "description": "The token of one webhook." },
            },
        },
    });
    without_null(&mut document);
    document
}

fn method(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

fn operation(route: &Route, contract: Contract) -> Value {
    let Contract { parameters, body, answers, mut problems } = contract;
    let info = &route.info;
    match info.needs {
        Needs::Nothing => {}
        Needs::Role(_) => problems.extend([StatusCode::UNAUTHORIZED.as_u16(), StatusCode::FORBIDDEN.as_u16()]),
        Needs::Webhook => problems.extend([StatusCode::UNAUTHORIZED.as_u16()]),
    }
    if info.needs != Needs::Nothing {
        // Two `Authorization` headers.
        problems.insert(StatusCode::BAD_REQUEST.as_u16());
    }
    let refused = || json!({ "$ref": "#/components/responses/Problem" });
    let mut responses = answers;
    responses.extend(problems.into_iter().map(|status| (status.to_string(), refused())));
    responses.insert("default".to_owned(), refused());
    let needs = match info.needs {
        Needs::Nothing => "Needs no token.".to_owned(),
        Needs::Role(role) => format!("Needs the role `{role}`."),
        Needs::Webhook => "Needs the webhook's own token, and no other.".to_owned(),
    };
    let mut operation = json!({
        "operationId": info.id,
        "tags": [tag(info.path)],
        "summary": info.about,
        "description": needs,
        "parameters": parameters,
        "responses": responses,
        "security": match info.needs {
            Needs::Nothing => json!([]),
            Needs::Role(_) => json!([{ "token": [] }]),
            Needs::Webhook => json!([{ "webhook": [] }]),
        },
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

/// What a route is about: the collection that its path names last of those that have their own pages.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | "api" | "v1"));
    let first = parts.next().unwrap_or_default();
    match parts.nth(1) {
        // `projects/{project}/…` is about what follows.
        Some(inner) if first == "projects" => {
            if inner.starts_with("task") {
                "tasks"
            } else {
                inner
            }
        }
        _ => first,
    }
}

/// Nothing is `null` on this API: what may be missing is missing.
fn without_null(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            let null = json!("null");
            if let Some(Value::Array(types)) = entries.get_mut("type") {
                types.retain(|one| *one != null);
                if let [only] = &types[..] {
                    let only = only.clone();
                    entries.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(names)) = entries.get_mut("enum") {
                names.retain(|one| !one.is_null());
            }
            if entries.get("default").is_some_and(Value::is_null) {
                entries.remove("default");
            }
            if let Some(Value::Array(any)) = entries.get_mut("anyOf") {
                any.retain(|one| one.get("type") != Some(&null));
                if let [Value::Object(only)] = &any[..] {
                    let only = only.clone();
                    entries.remove("anyOf");
                    entries.extend(only);
                }
            }
            entries.values_mut().for_each(without_null);
        }
        Value::Array(members) => members.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// The description as an answer.
pub(super) struct Description(Value);

impl axum::response::IntoResponse for Description {
    fn into_response(self) -> axum::response::Response {
        Json(self.0).into_response()
    }
}

impl Answers for Description {
    fn answers(contract: &mut Contract, _: &mut Schemas) {
        let schema = json!({ "type": "object", "required": ["openapi", "info", "paths"] });
        contract.answer(StatusCode::OK, "The description.", &[("application/json", schema)]);
    }
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn get() -> Description {
    Description(super::openapi())
}
