//! Becoming a worker: whose name, whose key, how often.

use std::collections::BTreeMap;

use leasehold_core::crypto::EnrollmentToken;
use leasehold_core::limits;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::time::{Clock, Millis};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{EnrolledWorker, Enrollment, Invite};
use crate::error::{Denied, ServiceError, WorkerResult};
use crate::fixture::{World, caller, key, request};
use crate::principal::{NotAWorker, WorkerPrincipal};

async fn invite(world: &World, worker: &str) -> Enrollment {
    let invite = Invite { worker: Some(worker.parse().unwrap()), ..Invite::default() };
    world.plane.create_enrollment(&caller(), invite).await.unwrap()
}

fn code(answer: WorkerResult<EnrolledWorker>) -> RefusalCode {
    match answer {
        Err(ServiceError::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn the_name_comes_from_the_enrollment_whatever_the_request_says() {
    let world = World::new().await;
    let enrollment = invite(&world, "nas").await;
    let mut params = rcgen::CertificateParams::default();
    let domain = world.plane.keys().trust_domain().clone();
    let uri = domain.worker_uri(&"somebody-else".parse().unwrap());
    params.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let request = params.serialize_request(&key()).unwrap();

    let enrolled = world.plane.enroll(&enrollment.token.token, request.der(), None).await.unwrap();
    assert_eq!(enrolled.worker.as_str(), "nas");
    let principal = WorkerPrincipal::of_verified_certificate(&enrolled.chain[0], &domain).unwrap();
    assert_eq!(principal.worker().as_str(), "nas");
    let (_, leaf) = X509Certificate::from_der(&enrolled.chain[0]).unwrap();
    assert!(!leaf.is_ca());
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any);
    let lives = Millis::new(u64::try_from(principal.expires_at().get() - world.clock.utc().get()).unwrap());
    assert_eq!(lives, limits::CERTIFICATE_TTL);
}

#[tokio::test]
async fn a_worker_certificate_is_signed_by_the_ca_that_the_join_token_pins() {
    let world = World::new().await;
    let enrollment = invite(&world, "nas").await;
    let enrolled = world.plane.enroll(&enrollment.token.token, &request(&key()), None).await.unwrap();
    let (_, ca) = X509Certificate::from_der(&enrolled.trust_bundle[0]).unwrap();
    let (_, leaf) = X509Certificate::from_der(&enrolled.chain[0]).unwrap();
    assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
    assert_eq!(leaf.issuer(), ca.subject());
    assert_eq!(leasehold_core::join::public_key_digest(ca.public_key().raw), enrollment.token.ca);
}

#[tokio::test]
async fn within_its_life_a_token_is_good_for_one_key_and_gives_it_the_same_answer() {
    let world = World::new().await;
    let enrollment = invite(&world, "nas").await;
    let key_of_machine = key();
    let first = world.plane.enroll(&enrollment.token.token, &request(&key_of_machine), None).await.unwrap();
    let again = world.plane.enroll(&enrollment.token.token, &request(&key_of_machine), None).await.unwrap();
    assert_eq!(again, first, "certificate and ticket");
    assert_eq!(
        code(world.plane.enroll(&enrollment.token.token, &request(&key()), None).await),
        RefusalCode::Unauthenticated
    );
    world.clock.advance(limits::ENROLLMENT_TTL);
    let late = world.plane.enroll(&enrollment.token.token, &request(&key_of_machine), None).await;
    assert_eq!(code(late), RefusalCode::Unauthenticated);
}

#[tokio::test]
async fn an_unknown_token_and_a_bad_request_change_nothing() {
    let world = World::new().await;
    let enrollment = invite(&world, "nas").await;
    let before = world.store.dump();
    let good = request(&key());
    let mut forged = good.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let strange = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512);
    let cases = [
        (EnrollmentToken::from_bytes([9; 32]), good.clone(), RefusalCode::Unauthenticated),
        (enrollment.token.token.clone(), forged, RefusalCode::InvalidRequest),
        (enrollment.token.token.clone(), good[..40].to_vec(), RefusalCode::InvalidRequest),
        (enrollment.token.token.clone(), vec![0; limits::JSON_BODY + 1], RefusalCode::LimitExceeded),
        (enrollment.token.token.clone(), request(&strange.unwrap()), RefusalCode::InvalidRequest),
    ];
    for (token, request, expected) in cases {
        assert_eq!(code(world.plane.enroll(&token, &request, None).await), expected);
    }
    assert_eq!(world.store.dump(), before);
}

#[tokio::test]
async fn what_cannot_be_invited_is_refused_with_the_field() {
    let world = World::new().await;
    let labels = |key: &str, text: &str| BTreeMap::from([(key.to_owned(), text.to_owned())]);
    let cases = [
        ("ttl", Invite { ttl: Some(Millis::ZERO), ..Invite::default() }),
        ("ttl", Invite { ttl: Some(limits::ENROLLMENT_TTL_MAX.plus(Millis::new(1))), ..Invite::default() }),
        ("labels", Invite { labels: labels("two words", "x"), ..Invite::default() }),
        ("labels.site", Invite { labels: labels("site", "a\nb"), ..Invite::default() }),
        (
            "labels",
            Invite { labels: (0..65).map(|n| (format!("l{n}"), "x".to_owned())).collect(), ..Invite::default() },
        ),
    ];
    for (expected, invite) in cases {
        match world.plane.create_enrollment(&caller(), invite).await {
            Err(ServiceError::Refused(Denied::Invalid { field, .. })) => assert_eq!(field, expected),
            other => panic!("not refused: {other:?}"),
        }
    }
    let named = world.plane.create_enrollment(&caller(), Invite::default()).await.unwrap();
    assert!(named.worker.as_str().starts_with("worker-"), "a name of chance");
}

#[tokio::test]
async fn only_a_certificate_of_a_worker_of_this_domain_makes_a_principal() {
    let world = World::new().await;
    let enrollment = invite(&world, "nas").await;
    let enrolled = world.plane.enroll(&enrollment.token.token, &request(&key()), None).await.unwrap();
    let domain = world.plane.keys().trust_domain();
    let of = |der: &[u8]| WorkerPrincipal::of_verified_certificate(der, domain);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let control = world.plane.keys().control_identity(&names, world.clock.utc(), &*world.entropy).unwrap();
    assert_eq!(of(&control.chain[0]), Err(NotAWorker::Foreign), "the control plane's own");
    assert_eq!(of(world.plane.keys().ca_certificate()), Err(NotAWorker::Uris(0)));
    assert_eq!(of(&enrolled.chain[0][1..]), Err(NotAWorker::Unreadable));
    let elsewhere = "elsewhere.example".parse().unwrap();
    let foreign = WorkerPrincipal::of_verified_certificate(&enrolled.chain[0], &elsewhere);
    assert_eq!(foreign, Err(NotAWorker::Foreign));
}

#[tokio::test]
async fn a_key_gives_the_same_token_for_the_same_request_and_is_refused_for_another() {
    let world = World::new().await;
    let ask = |key: &str, worker: Option<&str>| Invite {
        worker: worker.map(|name| name.parse().unwrap()),
        labels: BTreeMap::from([("site".to_owned(), "office".to_owned())]),
        idempotency_key: Some(key.to_owned()),
        ..Invite::default()
    };
    let who = caller();
    let invite = |invite: Invite| world.plane.create_enrollment(&who, invite);
    let first = invite(ask("box-7", None)).await.unwrap();
    world.clock.advance(Millis::from_secs(1));
    let again = invite(ask("box-7", None)).await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(
        Enrollment { replayed: false, ..again.clone() },
        first,
        "the name of chance, the token and its end included"
    );
    for other in [
        ask("box-7", Some("nas")),
        Invite { ttl: Some(Millis::from_secs(60)), ..ask("box-7", None) },
        Invite { labels: BTreeMap::new(), ..ask("box-7", None) },
    ] {
        assert_eq!(invite(other).await, Err(ServiceError::Refused(Denied::KeyReused)));
    }
    let another = invite(ask("box-8", None)).await.unwrap();
    assert_ne!((another.id, &another.worker), (first.id, &first.worker));
    assert!(another.token.token.digest() != first.token.token.digest());
    let enrolled = world.plane.enroll(&first.token.token, &request(&key()), None).await.unwrap();
    assert_eq!(enrolled.worker, first.worker);
}
