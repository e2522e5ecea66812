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
