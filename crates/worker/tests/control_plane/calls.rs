//! Calls over mutual TLS: what was answered, refused, certainly not done, or is unknown.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use leasehold_core::counter::{LeaseGeneration, SessionGeneration, SessionVersion};
use leasehold_core::crypto::{LeaseToken, Ticket};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::{SessionProjection, SessionState};
use leasehold_core::time::Millis;
use leasehold_wire::encode;
use leasehold_wire::v1::drain::DrainAnswer;
use leasehold_wire::v1::logs::LogsAnswer;
use leasehold_wire::v1::offline::OfflineAnswer;
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::register::RegisterAnswer;
use leasehold_worker::client::Client;
use leasehold_worker::engine::port::{Answer, Call, HeldLease, Outcome, SessionNumbers};
use leasehold_worker::identity::Identity;
use rcgen::{CertificateParams, KeyPair};
use zeroize::Zeroizing;

use crate::server::{Ca, DOMAIN, Reply, Request, Server, UNREAD_OFFER};

const PATIENCE: Millis = Millis::from_secs(20);

pub(crate) fn identity(ca: &Ca, server: &Server) -> Identity {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap();
    Identity {
        worker: "nas".parse().unwrap(),
        trust_domain: DOMAIN.parse().unwrap(),
        address: server.address.to_string(),
        ca: ca.pin,
        certificates: vec![ca.worker(csr.der(), "nas")],
        key: Zeroizing::new(key.serialize_der()),
        trust_bundle: vec![ca.der.to_vec()],
        machine: None,
        allow_root: false,
    }
}

