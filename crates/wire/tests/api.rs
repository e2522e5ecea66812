//! The operator API as bytes: golden answers, strict requests, problems that name every field, exact output.
#![cfg(feature = "api")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use leasehold_core::actor::Actor;
use leasehold_core::attempt::{
    Attempt, AttemptState, Callback, EvidenceKind, ExitStatus, Handle, Left, LimitMeans, LimitsKept, LogPin, Outcome,
    RejectReason, Resolution, StopReason, Usage,
};
use leasehold_core::cancel::Cancel;
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::counter::{
    AttemptNumber, CallbackSequence, EventSequence, FenceNumber, SessionGeneration, SessionVersion,
};
use leasehold_core::crypto::{Digest, Domain, EnrollmentToken};
use leasehold_core::event;
use leasehold_core::fault::{Fault, FaultKind};
use leasehold_core::frame::{Body, Cut, CutReason, Frame, Stream};
use leasehold_core::join::JoinToken;
use leasehold_core::limits;
use leasehold_core::log::LogState;
use leasehold_core::lost::question;
use leasehold_core::occupancy::{Hold, Holder, LimitFact, LimitOf, Places};
use leasehold_core::placement::{Availability, WorkerFacts, explain};
use leasehold_core::project::Project;
use leasehold_core::remains::in_words;
use leasehold_core::resolve::{Resolve, Verb, Word};
use leasehold_core::revision::Revision;
use leasehold_core::run::{Closing, OnLost, Run, RunState, StopIntent, StopIntentReason};
use leasehold_core::session::{Session, SessionState};
use leasehold_core::shape::ShapeErrorKind;
use leasehold_core::time::{LeaseInstant, Millis, UtcMillis};
use leasehold_core::worker::{Drain, Takeover, Worker, WorkerState};
use leasehold_wire::api::audit::AuditEntry;
use leasehold_wire::api::cancel::{CancelAnswer, CancelOutcome, CancelRun};
use leasehold_wire::api::delete::{DeleteAnswer, DeleteWorker};
use leasehold_wire::api::drain::{DrainAnswer, DrainWorker};
use leasehold_wire::api::enrollment::{CreateEnrollment, EnrollmentAnswer};
use leasehold_wire::api::event::Event;
use leasehold_wire::api::explanation::{Explanation, RunExplanation};
use leasehold_wire::api::log::{AttemptBegins, End, LogEvent, Output, OutputStream, Position};
use leasehold_wire::api::page::Page;
use leasehold_wire::api::problem::{Problem, ProblemCode};
use leasehold_wire::api::project::{CreateProject, DeleteProjectAnswer, ProjectAnswer, ProjectItem, SetProject};
use leasehold_wire::api::resolve::{ResolveAnswer, ResolveRun};
use leasehold_wire::api::run::{AttemptDetail, Log, OutcomeKind, RunDetail, RunItem};
use leasehold_wire::api::secret::SecretText;
use leasehold_wire::api::submit::SubmitRun;
use leasehold_wire::api::takeover::GrantTakeover;
use leasehold_wire::api::time::Time;
use leasehold_wire::api::version::Version;
use leasehold_wire::api::worker::{SessionStatus, WorkerDetail, WorkerItem, WorkerStatus};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

const AT: UtcMillis = UtcMillis::new(1_769_828_400_000);
const NOW: LeaseInstant = LeaseInstant::new(100_000);

fn id<T: std::str::FromStr>(n: u8) -> T
where
    T::Err: std::fmt::Debug,
{
    format!("0198a3c1-0000-7000-8000-0000000000{n:02x}").parse().unwrap()
}

fn revision() -> Revision {
    Revision::of_argv(["sh", "-c", "uname -a; exit 7"]).unwrap()
}

