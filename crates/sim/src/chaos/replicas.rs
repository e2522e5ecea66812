//! Chaos on PostgreSQL: three replicas of which one after another is killed, a database that is restarted, four workers, and
//! many brief jobs, some under limits. Nothing may be lost, and nobody has to say anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use leasehold_sql::test_server::StopMode;

use super::api::Api;
use super::boot_millis;
use super::checker::violations_where_all_succeed;
use super::fault::{Fault, worker_name};
use super::history::{Happened, History, Mark, Run, What};
use super::jobs::{Job, Places};
use super::load::{Load, Loaded, Progress};
use super::report::tell;
use crate::cluster::WorkerOptions;
use crate::processes;
use crate::replicas::Replicas;
use crate::seed::Seed;

const WORKERS: usize = 4;
const SLOTS: u16 = 4;
/// Between two kills, in milliseconds.
const EVERY: u64 = 5_000;
/// Between two looks, in milliseconds.
const LOOK: u64 = 50;
/// A load that has not ended after this many milliseconds will not end.
const PATIENCE: u64 = 60 * 60 * 1000;
/// How long everything may take to be cleared away once all has ended, in milliseconds.
const SETTLING: u64 = 120_000;
/// What a replica says when it serves.
const UP: &str = "the control plane is up";

/// What is asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) runs: u64,
    pub(super) seed: u64,
    pub(super) of: String,
}

/// One such run, from its seed to its verdict.
pub(super) fn run(options: &Options) -> Result<u8> {
    let Options { runs, seed, .. } = options;
    eprintln!("seed {seed} (cargo xtask chaos --postgres --runs {runs} --seed {seed} replays it)");
    ensure!(*runs >= 100, "fewer than 100 runs are over before anything happens to them");
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
    let mut world = World::build()?;
    let begun = boot_millis();
    let (faults, left, loaded) = carry_out(&mut world, options)?;
    let worked = boot_millis() - begun;
    let states = world.replicas.attempts_by_state()?;
    let history = world.collect(loaded, faults, left)?;
    let found = violations_where_all_succeed(&history);
    print!("{}", report(options, &history, found.len(), worked / 1000, &states));
    if found.is_empty() {
        return Ok(0);
    }
    tell(&history, &found);
    eprintln!("seed {seed}");
    Ok(1)
}

/// Submits everything while the replicas are killed; answers what was done, and what was still there at the end.
fn carry_out(world: &mut World, options: &Options) -> Result<(Vec<Happened>, Vec<String>, Loaded)> {
    let api = Api::of(world.replicas.data());
    let load = Load {
        api,
        seed: options.seed,
        draws: Job::brief,
        total: options.runs,
        program: std::env::current_exe()?,
        marks: world.replicas.cluster.directory().join(MARKS),
        open: usize::try_from(options.runs / 8)?.clamp(12, 250),
    };
    let progress = Progress::default();
    let (outcome, loaded) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load.run(&progress));
        let outcome = happen(world, options, &progress).and_then(|faults| Ok((faults, world.settle()?)));
        progress.over.store(true, Ordering::Relaxed);
        progress.settled.store(true, Ordering::Relaxed);
        (outcome, load.join().expect("the load does not panic"))
    });
    let (faults, left) = outcome?;
    Ok((faults, left, loaded))
}

/// Kills and restarts until the whole load has ended.
fn happen(world: &mut World, options: &Options, progress: &Progress) -> Result<Vec<Happened>> {
    let Options { runs, seed, .. } = *options;
    let mut seed = Seed::of(seed);
    // Not by time: how long a load takes is the machine's matter.
    let mut restarts = [runs / 5, runs * 3 / 5].map(|from| from + seed.below(runs / 5)).into_iter().peekable();
    let mut faults = Vec::new();
    let begun = boot_millis();
    let mut next_kill = begun + EVERY;
    while !progress.quiet.load(Ordering::Relaxed) && boot_millis() - begun < PATIENCE {
        world.tend()?;
        let accepted = progress.accepted.load(Ordering::Relaxed);
        if restarts.next_if(|at| *at <= accepted).is_some() {
            faults.push(world.restart_database()?);
        }
        if next_kill <= boot_millis() {
            next_kill += EVERY;
            let which = usize::try_from(seed.below(3))?;
            faults.push(world.kill(which)?);
        }
        pause(LOOK);
    }
    Ok(faults)
}

