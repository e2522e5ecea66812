//! Every call of an attempt with every part of its fences wrong: the documented code, and the store as it was.

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::database::{changes, rows};
use leasehold_sim::impostor::{self, Session};
use leasehold_sim::request::Answer;
use serde_json::{Value, json};

/// A claim that was made by hand.
#[derive(Debug, Clone)]
struct Claim {
    attempt: String,
    offer: String,
    token: String,
    generation: u64,
}

impl Claim {
    fn lease(&self) -> Value {
        json!({ "offer_id": self.offer, "generation": self.generation, "token": self.token })
    }
}

/// A worker that is driven by hand, with one started attempt.
struct Driven {
    session: Session,
    claim: Claim,
}

fn token(letter: char) -> String {
    // 32 bytes in base64url; the last letter carries four bits only, so it is always `A`.
    letter.to_string().repeat(42) + "A"
}

fn drive(cluster: &mut Cluster, worker: usize, letter: char) -> Result<Session> {
    let intent = impostor::take_intent(cluster, worker)?;
    let session = Session::of(&impostor::holder(cluster, worker)?, &intent.session);
    let registered = session.register(&intent.body)?;
    assert_eq!(registered.status, 200, "{letter}: {registered:?}");
    Ok(session)
}

/// Takes the run that waits, and starts it.
fn take(cluster: &Cluster, session: Session, letter: char) -> Result<Driven> {
    cluster.submit(&["--", "true"]);
    let offer = format!("01900000-0000-7000-8000-0000000000{letter}{letter}");
    let ask = json!({ "offer_id": offer, "lease_token": token(letter) });
    let pull = json!({ "schema": "leasehold/pull/v1", "session_generation": 1, "asks": [ask], "wait_ms": 20_000 });
    let answer = session.call("pull", &pull)?;
    let answer: Value = serde_json::from_str(&answer.body)?;
    let granted = &answer["asks"][0]["verdict"]["granted"];
    let attempt = granted["attempt_id"].as_str().with_context(|| format!("nothing was granted: {answer}"))?;
    let generation = granted["lease"]["generation"].as_u64().context("a lease has a generation")?;
    let claim = Claim { attempt: attempt.to_owned(), offer, token: token(letter), generation };
    let started = call(&session, "starting", 1, &claim.attempt, &claim)?;
    assert_eq!(started.status, 200, "{started:?}");
    Ok(Driven { session, claim })
}

const CALLS: [&str; 8] = ["starting", "running", "release", "logs", "exited", "never_spawned", "lost", "rejected"];

/// One call about an attempt: all of it right, but for what the arguments say.
fn call(session: &Session, what: &str, generation: u64, attempt: &str, claim: &Claim) -> Result<Answer> {
    let at = |route: &str| format!("attempts/{attempt}/{route}");
    let body = |message: &str, more: Value| {
        let mut body = json!({ "schema": format!("leasehold/{message}/v1"), "session_generation": generation, "lease": claim.lease() });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    };
    let running = json!({
        "callback": { "sequence": 1, "token_digest": "5c".repeat(32) },
        "handle": { "boot_id": "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a", "pid": 4242, "start_time": 1 },
        "started_at_ms": 1_769_828_400_000_u64,
    });
    let ending = |ending: Value| session.call(&at("end"), &body("end", json!({ "ending": ending })));
    match what {
        "starting" => session.call(&at("starting"), &body("starting", json!({}))),
        "running" => session.call(&at("running"), &body("running", json!({ "running": running }))),
        "release" => session.call(&at("release"), &body("release", json!({ "reason": "draining" }))),
        "logs" => session.call_with(
            &at("logs?offset=0"),
            &[
                ("leasehold-session-generation", &generation.to_string()),
                ("leasehold-offer", &claim.offer),
                ("leasehold-lease-generation", &claim.generation.to_string()),
                ("leasehold-lease-token", &claim.token),
            ],
            b"some bytes",
        ),
        "exited" => {
            let ending = json!({ "exited": { "at_ms": 1_769_828_400_000_u64, "status": { "code": 0 } } });
            let completion = json!({ "sequence": 1, "token": token('z') });
            let more = json!({ "ending": ending, "completion": completion, "running": running });
            session.call(&at("end"), &body("end", more))
        }
        "never_spawned" => ending(json!("never_spawned")),
        "lost" => ending(json!({ "lost": { "evidence": "machine_rebooted" } })),
        _ => ending(json!({ "rejected": { "reason": "exec", "detail": "no such program" } })),
    }
}

