//! Calls that must be refused: each gets its documented code, and the store stays as it was.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::database::{changes, rows};
use leasehold_sim::impostor::{self, Intent, Session};
use leasehold_sim::request::Answer;
use serde_json::{Value, json};

const OFFER: &str = "01900000-0000-7000-8000-0000000000aa";
const NOBODY: &str = "01900000-0000-7000-8000-0000000000ff";

fn token(letter: char) -> String {
    // 32 bytes in base64url; the last letter carries four bits only, so it is always `A`.
    letter.to_string().repeat(42) + "A"
}

fn heartbeat() -> Value {
    json!({ "schema": "leasehold/heartbeat/v1", "session_generation": 1, "session_version": 0, "slots": 1, "renewals": [] })
}

fn pull(token: &str) -> Value {
    let ask = json!({ "offer_id": OFFER, "lease_token": token });
    json!({ "schema": "leasehold/pull/v1", "session_generation": 1, "asks": [ask], "wait_ms": 0 })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// A control plane with two enrolled workers. `victim` has a session that was registered by hand, so that nothing but
/// this test changes the store.
struct Scene {
    cluster: Cluster,
    intent: Intent,
    victim: Session,
    attacker: Session,
}

impl Scene {
    fn set() -> Result<Self> {
        let mut cluster = Cluster::start_unhurried()?;
        let victim = cluster.enroll(WorkerOptions::named("victim"))?;
        let attacker = cluster.enroll(WorkerOptions::named("attacker"))?;
        let intent = impostor::take_intent(&mut cluster, victim)?;
        let of_victim = Session::of(&impostor::holder(&cluster, victim)?, &intent.session);
        let of_attacker = Session::of(&impostor::holder(&cluster, attacker)?, &intent.session);
        let registered = of_victim.register(&intent.body)?;
        assert_eq!(registered.status, 200, "{registered:?}");
        Ok(Self { cluster, intent, victim: of_victim, attacker: of_attacker })
    }

    /// Makes a call that must be refused, and compares the store before and after.
    #[track_caller]
    fn refused(&self, what: &str, status: u16, code: &str, call: impl FnOnce() -> Result<Answer>) {
        let before = rows(&self.cluster.data()).expect("the database can be read");
        let answer = call().expect("an answer comes");
        assert_eq!((answer.status, answer.code().as_deref()), (status, Some(code)), "{what}: {answer:?}");
        let after = rows(&self.cluster.data()).expect("the database can be read");
        assert_eq!(changes(&before, &after), Vec::<String>::new(), "{what} changed the store");
    }
}

#[test]
fn another_workers_certificate_reaches_nothing_of_a_session() -> Result<()> {
    let scene = Scene::set()?;
    let attacker = &scene.attacker;
    scene.refused("a foreign heartbeat", 409, "session_fenced", || attacker.call("heartbeat", &heartbeat()));
    scene.refused("a foreign pull", 409, "session_fenced", || attacker.call("pull", &pull(&token('b'))));
    let drain = json!({ "schema": "leasehold/drain/v1", "session_generation": 1, "session_version": 0 });
    scene.refused("a foreign drain", 409, "session_fenced", || attacker.call("drain", &drain));
    scene.refused("no certificate", 401, "unauthenticated", || attacker.call_uncertified("heartbeat", &heartbeat()));

    // The owner of the session is undisturbed.
    assert_eq!(scene.victim.call("heartbeat", &heartbeat())?.status, 200);
    Ok(())
}

#[test]
fn a_session_that_never_was_is_fenced() -> Result<()> {
    let scene = Scene::set()?;
    let unknown = Session::of(&impostor::holder(&scene.cluster, 0)?, NOBODY);
    scene.refused("an unknown session", 409, "session_fenced", || unknown.call("heartbeat", &heartbeat()));
    Ok(())
}

#[test]
fn a_registration_is_repeated_exactly_or_refused() -> Result<()> {
    let scene = Scene::set()?;
    let body = &scene.intent.body;
    let before = rows(&scene.cluster.data())?;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let answer = scene.victim.register(body)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut answer: Value = serde_json::from_str(&answer.body)?;
        // How long the lease still runs is told by the clock, not by the call.
        assert!(answer["session"]["remaining_ms"].take().is_u64(), "{answer}");
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1], "an exact repeat gets the same answer");
    assert_eq!(changes(&before, &rows(&scene.cluster.data())?), Vec::<String>::new());

    let other = with(body.clone(), "max_runs", json!(99));
    scene.refused("other content", 409, "conflict_replay", || scene.victim.register(&other));
    let newer = Session::of(&impostor::holder(&scene.cluster, 0)?, NOBODY);
    scene.refused("a spent ticket", 409, "ticket_spent", || newer.register(body));
    Ok(())
}

