//! Which faults are tried: every point that the binary lists, with everything that can happen there.

use std::process::Command;

use anyhow::{Context, Result, bail};
use leasehold_sim::{binaries, process};

/// One place before or after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// `record.link.before`.
    pub(super) name: String,
    /// `agent`, `launcher` or `child`.
    pub(super) process: String,
    /// What can happen there.
    pub(super) effects: Vec<String>,
}

impl Point {
    /// `record.link`.
    pub(super) fn step(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(step, _)| step)
    }
}

/// What the worker says that can happen to it.
pub(super) fn points() -> Result<Vec<Point>> {
    let listed = process::run(Command::new(binaries::leasehold_worker()).arg("fault-points"))?;
    let point = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, name, process, effects] = words.as_slice() else { bail!("not a fault point: {line}") };
        let effects = effects.split(',').map(str::to_owned).collect();
        Ok(Point { name: (*name).to_owned(), process: (*process).to_owned(), effects })
    };
    listed.expect_code(0).stdout.lines().map(point).collect::<Result<_>>().context("the list of fault points")
}

/// What has to be done for a point to be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipe {
    /// Runs are submitted.
    Runs,
    /// An agent died, and its successor finds a job that runs.
    Resumed,
    /// The worker has never run in this boot.
    FirstStart,
    /// A file lies there that cannot be trusted.
    Garbage,
    /// An agent died after it had decided to launch, before it did.
    Undecided,
    /// An offer asks for what this machine does not do.
    GivenBack,
    /// The agent is told to stop.
    Stopped,
    /// The agent is told to start over.
    StartedOver,
    /// A machine joins.
    Joining,
    /// A person's own verb, which waits for a person where it fails.
    ByHand,
}

fn recipe(step: &str) -> Recipe {
    match step.split_once('.').unwrap_or((step, "")) {
        ("identity" | "joining", _) | ("call", "enroll") => Recipe::Joining,
        ("place", _) => Recipe::FirstStart,
        ("record" | "asks" | "orphan", "quarantine" | "quarantine_sync") => Recipe::Garbage,
        ("tombstone", _) => Recipe::Undecided,
        ("call", "release") => Recipe::GivenBack,
        ("call", "drain" | "offline") => Recipe::Stopped,
        ("agent", "exec") => Recipe::StartedOver,
        ("pause" | "quarantined", _) => Recipe::ByHand,
        _ => Recipe::Runs,
    }
}

/// Whether an agent that carries on what an earlier one began takes this step, too.
fn is_taken_again(step: &str) -> bool {
    let (what, act) = step.split_once('.').unwrap_or((step, ""));
    matches!((what, act), ("session", _) | ("call", "register" | "heartbeat" | "end") | ("control", "connect" | "send"))
}

/// How often one life comes to a step, and each time in another state.
fn passes(step: &str) -> u32 {
    match step.split_once('.').unwrap_or((step, "")) {
        // The versions of one record, from `accepted` to the settled one; three directories of the state, three of an
        // attempt.
        ("record", "create" | "write" | "sync") | ("folder", "make") => 6,
        ("record", "rename") => 5,
        ("session", _) | ("asks", "create" | "write" | "sync" | "rename" | "sync_dir") => 2,
        _ => 1,
    }
}

/// One fault, and what is done for it to be met.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) point: Point,
    /// As the variable takes it.
    pub(super) faults: String,
    pub(super) effect: String,
    pub(super) pass: u32,
    pub(super) recipe: Recipe,
    /// The agent is killed as well, as soon as the fault has struck.
    pub(super) agent_too: bool,
}

impl Scenario {
    /// Whether the fault kills the agent itself.
    pub(super) fn kills_agent(&self) -> bool {
        self.effect == "kill" && self.point.process == "agent"
    }

    /// Whether a launcher, or its child, dies of it.
    pub(super) fn kills_launcher(&self) -> bool {
        matches!(self.effect.as_str(), "kill" | "orphan") && self.point.process != "agent"
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let resumed = if self.recipe == Recipe::Resumed { ", resumed" } else { "" };
        write!(f, "{}{resumed}{}", self.faults, if self.agent_too { ", and the agent killed" } else { "" })
    }
}

/// Every scenario of the points, those of joining apart.
pub(super) fn all(points: &[Point]) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for point in points {
        for pass in 1..=passes(point.step()) {
            for (index, effect) in (0..).zip(&point.effects) {
                // Later passes: killed each time, and one error of the disk, which changes from pass to pass.
                if pass > 1 && index > 0 && point.effects.len() > 2 && index % 3 != pass % 3 {
                    continue;
                }
                let strikes = format!("{}:{effect}@{pass}", point.name);
                // A frame is taken back only when writing it failed.
                let first = if point.step() == "log.cut" { "log.append.before:enospc@1," } else { "" };
                let scenario = Scenario {
                    point: point.clone(),
                    faults: format!("{first}{strikes}"),
                    effect: effect.clone(),
                    pass,
                    recipe: recipe(point.step()),
                    agent_too: false,
                };
                if pass == 1 && is_taken_again(point.step()) {
                    scenarios.push(Scenario { recipe: Recipe::Resumed, ..scenario.clone() });
                }
                if scenario.kills_launcher() {
                    scenarios.push(Scenario { agent_too: true, ..scenario.clone() });
                }
                scenarios.push(scenario);
            }
        }
    }
    scenarios
}
