//! The worker routes: who may call them, what is refused before anything is read, and that a refusal changes nothing.

use hyper::StatusCode;
use leasehold_core::attempt::EvidenceKind;
use leasehold_core::id::SessionId;
use leasehold_core::limits;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;
use leasehold_core::time::{Clock as _, Millis};
use leasehold_wire::v1::drain::{DrainAnswer, DrainRequest};
use leasehold_wire::v1::end::{EndAnswer, EndRequest, Ending as WireEnding};
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::v1::heartbeat::{HeartbeatAnswer, HeartbeatRequest, Renewal, RenewalVerdict};
use leasehold_wire::v1::logs::LogsAnswer;
use leasehold_wire::v1::offline::{OfflineAnswer, OfflineRequest};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::pull::{AskRequest, AskVerdict, PullAnswer};
use leasehold_wire::v1::register::{RegisterAnswer, RegisterRequest};
use leasehold_wire::v1::release::{ReleaseAnswer, ReleaseRequest};
use leasehold_wire::v1::running::RunningAnswer;
use leasehold_wire::v1::starting::StartingVerdict;
use leasehold_wire::{encode, parse, route};

use crate::fixture::{Cluster, Machine, PATIENCE, Taken, capabilities, code, csr, new_key};

const ELSEWHERE: &str = "01900000-0000-7000-8000-000000000001";

fn path_of(template: &str) -> String {
    template.replace("{session}", ELSEWHERE).replace("{attempt}", ELSEWHERE)
}

#[tokio::test]
async fn without_a_certificate_every_route_but_enroll_is_closed() {
    let cluster = Cluster::start().await;
    let before = cluster.dump();
    let mut stranger = cluster.connect(None).await;
    for (method, template) in route::ALL {
        let answer = stranger.call(method, &path_of(template), "{}").await;
        let problem: Problem = parse(&answer.body).unwrap();
        if template == route::ENROLL {
            assert_eq!((answer.status, problem.code), (StatusCode::BAD_REQUEST, RefusalCode::InvalidRequest));
        } else {
            assert_eq!(
                (answer.status, problem.code),
                (StatusCode::UNAUTHORIZED, RefusalCode::Unauthenticated),
                "{template}"
            );
        }
    }
    let unknown = stranger.call("GET", "/worker/v1/secrets", "").await;
    assert_eq!(unknown.status, StatusCode::UNAUTHORIZED, "not even which routes there are is told");
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn an_unknown_route_and_a_wrong_method_are_problems() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.machine("nas").await;
    let unknown = machine.connection.call("POST", "/worker/v1/secrets", "").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(parse::<Problem>(&unknown.body).unwrap().code, RefusalCode::InvalidRequest);
    let wrong = machine.connection.call("GET", &route::pull(machine.session), "").await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(wrong.headers["allow"], "POST");
    assert_eq!(parse::<Problem>(&wrong.body).unwrap().status, 405);
    cluster.stop().await;
}

/// Every call about a session and an attempt, sent by `caller` for the session and attempt of another worker.
async fn calls_for_another(
    caller: &mut Machine<'_>,
    session: SessionId,
    taken: &Taken,
) -> Vec<(&'static str, RefusalCode)> {
    let generation = caller.generation;
    let version = caller.version;
    let attempt = taken.attempt();
    let own = std::mem::replace(&mut caller.session, session);
    let mut codes = Vec::new();
    let beat = encode(&HeartbeatRequest {
        session_generation: generation,
        session_version: version,
        slots: 1,
        draining: false,
        faults: None,
        renewals: vec![Renewal {
            attempt_id: attempt,
            lease: taken.proof(),
            version: taken.offer.lease.version,
            cancel_incomplete: None,
        }],
    });
    let said = caller.connection.said::<HeartbeatAnswer>("POST", &route::heartbeat(session), beat).await;
    codes.push(("heartbeat", code(said)));
    let drain = encode(&DrainRequest { session_generation: generation, session_version: version });
    codes.push(("drain", code(caller.connection.said::<DrainAnswer>("POST", &route::drain(session), drain).await)));
    let offline = encode(&OfflineRequest { session_generation: generation, session_version: version });
    let said = caller.connection.said::<OfflineAnswer>("POST", &route::offline(session), offline).await;
    codes.push(("offline", code(said)));
    codes.push(("pull", code(caller.pull(std::slice::from_ref(&taken.ask), Millis::ZERO).await)));
    codes.push(("starting", code(caller.starting(taken).await)));
    codes.push(("running", code(caller.running(taken).await)));
    let release = encode(&ReleaseRequest {
        session_generation: generation,
        lease: taken.proof(),
        reason: leasehold_core::claim::ReleaseReason::Draining,
    });
    let said = caller.connection.said::<ReleaseAnswer>("POST", &route::release(session, attempt), release).await;
    codes.push(("release", code(said)));
    codes.push(("logs", code(caller.log(taken, 0, b"anything").await)));
    codes.push(("end", code(caller.exited(taken, 0, b"").await)));
    caller.session = own;
    codes
}