#[test]
fn a_known_offer_id_with_another_token_gets_nothing() -> Result<()> {
    let scene = Scene::set()?;
    let beat = scene.victim.call("heartbeat", &heartbeat())?;
    assert_eq!(beat.status, 200, "{beat:?}");
    scene.cluster.submit(&["--", "true"]);
    // Held until the dispatcher has looked; the others are answered from what is known.
    let granted = scene.victim.call("pull", &with(pull(&token('a')), "wait_ms", json!(20_000)))?;
    assert!(granted.body.contains("granted"), "{granted:?}");

    let before = rows(&scene.cluster.data())?;
    let answer = scene.victim.call("pull", &pull(&token('b')))?;
    let body: Value = serde_json::from_str(&answer.body)?;
    assert_eq!((answer.status, &body["asks"][0]["verdict"]), (200, &json!("gone")), "{answer:?}");
    let again: Value = serde_json::from_str(&scene.victim.call("pull", &pull(&token('a')))?.body)?;
    let granted: Value = serde_json::from_str(&granted.body)?;
    let offer = |answer: &Value| answer["asks"][0]["verdict"]["granted"]["run_id"].clone();
    assert_eq!(offer(&again), offer(&granted), "the right token rebuilds the same offer");
    assert_eq!(changes(&before, &rows(&scene.cluster.data())?), Vec::<String>::new());
    assert!(!granted.to_string().contains(&token('a')), "an answer never holds the token");
    Ok(())
}

#[test]
fn what_cannot_be_read_is_refused_before_the_store() -> Result<()> {
    let scene = Scene::set()?;
    let victim = &scene.victim;
    let unknown = with(heartbeat(), "surprise", json!(1));
    scene.refused("an unknown field", 400, "unknown_field", || victim.call("heartbeat", &unknown));
    let inside = json!({ "schema": "leasehold/pull/v1", "session_generation": 1, "wait_ms": 0,
        "asks": [{ "offer_id": OFFER, "lease_token": token('a'), "surprise": 1 }] });
    scene.refused("an unknown field inside", 400, "unknown_field", || victim.call("pull", &inside));
    let padded = |bytes: usize| {
        let body = pull(&token('a')).to_string();
        body.clone() + &" ".repeat(bytes - body.len())
    };
    let over = padded(16 * 1024 + 1);
    scene.refused("a body over its limit", 413, "limit_exceeded", || victim.call_bytes("pull", over.as_bytes()));
    scene.refused("far over its limit", 413, "limit_exceeded", || {
        victim.call_bytes("pull", padded(512 * 1024).as_bytes())
    });
    let many: Vec<Value> = (0..17)
        .map(|n| json!({ "offer_id": format!("01900000-0000-7000-8000-0000000000{n:02x}"), "lease_token": token('a') }))
        .collect();
    let seventeen = with(pull(&token('a')), "asks", json!(many));
    scene.refused("more asks than allowed", 413, "limit_exceeded", || victim.call("pull", &seventeen));
    scene.refused("no JSON", 400, "invalid_request", || victim.call_bytes("heartbeat", b"{"));
    let untagged = with(heartbeat(), "schema", json!("leasehold/pull/v1"));
    scene.refused("another message", 400, "invalid_request", || victim.call("heartbeat", &untagged));
    let tomorrow = with(heartbeat(), "schema", json!("leasehold/heartbeat/v2"));
    scene.refused("another version", 426, "unsupported_protocol", || victim.call("heartbeat", &tomorrow));

    // At its limit a body is read.
    let at_the_limit = victim.call_bytes("pull", padded(16 * 1024).as_bytes())?;
    assert_eq!(at_the_limit.status, 200, "{at_the_limit:?}");
    Ok(())
}
