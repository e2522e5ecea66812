//! Webhooks with real processes: a file says that calls start the task, an operator makes its token, and a program calls it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::process;
use leasehold_sim::request::{self, Answer};
use serde_json::Value;

const REPORT: &str = "name = 'report'\n[command]\nscript = 'echo \"$PARAM_DAY of $LEASEHOLD_TASK\"'\n\
                      [params]\nDAY = { default = 'today' }\n[[trigger]]\nwebhook = true\n";

fn apply(cluster: &Cluster, text: &str) -> Result<()> {
    let file = cluster.directory().join("report.toml");
    std::fs::write(&file, text)?;
    cluster.ask(&["task", "apply", "-f", Path::to_str(&file).context("a path of text")?]);
    Ok(())
}

fn said(answer: &Answer) -> Result<Value> {
    serde_json::from_str(&answer.body).with_context(|| format!("{answer:?}"))
}

/// The run that a call started, or had started.
fn run_of(answer: &Answer, status: u16) -> Result<String> {
    let body = said(answer)?;
    ensure!(answer.status == status && body["outcome"] == "admitted", "{answer:?}");
    Ok(body["run_id"].as_str().context("a run id")?.to_owned())
}

#[test]
fn a_program_starts_a_task_with_the_webhooks_own_token() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    apply(&cluster, REPORT)?;
    let shown = cluster.ask(&["task", "get", "report"]);
    ensure!(shown.contains("no token yet") && shown.contains("POST /api/v1/hooks/default/report/webhook"), "{shown}");
    let made = cluster.json(&["task", "token", "report"]);
    let (path, token) = (made["path"].as_str().context("a path")?, made["token"].as_str().context("a token")?);
    assert_eq!(path, "/api/v1/hooks/default/report/webhook");
    let shown = cluster.ask(&["task", "get", "report"]);
    ensure!(shown.contains("token made") && !shown.contains(token), "{shown}");

    let address = cluster.api();
    let call =
        |token: &str, key: &str, body: &str| request::post(&address, path, token, &[("Idempotency-Key", key)], body);
    let first = run_of(&call(token, "build-1", r#"{"params":{"DAY":"monday"}}"#)?, 201)?;
    cluster.wait_for_state(&first, "succeeded")?;
    assert_eq!(cluster.log(&first).trim(), "monday of report");
    let page = cluster.ask(&["runs", "get", &first]);
    ensure!(page.contains("by webhook webhook"), "{page}");
    let audit = cluster.list(&["audit", "list", "--limit", "64"]);
    ensure!(audit.iter().any(|row| row["actor"] == "webhook:report/webhook"), "{audit:?}");

    // The same call again is the same run, also after an edit; without parameters it is another.
    apply(&cluster, &REPORT.replace("of $LEASEHOLD_TASK", "again"))?;
    assert_eq!(run_of(&call(token, "build-1", r#"{"params":{"DAY":"monday"}}"#)?, 200)?, first);
    let reused = call(token, "build-1", "")?;
    assert_eq!((reused.status, reused.code().as_deref()), (409, Some("key_reused")));
    let second = run_of(&call(token, "build-2", "")?, 201)?;
    cluster.wait_for_state(&second, "succeeded")?;
    assert_eq!(cluster.log(&second).trim(), "today again");

    // Nobody else opens it, and what is not there sounds the same.
    let api_token = cluster.first_token()?;
    let refused = call(&"A".repeat(43), "k", "")?;
    let (theirs, elsewhere) =
        (call(&api_token, "k", "")?, request::post(&address, "/api/v1/hooks/default/other/webhook", token, &[], "")?);
    assert_eq!((refused.status, refused.code().as_deref()), (401, Some("unauthenticated")));
    assert_eq!((&theirs.body, &elsewhere.body), (&refused.body, &refused.body));
    assert_eq!(request::get(&address, "/api/v1/runs", Some(token))?.status, 401);

    // Paused, then replaced.
    cluster.ask(&["schedule", "pause", "report", "--reason", "new disk"]);
    let shown = cluster.ask(&["task", "get", "report"]);
    ensure!(shown.contains("# trigger webhook paused since ") && shown.contains(": new disk\n"), "{shown}");
    let paused = call(token, "build-3", "")?;
    assert_eq!((paused.status, paused.code().as_deref()), (409, Some("paused")));
    cluster.ask(&["schedule", "resume", "report"]);
    let another = cluster.ask(&["task", "token", "report", "--trigger", "webhook", "-q"]);
    assert_eq!(call(token, "build-3", "")?.status, 401);
    let third = run_of(&call(&another, "build-3", "")?, 201)?;
    cluster.wait_for_state(&third, "succeeded")?;
    // A name would leave nobody with the token: refused before there is another.
    let refused = cluster.cli(&["task", "token", "report", "-o", "name"])?;
    refused.expect_code(2);
    ensure!(refused.stderr.contains("-q") && call(&another, "build-3", "")?.status == 200, "{refused}");
    let shown = cluster.ask(&["task", "token", "report"]);
    let line = shown.lines().find_map(|line| line.strip_prefix("Call:  ")).context("a line to paste")?;
    let pasted = process::run(Command::new("sh").args(["-c", line]).current_dir(cluster.directory()))?;
    let fourth: Value = serde_json::from_str(pasted.expect_code(0).answer())?;
    cluster.wait_for_state(fourth["run_id"].as_str().context("a run id")?, "succeeded")?;
    assert_eq!(cluster.list(&["runs", "list", "--task", "report"]).len(), 4);
    let written = cluster.written();
    ensure!(!written.contains(token) && !written.contains(&another), "a token is never logged");
    cluster.shut_down()
}

#[test]
fn a_call_is_skipped_while_a_run_is_in_its_way_and_its_key_stays_free() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let go = cluster.directory().join("go");
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    apply(&cluster, &format!("name = 'report'\n[command]\nscript = '{wait}'\n[[trigger]]\nwebhook = true\n"))?;
    let made = cluster.json(&["task", "token", "report"]);
    let (path, token) = (made["path"].as_str().context("a path")?, made["token"].as_str().context("a token")?);
    let address = cluster.api();
    let call = |key: &str| request::post(&address, path, token, &[("Idempotency-Key", key)], "");
    let first = run_of(&call("one")?, 201)?;
    let skipped = call("two")?;
    let body = said(&skipped)?;
    ensure!(
        skipped.status == 200 && body["outcome"] == "skipped" && body["by_run_id"] == first.as_str(),
        "{skipped:?}"
    );
    assert_eq!(run_of(&call("one")?, 200)?, first, "its own run is not in its way");
    std::fs::write(&go, "")?;
    cluster.wait_for_state(&first, "succeeded")?;
    let second = run_of(&call("two")?, 201)?;
    cluster.wait_for_state(&second, "succeeded")?;
    cluster.shut_down()
}
