//! Messages and core's types: nothing is lost in either direction, digests are what core says, secrets stay unseen.

use leasehold_core::attempt::{EvidenceKind, Left, RejectReason, RunningCall, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::claim::Ask;
use leasehold_core::crypto::{CompletionToken, Digest, Domain, LeaseToken};
use leasehold_core::end::{Ended, Ending as CoreEnding};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::revision::Revision;
use leasehold_core::time::Millis;
use leasehold_wire::v1::end::{CancelIncomplete, EndAnswer, EndRequest, Ending, parse_end};
use leasehold_wire::v1::heartbeat::HeartbeatRequest;
use leasehold_wire::v1::logs::{LEASE_TOKEN, LogFence, check_chunk, parse_offset};
use leasehold_wire::v1::offer::Offer;
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::pull::PullAnswer;
use leasehold_wire::v1::register::parse_registration;
use leasehold_wire::v1::running::Running;
use leasehold_wire::{Message, codes, document::Document, encode, parse};

use crate::messages as m;

#[test]
fn a_registration_is_read_with_the_digest_of_its_canonical_bytes() {
    let body = encode(&m::register());
    let registration = parse_registration(m::session_id(), &body).unwrap();
    assert_eq!(registration.session, m::session_id());
    assert_eq!(registration.capabilities, m::capabilities());
    assert_eq!(registration.max_runs, 4);
    assert_eq!(registration.body, Digest::of(Domain::Registration, &m::value(&body).to_bytes()));

    let spelled_otherwise = serde_json::to_string_pretty(&serde_json::from_slice::<serde_json::Value>(&body).unwrap());
    let again = parse_registration(m::session_id(), spelled_otherwise.unwrap().as_bytes()).unwrap();
    assert_eq!(again.body, registration.body, "spelling does not make another registration");

    let other = leasehold_wire::v1::register::RegisterRequest { max_runs: 5, ..m::register() };
    assert_ne!(parse_registration(m::session_id(), &encode(&other)).unwrap().body, registration.body);
}

#[test]
fn capabilities_that_core_refuses_are_refused_by_their_path() {
    let mut request = m::register();
    let Document(Value::Map(entries)) = &mut request.capabilities else { panic!() };
    entries.insert("wings".to_owned(), Value::Int(2));
    let error = parse_registration(m::session_id(), &encode(&request)).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (RefusalCode::UnknownField, "capabilities.wings"));

    let mut request = m::register();
    request.capabilities_digest = Digest::of(Domain::Capabilities, b"others");
    let error = parse_registration(m::session_id(), &encode(&request)).unwrap_err();
    assert_eq!((error.code, error.field.as_str()), (RefusalCode::InvalidRequest, "capabilities_digest"));
}

#[test]
fn a_fence_holds_the_digest_of_the_token_and_an_ask_too() {
    let fence = m::proof().fence(m::attempt_id());
    assert_eq!(fence.token, LeaseToken::from_bytes([0x11; 32]).digest());
    assert_eq!((fence.attempt, fence.offer), (m::attempt_id(), m::offer_id(1)));
    let ask = Ask::from(&m::pull().asks[1]);
    assert_eq!(ask, Ask { offer: m::offer_id(2), token: LeaseToken::from_bytes([2; 32]).digest() });
}

#[test]
fn an_offer_comes_back_as_it_was_and_a_drift_is_found() {
    let offer = m::core_offer();
    let answer: PullAnswer = parse(&encode(&m::pull_answer())).unwrap();
    let leasehold_wire::v1::pull::AskVerdict::Granted(wire) = &answer.asks[0].verdict else { panic!() };
    assert_eq!(wire.to_core(), Ok(offer));

    let mut drifted = (**wire).clone();
    drifted.revision = Document(Revision::of_argv(["rm", "-rf", "/"]).unwrap().to_value());
    assert!(drifted.to_core().unwrap_err().to_string().contains("digest"));

    let mut unreadable = (**wire).clone();
    unreadable.revision = Document(Value::map([("command", Value::Int(7))]));
    assert!(unreadable.to_core().unwrap_err().to_string().contains("revision"));
}