#[test]
fn every_call_of_an_attempt_is_held_to_every_part_of_its_fences() -> Result<()> {
    let mut cluster = Cluster::start_unhurried()?;
    let (one, other) =
        (cluster.enroll(WorkerOptions::named("victim"))?, cluster.enroll(WorkerOptions::named("attacker"))?);
    let victim = drive(&mut cluster, one, 'a')?;
    let attacker = drive(&mut cluster, other, 'b')?;
    let victim = take(&cluster, victim, 'a')?;
    let attacker = take(&cluster, attacker, 'b')?;
    let thief = Session::of(&impostor::holder(&cluster, other)?, &victim.session.id);
    let nobody = "01900000-0000-7000-8000-0000000000ff";
    let unknown = Session::of(&impostor::holder(&cluster, one)?, nobody);

    let own = &victim.claim;
    let (foreign, session) = (&attacker.claim, &victim.session);
    let wrong_token = Claim { token: token('c'), ..own.clone() };
    let wrong_offer = Claim { offer: foreign.offer.clone(), ..own.clone() };
    let wrong_generation = Claim { generation: own.generation + 1, ..own.clone() };
    let (session_fenced, lease_fenced) = ("session_fenced", "lease_fenced");
    // What is wrong, who calls, the session's generation, the attempt of the path, the lease of the body, the code.
    let cases = [
        ("another worker's session", &thief, 1, &own.attempt, own, session_fenced),
        ("a session that never was", &unknown, 1, &own.attempt, own, session_fenced),
        ("a generation that never was", session, 2, &own.attempt, own, session_fenced),
        ("another worker's attempt", session, 1, &foreign.attempt, own, lease_fenced),
        ("another worker's attempt and lease", session, 1, &foreign.attempt, foreign, lease_fenced),
        ("another worker's lease", session, 1, &own.attempt, foreign, lease_fenced),
        ("one's own session, another's attempt", &attacker.session, 1, &own.attempt, own, lease_fenced),
        ("an attempt that never was", session, 1, &nobody.to_owned(), own, lease_fenced),
        ("another token", session, 1, &own.attempt, &wrong_token, lease_fenced),
        ("another offer", session, 1, &own.attempt, &wrong_offer, lease_fenced),
        ("another lease generation", session, 1, &own.attempt, &wrong_generation, lease_fenced),
    ];
    let before = rows(&cluster.data())?;
    for (wrong, caller, generation, attempt, claim, code) in cases {
        for what in CALLS {
            let answer = call(caller, what, generation, attempt, claim)?;
            // An `end` is about the lease first: its session may have been replaced.
            let ends = !["starting", "running", "release", "logs"].contains(&what);
            let code = if ends && wrong == "another worker's session" { lease_fenced } else { code };
            assert_eq!((answer.status, answer.code().as_deref()), (409, Some(code)), "{what} with {wrong}: {answer:?}");
            for secret in [&own.token, &foreign.token] {
                assert!(!answer.body.contains(secret.as_str()), "{what} with {wrong} tells a token: {answer:?}");
            }
        }
        assert_eq!(changes(&before, &rows(&cluster.data())?), Vec::<String>::new(), "{wrong} changed the store");
    }

    // Renewals are judged one by one, whoever beats.
    let renewals: Vec<Value> = [foreign, &wrong_token, &wrong_offer, &wrong_generation]
        .into_iter()
        .map(|claim| json!({ "attempt_id": claim.attempt, "lease": claim.lease(), "version": 0 }))
        .collect();
    let beat = json!({ "schema": "leasehold/heartbeat/v1", "session_generation": 1, "session_version": 0, "slots": 0,
        "renewals": renewals[..1] });
    for renewal in &renewals {
        let mut beat = beat.clone();
        beat["renewals"] = json!([renewal]);
        let stale = Session::of(&impostor::holder(&cluster, other)?, &session.id).call("heartbeat", &beat)?;
        assert_eq!(stale.code().as_deref(), Some(session_fenced), "{stale:?}");
    }
    let leases = |rows: &std::collections::BTreeSet<String>| -> Vec<String> {
        rows.iter().filter(|row| row.contains("INTO \"lease\"")).cloned().collect()
    };
    for (version, renewal) in renewals.iter().enumerate() {
        let mut beat = beat.clone();
        (beat["renewals"], beat["session_version"]) = (json!([renewal]), json!(version));
        let answer = session.call("heartbeat", &beat)?;
        let body: Value = serde_json::from_str(&answer.body)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(body["leases"][0]["verdict"]["refused"]["code"], lease_fenced, "{answer:?}");
    }
    assert_eq!(leases(&rows(&cluster.data())?), leases(&before), "no lease was renewed");

    // The owner goes on as if nothing had been.
    let again = call(session, "starting", 1, &own.attempt, own)?;
    assert!(again.status == 200 && again.body.contains("already_starting"), "{again:?}");
    let running = call(session, "running", 1, &own.attempt, own)?;
    assert_eq!(running.status, 200, "{running:?}");
    let denied = call(session, "exited", 1, &own.attempt, own)?;
    assert_eq!(denied.code().as_deref(), Some(lease_fenced), "not the token of its launch: {denied:?}");
    Ok(())
}
