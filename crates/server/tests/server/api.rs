//! The operator routes: who may use which, and what bad input gets.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use hyper::{Method, Request, StatusCode};
use leasehold_core::role::Role;
use leasehold_core::time::UtcMillis;
use leasehold_server::{Needs, routes};
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::cancel::CancelAnswer;
use leasehold_wire::api::enrollment::EnrollmentAnswer;
use leasehold_wire::api::explanation::RunExplanation;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::project::ProjectAnswer;
use leasehold_wire::api::route;
use leasehold_wire::api::run::{RunDetail, RunItem};
use leasehold_wire::api::version::Version;
use leasehold_wire::api::worker::{WorkerDetail, WorkerItem};

use crate::fixture::{Cluster, get, post};

const NOBODY: &str = "01900000-0000-7000-8000-000000000001";
const TRUE: &str = r#"{"revision":{"command":{"argv":["true"]}}}"#;

fn request_of(method: &Method, path: &str) -> Request<Bytes> {
    let path = path.replace("{run}", NOBODY).replace("{worker}", "nobody");
    if *method == Method::GET {
        return get(&path);
    }
    let mut request = post(&path, "");
    *request.method_mut() = method.clone();
    request
}

#[tokio::test]
async fn every_route_asks_for_exactly_the_role_that_it_declares() {
    for role in Role::ALL {
        let cluster = Cluster::with_token(*role, None).await;
        for info in routes() {
            let answer = cluster.api(Some(&cluster.token), request_of(&info.method, info.path)).await;
            let allowed = match info.needs {
                Needs::Nothing => true,
                Needs::Role(needed) => role.includes(needed),
                // No role opens it, and nobody is told whether it is there.
                Needs::Webhook => {
                    assert_eq!(answer.problem().code, ProblemCode::Unauthenticated, "{role}");
                    continue;
                }
            };
            let what = format!("{} {} as {role}", info.method, info.path);
            if allowed {
                let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
                assert!(!refused.contains(&answer.status), "{what}: {}", answer.text());
            } else {
                assert_eq!(answer.problem().code, ProblemCode::Forbidden, "{what}");
            }
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn without_a_token_only_what_is_public_answers() {
    let cluster = Cluster::start().await;
    let before = cluster.dump();
    let unknown = leasehold_core::crypto::ApiToken::from_bytes([9; 32]).reveal();
    for info in routes() {
        for token in [None, Some("not-a-token"), Some(unknown.as_str())] {
            let answer = cluster.api(token, request_of(&info.method, info.path)).await;
            if info.needs == Needs::Nothing {
                assert_eq!(answer.status, StatusCode::OK, "{}", info.path);
            } else {
                assert_eq!(answer.problem().code, ProblemCode::Unauthenticated, "{} {token:?}", info.path);
                assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
                assert!(!answer.text().contains(&unknown), "a token is never repeated");
            }
        }
    }
    let mut basic = get(route::RUNS);
    basic.headers_mut().insert("authorization", "Basic dXNlcjpwYXNz".parse().unwrap());
    let answer = cluster.api(None, basic).await;
    assert_eq!(answer.problem().code, ProblemCode::Unauthenticated);
    assert!(!answer.text().contains("dXNlcjpwYXNz"));
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn an_expired_token_is_nobodys() {
    let cluster = Cluster::with_token(Role::Admin, Some(UtcMillis::new(1_800_000_060_000))).await;
    assert_eq!(cluster.api(Some(&cluster.token), get(route::RUNS)).await.status, StatusCode::OK);
    cluster.clock.advance_utc(leasehold_core::time::Millis::from_secs(60));
    assert_eq!(cluster.api(Some(&cluster.token), get(route::RUNS)).await.problem().code, ProblemCode::Unauthenticated);
    cluster.stop().await;
}

#[tokio::test]
async fn the_admin_socket_needs_no_token_and_is_nobody_elses() {
    let cluster = Cluster::start().await;
    let path = cluster.bound.admin_socket.clone().unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let run: RunDetail = cluster.admin(post(route::RUNS, TRUE)).await.json();
    let audit: Page<AuditEntry> = cluster.admin(get(route::AUDIT)).await.json();
    let row = audit.items.iter().find(|row| row.subject == format!("run/{}", run.item.id)).unwrap();
    assert_eq!(row.actor, format!("local:{}", rustix::process::geteuid().as_raw()));
    assert_eq!(row.origin.as_deref(), Some("admin socket"));
    let run: RunDetail = cluster.api(Some(&cluster.token), post(route::RUNS, TRUE)).await.json();
    let audit: Page<AuditEntry> = cluster.admin(get(&format!("{}?newest=true&limit=1", route::AUDIT))).await.json();
    let row = &audit.items[0];
    assert_eq!((row.subject.clone(), row.origin.as_deref()), (format!("run/{}", run.item.id), Some("127.0.0.1")));
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let delete = Request::delete(route::RUNS).body(Bytes::new()).unwrap();
    let wrong = cluster.api(token, delete).await;
    assert_eq!(wrong.headers["allow"], "GET,HEAD,POST");
    assert_eq!(wrong.problem().code, ProblemCode::MethodNotAllowed);
    for (request, code) in [
        (get("/"), ProblemCode::NotFound),
        (get("/api/v1/secrets"), ProblemCode::NotFound),
        (get(&route::of_run(route::RUN, NOBODY)), ProblemCode::NotFound),
        (get(&route::of_run(route::RUN, "0190")), ProblemCode::NotFound),
        (get(&route::of_run(route::RUN, "../workers")), ProblemCode::InvalidRequest),
        (get(&route::of_run(route::RUN_LOG, NOBODY)), ProblemCode::NotFound),
        (get(&route::of_run(route::RUN_EVENTS, NOBODY)), ProblemCode::NotFound),
        (get(&route::of_run(route::RUN_EXPLANATION, NOBODY)), ProblemCode::NotFound),
        (post(&route::of_run(route::RUN_CANCEL, NOBODY), "{}"), ProblemCode::NotFound),
        (get(&route::of_worker(route::WORKER, "nobody")), ProblemCode::NotFound),
        (get(&route::of_worker(route::WORKER, "Not A Name")), ProblemCode::NotFound),
    ] {
        let what = request.uri().to_string();
        assert_eq!(cluster.api(token, request).await.problem().code, code, "{what}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn bad_input_is_named_with_what_is_allowed_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let before = cluster.dump();
    let deep = format!("{{\"revision\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let large = format!("{TRUE}{}", " ".repeat(leasehold_core::limits::REVISION_BODY));
    for (body, code, path) in [
        ("{}", ProblemCode::InvalidRequest, "revision"),
        ("", ProblemCode::InvalidRequest, ""),
        ("run true", ProblemCode::InvalidRequest, ""),
        (deep.as_str(), ProblemCode::InvalidRequest, ""),
        (large.as_str(), ProblemCode::LimitExceeded, ""),
        (
            r#"{"revision":{"comand":{"argv":["true"]},"command":{"argv":["true"]}}}"#,
            ProblemCode::UnknownField,
            "revision.comand",
        ),
        (r#"{"revision":{"command":{"argv":[]}}}"#, ProblemCode::InvalidRequest, "revision.command.argv"),
    ] {
        let problem = cluster.api(token, post(route::RUNS, body.to_owned())).await.problem();
        let shown: String = body.chars().take(80).collect();
        assert_eq!((problem.code, problem.errors[0].path.as_str()), (code, path), "{shown}");
    }
    let slip = r#"{"revision":{"comand":{"argv":["true"]},"command":{"argv":["true"]}}}"#;
    let problem = cluster.api(token, post(route::RUNS, slip)).await.problem();
    assert_eq!(problem.errors[0].nearest.as_deref(), Some("command"));

    let mut form = post(route::RUNS, TRUE);
    form.headers_mut().insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    assert_eq!(cluster.api(token, form).await.problem().code, ProblemCode::UnsupportedMediaType);

    for (query, field, nearest) in [
        ("statte=lost", "statte", Some("state")),
        ("state=dead", "state", None),
        ("limit=0", "limit", None),
        ("limit=65", "limit", None),
        ("limit=1&limit=2", "limit", None),
        ("limit=x", "limit", None),
        ("since=yesterday", "since", None),
        ("after=7", "after", None),
    ] {
        let problem = cluster.api(token, get(&format!("{}?{query}", route::RUNS))).await.problem();
        assert_eq!(problem.errors[0].path, field, "{query}");
        assert_eq!(problem.errors[0].nearest.as_deref(), nearest, "{query}");
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn what_a_query_may_say_is_told_once() {
    let cluster = Cluster::start().await;
    let runs = route::RUNS;
    for (path, told) in [
        (format!("{runs}?after=7"), "`after`: got 7, expected a lower-case UUIDv7 such as"),
        (format!("{runs}?state=dead"), "`state`: got dead, expected one of pending, "),
        (format!("{runs}?since=yesterday"), "`since`: got yesterday, expected RFC 3339, such as "),
        (format!("{runs}?colour=red"), "`colour`: unknown key, known are after, limit, project, since, state, task"),
        ("/api/v1/projects/default?colour=red".to_owned(), "`colour`: unknown key, none is known here"),
        ("/api/v1/projects/default/schedules?after=7".to_owned(), "`after`: got 7, expected what the page before said"),
        ("/api/v1/projects/default/tasks/a/revisions?after=x".to_owned(), "`after`: got x, expected 1, 2, 3 …"),
        ("/api/v1/projects/default/tasks/a/revisions/x".to_owned(), "there is no such revision: "),
        ("/api/v1/projects/default/tasks/a/revisions/7".to_owned(), "there is no revision 7 of task `a`"),
    ] {
        let problem = cluster.api(Some(&cluster.token), get(&path)).await.problem();
        assert!(problem.detail.starts_with(told), "{path}: {}", problem.detail);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_header_that_may_stand_once_does_not_stand_twice() {
    let cluster = Cluster::start().await;
    let run = cluster.api(Some(&cluster.token), post(route::RUNS, TRUE)).await.json::<RunDetail>().item.id;
    let before = cluster.dump();
    let bearer = format!("Bearer {}", cluster.token);
    let twice = |mut request: Request<Bytes>, name: &'static str, value: &str| {
        request.headers_mut().remove(name);
        for _ in 0..2 {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    };
    let of_run = |template| route::of_run(template, &run.to_string());
    let lab = route::of_project(route::PROJECT, "default");
    for (request, name) in [
        (twice(get(route::RUNS), "authorization", &bearer), "Authorization"),
        (twice(post(route::RUNS, TRUE), "content-type", "application/json"), "Content-Type"),
        (twice(post(route::RUNS, TRUE), "idempotency-key", "k"), "Idempotency-Key"),
        (twice(with(Method::PUT, &lab, ("", ""), "{}"), "if-match", "*"), "If-Match"),
        (twice(get(&format!("{}?follow=1", of_run(route::RUN_EVENTS))), "last-event-id", "1"), "Last-Event-ID"),
        (twice(get(&of_run(route::RUN_LOG)), "last-event-id", "1:0"), "Last-Event-ID"),
    ] {
        let token = (name != "Authorization").then_some(cluster.token.as_str());
        let answer = cluster.api(token, request).await;
        assert!(!answer.text().contains(&cluster.token), "{}", answer.text());
        let refused = answer.problem();
        assert_eq!((refused.status, refused.errors[0].path.as_str()), (400, name), "{}", refused.detail);
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_no_empty_list() {
    let cluster = Cluster::start().await;
    let task = r#"{"tasks":[{"name":"report","command":{"argv":["true"]},"trigger":[{"cron":"@daily"}]}]}"#;
    let apply = with(Method::PUT, &route::of_project(route::TASKS, "default"), ("", ""), task);
    assert_eq!(cluster.api(Some(&cluster.token), apply).await.status, StatusCode::OK);
    for (path, told) in [
        ("default/schedules?task=gone", "there is no task `gone`"),
        ("lab/schedules", "there is no project `lab`"),
        ("lab/tasks", "there is no project `lab`"),
        ("lab/tasks/report/ledger", "there is no task `report`"),
        ("default/tasks/gone/ledger", "there is no task `gone`"),
        ("default/tasks/report/ledger?trigger=corn", "there is no trigger `corn` of task `report`"),
        ("default/tasks/report/fire-times?trigger=corn", "there is no trigger `corn` of task `report`"),
    ] {
        let problem = cluster.api(Some(&cluster.token), get(&format!("/api/v1/projects/{path}"))).await.problem();
        assert_eq!((problem.code, problem.detail.as_str()), (ProblemCode::NotFound, told), "{path}");
    }
    for path in
        ["default/schedules?task=report", "default/tasks/report/ledger", "default/tasks/report/ledger?trigger=cron"]
    {
        let answer = cluster.api(Some(&cluster.token), get(&format!("/api/v1/projects/{path}"))).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_deletion_says_all_in_its_query_and_headers() {
    let cluster = Cluster::start().await;
    let task = r#"{"tasks":[{"name":"report","command":{"argv":["true"]}}]}"#;
    let apply = with(Method::PUT, &route::of_project(route::TASKS, "default"), ("", ""), task);
    cluster.api(Some(&cluster.token), apply).await;
    let path = route::of_task(route::TASK, "default", "report");
    let before = cluster.dump();
    let said = with(Method::DELETE, &path, ("", ""), r#"{"cascade":true}"#);
    assert_eq!(cluster.api(Some(&cluster.token), said).await.problem().code, ProblemCode::UnknownField);
    assert_eq!(cluster.dump(), before);
    let nothing = with(Method::DELETE, &path, ("", ""), "{}");
    assert_eq!(cluster.api(Some(&cluster.token), nothing).await.status, StatusCode::OK);
    cluster.stop().await;
}

#[tokio::test]
async fn a_number_that_is_none_is_refused_with_what_is_allowed() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let run = cluster.api(token, post(route::RUNS, TRUE.to_owned())).await.json::<RunDetail>().item.id;
    let runs = route::RUNS;
    let counted = "an integer from 0 to 9223372036854775807";
    for (path, field, got, allowed) in [
        (format!("{runs}?limit=x"), "limit", "x", "an integer from 1 to 64"),
        (format!("{runs}?limit="), "limit", "", "an integer from 1 to 64"),
        (format!("{runs}?limit=-1"), "limit", "-1", "an integer from 1 to 64"),
        (format!("{runs}?limit=1e1"), "limit", "1e1", "an integer from 1 to 64"),
        (format!("{runs}?limit=99999999999999999999"), "limit", "99999999999999999999", "an integer from 1 to 64"),
        (format!("{}?after=x", route::AUDIT), "after", "x", counted),
        (format!("{runs}/{run}/events?after=x"), "after", "x", counted),
        (format!("{runs}/{run}/log?attempt=first"), "attempt", "first", counted),
        (
            "/api/v1/projects/default/tasks/none/fire-times?count=many".to_owned(),
            "count",
            "many",
            "an integer from 1 to",
        ),
    ] {
        let problem = cluster.api(token, get(&path)).await.problem();
        let error = &problem.errors[0];
        assert_eq!((error.path.as_str(), error.got.as_str()), (field, got), "{path}: {problem:?}");
        assert!(error.allowed.starts_with(allowed), "{path}: {problem:?}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_one_run_of_many_requests() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let submit = |body: &str, key: &str| {
        let mut request = post(route::RUNS, body.to_owned());
        request.headers_mut().insert(route::IDEMPOTENCY_KEY, key.parse().unwrap());
        request
    };
    let first = cluster.api(token, submit(TRUE, "deploy-7")).await;
    let again = cluster.api(token, submit(TRUE, "deploy-7")).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json::<RunDetail>().item.id, again.json::<RunDetail>().item.id);
    let other = cluster.api(token, submit(&TRUE.replace("true", "false"), "deploy-7")).await;
    assert_eq!(other.problem().code, ProblemCode::KeyReused);
    let blank = cluster.api(token, submit(TRUE, "two words")).await;
    assert_eq!(blank.problem().code, ProblemCode::InvalidRequest);
    let runs: Page<RunItem> = cluster.api(token, get(route::RUNS)).await.json();
    assert_eq!(runs.items.len(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn a_key_makes_one_enrollment_and_a_lost_answer_is_given_again() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let invite = |body: &str, key: &str| {
        let mut request = post(route::ENROLLMENTS, body.to_owned());
        request.headers_mut().insert(route::IDEMPOTENCY_KEY, key.parse().unwrap());
        request
    };
    let first = cluster.api(token, invite(r#"{"worker":"nas"}"#, "nas-1")).await;
    cluster.clock.advance_utc(leasehold_core::time::Millis::from_secs(1));
    let again = cluster.api(token, invite(r#"{"worker":"nas"}"#, "nas-1")).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json::<EnrollmentAnswer>(), again.json::<EnrollmentAnswer>());
    let other = cluster.api(token, invite(r#"{"worker":"box"}"#, "nas-1")).await;
    assert_eq!(other.problem().code, ProblemCode::KeyReused);
    let blank = cluster.api(token, invite("{}", "two words")).await;
    assert_eq!(blank.problem().code, ProblemCode::InvalidRequest);
    cluster.stop().await;
}

/// A request with a header.
fn with(method: Method, path: &str, header: (&'static str, &str), body: &str) -> Request<Bytes> {
    let mut request = post(path, body.to_owned());
    *request.method_mut() = method;
    if !header.0.is_empty() {
        request.headers_mut().insert(header.0, header.1.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn an_edit_of_a_task_overwrites_nobody_elses() {
    let cluster = Cluster::start().await;
    let path = route::of_task(route::TASK, "default", "report");
    let body = |priority: i32| format!(r#"{{"priority":{priority},"command":{{"argv":["true"]}}}}"#);
    let put = |header: (&'static str, &str), priority: i32| {
        let request = with(Method::PUT, &path, header, &body(priority));
        cluster.api(Some(&cluster.token), request)
    };
    let code = |answer: crate::fixture::Answer| answer.problem().code;
    assert_eq!(code(put(("", ""), 1).await), ProblemCode::PreconditionRequired);
    assert_eq!(code(put(("if-match", "*"), 1).await), ProblemCode::NotFound);
    let made = put(("if-none-match", "*"), 1).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let first = made.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(code(put(("if-none-match", "*"), 2).await), ProblemCode::PreconditionFailed);
    let shown = cluster.api(Some(&cluster.token), get(&path)).await;
    assert_eq!(shown.headers["etag"], first.as_str());
    let edited = put(("if-match", &first), 2).await;
    assert_eq!(edited.status, StatusCode::OK, "{}", edited.text());
    let second = edited.headers["etag"].to_str().unwrap().to_owned();
    assert_ne!(first, second);
    // The repeat of a lost answer is no conflict; another edit of the same state is one.
    assert_eq!(put(("if-match", &first), 2).await.status, StatusCode::OK);
    assert_eq!(code(put(("if-match", &first), 3).await), ProblemCode::PreconditionFailed);
    assert_eq!(code(put(("if-match", "\"no tag of ours\""), 3).await), ProblemCode::PreconditionFailed);
    assert_eq!(code(put(("if-match", &format!("W/{second}")), 3).await), ProblemCode::PreconditionFailed);
    assert_eq!(code(put(("if-match", "no quotes"), 3).await), ProblemCode::InvalidRequest);
    assert_eq!(put(("if-match", "*"), 3).await.status, StatusCode::OK);
    let other_name = with(Method::PUT, &path, ("if-match", "*"), r#"{"name":"other","command":{"argv":["true"]}}"#);
    let refused = cluster.api(Some(&cluster.token), other_name).await.problem();
    assert_eq!(refused.errors[0].path, "name");
    let delete = |tag: &str| cluster.api(Some(&cluster.token), with(Method::DELETE, &path, ("if-match", tag), ""));
    let stale = second.clone();
    assert_eq!(code(delete(&stale).await), ProblemCode::PreconditionFailed);
    let now = cluster.api(Some(&cluster.token), get(&path)).await.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(delete(&now).await.status, StatusCode::OK);
    cluster.stop().await;
}

#[tokio::test]
async fn an_edit_of_a_project_overwrites_nobody_elses_unless_it_says_nothing() {
    let cluster = Cluster::start().await;
    let path = route::of_project(route::PROJECT, "lab");
    let call = |request| cluster.api(Some(&cluster.token), request);
    call(post(route::PROJECTS, r#"{"name":"lab"}"#)).await;
    let tag = call(get(&path)).await.headers["etag"].to_str().unwrap().to_owned();
    let set = |header: (&'static str, &str), limit: u32| {
        call(with(Method::PUT, &path, header, &format!(r#"{{"concurrency":{limit}}}"#)))
    };
    let edited = set(("if-match", &tag), 2).await;
    assert_eq!(edited.status, StatusCode::OK, "{}", edited.text());
    assert_eq!(set(("if-match", &tag), 3).await.problem().code, ProblemCode::PreconditionFailed);
    assert_eq!(set(("if-match", &tag), 2).await.status, StatusCode::OK, "the repeat of a lost answer");
    assert_eq!(set(("", ""), 3).await.status, StatusCode::OK);
    let tag = call(get(&path)).await.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(set(("if-match", &tag), 4).await.headers["etag"], call(get(&path)).await.headers["etag"]);
    let delete = |tag: &str| call(with(Method::DELETE, &path, ("if-match", tag), ""));
    assert_eq!(delete(&tag).await.problem().code, ProblemCode::PreconditionFailed);
    let now = call(get(&path)).await.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(delete(&now).await.status, StatusCode::OK);
    cluster.stop().await;
}

#[tokio::test]
async fn a_key_makes_one_project_whatever_became_of_it() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let create = |body: &str, key: &str| {
        let mut request = post(route::PROJECTS, body.to_owned());
        request.headers_mut().insert(route::IDEMPOTENCY_KEY, key.parse().unwrap());
        request
    };
    let first = cluster.api(token, create(r#"{"name":"lab","concurrency":2}"#, "lab-1")).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let path = route::of_project(route::PROJECT, "lab");
    cluster.api(token, with(Method::PUT, &path, ("", ""), r#"{"concurrency":5}"#)).await;
    let again = cluster.api(token, create(r#"{"name":"lab","concurrency":2}"#, "lab-1")).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text());
    assert_eq!(again.json::<ProjectAnswer>().project.concurrency, Some(5));
    let other = cluster.api(token, create(r#"{"name":"lab","concurrency":5}"#, "lab-1")).await;
    assert_eq!(other.problem().code, ProblemCode::KeyReused);
    let blank = cluster.api(token, create(r#"{"name":"lab"}"#, "two words")).await;
    assert_eq!(blank.problem().code, ProblemCode::InvalidRequest);
    cluster.stop().await;
}

#[tokio::test]
async fn pages_show_everything_once_while_things_come_and_go() {
    let cluster = Cluster::start().await;
    let call = |request| cluster.api(Some(&cluster.token), request);
    for name in ["b", "d", "f"] {
        call(post(route::PROJECTS, format!(r#"{{"name":"{name}"}}"#))).await;
    }
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(call(post(route::RUNS, TRUE)).await.json::<RunDetail>().item.id);
    }
    let page = |path: String| async move { call(get(&path)).await.json::<Page<serde_json::Value>>() };
    let first = page("/api/v1/projects?limit=2".to_owned()).await;
    let newest = page("/api/v1/runs?limit=2".to_owned()).await;
    // One comes before what was seen, one behind it; one of what is to be seen goes.
    for name in ["a", "e"] {
        call(post(route::PROJECTS, format!(r#"{{"name":"{name}"}}"#))).await;
    }
    call(with(Method::DELETE, "/api/v1/projects/f", ("", ""), "")).await;
    call(post(route::RUNS, TRUE)).await;
    let names = |page: &Page<serde_json::Value>, field: &str| {
        page.items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first, "name"), ["b", "d"]);
    let rest = page(format!("/api/v1/projects?after={}", first.next.unwrap())).await;
    assert_eq!((names(&rest, "name"), rest.next), (vec!["default".to_owned(), "e".to_owned()], None));
    let rest = page(format!("/api/v1/runs?after={}", newest.next.clone().unwrap())).await;
    runs.reverse();
    let seen = [names(&newest, "id"), names(&rest, "id")].concat();
    assert_eq!(seen, runs.iter().map(ToString::to_string).collect::<Vec<_>>());
    cluster.stop().await;
}

#[tokio::test]
async fn runs_are_listed_in_pages_found_by_prefix_explained_and_cancelled() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(cluster.api(token, post(route::RUNS, TRUE)).await.json::<RunDetail>().item.id);
    }
    submitted.reverse();
    let mut listed = Vec::new();
    let mut path = format!("{}?limit=2&state=pending&state=running", route::RUNS);
    loop {
        let page: Page<RunItem> = cluster.api(token, get(&path)).await.json();
        listed.extend(page.items.iter().map(|run| run.id));
        match page.next {
            Some(next) => path = format!("{}?limit=2&after={next}", route::RUNS),
            None => break,
        }
    }
    assert_eq!(listed, submitted);

    let ambiguous = cluster.api(token, get(&route::of_run(route::RUN, &submitted[0].to_string()[..8]))).await;
    assert_eq!(ambiguous.problem().code, ProblemCode::Ambiguous);
    let explained: RunExplanation =
        cluster.api(token, get(&route::of_run(route::RUN_EXPLANATION, &submitted[0].to_string()))).await.json();
    assert_eq!(explained.explanation.unwrap().outlook, "no_workers");

    let cancel = route::of_run(route::RUN_CANCEL, &submitted[0].to_string());
    let cancelled: CancelAnswer = cluster.api(token, post(&cancel, r#"{"why":"wrong box"}"#)).await.json();
    assert_eq!(cancelled.run.item.state.as_str(), "cancelled");
    let typo = cluster.api(token, post(&cancel, r#"{"whi":"wrong box"}"#)).await.problem();
    assert_eq!((typo.code, typo.errors[0].nearest.as_deref()), (ProblemCode::UnknownField, Some("why")));
    cluster.stop().await;
}

#[tokio::test]
async fn a_worker_is_invited_joins_and_is_shown() {
    let cluster = Cluster::start().await;
    let token = Some(cluster.token.as_str());
    let body = r#"{"worker":"nas","labels":{"site":"office"}}"#;
    let answer = cluster.api(token, post(route::ENROLLMENTS, body)).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let invited: EnrollmentAnswer = answer.json();
    assert_eq!(invited.ingress, format!("https://{}", cluster.bound.ingress));
    assert!(leasehold_core::join::JoinToken::parse(invited.token.reveal()).is_ok());
    let machine = cluster.agent("box").await;
    let workers: Page<WorkerItem> = cluster.api(token, get(route::WORKERS)).await.json();
    assert_eq!(workers.items.len(), 1);
    let shown: WorkerDetail = cluster.api(token, get(&route::of_worker(route::WORKER, "box"))).await.json();
    assert_eq!(shown.session.unwrap().id, machine.session);
    let version: Version = cluster.api(token, get(route::VERSION)).await.json();
    assert_eq!((version.protocol_min, version.protocol_max), (1, 1));
    drop(machine);
    cluster.stop().await;
}