#[test]
fn the_largest_revision_fits_into_an_offer_and_sixteen_of_them_into_an_answer() {
    // A script of characters that JSON must escape, and as much environment as there is room for.
    let script = "\"".repeat(30_000);
    let mut revision = Value::map([("command", Value::map([("script", Value::text(&script))]))]);
    let base = Revision::from_value(&revision).unwrap().to_canonical_bytes().len();
    let room = limits::REVISION_BYTES - base;
    let Value::Map(entries) = &mut revision else { panic!() };
    // Two variables, because one value has a limit of its own: `"A":"…","B":"…"` is thirteen bytes around the texts.
    let texts = room - 13;
    let half = texts / 2;
    let env = [("A", Value::text("x".repeat(half))), ("B", Value::text("x".repeat(texts - half)))];
    entries.insert("env".to_owned(), Value::map(env));
    let revision = Revision::from_value(&revision).unwrap();
    let size = revision.to_canonical_bytes().len();
    assert!((limits::REVISION_BYTES - 16..=limits::REVISION_BYTES).contains(&size), "{size}");

    let core = leasehold_core::offer::Offer { digest: revision.digest(), revision, ..m::core_offer() };
    let offer = Offer::from(&core);
    let bytes = serde_json::to_vec(&offer).unwrap();
    assert!(bytes.len() <= limits::OFFER_BYTES, "{}", bytes.len());

    let mut answer = m::pull_answer();
    answer.asks = (0..16)
        .map(|n| {
            let offer = Offer { offer_id: m::offer_id(n), ..offer.clone() };
            leasehold_wire::v1::pull::AskAnswer {
                offer_id: m::offer_id(n),
                verdict: leasehold_wire::v1::pull::AskVerdict::Granted(Box::new(offer)),
            }
        })
        .collect();
    let read: PullAnswer = parse(&encode(&answer)).unwrap();
    assert_eq!(read, answer);
}

#[test]
fn devices_are_a_list_of_names_that_is_left_out_where_there_are_none() {
    let plain = serde_json::to_value(Offer::from(&m::core_offer())).unwrap();
    assert_eq!(plain.get("devices"), None, "a worker of before there were devices reads it");
    let offer = leasehold_core::offer::Offer { devices: "GPU-8f1c0c52,1".parse().unwrap(), ..m::core_offer() };
    let mut sent = serde_json::to_value(Offer::from(&offer)).unwrap();
    assert_eq!(sent["devices"], serde_json::json!(["GPU-8f1c0c52", "1"]));
    let read: Offer = serde_json::from_value(sent.clone()).unwrap();
    assert_eq!(read.to_core().unwrap(), offer);
    for wrong in [serde_json::json!(["0", "0"]), serde_json::json!(["0,1"]), serde_json::json!("0")] {
        sent["devices"] = wrong;
        assert!(serde_json::from_value::<Offer>(sent.clone()).is_err(), "{sent}");
    }
}

#[test]
fn the_largest_heartbeat_fits_into_its_limit() {
    let mut beat = m::heartbeat();
    let renewal = beat.renewals[0].clone();
    beat.renewals = (0..limits::HEARTBEAT_RENEWALS)
        .map(|n| {
            let mut renewal = renewal.clone();
            renewal.attempt_id = format!("0198a3c1-0000-7000-8000-{n:012x}").parse().unwrap();
            let left = CancelIncomplete { count: 4_194_304, pids: vec![4_194_304; limits::LEFT_PIDS] };
            renewal.cancel_incomplete = (n < limits::HEARTBEAT_LEFT).then_some(left);
            renewal.version = leasehold_core::counter::LeaseVersion::new(4_000_000_000).unwrap();
            renewal.lease.generation = leasehold_core::counter::LeaseGeneration::new(4_000_000_000).unwrap();
            renewal
        })
        .collect();
    let mut fault = beat.faults.unwrap().remove(0);
    fault.detail = "\"".repeat(limits::FAULT_DETAIL_BYTES);
    beat.faults = Some(vec![fault; limits::FAULTS]);
    let bytes = encode(&beat);
    assert!(bytes.len() <= HeartbeatRequest::LIMIT, "{}", bytes.len());
    assert_eq!(parse::<HeartbeatRequest>(&bytes).unwrap(), beat);
}

