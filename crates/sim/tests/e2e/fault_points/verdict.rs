//! What may be said of a run that met a fault, compared with what its jobs wrote down themselves.
//!
//! (`docs/recovery.md`, the table; proof, *Invariants* 1 to 4.)

use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::scenario::Scenario;
use crate::marks::lives;

/// Whether nothing more will become of a run by itself.
pub(super) fn is_over(run: &Value) -> bool {
    matches!(run["state"].as_str(), Some("succeeded" | "failed" | "cancelled" | "timed_out" | "lost"))
}

/// Compares what the product says of a run with what its jobs wrote down.
pub(super) fn judge(scenario: &Scenario, marks: &Path, run: &Value) -> Result<()> {
    let id = run["id"].as_str().unwrap_or_default();
    let lives = lives(marks)?;
    let mut started = 0;
    for attempt in run["attempts"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let number = attempt["number"].to_string();
        let life = lives.get(&(id.to_owned(), number.clone()));
        let (starts, ends) = life.map_or((0, 0), |life| (life.starts.len(), life.ends.len()));
        ensure!(starts <= 1, "attempt {number} started {starts} times");
        started += starts;
        let (state, kind) = (attempt["state"].as_str(), attempt["outcome"]["kind"].as_str());
        match kind {
            Some("never_spawned" | "rejected") => ensure!(starts == 0, "attempt {number} is {kind:?} and had started"),
            Some("exited") => ensure!(ends == 1, "attempt {number} is said to have ended by itself and has not"),
            _ => {}
        }
        ensure!(state != Some("succeeded") || ends == 1, "attempt {number} succeeded without its end");
        // Who shares its user with a whole test suite cannot tell orphans of others from those of a dead launcher.
        ensure!(attempt["may_live"] == false || scenario.kills_launcher(), "attempt {number} may live");
    }
    ensure!(started <= 1, "{started} attempts started, and nobody had said that this is safe");
    match run["state"].as_str() {
        Some("succeeded") => ensure!(started == 1, "succeeded, with {started} starts"),
        Some("lost") => {
            ensure!(may_be_lost(scenario), "lost by a fault that leaves nothing unknown");
            // Its launcher died before it could execute, so it did not.
            ensure!(scenario.effect != "orphan" || started == 0, "an orphan executed");
        }
        // A program that cannot be executed is the task's failure, whatever the reason.
        Some("failed") => ensure!(scenario.point.step() == "job.exec" && started == 0, "failed, with {started} starts"),
        Some(state) => bail!("{state}, and no job of this test ends like that"),
        None => bail!("it has no state"),
    }
    Ok(())
}

/// Only a launcher that died between its child's name at the barrier and its own receipt leaves a question open: one that
/// had no child yet left the barrier to recovery.
fn may_be_lost(scenario: &Scenario) -> bool {
    let step = scenario.point.step();
    let childless =
        ["attempt.lock", "request.read", "receipt.create", "receipt.reserve", "log.create", "control.listen"];
    let early = childless.contains(&step) || step.starts_with("script.") || scenario.point.name == "job.fork.before";
    scenario.kills_launcher() && !early
}
