//! The API's description: every route is in it, and what the server answers is what it says.

use std::collections::BTreeSet;

use bytes::Bytes;
use hyper::{Method, Request, StatusCode};
use leasehold_server::routes;
use leasehold_wire::api::enrollment::EnrollmentAnswer;
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::webhook::WebhookTokenAnswer;
use serde_json::{Value, json};

use crate::fixture::{Answer, Cluster, get, post};

const TRUE: &str = r#"{"revision":{"command":{"argv":["true"]}}}"#;
const TASK: &str = r#"{"tasks":[{"name":"nightly","description":"x","command":{"script":"true"},"env":{"TZ":"UTC"},
    "params":{"DAY":{"default":"today"}},"limits":{"cpu":"1.5","timeout":"1h30m","concurrency":1},
    "placement":{"require":{"runtimes":{"python":">=3.11"},"gpu":{"count":2}},"prefer":[{"label":"disk=ssd","weight":10}]},
    "retry":{"max_attempts":3,"on_lost":"retry","safety":"idempotent"},
    "trigger":[{"cron":"* * * * *"},{"webhook":true,"overlap":"allow-all"}]}]}"#;

/// The description, whose objects have no field that it does not name.
fn closed() -> Value {
    let mut document = leasehold_server::openapi();
    close(&mut document["components"]["schemas"]);
    document
}

fn close(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            if entries.get("properties").is_some_and(Value::is_object) && !entries.contains_key("additionalProperties")
            {
                entries.insert("additionalProperties".to_owned(), false.into());
            }
            entries.values_mut().for_each(close);
        }
        Value::Array(members) => members.iter_mut().for_each(close),
        _ => {}
    }
}

fn mistakes(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let whole = json!({ "components": document["components"], "allOf": [schema] });
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&whole).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[tokio::test]
async fn every_route_is_described_and_anybody_may_read_it() {
    let cluster = Cluster::start().await;
    let served: Value = cluster.api(None, get(route::OPENAPI)).await.json();
    assert_eq!(served, leasehold_server::openapi());
    let mut ids = BTreeSet::new();
    for info in routes() {
        let operation = &served["paths"][info.path][info.method.as_str().to_ascii_lowercase()];
        assert!(operation.is_object(), "{} {} is not described", info.method, info.path);
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
        assert!(info.about.ends_with('.') && info.about.len() > 10, "{}: say what it does", info.path);
        let parts: BTreeSet<&str> = info.path.split(['{', '}']).skip(1).step_by(2).collect();
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let named = parameters.filter(|one| one["in"] == "path").map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(parts, named, "{} {}: the parts of the path", info.method, info.path);
    }
    let described = served["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len());
    assert_eq!(described.sum::<usize>(), ids.len(), "nothing is described that is not there");
    let text = served.to_string();
    assert!(!text.contains("\"null\"") && !text.contains(":null"), "nothing is null on this API");
    cluster.stop().await;
}

/// A server that is asked for everything, each answer compared with the description.
struct Asked<'a> {
    cluster: &'a Cluster,
    document: Value,
    seen: BTreeSet<(String, &'static str)>,
}

impl Asked<'_> {
    async fn ask(&mut self, method: Method, template: &'static str, path: &str, body: &str) -> Answer {
        let token = self.cluster.token.clone();
        self.ask_with(&token, method, template, path, body).await
    }

    async fn ask_with(
        &mut self,
        token: &str,
        method: Method,
        template: &'static str,
        path: &str,
        body: &str,
    ) -> Answer {
        let mut request: Request<Bytes> = if method == Method::GET { get(path) } else { post(path, body.to_owned()) };
        *request.method_mut() = method.clone();
        if (&method, template) == (&Method::PUT, route::TASK) {
            request.headers_mut().insert("if-match", "*".parse().unwrap());
        }
        let answer = self.cluster.api(Some(token), request).await;
        let name = method.as_str().to_ascii_lowercase();
        let operation = &self.document["paths"][template][&name];
        let what = format!("{name} {path}: {} {}", answer.status, answer.text());
        assert!(answer.status.is_success(), "{what}");
        let kind = answer.headers["content-type"].to_str().unwrap();
        let content = &operation["responses"][answer.status.as_str()]["content"];
        let form = content.as_object().unwrap_or_else(|| panic!("undescribed status: {what}"));
        let schema = form.iter().find(|(described, _)| kind.starts_with(described.as_str()));
        let (described, schema) = schema.unwrap_or_else(|| panic!("undescribed {kind}: {what}"));
        if described == "application/json" && template != route::OPENAPI {
            let value: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(mistakes(&self.document, &schema["schema"], &value), Vec::<String>::new(), "{what}");
        }
        if !body.is_empty() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let value = serde_json::from_str(body).unwrap();
            assert_eq!(mistakes(&self.document, schema, &value), Vec::<String>::new(), "{name} {path}: {body}");
        }
        self.seen.insert((method.to_string(), template));
        answer
    }
}