fn attempt() -> Attempt {
    let mut attempt = Attempt::pending(id(2), id(3), AttemptNumber::FIRST);
    attempt.state = AttemptState::Failed;
    attempt.worker = Some("nas".parse().unwrap());
    attempt.claimed_at = Some(AT);
    attempt.starting_at = Some(AT);
    attempt.running_at = Some(AT);
    attempt.ended_at = Some(AT);
    attempt.outcome = Some(Outcome::Exited(ExitStatus::Code(7)));
    attempt.handle =
        Some(Handle { boot: "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a".parse().unwrap(), pid: 4242, start_time: 918_273 });
    attempt.callback =
        Some(Callback { sequence: CallbackSequence::FIRST, token: Digest::of(Domain::CompletionToken, b"t") });
    let limits = LimitsKept { memory: Some(LimitMeans::Rlimit), cpu: Some(LimitMeans::None), pids: None };
    attempt.usage =
        Some(Usage { user: Millis::new(120), system: Millis::new(30), max_rss_kib: 9216, oom_killed: false, limits });
    attempt.log = Some(LogPin { length: 4096, digest: Digest::of(Domain::Log, b"framed"), cut: None, finished: true });
    attempt
}

fn run() -> Run {
    let revision = revision();
    Run {
        id: id(3),
        project: "default".parse().unwrap(),
        task: None,
        scheduled: None,
        webhook: None,
        revision: revision.digest(),
        placement: Digest::of(Domain::Placement, b"{}"),
        priority: 0,
        state: RunState::Failed,
        version: leasehold_core::counter::RunVersion::FIRST.next(),
        latest: AttemptNumber::FIRST,
        fence: Some(FenceNumber::FIRST),
        intent: Some(StopIntent {
            reason: StopIntentReason::Cancel,
            by: "local:1000".to_owned(),
            why: Some("wrong day".to_owned()),
            at: AT,
        }),
        failures: 1,
        machinery_failures: 0,
        due: None,
        created_at: AT,
        started_at: Some(AT),
        closing: Some(Closing { outcome: Outcome::Exited(ExitStatus::Code(7)), unobserved: false, at: AT }),
        after: None,
    }
}

fn detail() -> RunDetail {
    let run = Run { after: Some("load=0198a3c1-0000-7000-8000-000000000009".parse().unwrap()), ..run() };
    RunDetail::new(&run, "sh -c".to_owned(), &[attempt()], &revision(), &BTreeMap::from([(id(2), 4096)]))
}

fn worker() -> Worker {
    Worker {
        id: "nas".parse().unwrap(),
        enrollment: id(4),
        state: WorkerState::Active,
        labels: BTreeMap::from([("site".to_owned(), "office".to_owned())]),
        current: Some(id(1)),
        generation: Some(SessionGeneration::FIRST),
        rival: None,
        drain: Some(Drain { by: "token:ci".to_owned(), why: Some("new disk".to_owned()), at: AT }),
        takeover: Some(Takeover { by: "local:1000".to_owned(), why: Some("new board".to_owned()), expires_at: AT }),
        enrolled_at: AT,
        certificate_expires_at: AT,
    }
}

fn session() -> Session {
    let capabilities = Capabilities::new(Claimed {
        arch: "x86_64".to_owned(),
        os: "linux".to_owned(),
        executors: ["process".to_owned()].into(),
        memory_mib: 16_000,
        disk_mib: 100_000,
        ..Claimed::default()
    });
    Session {
        worker: "nas".parse().unwrap(),
        id: id(1),
        generation: SessionGeneration::FIRST,
        version: SessionVersion::FIRST,
        state: SessionState::Active,
        boot: "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a".parse().unwrap(),
        registration: Digest::of(Domain::Registration, b"body"),
        capabilities: capabilities.unwrap().with_labels(&worker().labels),
        max_runs: 4,
        slots: 0,
        obeys_drain: true,
        lease: limits::SESSION_LEASE,
        interval: limits::HEARTBEAT_INTERVAL,
        expires: NOW.plus(Millis::from_secs(40)),
        spoke_at: NOW.minus(Millis::from_secs(5)),
        software: "0.1.0".to_owned(),
        protocol: 1,
        registered_at: AT,
    }
}

fn worker_detail() -> WorkerDetail {
    {
        let fault = Fault {
            kind: FaultKind::DiskLow,
            attempt: Some(id(2)),
            detail: "12 MiB left on /var/lib".to_owned(),
            since: AT,
        };
        let holders = BTreeMap::from([("GPU-8f1c0c52".parse().unwrap(), id(3))]);
        WorkerDetail::new(&worker(), Some(&session()), &[id(2)], &holders, &[fault], NOW)
    }
}

