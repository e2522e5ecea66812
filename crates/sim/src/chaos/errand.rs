//! What a person does with a worker, from a thread of their own: each wish repeated until it is answered, as people do.
//!
//! The control plane may be frozen or gone meanwhile, and nobody else waits for it.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::api::Api;
use super::boot_millis;
use super::fault::worker_name;
use super::history::Drained;
use crate::{binaries, process};

/// How often one line of an enrollment is tried before another is asked for.
const TRIES: u32 = 4;
/// A machine that is not back after this many milliseconds never will be.
const PATIENCE: u64 = 240_000;

/// What came of an errand.
#[derive(Debug)]
pub(crate) enum Done {
    /// It was drained, and takes work again.
    Drained(Drained),
    /// Whether it is deleted; else it takes work again.
    Deleted(bool),
    /// A machine of this name has joined.
    Joined,
}

/// A person on an errand.
#[derive(Debug)]
pub(crate) struct Errand {
    /// The place of the fault that it is part of.
    pub(crate) place: Option<usize>,
    /// About which worker.
    pub(crate) worker: usize,
    /// Set when it is time to finish.
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Done>>,
}

impl Errand {
    fn begin(
        place: Option<usize>,
        worker: usize,
        go: impl FnOnce(&AtomicBool) -> Result<Done> + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        Self { place, worker, over, thread: std::thread::spawn(move || go(&told)) }
    }

    /// Drains the worker, and resumes it when it is told that it is time.
    pub(crate) fn drain(api: &Api, place: usize, worker: usize) -> Self {
        let api = api.clone();
        Self::begin(Some(place), worker, move |over| {
            let name = worker_name(worker);
            answered(|| api.ask_worker(&name, "drain"))?;
            let from = boot_millis();
            let held = answered(|| held(&api, &name))?;
            while !over.load(Ordering::Relaxed) {
                pause();
            }
            let until = boot_millis();
            answered(|| api.ask_worker(&name, "resume"))?;
            Ok(Done::Drained(Drained { worker: name, from, until, held }))
        })
    }

    /// Drains the worker and deletes it as soon as it holds nothing; resumes it instead when it is told that it is time.
    pub(crate) fn retire(api: &Api, place: usize, worker: usize) -> Self {
        let api = api.clone();
        Self::begin(Some(place), worker, move |over| {
            let name = worker_name(worker);
            answered(|| api.ask_worker(&name, "drain"))?;
            loop {
                if answered(|| api.delete_worker(&name, false))? {
                    return Ok(Done::Deleted(true));
                }
                if over.load(Ordering::Relaxed) {
                    answered(|| api.ask_worker(&name, "resume"))?;
                    return Ok(Done::Deleted(false));
                }
                pause();
            }
        })
    }

    /// Says that the machine is gone; it is over when it is time for a new one.
    pub(crate) fn destroyed(api: &Api, place: usize, worker: usize) -> Self {
        let api = api.clone();
        Self::begin(Some(place), worker, move |over| {
            let deleted = answered(|| api.delete_worker(&worker_name(worker), true))?;
            ensure!(deleted, "a worker whose machine is gone cannot be deleted");
            while !over.load(Ordering::Relaxed) {
                pause();
            }
            Ok(Done::Deleted(true))
        })
    }

    /// Enrolls a machine: `enroll` makes the line, `agent` is what it is typed behind.
    pub(crate) fn join(worker: usize, enroll: Command, agent: Command) -> Self {
        Self::begin(None, worker, move |_| answered(|| join(&enroll, &agent)).map(|()| Done::Joined))
    }

    /// It is time to finish.
    pub(crate) fn is_time(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// What came of it.
    pub(crate) fn finish(self) -> Result<Done> {
        self.thread.join().map_err(|_| anyhow::anyhow!("a person's thread panicked"))?
    }
}

/// The attempts whose leases a worker holds.
fn held(api: &Api, name: &str) -> Result<BTreeSet<String>> {
    let said = api.json(&format!("/api/v1/workers/{name}"))?;
    let active = said["active_attempts"].as_array().context("a worker has active attempts")?;
    active.iter().map(|one| Ok(one.as_str().context("an attempt has an id")?.to_owned())).collect()
}

/// Asks for a line and types it, a few times if need be: the control plane may be gone between the two.
fn join(enroll: &Command, agent: &Command) -> Result<()> {
    let line = process::run(&mut again(enroll))?;
    ensure!(line.code() == Some(0), "{line}");
    let words: Vec<&str> = line.answer().split_whitespace().collect();
    let arguments = words.strip_prefix(&["leasehold-worker"]).context("no line to paste")?;
    for _ in 0..TRIES {
        let joined = process::run(again(agent).args(arguments))?;
        if joined.code() == Some(0) {
            return Ok(());
        }
        pause();
    }
    bail!("{} does not join", binaries::leasehold_worker().display())
}

/// The same command once more.
fn again(command: &Command) -> Command {
    let mut next = Command::new(command.get_program());
    next.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => next.env(name, value),
            None => next.env_remove(name),
        };
    }
    next
}

/// Asks until somebody answers.
fn answered<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    let begun = boot_millis();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if boot_millis() - begun > PATIENCE => return Err(error),
            Err(_) => pause(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the product")]
fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}