async fn plane(answering: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> (Server, Client) {
    let ca = Ca::new();
    let server = Server::start(&ca, answering).await;
    let client = Client::new(&identity(&ca, &server)).unwrap();
    (server, client)
}

fn numbers() -> SessionNumbers {
    SessionNumbers {
        session: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
        generation: SessionGeneration::new(2).unwrap(),
    }
}

fn drain() -> Call {
    Call::Drain { session: numbers(), version: SessionVersion::new(5).unwrap() }
}

fn log(offset: u64) -> Call {
    let lease = HeldLease {
        attempt: "01900000-0000-7000-8000-000000000002".parse().unwrap(),
        offer: "01900000-0000-7000-8000-000000000003".parse().unwrap(),
        generation: LeaseGeneration::new(1).unwrap(),
        token: LeaseToken::from_bytes([9; 32]),
    };
    Call::Log { session: numbers(), lease, offset, most: 1024 }
}

fn session() -> SessionProjection {
    SessionProjection {
        generation: SessionGeneration::new(2).unwrap(),
        version: SessionVersion::new(6).unwrap(),
        state: SessionState::Draining,
        remaining: Millis::from_secs(45),
        interval: Millis::from_secs(15),
    }
}

fn drained() -> DrainAnswer {
    DrainAnswer { session: (&session()).into() }
}

async fn outcome(client: &Client, call: &Call, timeout: Millis) -> Outcome {
    client.call(call, Bytes::new(), timeout).await.0
}

#[tokio::test]
async fn a_call_shows_the_certificate_and_brings_the_answer() {
    let (server, client) = plane(|_| Reply::message(&drained())).await;
    let outcome = outcome(&client, &drain(), PATIENCE).await;
    assert!(matches!(&outcome, Outcome::Answered(Answer::Drained(got)) if *got == session()), "{outcome:?}");
    let requests = server.requests();
    assert_eq!(requests[0].line, "POST /worker/v1/sessions/01900000-0000-7000-8000-000000000001/drain");
    assert!(requests[0].certified);
}

#[tokio::test]
async fn a_registration_is_sent_byte_for_byte_as_it_was_kept() {
    let ticket = Ticket::from_bytes([4; 32]);
    let answer = RegisterAnswer { session: (&session()).into(), ticket: ticket.clone() };
    let (server, client) = plane(move |_| Reply::message(&answer)).await;
    // Spaces and order are the file's, not the encoder's.
    let body = "{ \"schema\" : \"leasehold/register/v1\",  \"ticket\":\"…\" }".to_owned();
    let call = Call::Register { session: numbers().session, body: body.clone() };
    for _ in 0..2 {
        let outcome = outcome(&client, &call, PATIENCE).await;
        assert!(
            matches!(&outcome, Outcome::Answered(Answer::Registered { ticket: got, .. }) if *got == ticket),
            "{outcome:?}"
        );
    }
    for request in server.requests() {
        assert_eq!(
            (request.line.as_str(), &request.body[..]),
            ("PUT /worker/v1/sessions/01900000-0000-7000-8000-000000000001", body.as_bytes())
        );
    }
}

#[tokio::test]
async fn a_refusal_keeps_its_code_its_time_and_its_projection() {
    let refusal = Refusal::new(RefusalCode::VersionConflict, "version 5 is not current")
        .retry_after(Millis::from_secs(3))
        .showing_session(session());
    let said = refusal.clone();
    let (_server, client) = plane(move |_| Reply::refusal(&said)).await;
    let outcome = outcome(&client, &drain(), PATIENCE).await;
    assert!(matches!(&outcome, Outcome::Refused(got) if *got == refusal), "{outcome:?}");
}

#[tokio::test]
async fn every_code_of_the_protocol_is_understood() {
    for &code in RefusalCode::ALL {
        let (_server, client) = plane(move |_| Reply::code(code)).await;
        let outcome = outcome(&client, &drain(), PATIENCE).await;
        assert!(matches!(&outcome, Outcome::Refused(got) if got.code == code), "{code}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_proves_nothing() {
    let good = encode(&drained());
    let text = String::from_utf8(good.clone()).unwrap();
    let mut long = good.clone();
    long.resize(1024 * 1024, b' ');
    for (what, status, body) in [
        ("a page of a proxy", 503, b"<html>".to_vec()),
        ("nothing", 200, Vec::new()),
        ("half", 200, good[..good.len() - 1].to_vec()),
        ("an unknown field", 200, text.replacen('{', "{\"more\":1,", 1).into_bytes()),
        ("another message", 200, text.replace("drain-answer", "offline-answer").into_bytes()),
        ("too much", 200, long),
        ("a redirect", 302, good),
    ] {
        let (_server, client) = plane(move |_| Reply::Answer(status, body.clone())).await;
        let outcome = outcome(&client, &drain(), PATIENCE).await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{what}: {outcome:?}");
    }
}

#[tokio::test]
async fn what_was_read_and_not_answered_is_unknown() {
    let (server, client) = plane(|_| Reply::Hangup).await;
    let hung_up = outcome(&client, &drain(), PATIENCE).await;
    assert!(matches!(hung_up, Outcome::Unknown(_)), "{hung_up:?}");
    assert_eq!(server.requests().len(), 1, "the client never repeats a call by itself");

    let (server, client) = plane(|_| Reply::Silence).await;
    let late = outcome(&client, &drain(), Millis::new(300)).await;
    assert!(matches!(late, Outcome::Unknown(_)), "{late:?}");
    assert!(server.requests().len() <= 1);
}

#[tokio::test]
async fn what_the_control_plane_does_not_know_itself_is_unknown() {
    let refusal = Refusal::new(RefusalCode::Overloaded, "send it again").retry_after(Millis::from_secs(1));
    let problem = Problem::from(&refusal).of_an_unknown_commit();
    let (_server, client) = plane(move |_| Reply::Answer(503, encode(&problem))).await;
    let outcome = outcome(&client, &drain(), PATIENCE).await;
    assert!(matches!(&outcome, Outcome::Unknown(why) if why == "send it again"), "{outcome:?}");
}

#[tokio::test]
async fn what_never_left_is_certainly_not_done() {
    let ca = Ca::new();
    let server = Server::start(&ca, |_| Reply::message(&drained())).await;
    let mut nowhere = identity(&ca, &server);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    nowhere.address = free.to_string();
    let outcome_of = async |identity: &Identity| outcome(&Client::new(identity).unwrap(), &drain(), PATIENCE).await;
    let refused = outcome_of(&nowhere).await;
    assert!(matches!(&refused, Outcome::NotDone(why) if why.contains(&free.to_string())), "{refused:?}");

    for uri in [format!("spiffe://{DOMAIN}/worker/nas"), "spiffe://else.example/control".to_owned()] {
        let stranger = Server::named(&ca, &uri, |_| Reply::message(&drained())).await;
        let outcome = outcome_of(&identity(&ca, &stranger)).await;
        assert!(matches!(outcome, Outcome::NotDone(_)), "{uri}: {outcome:?}");
        assert_eq!(stranger.requests().len(), 0, "nothing is said to {uri}");
    }
    let mut of_another_ca = identity(&ca, &server);
    of_another_ca.trust_bundle = vec![Ca::new().der.to_vec()];
    let outcome = outcome_of(&of_another_ca).await;
    assert!(matches!(outcome, Outcome::NotDone(_)), "{outcome:?}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_broken_connection_is_made_anew_by_the_next_call() {
    let asked = AtomicUsize::new(0);
    let (server, client) = plane(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        1 => Reply::Hangup,
        _ => Reply::message(&drained()),
    })
    .await;
    for expected in [true, false, true, true] {
        let outcome = outcome(&client, &drain(), PATIENCE).await;
        assert_eq!(matches!(outcome, Outcome::Answered(_)), expected, "{outcome:?}");
    }
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1, 1]);
}

#[tokio::test]
async fn a_silent_call_delays_no_other_on_its_connection() {
    let (server, client) = plane(|request| {
        if request.line.ends_with("/drain") {
            Reply::Silence
        } else {
            Reply::message(&OfflineAnswer { session: (&session()).into() })
        }
    })
    .await;
    let offline = Call::Offline { session: numbers(), version: SessionVersion::new(6).unwrap() };
    let drain = drain();
    let silent = client.call(&drain, Bytes::new(), PATIENCE);
    let answered = async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        outcome(&client, &offline, PATIENCE).await
    };
    tokio::select! {
        (outcome, _) = silent => panic!("the silent call has an outcome: {outcome:?}"),
        outcome = answered => assert!(matches!(outcome, Outcome::Answered(Answer::Offline)), "{outcome:?}"),
    }
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0]);
}