fn explanation() -> RunExplanation {
    let placement = leasehold_core::canonical::Value::parse(
        br#"{"command":{"argv":["true"]},"placement":{"require":{"arch":["aarch64"]}}}"#,
        1024,
    );
    let revision = Revision::from_value(&placement.unwrap()).unwrap();
    let facts = WorkerFacts {
        worker: "nas".parse().unwrap(),
        capabilities: Some(session().capabilities),
        state: Availability::Online,
        free_slots: 4,
        busy_devices: std::collections::BTreeSet::new(),
        refused_for: None,
    };
    let core = explain(revision.placement(), &[], &[facts], AT);
    let explanation = Some(Explanation::new(&core, false));
    let (limits, remains) = (Vec::new(), Vec::new());
    RunExplanation { run_id: id(3), state: RunState::Pending, explanation, limits, question: None, remains }
}

/// A run whose attempt was lost, with everything that can be known of it.
fn lost() -> (Run, Attempt) {
    let mut attempt = attempt();
    attempt.state = AttemptState::Lost;
    attempt.outcome = Some(Outcome::Lost(EvidenceKind::LeaseExpired));
    attempt.evidence = [EvidenceKind::LeaseExpired, EvidenceKind::LauncherKilledMayLive].into();
    attempt.may_live = true;
    attempt.left = Some(Left { count: 2, pids: vec![77, 78] });
    attempt.usage = None;
    (Run { state: RunState::Lost, intent: None, closing: None, ..run() }, attempt)
}

fn open_question() -> RunExplanation {
    let (run, attempt) = lost();
    let attempts = [attempt];
    let question = Some((&question(&run, &attempts, &revision()).unwrap()).into());
    let (limits, remains) = (Vec::new(), in_words(&attempts));
    RunExplanation { run_id: run.id, state: run.state, explanation: None, limits, question, remains }
}

/// A run that waits for the one place of its task, which a lost run keeps.
fn limited() -> RunExplanation {
    let holder = Holder {
        run: id(4),
        name: "report".to_owned(),
        attempt: AttemptNumber::FIRST,
        hold: Hold::InQuestion,
        worker: Some("nas".parse().unwrap()),
        since: AT,
    };
    let (name, places) = ("report".to_owned(), Places { limit: 1, occupied: 1 });
    let limit = LimitFact { of: LimitOf::Task, name, places, holders: vec![holder] };
    let facts = WorkerFacts {
        worker: "nas".parse().unwrap(),
        capabilities: Some(session().capabilities),
        state: Availability::Online,
        free_slots: 4,
        busy_devices: std::collections::BTreeSet::new(),
        refused_for: None,
    };
    let now = AT.plus(Millis::from_secs(4000));
    let core = explain(revision().placement(), std::slice::from_ref(&limit), &[facts], now);
    let (explanation, limits) = (Some(Explanation::new(&core, false)), vec![(&limit).into()]);
    RunExplanation { run_id: id(3), state: RunState::Pending, explanation, limits, question: None, remains: Vec::new() }
}

fn project() -> ProjectItem {
    ProjectItem::new(&Project::new("lab".parse().unwrap(), Some(4), AT), 2)
}

fn resolved() -> ResolveAnswer {
    let (run, mut attempt) = lost();
    attempt.resolution = Resolution::Person;
    let why = Some("the report is there".to_owned());
    attempt.word = Some(Word { verb: Verb::MarkSucceeded, by: "token:ci".to_owned(), why, at: AT });
    let closing = Closing { outcome: Outcome::Lost(EvidenceKind::LeaseExpired), unobserved: true, at: AT };
    let run = Run { state: RunState::Succeeded, closing: Some(closing), ..run };
    let run = RunDetail::new(&run, "sh -c".to_owned(), &[attempt], &revision(), &BTreeMap::new());
    ResolveAnswer { outcome: Resolve::Closed.into(), run }
}

fn enrollment() -> EnrollmentAnswer {
    let join = JoinToken { token: EnrollmentToken::from_bytes([0x33; 32]), ca: Digest::of(Domain::PublicKey, b"key") };
    EnrollmentAnswer {
        id: id(4),
        worker: "nas".parse().unwrap(),
        labels: worker().labels,
        expires_at: AT.into(),
        ingress: "https://control.example:7443".to_owned(),
        token: SecretText::new(join.reveal()),
        replaces: Some(WorkerStatus::Offline),
    }
}

