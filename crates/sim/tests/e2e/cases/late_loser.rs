//! Case 4: attempt 1 is lost, attempt 2 succeeds, and then attempt 1 says how it ended. (Scaled: a lease of 25 s.)
//!
//! The loser is driven by hand, so that it can say two different things twice each: it is answered every time, each
//! distinct word is told once, and the run stays as it is.

use anyhow::{Context, Result};
use leasehold_core::crypto::CompletionToken;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::impostor::{self, Session};
use leasehold_sim::replica::Replica;
use leasehold_sim::replicas::Replicas;
use leasehold_sim::story;
use serde_json::{Value, json};

const OFFER: &str = "01900000-0000-7000-8000-0000000000a1";

/// The lease of the attempt that the loser holds.
fn lease(generation: &Value) -> Value {
    json!({ "offer_id": OFFER, "generation": generation, "token": "a".repeat(42) + "A" })
}

/// A call about the loser's attempt.
fn said(session: &Session, attempt: &str, what: &str, more: &Value) -> Result<Value> {
    let mut body = json!({ "schema": format!("leasehold/{what}/v1"), "session_generation": 1 });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = session.call(&format!("attempts/{attempt}/{what}"), &body)?;
    assert_eq!(answer.status, 200, "{what}: {answer:?}");
    Ok(serde_json::from_str(&answer.body)?)
}

#[test]
fn a_late_loser_is_answered_and_changes_nothing() -> Result<()> {
    let mut cluster = Cluster::start_unhurried()?;
    let ingress = cluster.ingress();
    loses_and_says_so_late(&mut cluster, &[ingress])?;
    cluster.shut_down()
}

#[test]
fn a_late_loser_is_answered_by_whichever_replica_it_asks() -> Result<()> {
    if !Replicas::are_possible_or_skip("a_late_loser_is_answered_by_whichever_replica_it_asks") {
        return Ok(());
    }
    let mut replicas = Replicas::start(43, &["--heartbeat", "5m"])?;
    let ingresses = replicas.each.each_ref().map(Replica::ingress);
    loses_and_says_so_late(&mut replicas.cluster, &ingresses)?;
    replicas.shut_down()
}

/// The case, each call at the next of these ingresses.
fn loses_and_says_so_late(cluster: &mut Cluster, ingresses: &[String]) -> Result<()> {
    let loser = cluster.enroll(WorkerOptions::named("loser"))?;
    // Nobody answers there.
    cluster.worker_variable(loser, "LEASEHOLD_WORKER_SERVER", "https://127.0.0.1:9");
    let intent = impostor::take_intent(cluster, loser)?;
    let holder = impostor::holder(cluster, loser)?;
    let mut turns = ingresses.iter().cycle().map(|ingress| Session::of(&holder.at(ingress), &intent.session));
    let mut next = || turns.next().context("somebody answers");
    let registered = next()?.register(&intent.body)?;
    assert_eq!(registered.status, 200, "{registered:?}");

    // Attempt 1 goes to the only worker there is, starts, runs, and is never heard of again.
    let safe = ["--on-lost", "retry", "--safety", "idempotent", "--lease", "25s", "--", "sh", "-c", "echo winner"];
    let run = cluster.submit(&safe);
    let ask = json!({ "offer_id": OFFER, "lease_token": "a".repeat(42) + "A" });
    let pull = json!({ "schema": "leasehold/pull/v1", "session_generation": 1, "asks": [ask], "wait_ms": 20_000 });
    let answer: Value = serde_json::from_str(&next()?.call("pull", &pull)?.body)?;
    let granted = &answer["asks"][0]["verdict"]["granted"];
    let attempt = granted["attempt_id"].as_str().with_context(|| format!("nothing was granted: {answer}"))?.to_owned();
    let lease = lease(&granted["lease"]["generation"]);
    let completion = "z".repeat(42) + "A";
    let token_digest = CompletionToken::parse(&completion)?.digest();
    let running = json!({
        "callback": { "sequence": 1, "token_digest": token_digest.to_string() },
        "handle": { "boot_id": "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a", "pid": 4242, "start_time": 1 },
        "started_at_ms": 1_769_828_400_000_u64,
    });
    said(&next()?, &attempt, "starting", &json!({ "lease": lease }))?;
    said(&next()?, &attempt, "running", &json!({ "lease": lease, "running": running }))?;

    // Attempt 2 goes to the winner.
    cluster.join(WorkerOptions::named("winner"))?;
    eventually("attempt 1 to be lost", || {
        let found = cluster.json(&["runs", "get", &run]);
        if found["attempts"][0]["state"] == "lost" { Ok(()) } else { Err(found["state"].to_string()) }
    })?;
    let succeeded = cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(succeeded["attempts"].as_array().map(Vec::len), Some(2), "{succeeded}");
    assert_eq!((&succeeded["attempts"][1]["worker"], cluster.log(&run).as_str()), (&"winner".into(), "winner"));

    for code in [0, 1, 0, 1] {
        let ending = json!({ "exited": { "at_ms": 1_769_828_409_000_u64, "status": { "code": code } } });
        let completion = json!({ "sequence": 1, "token": completion });
        let end = json!({ "lease": lease, "ending": ending, "completion": completion });
        let answer = said(&next()?, &attempt, "end", &end)?;
        let told = (&answer["verdict"], &answer["attempt_state"], &answer["run_state"], &answer["resolution"]);
        assert_eq!(told, (&"already_terminal".into(), &"lost".into(), &"succeeded".into(), &"policy".into()), "{code}");
        let now = cluster.json(&["runs", "get", &run]);
        for field in ["state", "version", "outcome", "ended_at"] {
            assert_eq!(now[field], succeeded[field], "{field} after exit {code}");
        }
    }
    let late = story::kinds(cluster, &run)?.iter().filter(|kind| *kind == "evidence.late").count();
    assert_eq!(late, 2, "one event for each distinct word");
    Ok(())
}