#[test]
fn an_end_is_read_as_core_knows_it() {
    let worker: leasehold_core::id::WorkerId = "nas".parse().unwrap();
    let body = encode(&m::end_exited());
    let call = parse_end(worker.clone(), m::session_id(), m::attempt_id(), &body).unwrap();
    assert_eq!((call.session.worker, call.session.session), (worker, m::session_id()));
    assert_eq!(call.lease, m::proof().fence(m::attempt_id()));
    let callback = call.callback.unwrap();
    assert_eq!(callback.token, CompletionToken::from_bytes([0x22; 32]).digest());
    assert_eq!(call.running, Some(RunningCall::from(&m::running())));
    assert_eq!(call.running.unwrap().callback, callback, "the token that ends is the one whose digest ran");
    assert_eq!(call.body, Digest::of(Domain::Body, &m::value(&body).to_bytes()));
    assert_eq!(call.usage.unwrap().user, Millis::new(120));
}

#[test]
fn every_ending_survives_both_directions() {
    let status = leasehold_core::attempt::ExitStatus::Signal(9);
    let at = m::AT;
    let mut endings = vec![CoreEnding::Exited { status, at }, CoreEnding::NeverSpawned];
    endings.extend(StopReason::ALL.iter().map(|reason| CoreEnding::Stopped { reason: *reason, status, at }));
    endings.extend(
        RejectReason::ALL.iter().map(|reason| CoreEnding::Rejected { reason: *reason, detail: "why".to_owned() }),
    );
    let said = EvidenceKind::ALL.iter().filter(|kind| kind.is_workers_word());
    endings.extend(said.map(|evidence| CoreEnding::Lost { evidence: *evidence }));
    for core in endings {
        let request = EndRequest { ending: Ending::from(&core), ..m::end_lost() };
        let read: EndRequest = parse(&encode(&request)).unwrap();
        assert_eq!(CoreEnding::from(&read.ending), core);
    }
}

#[test]
fn what_could_not_be_killed_is_cut_by_who_writes_it_and_counted() {
    let left = Left { count: 40, pids: (1..=40).collect() };
    let request = EndRequest { cancel_incomplete: Some((&left).into()), ..m::end_stopped() };
    let call = parse_end("nas".parse().unwrap(), m::session_id(), m::attempt_id(), &encode(&request)).unwrap();
    assert_eq!(call.left, Some(Left { count: 40, pids: (1..=16).collect() }));
}

#[test]
fn a_detail_that_is_too_long_is_cut_by_who_writes_it() {
    let core = CoreEnding::Rejected { reason: RejectReason::Exec, detail: "ä".repeat(600) };
    let request = EndRequest { ending: Ending::from(&core), ..m::end_lost() };
    assert!(parse::<EndRequest>(&encode(&request)).is_ok());
}

#[test]
fn running_and_the_answer_to_an_end_survive_both_directions() {
    assert_eq!(Running::from(&RunningCall::from(&m::running())), m::running());
    assert_eq!(EndAnswer::from(&Ended::from(&m::end_answer())), m::end_answer());
}

#[test]
fn every_refusal_becomes_a_problem_and_comes_back() {
    for code in RefusalCode::ALL {
        let refusal = Refusal::new(*code, "why").retry_after(Millis::from_secs(1));
        let problem: Problem = parse(&encode(&Problem::from(&refusal))).unwrap();
        assert_eq!(problem.status, codes::status(*code));
        assert_eq!(Refusal::from(&problem), refusal);
    }
}

/// The problem as 0.1.0 reads it.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct EarlierProblem {
    schema: String,
    r#type: String,
    title: String,
    status: u16,
    code: String,
    detail: String,
    retry_after_ms: Option<u64>,
}

/// It would take `overloaded` for *not done*, and its own next beat then for another process's. What it cannot read it takes
/// for an answer that was lost.
#[test]
fn a_worker_of_an_earlier_release_reads_no_refusal_where_the_commit_is_unknown() {
    let refusal = Refusal::new(RefusalCode::Overloaded, "why").retry_after(Millis::from_secs(1));
    let (known, unknown) = (Problem::from(&refusal), Problem::from(&refusal).of_an_unknown_commit());
    serde_json::from_slice::<EarlierProblem>(&encode(&known)).unwrap();
    assert!(serde_json::from_slice::<EarlierProblem>(&encode(&unknown)).is_err());
    assert_eq!(parse::<Problem>(&encode(&unknown)).unwrap(), unknown);
}

