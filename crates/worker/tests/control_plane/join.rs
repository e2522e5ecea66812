//! Joining: whom a new machine trusts, what it writes, and what it says when it is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_core::crypto::Ticket;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::UtcMillis;
use leasehold_wire::parse;
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_worker::durable::Dir;
use leasehold_worker::identity::Identity;
use leasehold_worker::join::{JoinError, join};
use leasehold_worker::session_file::SessionFile;
use leasehold_worker::state::StateFile;
use rcgen::{CertificateParams, KeyPair};

use crate::server::{Ca, DOMAIN, Reply, Request, Server};

/// What an enrollment answers, before a test spoils it.
pub(crate) fn enrolled(ca: &Ca, request: &Request) -> EnrollAnswer {
    let asked = parse::<EnrollRequest>(&request.body).unwrap();
    EnrollAnswer {
        worker_id: "nas".parse().unwrap(),
        certificates: vec![ca.worker(&asked.csr, "nas")],
        trust_bundle: vec![ca.der.to_vec()],
        ticket: Ticket::from_bytes([3; 32]),
        expires_at_ms: UtcMillis::new(4_000_000_000_000),
    }
}

fn has_identity(state: &Path) -> bool {
    state.join("identity.json").exists()
}

#[tokio::test]
async fn a_machine_that_joined_has_its_identity_and_its_first_ticket() {
    let ca = std::sync::Arc::new(Ca::new());
    let signer = std::sync::Arc::clone(&ca);
    let server = Server::start(&ca, move |request| Reply::message(&enrolled(&signer, request))).await;
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("made/by/join");

    join(&state, &server.url(), &format!(" {}\n", ca.token()), false).await.unwrap();

    let dir = Dir::open(&state).unwrap();
    let identity = Identity::read(&dir).unwrap().unwrap();
    assert_eq!((identity.worker.to_string(), identity.trust_domain.to_string()), ("nas".into(), DOMAIN.into()));
    assert_eq!((identity.address, identity.ca), (server.address.to_string(), ca.pin));
    assert_eq!(SessionFile::read(&dir).unwrap(), Some(SessionFile::enrolled(Ticket::from_bytes([3; 32]))));
    for file in ["identity.json", "session.json"] {
        let mode = std::fs::metadata(state.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!state.join("joining.json").exists(), "the key is in one place only");
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].line.as_str(), requests[0].certified), ("POST /worker/v1/enroll", false));

    let again = join(&state, &server.url(), &ca.token(), false).await.unwrap_err();
    assert!(matches!(again, JoinError::Exists(_)), "{again}");
    assert_eq!((again.code(), server.requests().len()), (24, 1));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let ca = std::sync::Arc::new(Ca::new());
    let (signer, asked) = (std::sync::Arc::clone(&ca), AtomicUsize::new(0));
    let server = Server::start(&ca, move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Hangup,
        _ => Reply::message(&enrolled(&signer, request)),
    })
    .await;
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");

    let lost = join(&state, &server.url(), &ca.token(), false).await.unwrap_err();
    assert!(matches!(lost, JoinError::Unknown(_)), "{lost}");
    assert!(lost.to_string().contains("Run the same line again"), "{lost}");
    assert!(!has_identity(&state));
    join(&state, &server.url(), &ca.token(), false).await.unwrap();

    let key_of = |request: &Request| {
        let csr = parse::<EnrollRequest>(&request.body).unwrap().csr;
        rcgen::PublicKeyData::subject_public_key_info(
            &rcgen::CertificateSigningRequestParams::from_der(&csr.into()).unwrap().public_key,
        )
    };
    let requests = server.requests();
    assert_eq!(key_of(&requests[0]), key_of(&requests[1]));
}

#[tokio::test]
async fn a_stranger_gets_nothing_and_is_named() {
    let (ours, other) = (Ca::new(), Ca::new());
    let parent = tempfile::tempdir().unwrap();
    for (ca, uri) in [
        (&other, format!("spiffe://{DOMAIN}/control")),
        (&ours, format!("spiffe://{DOMAIN}/worker/nas")),
        (&ours, format!("https://{DOMAIN}/control")),
    ] {
        let server = Server::named(ca, &uri, |_| Reply::Silence).await;
        let state = parent.path().join("state");
        let error = join(&state, &server.url(), &ours.token(), false).await.unwrap_err();
        assert!(matches!(error, JoinError::Stranger(..)), "{uri}: {error}");
        assert!(error.to_string().contains("`leasehold worker enroll`"), "{error}");
        assert_eq!(server.requests().len(), 0, "the token must not reach {uri}");
        assert!(!has_identity(&state));
    }
}

#[tokio::test]
async fn nobody_at_home_and_a_refused_token_say_what_to_do() {
    let ca = Ca::new();
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = join(&state, &format!("https://{free}"), &ca.token(), false).await.unwrap_err();
    assert!(matches!(error, JoinError::Connection(_)), "{error}");
    assert!(error.to_string().contains("run the same line again"), "{error}");

    for (code, help, exit) in [
        (RefusalCode::Unauthenticated, "Ask for a new line with `leasehold worker enroll`", 1),
        (RefusalCode::UnsupportedProtocol, "Install the leasehold-worker that comes with this control plane", 22),
        (RefusalCode::Overloaded, "Run the same line again in a minute", 1),
    ] {
        let server = Server::start(&ca, move |_| Reply::refusal(&Refusal::new(code, "no"))).await;
        let error = join(&state, &server.url(), &ca.token(), false).await.unwrap_err();
        assert!(error.to_string().contains(help), "{error}");
        assert_eq!(error.code(), exit);
        assert!(!has_identity(&state));
    }
}

#[tokio::test]
async fn what_does_not_fit_the_request_never_becomes_an_identity() {
    type Spoil = fn(&Ca, &Request, &mut EnrollAnswer);
    let spoilt: [(&str, Spoil); 5] = [
        ("of another key", |ca, _, answer| {
            let key = KeyPair::generate().unwrap();
            let csr = CertificateParams::default().serialize_request(&key).unwrap();
            answer.certificates = vec![ca.worker(csr.der(), "nas")];
        }),
        ("does not name spiffe://home.example/worker/pi", |_, _, answer| answer.worker_id = "pi".parse().unwrap()),
        ("lacks the CA", |_, _, answer| answer.trust_bundle = vec![Ca::new().der.to_vec()]),
        ("is not good", |_, request, answer| {
            let csr = parse::<EnrollRequest>(&request.body).unwrap().csr;
            answer.certificates = vec![Ca::new().worker(&csr, "nas")];
        }),
        ("an empty list", |_, _, answer| answer.certificates.clear()),
    ];
    for (expected, spoil) in spoilt {
        let ca = std::sync::Arc::new(Ca::new());
        let signer = std::sync::Arc::clone(&ca);
        let server = Server::start(&ca, move |request| {
            let mut answer = enrolled(&signer, request);
            spoil(&signer, request, &mut answer);
            Reply::message(&answer)
        })
        .await;
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("state");
        let error = join(&state, &server.url(), &ca.token(), false).await.unwrap_err();
        assert!(matches!(&error, JoinError::Answer(_)) && error.to_string().contains(expected), "{expected}: {error}");
        assert!(!has_identity(&state));
    }
}
