//! Case 3: an agent is frozen past the leases of its jobs. (Scaled: leases of 25 s instead of 30 s, jobs that end by a fact.)
//!
//! One job ends by itself meanwhile, one is stopped by its launcher; nobody guesses how either ended, and nothing starts in
//! their place. What can be said about them is exactly the four verbs, until the agent thaws and brings the receipts.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::story;
use rustix::process::Signal;
use serde_json::Value;

/// The run's only attempt.
fn attempt(run: &Value) -> &Value {
    assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "no attempt was added: {run}");
    &run["attempts"][0]
}

#[test]
fn what_a_frozen_agent_held_is_a_question_with_four_answers_until_it_thaws() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let directory = cluster.directory().to_owned();
    let (gate, ended) = (directory.join("gate"), directory.join("ended"));
    let (heart, short) = (
        format!("echo start; while :; do echo beat >>{}; sleep 0.05; done", directory.join("beats").display()),
        format!("until [ -e {} ]; do sleep 0.05; done; echo done; echo end >{}", gate.display(), ended.display()),
    );
    let held = ["--lease", "25s", "--grace", "1s", "--", "sh", "-c"];
    let ends = cluster.submit(&[&held[..], &[&short]].concat());
    let stopped = cluster.submit(&[&held[..], &[&heart]].concat());
    for run in [&ends, &stopped] {
        cluster.wait_for_state(run, "running")?;
    }
    cluster.signal_agent(near, Signal::STOP)?;
    std::fs::write(gate, "")?;
    eventually("the first job to end by itself", || ended.exists().then_some(()).ok_or_else(String::new))?;

    for run in [&ends, &stopped] {
        let lost = cluster.wait_for_state(run, "lost")?;
        assert_eq!(attempt(&lost)["evidence"], serde_json::json!(["lease_expired"]), "{lost}");
        let explained = cluster.json(&["runs", "explain", run]);
        let options = explained["question"]["options"].as_array().cloned().unwrap_or_default();
        let verbs: Vec<_> = options.iter().filter_map(|option| option["verb"].as_str()).collect();
        assert_eq!(verbs, ["wait", "retry", "mark-failed", "mark-succeeded"], "{explained}");
        let page = cluster.ask(&["runs", "get", run]);
        for told in ["nothing was heard of it until its lease had ended", "whether it did its work", "near"] {
            assert!(page.contains(told), "`{told}` is missing:\n{page}");
        }
        let refused = cluster.cli(&["runs", "cancel", run])?;
        refused.expect_code(10);
        for verb in verbs {
            assert!(refused.stderr.contains(verb), "a cancel names `{verb}`:\n{refused}");
        }
    }
    cluster.ask(&["runs", "resolve", &stopped, "wait", "--reason", "the agent is frozen"]);

    cluster.signal_agent(near, Signal::CONT)?;
    let succeeded = cluster.wait_for_state(&ends, "succeeded")?;
    assert_eq!(
        (&attempt(&succeeded)["state"], &attempt(&succeeded)["resolution"]),
        (&"lost".into(), &"receipt".into())
    );
    // The end did not wait for the bytes; who follows does.
    assert_eq!(cluster.ask(&["runs", "logs", "--follow", &ends]), "done");
    let proven = eventually("proof that the second job is still", || {
        let run = cluster.json(&["runs", "get", &stopped]);
        let evidence = attempt(&run)["evidence"].as_array().cloned().unwrap_or_default();
        if evidence.contains(&"stopped_for_lease".into()) { Ok(run) } else { Err(run.to_string()) }
    })?;
    assert_eq!((&proven["state"], &attempt(&proven)["resolution"]), (&"lost".into(), &"none".into()), "{proven}");

    // A person closes what no receipt can; the same word again changes nothing, another one is refused.
    cluster.ask(&["runs", "resolve", &stopped, "mark-failed", "--reason", "it had not finished"]);
    let failed = cluster.json(&["runs", "get", &stopped]);
    assert_eq!((&failed["state"], &attempt(&failed)["resolution"]), (&"failed".into(), &"person".into()), "{failed}");
    assert_eq!(attempt(&failed)["word"]["why"], "it had not finished");
    cluster.ask(&["runs", "resolve", &stopped, "mark-failed"]);
    cluster.cli(&["runs", "retry", &stopped])?.expect_code(10);
    assert_eq!(cluster.json(&["runs", "get", &stopped])["version"], failed["version"]);
    let audit = story::audit(&cluster)?;
    let said = audit.iter().filter(|row| row["action"] == "resolve_run").count();
    assert_eq!(said, 2, "one row for each word that was taken: {audit:?}");

    // What ended is not retried in place: the same is submitted as a new run.
    let again = cluster.ask(&["run", "--again", &ends, "--detach", "-q"]);
    let again = cluster.wait_for_state(&again, "succeeded")?;
    assert_eq!(again["revision_digest"], succeeded["revision_digest"]);
    cluster.shut_down()
}