#[tokio::test]
async fn the_certificate_of_one_worker_does_nothing_for_the_session_of_another() {
    let cluster = Cluster::start().await;
    let mut victim = cluster.agent("victim").await;
    let mut thief = cluster.agent("thief").await;
    cluster.submit(&["true"]).await;
    let taken = victim.take().await;
    let before = cluster.dump();
    for (call, code) in calls_for_another(&mut thief, victim.session, &taken).await {
        // An `end` is about a lease first: its session may have been replaced.
        let expected = if call == "end" { RefusalCode::LeaseFenced } else { RefusalCode::SessionFenced };
        assert_eq!(code, expected, "{call}");
    }
    // With its own session and the other's lease it gets no further.
    assert_eq!(code(thief.starting(&taken).await), RefusalCode::LeaseFenced);
    assert_eq!(code(thief.running(&taken).await), RefusalCode::LeaseFenced);
    assert_eq!(code(thief.log(&taken, 0, b"anything").await), RefusalCode::LeaseFenced);
    assert_eq!(code(thief.exited(&taken, 0, b"").await), RefusalCode::LeaseFenced);
    assert_eq!(cluster.dump(), before);
    assert!(matches!(victim.starting(&taken).await.unwrap().verdict, StartingVerdict::Accepted(_)));
    cluster.stop().await;
}