#[test]
fn the_status_of_every_code_is_the_protocols() {
    let rows = [
        (400, "invalid_request unknown_field"),
        (401, "unauthenticated"),
        (403, "revoked"),
        (
            409,
            "ticket_spent session_live session_expired session_fenced lease_fenced lease_expired version_conflict \
             conflict_replay",
        ),
        (413, "limit_exceeded"),
        (426, "unsupported_protocol"),
        (429, "rate_limited"),
        (503, "overloaded"),
    ];
    let listed: usize = rows.iter().map(|(_, names)| names.split_whitespace().count()).sum();
    assert_eq!(listed, RefusalCode::ALL.len());
    for (status, names) in rows {
        for name in names.split_whitespace() {
            assert_eq!(codes::status(name.parse().unwrap()), status, "{name}");
        }
    }
}

#[test]
fn the_fences_of_a_piece_of_log_travel_in_headers() {
    let fence = LogFence { session_generation: m::heartbeat().session_generation, lease: m::proof() };
    let mut headers: Vec<(&str, String)> = fence.headers().into();
    let (name, token) = fence.token_header();
    headers.push((name, token.to_string()));
    let read = |headers: &[(&str, String)]| {
        let owned: Vec<(String, String)> =
            headers.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
        LogFence::from_headers(|name| owned.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str()))
    };
    assert_eq!(read(&headers), Ok(fence));
    for at in 0..headers.len() {
        let mut missing = headers.clone();
        let (name, _) = missing.remove(at);
        assert_eq!(read(&missing).unwrap_err().field, name);
        for bad in ["", "-1", "007", "1e3", "not it"] {
            let mut wrong = headers.clone();
            wrong[at].1 = bad.to_owned();
            let error = read(&wrong).unwrap_err();
            assert_eq!((error.code, error.field.as_str()), (RefusalCode::InvalidRequest, name), "{bad}");
        }
    }
    assert_eq!(headers.len(), 4);
    assert_eq!(headers[3].0, LEASE_TOKEN);
    assert!(headers[..3].iter().all(|(_, text)| *text != headers[3].1), "the token stands in its own header only");
}

#[test]
fn an_offset_has_one_spelling_and_a_piece_has_bounds() {
    assert_eq!(parse_offset(Some("offset=0")), Ok(0));
    assert_eq!(parse_offset(Some("offset=65536")), Ok(65_536));
    for bad in [
        None,
        Some(""),
        Some("offset="),
        Some("offset=-1"),
        Some("offset=01"),
        Some("offset=1&x=2"),
        Some("at=1"),
        Some("offset=18446744073709551615"),
    ] {
        assert_eq!(parse_offset(bad).unwrap_err().field, "offset", "{bad:?}");
    }
    assert!(check_chunk(limits::LOG_CHUNK).is_ok());
    assert_eq!(check_chunk(limits::LOG_CHUNK + 1).unwrap_err().code, RefusalCode::LimitExceeded);
    assert_eq!(check_chunk(0).unwrap_err().code, RefusalCode::InvalidRequest);
}

#[test]
fn no_message_shows_a_secret_when_debug_printed() {
    let shown = [
        format!("{:?}", m::enroll()),
        format!("{:?}", m::enroll_answer()),
        format!("{:?}", m::register()),
        format!("{:?}", m::register_answer()),
        format!("{:?}", m::heartbeat()),
        format!("{:?}", m::pull()),
        format!("{:?}", m::starting()),
        format!("{:?}", m::running_request()),
        format!("{:?}", m::end_exited()),
    ];
    for byte in [0x11_u8, 0x22, 0x33, 0x44, 0x55, 1, 2, 3] {
        let secret = LeaseToken::from_bytes([byte; 32]).reveal();
        for text in &shown {
            assert!(!text.contains(&secret) && !text.contains(&format!("{:?}", [byte; 32])), "{text}");
        }
    }
}

#[test]
fn an_offer_never_holds_the_token_or_its_digest() {
    let text = String::from_utf8(encode(&m::pull_answer())).unwrap();
    let token = LeaseToken::from_bytes([1; 32]);
    assert!(!text.contains(&token.reveal()) && !text.contains(&token.digest().to_string()));
}