#[tokio::test]
async fn what_the_server_answers_is_what_the_description_says() {
    let cluster = Cluster::start().await;
    let mut asked = Asked { cluster: &cluster, document: closed(), seen: BTreeSet::new() };
    for path in [route::HEALTHZ, route::READYZ, route::METRICS, route::VERSION, route::OPENAPI] {
        asked.ask(Method::GET, path, path, "").await;
    }
    let lab = |template| route::of_project(template, "lab");
    let body = r#"{"name":"lab","concurrency":2}"#;
    let first = asked.ask(Method::POST, route::PROJECTS, route::PROJECTS, body).await;
    let again = asked.ask(Method::POST, route::PROJECTS, route::PROJECTS, body).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    asked.ask(Method::PUT, route::PROJECT, &lab(route::PROJECT), r#"{"concurrency":3}"#).await;
    asked.ask(Method::GET, route::PROJECT, &lab(route::PROJECT), "").await;
    asked.ask(Method::GET, route::PROJECTS, "/api/v1/projects?limit=1", "").await;

    let nightly = |template| route::of_task(template, "lab", "nightly");
    asked.ask(Method::POST, route::TASKS_PLAN, &lab(route::TASKS_PLAN), TASK).await;
    asked.ask(Method::PUT, route::TASKS, &lab(route::TASKS), TASK).await;
    asked.ask(Method::GET, route::TASKS, &lab(route::TASKS), "").await;
    asked.ask(Method::GET, route::TASK, &nightly(route::TASK), "").await;
    asked.ask(Method::GET, route::TASK_REVISIONS, &nightly(route::TASK_REVISIONS), "").await;
    let revision = nightly(route::TASK_REVISION).replace("{number}", "1");
    asked.ask(Method::GET, route::TASK_REVISION, &revision, "").await;
    asked.ask(Method::POST, route::TASK_RUNS, &nightly(route::TASK_RUNS), "").await;
    asked.ask(Method::GET, route::SCHEDULES, &format!("{}?task=nightly&limit=1", lab(route::SCHEDULES)), "").await;
    let next = format!("{}?count=3&trigger=cron", nightly(route::TASK_FIRE_TIMES));
    asked.ask(Method::GET, route::TASK_FIRE_TIMES, &next, "").await;
    asked.ask(Method::POST, route::TASK_PAUSE, &nightly(route::TASK_PAUSE), r#"{"trigger":"cron","why":"x"}"#).await;
    asked.ask(Method::GET, route::SCHEDULES, &lab(route::SCHEDULES), "").await;
    asked.ask(Method::POST, route::TASK_RESUME, &nightly(route::TASK_RESUME), r#"{"trigger":"cron"}"#).await;
    let times = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:05:00Z"}"#;
    asked.ask(Method::POST, route::TASK_BACKFILL, &nightly(route::TASK_BACKFILL), times).await;
    asked.ask(Method::GET, route::TASK_LEDGER, &nightly(route::TASK_LEDGER), "").await;
    let of = |template| route::of_trigger(template, "lab", "nightly", "webhook");
    let made = asked.ask(Method::POST, route::TRIGGER_TOKEN, &of(route::TRIGGER_TOKEN), "").await;
    let made: WebhookTokenAnswer = made.json();
    let call = r#"{"params":{"DAY":"monday"}}"#;
    asked.ask_with(made.token.reveal(), Method::POST, route::HOOK, &of(route::HOOK), call).await;
    asked.ask(Method::GET, route::SCHEDULES, &lab(route::SCHEDULES), "").await;
    asked.ask(Method::PUT, route::TASK, &nightly(route::TASK), r#"{"command":{"argv":["true"]}}"#).await;
    let deleted = format!("{}?cascade=true", nightly(route::TASK));
    asked.ask(Method::DELETE, route::TASK, &deleted, "").await;
    asked.ask(Method::DELETE, route::PROJECT, &lab(route::PROJECT), "").await;

    let invited = asked.ask(Method::POST, route::ENROLLMENTS, route::ENROLLMENTS, r#"{"labels":{"a":"b"},"ttl":"5m"}"#);
    assert!(!invited.await.json::<EnrollmentAnswer>().worker.as_str().is_empty());
    let machine = cluster.agent("box").await;
    let here = |template| route::of_worker(template, "box");
    let run: RunDetail = asked.ask(Method::POST, route::RUNS, route::RUNS, TRUE).await.json();
    let of = |template| route::of_run(template, &run.item.id.to_string());
    for template in [route::RUN, route::RUN_LOG, route::RUN_EVENTS, route::RUN_EXPLANATION] {
        asked.ask(Method::GET, template, &of(template), "").await;
    }
    asked.ask(Method::GET, route::RUNS, "/api/v1/runs?limit=1&state=pending", "").await;
    asked.ask(Method::POST, route::RUN_CANCEL, &of(route::RUN_CANCEL), r#"{"why":"wrong box"}"#).await;
    asked.ask(Method::GET, route::WORKERS, route::WORKERS, "").await;
    asked.ask(Method::POST, route::WORKER_DRAIN, &here(route::WORKER_DRAIN), r#"{"why":"new disk"}"#).await;
    asked.ask(Method::POST, route::WORKER_TAKEOVER, &here(route::WORKER_TAKEOVER), r#"{"ttl":"1h"}"#).await;
    asked.ask(Method::GET, route::WORKER, &here(route::WORKER), "").await;
    asked.ask(Method::POST, route::WORKER_RESUME, &here(route::WORKER_RESUME), "").await;
    asked.ask(Method::DELETE, route::WORKER, &here(route::WORKER), r#"{"destroyed":true}"#).await;
    asked.ask(Method::GET, route::AUDIT, "/api/v1/audit?newest=true", "").await;

    // The answer of `resolve` needs a lost run: its golden file stands for it below.
    asked.seen.insert((Method::POST.to_string(), route::RUN_RESOLVE));
    for info in routes() {
        let seen = asked.seen.contains(&(info.method.to_string(), info.path));
        assert!(
            seen,
            "{} {}: ask for it here, so that its answer is compared with its description",
            info.method, info.path
        );
    }
    drop(machine);
    cluster.stop().await;
}

#[test]
fn every_answer_that_is_kept_as_a_file_fits_its_schema() {
    let document = closed();
    let of = |operation: (&str, &str), status: &str| {
        let answer = &document["paths"][operation.1][operation.0]["responses"][status];
        answer["content"]["application/json"]["schema"].clone()
    };
    let problem =
        document["components"]["responses"]["Problem"]["content"]["application/problem+json"]["schema"].clone();
    let files = [
        ("audit", of(("get", route::AUDIT), "200")),
        ("cancel-answer", of(("post", route::RUN_CANCEL), "200")),
        ("delete-answer", of(("delete", route::WORKER), "200")),
        ("drain-answer", of(("post", route::WORKER_DRAIN), "200")),
        ("enrollment-answer", of(("post", route::ENROLLMENTS), "201")),
        ("problem-invalid", problem.clone()),
        ("problem-not-found", problem),
        ("project-answer", of(("post", route::PROJECTS), "201")),
        ("project-deleted", of(("delete", route::PROJECT), "200")),
        ("project-list", of(("get", route::PROJECTS), "200")),
        ("resolve-answer", of(("post", route::RUN_RESOLVE), "200")),
        ("run-detail", of(("get", route::RUN), "200")),
        ("run-events", of(("get", route::RUN_EVENTS), "200")),
        ("run-explanation", of(("get", route::RUN_EXPLANATION), "200")),
        ("run-explanation-limited", of(("get", route::RUN_EXPLANATION), "200")),
        ("run-explanation-lost", of(("get", route::RUN_EXPLANATION), "200")),
        ("run-list", of(("get", route::RUNS), "200")),
        ("version", of(("get", route::VERSION), "200")),
        ("worker-detail", of(("get", route::WORKER), "200")),
        ("worker-list", of(("get", route::WORKERS), "200")),
    ];
    for (name, schema) in files {
        assert!(schema.is_object(), "{name}: no such answer is described");
        let path = format!("{}/../wire/tests/golden-api/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(mistakes(&document, &schema, &value), Vec::<String>::new(), "{name}");
        let mut wrong = value;
        wrong["not_described"] = true.into();
        assert!(!mistakes(&document, &schema, &wrong).is_empty(), "{name}: the schema is open");
    }
}