const MARKS: &str = "marks";

/// The replicas and their workers.
#[derive(Debug)]
struct World {
    replicas: Replicas,
    /// When each replica was last started.
    started: [u64; 3],
    /// When the database was last back.
    database_back: u64,
    /// What ended although nobody had told it to.
    ends: Vec<String>,
}

impl World {
    fn build() -> Result<Self> {
        let mut replicas = Replicas::start(61, &[])?;
        let cluster = &mut replicas.cluster;
        std::fs::create_dir(cluster.directory().join(MARKS))?;
        let (lab, limit) = Places::LAB;
        cluster.ask(&["project", "create", lab, "--concurrency", &limit.to_string()]);
        for worker in (0..WORKERS).map(worker_name) {
            cluster.join(WorkerOptions { name: &worker, slots: SLOTS, machine: None })?;
        }
        // Now there are three.
        cluster.stop_control()?;
        Ok(Self { replicas, started: [0; 3], database_back: 0, ends: Vec::new() })
    }

    fn kill(&mut self, which: usize) -> Result<Happened> {
        let at = boot_millis();
        self.replicas.kill(which)?;
        self.started[which] = at;
        Ok(Happened { fault: Fault::KillReplica(which), at, until: at, attempt: None, missed: false })
    }

    fn restart_database(&mut self) -> Result<Happened> {
        let at = boot_millis();
        self.replicas.server.stop(StopMode::Immediate)?;
        self.replicas.server.start_again()?;
        self.database_back = boot_millis();
        Ok(Happened { fault: Fault::RestartDatabase, at, until: self.database_back, attempt: None, missed: false })
    }

    /// What a service manager does: starts again what has ended, and notes what should not have. A replica that is being started
    /// and finds no database may go.
    fn tend(&mut self) -> Result<()> {
        let Self { replicas, started, database_back, ends } = self;
        for (which, started) in started.iter_mut().enumerate() {
            let replica = &mut replicas.each[which];
            if replica.runs() {
                continue;
            }
            let end = replica.end()?;
            if end.stderr.contains(UP) || *started > *database_back {
                ends.push(format!("replica {} ended by itself: {end}", which + 1));
            }
            *started = boot_millis();
            replica.spawn(&replicas.cluster)?;
        }
        for worker in 0..WORKERS {
            if !replicas.cluster.agent_runs(worker) {
                let end = replicas.cluster.wait_for_agent_end(worker)?;
                ends.push(format!("the agent of {} ended by itself: {end}", worker_name(worker)));
                replicas.cluster.spawn_agent(worker)?;
            }
        }
        Ok(())
    }