#[tokio::test]
async fn logs_go_over_a_connection_of_their_own_with_their_fences_in_headers() {
    let (server, client) = plane(|request| {
        if request.line.contains("/logs") {
            Reply::message(&LogsAnswer { durable: 4101 })
        } else {
            Reply::message(&drained())
        }
    })
    .await;
    outcome(&client, &drain(), PATIENCE).await;
    let piece = Bytes::from_static(b"\x00\xffframes");
    let (outcome, directives) = client.call(&log(4096), piece.clone(), PATIENCE).await;
    assert!(
        matches!(outcome, Outcome::Answered(Answer::Log { durable: 4101 })) && directives.is_empty(),
        "{outcome:?}"
    );
    let requests = server.requests();
    let (control, bulk) = (&requests[0], &requests[1]);
    assert_ne!(control.connection, bulk.connection);
    assert!(bulk.line.ends_with("/attempts/01900000-0000-7000-8000-000000000002/logs?offset=4096"), "{}", bulk.line);
    assert_eq!(bulk.body, piece);
    let header = |name: &str| bulk.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("leasehold-session-generation"), "2");
    assert_eq!(header("leasehold-lease-token"), LeaseToken::from_bytes([9; 32]).reveal());
}

#[tokio::test]
async fn stalled_logs_delay_no_other_call_and_hold_no_more_than_their_pieces() {
    let (server, client) = plane(|_| Reply::message(&drained())).await;
    let Call::Log { session, lease, .. } = log(0) else { unreachable!() };
    let lease = HeldLease { offer: UNREAD_OFFER.parse().unwrap(), ..lease };
    let piece = Bytes::from(vec![b'x'; leasehold_core::limits::LOG_CHUNK]);
    let (client, session) = (std::sync::Arc::new(client), session);
    // As many as the engine ever has under way, each larger than every window.
    let stalled: Vec<_> = (0..4)
        .map(|_| {
            let (client, lease, piece) = (client.clone(), lease.clone(), piece.clone());
            tokio::spawn(async move {
                let call = Call::Log { session, lease, offset: 0, most: piece.len() };
                client.call(&call, piece, Millis::from_secs(6)).await.0
            })
        })
        .collect();
    let began = tokio::time::Instant::now();
    let mut slowest = std::time::Duration::ZERO;
    while began.elapsed() < std::time::Duration::from_secs(4) {
        let sent = tokio::time::Instant::now();
        let outcome = outcome(&client, &drain(), PATIENCE).await;
        assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
        slowest = slowest.max(sent.elapsed());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(stalled.iter().all(|call| !call.is_finished()), "they stall meanwhile");
    // A beat has a third of its interval, at least five thirds of a second, before it counts as failed.
    assert!(slowest < std::time::Duration::from_millis(1_600), "a call took {slowest:?}");
    for call in stalled {
        assert!(matches!(call.await.unwrap(), Outcome::Unknown(_)));
    }
    let used: std::collections::BTreeSet<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(used.len(), 1, "the stalled ones are on a connection of their own");
    // What was stalled is over: a new piece goes through on a new connection.
    let Call::Log { lease, .. } = log(0) else { unreachable!() };
    let call = Call::Log { session, lease, offset: 0, most: 1024 };
    client.call(&call, Bytes::from_static(b"piece"), PATIENCE).await;
    assert!(server.requests().last().unwrap().line.contains("/logs?"), "it arrived");
}

#[tokio::test]
async fn a_piece_that_something_on_the_way_finds_too_large_is_to_be_split() {
    let (_server, client) = plane(|_| Reply::Answer(413, b"<html>413 Request Entity Too Large</html>".to_vec())).await;
    let (outcome, _) = client.call(&log(0), Bytes::from_static(b"piece"), PATIENCE).await;
    assert!(matches!(&outcome, Outcome::Refused(got) if got.code == RefusalCode::LimitExceeded), "{outcome:?}");
}