#[tokio::test]
async fn a_registration_is_repeated_exactly_or_refused() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.machine("nas").await;
    let body = machine.registration();
    let first = machine.register(body.clone()).await.unwrap();
    let before = cluster.dump();
    let again = machine.register(body.clone()).await.unwrap();
    assert_eq!((again.session.generation, again.ticket), (first.session.generation, first.ticket));
    let other = String::from_utf8(body).unwrap().replace("\"max_runs\":4", "\"max_runs\":5");
    assert_eq!(code(machine.register(other.into_bytes()).await), RefusalCode::ConflictReplay);
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_known_offer_id_with_another_token_is_gone() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    cluster.submit(&["true"]).await;
    let taken = machine.take().await;
    let before = cluster.dump();
    let guess = AskRequest { offer_id: taken.ask.offer_id, ..cluster.ask() };
    let answer = machine.pull(&[guess], Millis::from_secs(5)).await.unwrap();
    assert_eq!(answer.asks[0].verdict, AskVerdict::Gone);
    let answer = machine.pull(std::slice::from_ref(&taken.ask), Millis::from_secs(5)).await.unwrap();
    assert!(matches!(&answer.asks[0].verdict, AskVerdict::Granted(offer) if **offer == taken.offer));
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_its_code_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let before = cluster.dump();
    let pull = String::from_utf8(machine.pull_request(&[cluster.ask()], Millis::ZERO)).unwrap();
    let nested = format!("{{\"schema\":\"leasehold/pull/v1\",\"asks\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let cases: [(&str, String, RefusalCode, u16); 9] = [
        ("over the limit", format!("{pull}{}", " ".repeat(limits::JSON_BODY)), RefusalCode::LimitExceeded, 413),
        ("an unknown field", pull.replacen('{', "{\"colour\":1,", 1), RefusalCode::UnknownField, 400),
        ("another schema", pull.replace("/pull/", "/end/"), RefusalCode::InvalidRequest, 400),
        ("another version", pull.replace("pull/v1", "pull/v2"), RefusalCode::UnsupportedProtocol, 426),
        ("too deep", nested, RefusalCode::InvalidRequest, 400),
        ("a name twice", pull.replacen('{', "{\"wait_ms\":1,", 1), RefusalCode::InvalidRequest, 400),
        ("not JSON", "wait=1".to_owned(), RefusalCode::InvalidRequest, 400),
        ("nothing", String::new(), RefusalCode::InvalidRequest, 400),
        ("a wait over the limit", pull.replace("\"wait_ms\":0", "\"wait_ms\":30001"), RefusalCode::LimitExceeded, 413),
    ];
    for (what, body, expected, status) in cases {
        let answer = machine.connection.call("POST", &route::pull(machine.session), body).await;
        let problem: Problem = parse(&answer.body).unwrap();
        assert_eq!((problem.code, answer.status.as_u16()), (expected, status), "{what}: {}", problem.detail);
    }
    for session in ["me".to_owned(), machine.session.to_string().to_uppercase(), "%ff".to_owned()] {
        let path = route::PULL.replace("{session}", &session);
        let answer = machine.connection.call("POST", &path, pull.clone()).await;
        let problem: Problem = parse(&answer.body).unwrap();
        assert_eq!((problem.code, problem.field.as_deref()), (RefusalCode::InvalidRequest, Some("session")), "{path}");
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn every_json_route_refuses_a_body_over_its_limit_before_it_reads_it() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let before = cluster.dump();
    for (method, template) in route::ALL {
        // More than any route takes; the log's limit is the largest.
        let path = path_of(template) + if template == route::LOGS { "?offset=0" } else { "" };
        let answer = machine.connection.call(method, &path, vec![b' '; limits::LOG_CHUNK + 1]).await;
        let problem: Problem = parse(&answer.body).unwrap();
        assert_eq!((answer.status.as_u16(), problem.code), (413, RefusalCode::LimitExceeded), "{template}");
    }
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_log_call_without_its_fences_or_offset_is_refused() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let path = route::logs(machine.session, ELSEWHERE.parse().unwrap(), 0);
    for (path, field) in [
        (path.clone(), "leasehold-offer"),
        (path.replace("?offset=0", ""), "offset"),
        (path.replace("?offset=0", "?offset=-1"), "offset"),
        (path.replace("?offset=0", "?offset=0&force=1"), "offset"),
    ] {
        let said = machine.connection.said::<LogsAnswer>("POST", &path, "bytes").await.unwrap_err();
        assert_eq!((said.code, said.field.as_deref()), (RefusalCode::InvalidRequest, Some(field)), "{path}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_enrollment_token_is_used_once_and_repeated_to_the_same_key() {
    let cluster = Cluster::start().await;
    let invitation = cluster.invite("nas").await;
    let key = new_key();
    let mut stranger = cluster.connect(None).await;
    let body = |key: &rcgen::KeyPair| encode(&EnrollRequest { token: invitation.token.token.clone(), csr: csr(key) });
    let first: EnrollAnswer = stranger.said("POST", route::ENROLL, body(&key)).await.unwrap();
    let again: EnrollAnswer = stranger.said("POST", route::ENROLL, body(&key)).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(first.trust_bundle, [cluster.ca()]);
    let before = cluster.dump();
    let other = stranger.said::<EnrollAnswer>("POST", route::ENROLL, body(&new_key())).await;
    assert_eq!(code(other), RefusalCode::Unauthenticated);
    assert_eq!(cluster.dump(), before);
    cluster.clock.advance_utc(limits::ENROLLMENT_TTL);
    let late = stranger.said::<EnrollAnswer>("POST", route::ENROLL, body(&key)).await;
    assert_eq!(code(late), RefusalCode::Unauthenticated);
    cluster.stop().await;
}

#[tokio::test]
async fn a_run_goes_all_the_way_over_the_wire() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    let taken = machine.take().await;
    assert_eq!(taken.offer.run_id, run);
    assert!(matches!(machine.starting(&taken).await.unwrap().verdict, StartingVerdict::Accepted(_)));
    let RunningAnswer { lease } = machine.running(&taken).await.unwrap();
    assert!(lease.remaining_ms > Millis::ZERO);
    let mut log = Vec::new();
    leasehold_core::frame::encode_output(
        &mut log,
        leasehold_core::time::UtcMillis::new(1),
        leasehold_core::frame::Stream::Stdout,
        b"hello\n",
    );
    assert_eq!(machine.log(&taken, 0, &log).await.unwrap().durable, log.len() as u64);
    let beat = encode(&HeartbeatRequest {
        session_generation: machine.generation,
        session_version: machine.version,
        slots: 3,
        draining: false,
        faults: None,
        renewals: vec![Renewal {
            attempt_id: taken.attempt(),
            lease: taken.proof(),
            version: lease.version,
            cancel_incomplete: None,
        }],
    });
    let beaten: HeartbeatAnswer =
        machine.connection.said("POST", &route::heartbeat(machine.session), beat).await.unwrap();
    assert!(matches!(beaten.leases[0].verdict, RenewalVerdict::Renewed(_)));
    let EndAnswer { run_state, .. } = machine.exited(&taken, 0, &log).await.unwrap();
    assert_eq!(run_state.as_str(), "succeeded");
    let offline =
        encode(&OfflineRequest { session_generation: machine.generation, session_version: beaten.session.version });
    let gone: OfflineAnswer = machine.connection.said("POST", &route::offline(machine.session), offline).await.unwrap();
    assert_eq!(gone.session.state.as_str(), "offline");
    cluster.stop().await;
}

#[tokio::test]
async fn a_run_claimed_for_a_worker_that_went_away_is_found_by_the_same_ask() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    let ask = cluster.ask();
    let body = machine.pull_request(std::slice::from_ref(&ask), Millis::from_secs(30));
    let path = route::pull(machine.session);
    let mut doomed = cluster.connect(Some(&machine.identity)).await;
    let open = tokio::spawn(async move { doomed.call("POST", &path, body).await });
    let claimed = async {
        while cluster.control.run_view(run).await.unwrap().run.state != RunState::Dispatching {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.expect("it is never claimed");
    // Whatever became of the answer, the worker does not have it.
    open.abort();
    let answer = machine.pull(&[ask], Millis::from_secs(10)).await.unwrap();
    assert!(matches!(&answer.asks[0].verdict, AskVerdict::Granted(offer) if offer.run_id == run));
    cluster.stop().await;
}

#[tokio::test]
async fn a_drain_answers_open_pulls() {
    let cluster = Cluster::start().await;
    let machine = cluster.agent("nas").await;
    let pull = || {
        let mut connection = machine.connection.clone();
        let (path, body) =
            (route::pull(machine.session), machine.pull_request(&[cluster.ask()], Millis::from_secs(30)));
        tokio::spawn(async move { connection.call("POST", &path, body).await })
    };
    // The later pull of a session answers the earlier one: then the later one is open.
    let (mut one, mut other) = (pull(), pull());
    let open = tokio::select! {
        answer = &mut one => {
            answer.unwrap();
            other
        }
        answer = &mut other => {
            answer.unwrap();
            one
        }
    };
    assert!(!open.is_finished());
    drop(machine);
    cluster.stop().await;
    let pulled: PullAnswer = parse(&open.await.unwrap().body).unwrap();
    assert_eq!(pulled.asks[0].verdict, AskVerdict::None);
}

#[tokio::test]
async fn a_started_lease_never_crosses_a_boot_and_the_launchers_word_does() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    cluster.submit(&["true"]).await;
    let taken = machine.take().await;
    machine.starting(&taken).await.unwrap();

    // The machine comes up again from another boot, with everything it knew.
    let answer: RegisterAnswer = {
        let registration = |machine: &Machine<'_>| {
            encode(&RegisterRequest::new(
                machine.ticket.clone(),
                &capabilities(),
                4,
                "1a2b3c4d-boot".parse().unwrap(),
                "0.1.0",
            ))
        };
        machine.ticket = machine.register(machine.registration()).await.unwrap().ticket;
        machine.session = SessionId::new(cluster.clock.utc(), &*cluster.entropy);
        let body = registration(&machine);
        let before = cluster.dump();
        let path = route::session(machine.session);
        let waiting = machine.connection.said::<RegisterAnswer>("PUT", &path, body.clone()).await.unwrap_err();
        assert_eq!(waiting.code, RefusalCode::SessionLive);
        assert!(waiting.retry_after_ms.is_some());
        assert_ne!(cluster.dump(), before, "the rival is noted, and nothing else");
        cluster.clock.advance_boot(Millis::from_secs(24));
        machine.connection.said("PUT", &path, body).await.unwrap()
    };
    (machine.generation, machine.version) = (answer.session.generation, answer.session.version);

    let before = cluster.dump();
    assert_eq!(code(machine.starting(&taken).await), RefusalCode::LeaseFenced);
    assert_eq!(code(machine.running(&taken).await), RefusalCode::LeaseFenced);
    assert_eq!(cluster.dump(), before);
    for ending in [WireEnding::NeverSpawned, WireEnding::Lost { evidence: EvidenceKind::MachineRebooted }] {
        let body = encode(&EndRequest {
            session_generation: machine.generation,
            lease: taken.proof(),
            ending,
            completion: None,
            running: None,
            log: None,
            usage: None,
            cancel_incomplete: None,
        });
        let path = route::end(machine.session, taken.attempt());
        assert_eq!(code(machine.connection.said::<EndAnswer>("POST", &path, body).await), RefusalCode::LeaseFenced);
    }
    let renewal = Renewal {
        attempt_id: taken.attempt(),
        lease: taken.proof(),
        version: taken.offer.lease.version,
        cancel_incomplete: None,
    };
    let beat = encode(&HeartbeatRequest {
        session_generation: machine.generation,
        session_version: machine.version,
        slots: 1,
        draining: false,
        faults: None,
        renewals: vec![renewal],
    });
    let beaten: HeartbeatAnswer =
        machine.connection.said("POST", &route::heartbeat(machine.session), beat).await.unwrap();
    let RenewalVerdict::Refused(refused) = &beaten.leases[0].verdict else { panic!("{beaten:?}") };
    assert_eq!(refused.code, RefusalCode::LeaseFenced);

    // What the launcher's own receipt says is accepted from any boot.
    assert_eq!(machine.exited(&taken, 0, b"").await.unwrap().run_state, RunState::Succeeded);
    drop(machine);
    cluster.stop().await;
}
