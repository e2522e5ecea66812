//! Webhooks over HTTP: whoever may not call hears the same, whatever there is; calls are bounded; no token opens another door.

use bytes::Bytes;
use hyper::{Request, StatusCode};
use leasehold_core::crypto::{ApiToken, WebhookToken};
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_server::{Needs, routes};
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::route;
use leasehold_wire::api::run::{RunDetail, RunItem};
use leasehold_wire::api::schedule::ScheduleItem;
use leasehold_wire::api::webhook::{CallAnswer, CallOutcome, WebhookTokenAnswer};

use crate::fixture::{Answer, Cluster, get, post};

/// `report` with a webhook `push` of this overlap, and a schedule.
fn tasks(overlap: &str) -> String {
    format!(
        r#"{{"tasks":[{{"name":"report","command":{{"argv":["true"]}},"params":{{"DAY":{{"default":"today"}}}},
        "trigger":[{{"webhook":true,"name":"push","overlap":"{overlap}"}},{{"cron":"@daily"}}]}}]}}"#
    )
}

fn hook(task: &str, trigger: &str) -> String {
    route::of_trigger(route::HOOK, "default", task, trigger)
}

fn keyed(path: &str, key: &str, body: &str) -> Request<Bytes> {
    let mut request = post(path, body.to_owned());
    request.headers_mut().insert(route::IDEMPOTENCY_KEY, key.parse().unwrap());
    request
}

impl Cluster {
    async fn tasks(&self, overlap: &str) {
        let mut request = post(&route::of_project(route::TASKS, "default"), tasks(overlap));
        *request.method_mut() = hyper::Method::PUT;
        let answer = self.api(Some(&self.token), request).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }

    async fn hook_token(&self) -> WebhookTokenAnswer {
        let path = route::of_trigger(route::TRIGGER_TOKEN, "default", "report", "push");
        let answer = self.api(Some(&self.token), post(&path, "")).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        assert_eq!(answer.headers["cache-control"], "no-store");
        answer.json()
    }

    async fn call(&self, token: &str, path: &str, body: &str) -> Answer {
        self.api(Some(token), post(path, body.to_owned())).await
    }
}