fn event() -> Event {
    Event::from(&event::Event {
        sequence: EventSequence::FIRST,
        at: AT,
        kind: event::EventKind::AttemptClaimed,
        run: id(3),
        attempt: Some(id(2)),
        actor: Actor::Worker { worker: "nas".parse().unwrap(), session: None, origin: None }.to_string(),
        facts: BTreeMap::from([("fence".to_owned(), "1".to_owned())]),
    })
}

fn audit() -> AuditEntry {
    AuditEntry {
        sequence: 1,
        at: AT.into(),
        actor: Actor::Local { uid: 1000 }.to_string(),
        origin: Actor::Local { uid: 1000 }.origin().map(|origin| origin.to_string()),
        action: "cancel_run".to_owned(),
        subject: "run/0198a3c1-0000-7000-8000-000000000003".to_owned(),
        facts: BTreeMap::from([("why".to_owned(), "wrong day".to_owned())]),
    }
}

fn invalid_spec() -> Problem {
    let body = br#"{"revision":{"comand":{"argv":["true"]},"env":{"A":{}},"limits":{"timeout":"1y"}},"projekt":"x"}"#;
    Problem::of_shape(&SubmitRun::parse(body).unwrap_err())
}

struct Golden {
    name: &'static str,
    json: String,
    again: String,
}

fn golden<T: Serialize + DeserializeOwned>(name: &'static str, value: &T) -> Golden {
    let pretty = |value: &T| format!("{:#}\n", serde_json::to_value(value).unwrap());
    let json = pretty(value);
    let again = pretty(&serde_json::from_str(&json).unwrap_or_else(|error| panic!("{name}: {error}")));
    Golden { name, json, again }
}

fn goldens() -> Vec<Golden> {
    let item = RunItem::new(&run(), "sh -c".to_owned(), Some("nas".parse().unwrap()));
    let worker_item = WorkerItem::new(&worker(), Some(&session()), 1, 1, NOW);
    let cancelled = CancelAnswer { outcome: CancelOutcome::from(&Cancel::Requested), run: detail() };
    vec![
        golden("run-list", &Page { items: vec![item], next: Some("0198a3c1-0000-7000-8000-000000000003".to_owned()) }),
        golden("run-detail", &detail()),
        golden("run-events", &Page { items: vec![event()], next: None }),
        golden("run-explanation", &explanation()),
        golden("run-explanation-lost", &open_question()),
        golden("run-explanation-limited", &limited()),
        golden("project-list", &Page { items: vec![project()], next: None }),
        golden("project-answer", &ProjectAnswer { changed: true, project: project() }),
        golden("project-deleted", &DeleteProjectAnswer { changed: true }),
        golden("cancel-answer", &cancelled),
        golden("resolve-answer", &resolved()),
        golden("worker-list", &Page { items: vec![worker_item], next: None }),
        golden("worker-detail", &worker_detail()),
        golden("drain-answer", &DrainAnswer { changed: true, worker: worker_detail() }),
        golden("delete-answer", &DeleteAnswer { changed: true, runs: 2 }),
        golden("enrollment-answer", &enrollment()),
        golden("problem-invalid", &invalid_spec()),
        golden("version", &Version { version: "0.1.0".to_owned(), protocol_min: 1, protocol_max: 1 }),
        golden("audit", &Page { items: vec![audit()], next: Some("1".to_owned()) }),
        golden(
            "problem-not-found",
            &Problem::new(ProblemCode::NotFound, "there is no run `0198`")
                .fix("`leasehold runs list` shows the runs there are"),
        ),
    ]
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden-api")
}

#[test]
fn every_answer_is_what_its_golden_file_says() {
    for Golden { name, json, again } in goldens() {
        let path = directory().join(format!("{name}.json"));
        let file = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(json, file, "{name}");
        assert_eq!(again, file, "{name}: a client reads something else");
    }
}

#[test]
#[ignore = "writes the files that the other tests read: `cargo xtask golden`, after a deliberate change of the API"]
fn write_the_golden_files() {
    for Golden { name, json, .. } in goldens() {
        std::fs::write(directory().join(format!("{name}.json")), json).unwrap();
    }
}