    /// Files of inboxes and attempts, and processes of workers that are no agents.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for index in 0..WORKERS {
            let worker = self.replicas.cluster.worker(index);
            for folder in ["inbox", "attempts", "quarantine"] {
                left.extend(worker.files_in(folder).iter().map(|file| format!("{}: {folder}/{file}", worker.name)));
            }
            let others = processes::naming(worker.state()).into_iter().filter(|found| found.pid != worker.agent_pid());
            left.extend(others.map(|found| format!("{}: process {} {}", worker.name, found.pid, found.command)));
        }
        left
    }

    fn settle(&mut self) -> Result<Vec<String>> {
        let begun = boot_millis();
        loop {
            self.tend()?;
            let left = self.left();
            if left.is_empty() || boot_millis() - begun > SETTLING {
                return Ok(left);
            }
            pause(LOOK);
        }
    }

    /// Everything that is to be judged; afterwards nothing runs any more.
    fn collect(mut self, loaded: Loaded, faults: Vec<Happened>, mut left: Vec<String>) -> Result<History> {
        for replica in &mut self.replicas.each {
            replica.wait_until_ready()?;
        }
        let api = Api::of(self.replicas.data());
        let runs = runs(&api)?;
        let audit = api.list("/api/v1/audit")?;
        for worker in (0..WORKERS).map(worker_name) {
            let said = api.json(&format!("/api/v1/workers/{worker}"))?;
            if said["active_attempts"].as_array().is_none_or(|attempts| !attempts.is_empty()) {
                left.push(format!("{worker} holds leases: {}", said["active_attempts"]));
            }
        }
        let mut marks = Vec::new();
        for worker in (0..WORKERS).map(worker_name) {
            let file = self.replicas.cluster.directory().join(MARKS).join(&worker);
            for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
                marks.push(Mark::parse(&worker, line).with_context(|| format!("a torn line: {line}"))?);
            }
        }
        for worker in 0..WORKERS {
            let end = self.replicas.cluster.stop_agent(worker)?;
            if end.code() != Some(0) {
                self.ends.push(format!("the agent of {} did not go in order: {end}", worker_name(worker)));
            }
        }
        let contradictions = self.replicas.contradictions()?;
        let ends = self.ends.into_iter().chain(loaded.surprises).collect();
        self.replicas.shut_down()?;
        Ok(History {
            submitted: loaded.submitted,
            marks,
            runs,
            faults,
            seen_over: loaded.seen_over,
            slots: SLOTS.into(),
            ends,
            audit: audit.iter().map(|row| format!("{} {} {}", row["action"], row["subject"], row["facts"])).collect(),
            left,
            contradictions,
            ..History::default()
        })
    }
}

/// Every run, asked for by as many askers as there are replicas.
fn runs(api: &Api) -> Result<Vec<Run>> {
    let items = api.list("/api/v1/runs")?;
    let ids: Vec<&str> = items.iter().filter_map(|item| item["id"].as_str()).collect();
    ensure!(ids.len() == items.len(), "a run has an id");
    let part = ids.len().div_ceil(3).max(1);
    std::thread::scope(|scope| {
        let askers: Vec<_> = ids
            .chunks(part)
            .map(|ids| scope.spawn(move || ids.iter().map(|id| api.run(id)).collect::<Result<Vec<_>>>()))
            .collect();
        let mut runs = Vec::new();
        for asker in askers {
            match asker.join() {
                Ok(part) => runs.extend(part?),
                Err(_) => bail!("an asker panicked"),
            }
        }
        Ok(runs)
    })
}

fn report(options: &Options, history: &History, found: usize, seconds: u64, states: &[Vec<Option<String>>]) -> String {
    let Options { runs, seed, of } = options;
    let starts = history.marks.iter().filter(|mark| mark.what == What::Start).count();
    let verdict = if found == 0 { "Every invariant holds.".to_owned() } else { format!("{found} violations.") };
    let mut text = format!(
        "# Chaos on PostgreSQL\n\n`cargo xtask chaos --postgres --runs {runs} --seed {seed}` on the binaries of {of}.\n\n\
         **{verdict}** {} runs with {starts} starts in {seconds} s; three replicas, {WORKERS} workers with {SLOTS} slots \
         each.\n\n| what | how many |\n| --- | --- |\n",
        history.runs.len(),
    );
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for happened in &history.faults {
        *counts.entry(happened.fault.to_string()).or_default() += 1;
    }
    for job in history.submitted.values().map(|submitted| &submitted.job) {
        for (what, limit) in job.places.limits() {
            *counts.entry(format!("runs under a limit of {limit}: {what}")).or_default() += 1;
        }
    }
    let kinds = history.runs.iter().flat_map(|run| &run.events).map(|event| event.kind.as_str());
    for kind in kinds.filter(|kind| matches!(*kind, "attempt.claimed" | "attempt.released" | "claim.expired")) {
        *counts.entry(format!("event {kind}")).or_default() += 1;
    }
    for (what, count) in counts {
        let _ = writeln!(text, "| {what} | {count} |");
    }
    for row in states {
        let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or_default()).collect();
        let _ = writeln!(text, "| attempts {} |", cells.join(" | "));
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "the pause between two looks; the kills come by time")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