#[tokio::test]
async fn a_webhook_is_called_with_its_token_and_tells_no_more_than_its_run() {
    let cluster = Cluster::start().await;
    cluster.tasks("skip").await;
    let made = cluster.hook_token().await;
    assert_eq!(made.path, hook("report", "push"));
    assert!(!cluster.dump().contains(made.token.reveal()), "only its digest is kept");
    let token = made.token.reveal();
    let first = cluster.call(token, &made.path, r#"{"params":{"DAY":"monday"}}"#).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let first: CallAnswer = first.json();
    let run = first.run_id.unwrap();
    assert_eq!(first, CallAnswer::admitted(run));
    let skipped = cluster.call(token, &made.path, "").await;
    assert_eq!(skipped.status, StatusCode::OK);
    let skipped: CallAnswer = skipped.json();
    assert_eq!((skipped.outcome, skipped.by_run_id), (CallOutcome::Skipped, Some(run)));
    let shown: RunDetail =
        cluster.api(Some(&cluster.token), get(&route::of_run(route::RUN, &run.to_string()))).await.json();
    assert_eq!(shown.item.trigger.map(|name| name.to_string()).as_deref(), Some("push"));
    assert_eq!(shown.item.scheduled_at, None);
    let audit: Page<AuditEntry> = cluster.admin(get("/api/v1/audit?newest=true&limit=1")).await.json();
    let row = &audit.items[0];
    assert_eq!((row.actor.as_str(), row.origin.as_deref()), ("webhook:report/push", Some("127.0.0.1")));
    let listed: Page<ScheduleItem> =
        cluster.api(Some(&cluster.token), get(&route::of_project(route::SCHEDULES, "default"))).await.json();
    let told: Vec<_> = listed.items.iter().map(|item| (item.id.trigger.as_str(), item.token_made_at)).collect();
    assert_eq!(told, [("cron", None), ("push", Some(made.made_at))]);
    cluster.stop().await;
}

#[tokio::test]
async fn whoever_may_not_call_hears_the_same_whatever_there_is() {
    let cluster = Cluster::start().await;
    cluster.tasks("skip").await;
    let unknown = WebhookToken::from_bytes([9; 32]).reveal();
    let no_token_yet = cluster.call(&unknown, &hook("report", "push"), "").await;
    let made = cluster.hook_token().await;
    let right = made.token.reveal();
    let before = cluster.dump();
    let mut answers = vec![no_token_yet];
    for (token, path) in [
        (unknown.as_str(), hook("report", "push")),
        (right, hook("report", "cron")),
        (right, hook("report", "pull")),
        (right, hook("other", "push")),
        (right, route::of_trigger(route::HOOK, "lab", "report", "push")),
        (right, hook("Not A Name", "push")),
        ("not-a-token", hook("report", "push")),
        (cluster.token.as_str(), hook("report", "push")),
        (&ApiToken::from_bytes([9; 32]).reveal(), hook("report", "push")),
    ] {
        answers.push(cluster.call(token, &path, "").await);
    }
    answers.push(cluster.api(None, post(&made.path, "")).await);
    answers.push(cluster.admin(post(&made.path, "")).await);
    // What is wrong with the rest of a request is told to its caller alone.
    answers.push(cluster.call(&unknown, &made.path, "no json").await);
    answers.push(cluster.api(Some(&unknown), keyed(&made.path, "two words", "")).await);
    let expected = answers[0].text();
    for answer in &answers {
        assert_eq!((answer.status, answer.text()), (StatusCode::UNAUTHORIZED, expected.clone()));
        assert_eq!(answer.headers["www-authenticate"], answers[0].headers["www-authenticate"]);
    }
    assert_eq!(answers[0].problem().code, ProblemCode::Unauthenticated);
    assert_eq!(cluster.dump(), before);
    assert_eq!(cluster.call(right, &made.path, "").await.status, StatusCode::CREATED);
    cluster.stop().await;
}

#[tokio::test]
async fn its_token_opens_no_other_route() {
    let cluster = Cluster::start().await;
    cluster.tasks("skip").await;
    let made = cluster.hook_token().await;
    let before = cluster.dump();
    for info in routes().into_iter().filter(|info| matches!(info.needs, Needs::Role(_))) {
        let mut request = post(&info.path.replace("{project}", "default").replace("{task}", "report"), "");
        *request.method_mut() = info.method.clone();
        let answer = cluster.api(Some(made.token.reveal()), request).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{} {}", info.method, info.path);
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn another_token_takes_its_place_and_a_key_is_refused_there() {
    let cluster = Cluster::start().await;
    cluster.tasks("allow-all").await;
    let first = cluster.hook_token().await;
    assert_eq!(cluster.call(first.token.reveal(), &first.path, "").await.status, StatusCode::CREATED);
    let second = cluster.hook_token().await;
    assert_eq!(cluster.call(first.token.reveal(), &first.path, "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(cluster.call(second.token.reveal(), &first.path, "").await.status, StatusCode::CREATED);
    let path = route::of_trigger(route::TRIGGER_TOKEN, "default", "report", "push");
    let refused = cluster.api(Some(&cluster.token), keyed(&path, "k", "")).await.problem();
    assert_eq!((refused.code, refused.errors[0].path.as_str()), (ProblemCode::InvalidRequest, "Idempotency-Key"));
    for (trigger, what) in [("cron", "webhook"), ("pull", "webhook")] {
        let path = route::of_trigger(route::TRIGGER_TOKEN, "default", "report", trigger);
        let refused = cluster.api(Some(&cluster.token), post(&path, "")).await.problem();
        assert!(refused.detail.contains(what), "{}", refused.detail);
        assert_eq!(refused.code, ProblemCode::NotFound);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_token_is_made_of_nothing_that_is_said() {
    let cluster = Cluster::start().await;
    cluster.tasks("allow-all").await;
    let made = cluster.hook_token().await;
    let path = route::of_trigger(route::TRIGGER_TOKEN, "default", "report", "push");
    let before = cluster.dump();
    for (body, code) in [
        (r#"{"ttl":"1h"}"#, ProblemCode::UnknownField),
        ("[]", ProblemCode::InvalidRequest),
        ("no json", ProblemCode::InvalidRequest),
    ] {
        assert_eq!(cluster.api(Some(&cluster.token), post(&path, body)).await.problem().code, code, "{body}");
    }
    assert_eq!(cluster.dump(), before);
    assert_eq!(
        cluster.call(made.token.reveal(), &made.path, "").await.status,
        StatusCode::CREATED,
        "its token counts still"
    );
    assert_eq!(cluster.api(Some(&cluster.token), post(&path, "{}")).await.status, StatusCode::CREATED);
    cluster.stop().await;
}

#[tokio::test]
async fn two_tokens_at_once_are_refused_whatever_there_is() {
    let cluster = Cluster::start().await;
    cluster.tasks("skip").await;
    let made = cluster.hook_token().await;
    let before = cluster.dump();
    for path in [hook("report", "push"), hook("report", "pull"), hook("other", "push")] {
        let mut request = post(&path, "");
        for token in [made.token.reveal(), "another"] {
            request.headers_mut().append("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let answer = cluster.api(None, request).await;
        assert!(!answer.text().contains(made.token.reveal()), "{}", answer.text());
        let refused = answer.problem();
        assert_eq!((refused.status, refused.errors[0].path.as_str()), (400, "Authorization"), "{path}");
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_key_a_pause_and_a_wrong_body_are_told_to_its_caller() {
    let cluster = Cluster::start().await;
    cluster.tasks("allow-all").await;
    let made = cluster.hook_token().await;
    let token = made.token.reveal();
    let call = |key: &'static str, body: &'static str| cluster.api(Some(token), keyed(&made.path, key, body));
    let (first, again) = (call("k", "").await, call("k", "").await);
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json::<CallAnswer>(), again.json::<CallAnswer>());
    assert_eq!(call("k", r#"{"params":{"DAY":"monday"}}"#).await.problem().code, ProblemCode::KeyReused);
    assert_eq!(call("two words", "").await.problem().code, ProblemCode::InvalidRequest);
    let operators = keyed(&route::of_task(route::TASK_RUNS, "default", "report"), "k", "");
    assert_eq!(cluster.api(Some(&cluster.token), operators).await.status, StatusCode::CREATED, "their key is another");
    let typo = cluster.call(token, &made.path, r#"{"parms":{}}"#).await.problem();
    assert_eq!((typo.code, typo.errors[0].nearest.as_deref()), (ProblemCode::UnknownField, Some("params")));
    let stranger = cluster.call(token, &made.path, r#"{"params":{"DAYS":"x"}}"#).await.problem();
    assert_eq!(stranger.detail, "`params.DAYS`: unknown key, did you mean `DAY`?");
    let pause = |verb| post(&route::of_task(verb, "default", "report"), r#"{"trigger":"push","why":"private words"}"#);
    cluster.api(Some(&cluster.token), pause(route::TASK_PAUSE)).await;
    let paused = cluster.call(token, &made.path, "").await;
    assert!(!paused.text().contains("private words"), "{}", paused.text());
    assert_eq!((paused.status, paused.problem().code), (StatusCode::CONFLICT, ProblemCode::Paused));
    cluster.api(Some(&cluster.token), pause(route::TASK_RESUME)).await;
    assert_eq!(cluster.call(token, &made.path, "").await.status, StatusCode::CREATED);
    let runs: Page<RunItem> = cluster.api(Some(&cluster.token), get(route::RUNS)).await.json();
    assert_eq!(runs.items.len(), 3);
    cluster.stop().await;
}

#[tokio::test]
async fn calls_are_bounded_and_nobody_elses_keep_the_tokens_holder_out() {
    let cluster = Cluster::start().await;
    cluster.tasks("allow-all").await;
    let made = cluster.hook_token().await;
    let token = made.token.reveal();
    let wrong = WebhookToken::from_bytes([9; 32]).reveal();
    for _ in 0..3 * limits::WEBHOOK_CALLS_BURST {
        assert_eq!(cluster.call(&wrong, &made.path, "").await.status, StatusCode::UNAUTHORIZED);
    }
    for _ in 0..limits::WEBHOOK_CALLS_BURST {
        assert_eq!(cluster.call(token, &made.path, "").await.status, StatusCode::CREATED);
    }
    let before = cluster.dump();
    let refused = cluster.call(token, &made.path, "").await;
    assert_eq!(refused.headers["retry-after"].to_str().unwrap(), "1");
    assert_eq!(refused.problem().code, ProblemCode::RateLimited);
    assert_eq!(cluster.dump(), before);
    cluster.clock.advance_boot(Millis::from_secs(1));
    assert_eq!(cluster.call(token, &made.path, "").await.status, StatusCode::CREATED);
    assert_eq!(cluster.call(token, &made.path, "").await.status, StatusCode::TOO_MANY_REQUESTS);
    let another = cluster.hook_token().await;
    let refused = cluster.call(another.token.reveal(), &made.path, "").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "the calls are the webhook's, whichever its token is");
    cluster.stop().await;
}