#[test]
fn an_answer_that_has_grown_is_still_read() {
    let mut json = serde_json::to_value(detail()).unwrap();
    json["surprise"] = serde_json::json!({ "new": 1 });
    json["attempts"][0]["surprise"] = serde_json::json!(1);
    json["outcome"]["kind"] = serde_json::json!("dreamt");
    let read: RunDetail = serde_json::from_value(json).unwrap();
    assert_eq!(read.item.outcome.unwrap().kind, OutcomeKind::Other);
}

#[test]
fn a_submitted_run_survives_both_directions() {
    let submit = SubmitRun {
        project: "default".parse().unwrap(),
        task: Some("nightly-report".parse().unwrap()),
        revision: revision(),
        params: BTreeMap::from([("DAY".to_owned(), "yesterday".to_owned())]),
    };
    assert_eq!(SubmitRun::parse(&submit.to_body()), Ok(submit));
    let short = SubmitRun::parse(br#"{"revision":{"command":{"argv":["true"]}}}"#).unwrap();
    assert_eq!((short.project.as_str(), short.task), ("default", None));
}

#[test]
fn every_mistake_of_a_submitted_run_is_named_by_its_path() {
    let problem = invalid_spec();
    let named: Vec<_> = problem.errors.iter().map(|error| (error.path.as_str(), error.nearest.as_deref())).collect();
    assert!(named.contains(&("projekt", Some("project"))), "{named:?}");
    assert!(named.contains(&("revision.comand", Some("command"))), "{named:?}");
    assert!(named.contains(&("revision.env.A.secret", None)), "{named:?}");
    assert!(named.contains(&("revision.limits.timeout", None)), "{named:?}");
    assert_eq!((problem.code, problem.status), (ProblemCode::InvalidRequest, 400));
}

#[test]
fn requests_refuse_what_they_do_not_know() {
    let deep = format!("{{\"why\":{}{}}}", "[".repeat(40), "]".repeat(40));
    for body in ["null", "[]", "{", "{\"why\":null}", "{\"why\":1.5}", "{\"why\":\"a\",\"why\":\"b\"}", "{}x", &deep] {
        let errors = CancelRun::parse(body.as_bytes()).unwrap_err();
        assert_eq!(Problem::of_shape(&errors).code, ProblemCode::InvalidRequest, "{body}");
    }
    let code = |result: Result<CancelRun, Vec<leasehold_core::shape::ShapeError>>| {
        Problem::of_shape(&result.unwrap_err()).code
    };
    assert_eq!(code(CancelRun::parse(br#"{"wyh":"x"}"#)), ProblemCode::UnknownField);
    let long = format!("{{\"why\":\"{}\"}}", "x".repeat(513));
    assert_eq!(code(CancelRun::parse(long.as_bytes())), ProblemCode::LimitExceeded);
    let vast = format!("{{\"why\":\"x\"{}}}", " ".repeat(limits::JSON_BODY));
    assert_eq!(code(CancelRun::parse(vast.as_bytes())), ProblemCode::LimitExceeded);
    assert_eq!(CancelRun::parse(b""), Ok(CancelRun::default()));
    let cancel = CancelRun { why: Some("wrong day".to_owned()) };
    assert_eq!(CancelRun::parse(&cancel.to_body()), Ok(cancel));
    let drain = DrainWorker { why: Some("new disk".to_owned()) };
    assert_eq!(DrainWorker::parse(&drain.to_body()), Ok(drain));
    assert_eq!(DrainWorker::parse(b""), Ok(DrainWorker::default()));
    let grant = GrantTakeover { ttl: Millis::from_secs(60), why: Some("new board".to_owned()) };
    assert_eq!(GrantTakeover::parse(&grant.to_body()), Ok(grant));
    assert_eq!(GrantTakeover::parse(b""), Ok(GrantTakeover::default()));
    let code = |body: &[u8]| Problem::of_shape(&GrantTakeover::parse(body).unwrap_err()).code;
    assert_eq!(code(br#"{"ttl":"2d"}"#), ProblemCode::LimitExceeded);
}

#[test]
fn a_deletion_is_read_strictly() {
    let asked = DeleteWorker { destroyed: true, why: Some("it burned down".to_owned()) };
    assert_eq!(DeleteWorker::parse(&asked.to_body()), Ok(asked));
    for empty in [&b""[..], b"{}"] {
        assert_eq!(DeleteWorker::parse(empty), Ok(DeleteWorker::default()), "nothing is destroyed unless it is said");
    }
    let long = format!("{{\"why\":\"{}\"}}", "x".repeat(limits::WHY_BYTES + 1));
    for (body, code) in [
        (r#"{"destroyed":"true"}"#, ProblemCode::InvalidRequest),
        (r#"{"destroyed":1}"#, ProblemCode::InvalidRequest),
        (r#"{"destroy":true}"#, ProblemCode::UnknownField),
        (long.as_str(), ProblemCode::LimitExceeded),
    ] {
        let problem = Problem::of_shape(&DeleteWorker::parse(body.as_bytes()).unwrap_err());
        assert_eq!(problem.code, code, "{body}");
    }
}

#[test]
fn a_project_is_read_strictly() {
    let name = || "lab".parse().unwrap();
    for concurrency in [None, Some(1), Some(limits::CONCURRENCY_MAX)] {
        let made = CreateProject { name: name(), concurrency };
        assert_eq!(CreateProject::parse(&made.to_body()), Ok(made));
        let set = SetProject { concurrency };
        assert_eq!(SetProject::parse(&set.to_body()), Ok(set));
    }
    for (body, code) in [
        (r#"{"concurrency":0}"#, ProblemCode::LimitExceeded),
        (r#"{"concurrency":10001}"#, ProblemCode::LimitExceeded),
        (r#"{"concurrency":"4"}"#, ProblemCode::InvalidRequest),
        (r#"{"limit":4}"#, ProblemCode::UnknownField),
        ("", ProblemCode::InvalidRequest),
    ] {
        let problem = Problem::of_shape(&SetProject::parse(body.as_bytes()).unwrap_err());
        assert_eq!(problem.code, code, "{body}: {problem:?}");
    }
    assert!(CreateProject::parse(b"{}").is_err(), "a project has a name");
    assert!(CreateProject::parse(br#"{"name":"Lab"}"#).is_err());
}

#[test]
fn a_word_on_a_lost_run_is_read_strictly() {
    let said = ResolveRun {
        verb: Verb::MarkFailed,
        why: Some("it burned down".to_owned()),
        attempt: Some(AttemptNumber::FIRST.next()),
    };
    assert_eq!(ResolveRun::parse(&said.to_body()), Ok(said));
    let short = ResolveRun { verb: Verb::Wait, why: None, attempt: None };
    assert_eq!(ResolveRun::parse(&short.to_body()), Ok(short));
    let long = format!("{{\"verb\":\"wait\",\"why\":\"{}\"}}", "x".repeat(limits::WHY_BYTES + 1));
    for (body, code) in [
        ("", ProblemCode::InvalidRequest),
        ("{}", ProblemCode::InvalidRequest),
        (r#"{"verb":"mark-succeded"}"#, ProblemCode::InvalidRequest),
        (r#"{"verb":"retry","attempt":0}"#, ProblemCode::LimitExceeded),
        (r#"{"verb":"retry","attempt":"1"}"#, ProblemCode::InvalidRequest),
        (r#"{"verb":"retry","force":true}"#, ProblemCode::UnknownField),
        (long.as_str(), ProblemCode::LimitExceeded),
    ] {
        let problem = Problem::of_shape(&ResolveRun::parse(body.as_bytes()).unwrap_err());
        assert_eq!(problem.code, code, "{body}");
    }
    let nearest = Problem::of_shape(&ResolveRun::parse(br#"{"verb":"mark-succeded"}"#).unwrap_err());
    assert_eq!(nearest.errors[0].nearest.as_deref(), Some("mark-succeeded"));
}

#[test]
fn an_enrollment_has_defaults_and_bounds() {
    let asked = CreateEnrollment {
        worker: Some("nas".parse().unwrap()),
        labels: BTreeMap::from([("site".to_owned(), "office".to_owned())]),
        ttl: Millis::from_secs(3600),
    };
    assert_eq!(CreateEnrollment::parse(&asked.to_body()), Ok(asked));
    assert_eq!(CreateEnrollment::parse(b"{}").unwrap().ttl, limits::ENROLLMENT_TTL);
    for (body, path, kind) in [
        (r#"{"ttl":"8d"}"#, "ttl", ShapeErrorKind::Value),
        (r#"{"ttl":900}"#, "ttl", ShapeErrorKind::Type),
        (r#"{"worker":"Not A Label"}"#, "worker", ShapeErrorKind::Value),
        (r#"{"name":"nas"}"#, "name", ShapeErrorKind::Unknown),
    ] {
        let errors = CreateEnrollment::parse(body.as_bytes()).unwrap_err();
        let found: Vec<_> = errors.iter().map(|error| (error.path.as_str(), error.kind)).collect();
        assert!(
            found.iter().any(|(at, is)| *at == path && (*is == kind || *is == ShapeErrorKind::Limit)),
            "{body}: {found:?}"
        );
    }
}

#[test]
fn the_join_line_holds_what_join_takes_and_is_never_debug_printed() {
    let answer = enrollment();
    let line = answer.join_line();
    let (head, token) = line.reveal().rsplit_once(' ').unwrap();
    assert_eq!(head, "leasehold-worker join https://control.example:7443 --token");
    assert_eq!(JoinToken::parse(token).unwrap().token, EnrollmentToken::from_bytes([0x33; 32]));
    assert!(!format!("{answer:?}{line:?}").contains(token));
}

#[test]
fn every_end_is_shown_and_has_a_shell_code_where_a_process_ended() {
    let rows = [
        (Outcome::Exited(ExitStatus::Code(7)), OutcomeKind::Exited, Some(7), None),
        (Outcome::Exited(ExitStatus::Signal(9)), OutcomeKind::Exited, Some(137), None),
        (
            Outcome::Stopped(StopReason::Timeout, ExitStatus::Signal(15)),
            OutcomeKind::Stopped,
            Some(143),
            Some("timeout"),
        ),
        (
            Outcome::Rejected { reason: RejectReason::Exec, detail: "no such program".to_owned() },
            OutcomeKind::Rejected,
            None,
            Some("exec"),
        ),
        (Outcome::NeverSpawned, OutcomeKind::NeverSpawned, None, None),
        (Outcome::NotStarted(StopIntentReason::Cancel), OutcomeKind::NotStarted, None, Some("cancel")),
        (Outcome::Lost(EvidenceKind::LeaseExpired), OutcomeKind::Lost, None, None),
        (Outcome::Superseded, OutcomeKind::Superseded, None, None),
    ];
    for (core, kind, code, reason) in rows {
        let shown = leasehold_wire::api::run::Outcome::from(&core);
        assert_eq!((shown.kind, shown.shell_code(), shown.reason.as_deref()), (kind, code, reason), "{core:?}");
    }
}

#[test]
fn a_log_says_whether_it_is_whole() {
    let with = |change: fn(&mut Attempt), received| {
        let mut attempt = attempt();
        change(&mut attempt);
        Log::of(&attempt, received).state
    };
    assert_eq!(with(|_| {}, 4096), LogState::Complete);
    assert_eq!(with(|_| {}, 4095), LogState::Partial);
    assert_eq!(with(|attempt| attempt.state = AttemptState::Running, 10), LogState::Open);
    assert_eq!(
        with(|attempt| (attempt.log, attempt.outcome) = (None, Some(Outcome::Lost(EvidenceKind::LeaseExpired))), 10),
        LogState::Incomplete
    );
    assert_eq!(
        with(|attempt| (attempt.log, attempt.outcome) = (None, Some(Outcome::NeverSpawned)), 0),
        LogState::Complete
    );
    let mut full = attempt();
    let cut = Cut { reason: CutReason::DiskFull, stdout: 5, stderr: 1 };
    full.log = full.log.map(|pin| LogPin { cut: Some(cut), ..pin });
    assert_eq!(
        serde_json::to_value(Log::of(&full, 4096)).unwrap(),
        serde_json::json!({
            "state": "incomplete",
            "reason": "disk_full",
            "received": 4096,
            "length": 4096,
            "cut": {"reason": "disk_full", "stdout": 5, "stderr": 1},
        })
    );
}

#[test]
fn a_session_that_is_silent_past_its_lease_is_not_called_active() {
    let none = BTreeMap::new();
    let state =
        |session: &Session| WorkerDetail::new(&worker(), Some(session), &[], &none, &[], NOW).session.unwrap().state;
    assert_eq!(state(&session()), SessionStatus::Active);
    let silent = |state| Session { state, expires: NOW, ..session() };
    assert_eq!(state(&silent(SessionState::Active)), SessionStatus::Expired);
    assert_eq!(state(&silent(SessionState::Draining)), SessionStatus::Expired);
    assert_eq!(state(&silent(SessionState::Offline)), SessionStatus::Offline);
    for status in [SessionStatus::Active, SessionStatus::Expired, SessionStatus::Offline, SessionStatus::Draining] {
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

#[test]
fn a_workers_status_is_what_its_session_says() {
    let status = |change: fn(&mut Worker, &mut Session)| {
        let (mut worker, mut session) = (Worker { drain: None, ..worker() }, session());
        change(&mut worker, &mut session);
        WorkerStatus::of(&worker, Some(&session), NOW)
    };
    assert_eq!(status(|_, _| {}), WorkerStatus::Online);
    assert_eq!(status(|_, session| session.state = SessionState::Draining), WorkerStatus::Draining);
    assert_eq!(status(|drained, _| drained.drain = worker().drain), WorkerStatus::Draining);
    assert_eq!(status(|_, session| session.state = SessionState::Offline), WorkerStatus::Offline);
    assert_eq!(status(|_, session| session.expires = NOW), WorkerStatus::Offline);
    assert_eq!(status(|worker, _| worker.state = WorkerState::Revoked), WorkerStatus::Revoked);
    assert_eq!(WorkerStatus::of(&worker(), None, NOW), WorkerStatus::Enrolled);
    for status in [WorkerStatus::Online, WorkerStatus::Enrolled, WorkerStatus::Revoked] {
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

#[test]
fn problem_codes_have_one_name_and_an_error_status() {
    for code in ProblemCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert!((400..600).contains(&code.status()), "{}", code.as_str());
    }
    assert_eq!(serde_json::from_str::<ProblemCode>("\"news\"").unwrap(), ProblemCode::Other);
}

#[test]
fn positions_and_events_of_a_log_come_back() {
    assert_eq!("2:4096".parse(), Ok(Position { attempt: 2, offset: 4096 }));
    for bad in ["", "2", ":", "2:", "a:b", "-1:0", "1:2:3"] {
        assert!(bad.parse::<Position>().is_err(), "{bad}");
    }
    let cut = Body::Cut(Cut { reason: CutReason::Quota, stdout: 1, stderr: 2 });
    let events = [
        LogEvent::Attempt(AttemptBegins { id: id(2), number: 1 }),
        LogEvent::from(Frame { at: AT, body: cut }),
        LogEvent::End(End {
            run_state: RunState::Failed,
            outcome: detail().item.outcome,
            log: AttemptDetail::new(&attempt(), 4096).log,
        }),
    ];
    for event in events {
        assert!(!event.data().contains('\n'));
        assert_eq!(LogEvent::parse(event.name(), &event.data()).unwrap(), Some(event));
    }
    assert_eq!(LogEvent::parse("heartbeat", "{}").unwrap(), None);
    assert!(LogEvent::parse("output", "{}").is_err());
}

#[test]
fn the_spec_of_a_run_may_say_every_policy() {
    let body = br#"{"revision":{"command":{"argv":["true"]},"retry":{"on_lost":"retry","safety":"idempotent"}}}"#;
    assert_eq!(SubmitRun::parse(body).unwrap().revision.policy().on_lost, OnLost::Retry);
}

proptest! {
    #[test]
    fn output_crosses_byte_by_byte(bytes in proptest::collection::vec(any::<u8>(), 0..512), text in any::<String>()) {
        for bytes in [bytes, text.into_bytes()] {
            let event = LogEvent::from(Frame { at: AT, body: Body::Output { stream: Stream::Stderr, bytes: bytes.clone() } });
            let data = event.data();
            prop_assert!(!data.contains('\n'));
            let Some(LogEvent::Output(output)) = LogEvent::parse("output", &data).unwrap() else { panic!() };
            prop_assert_eq!(output.stream, OutputStream::Stderr);
            prop_assert_eq!(Output::into_bytes(output), Some(bytes));
        }
    }

    #[test]
    fn arbitrary_requests_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..1024)) {
        let _ = SubmitRun::parse(&bytes);
        let _ = CancelRun::parse(&bytes);
        let _ = CreateEnrollment::parse(&bytes);
    }

    #[test]
    fn times_come_back(millis in -62_135_596_800_000_i64..253_402_207_200_000) {
        let time = Time(UtcMillis::new(millis));
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }
}
