//! One chaos run from its seed to its verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::api::Api;
use super::boot_millis;
use super::checker::violations;
use super::fault::worker_name;
use super::history::{Happened, History, Mark};
use super::jobs::Job;
use super::load::{Load, Loaded, Progress};
use super::plan::{self, Planned};
use super::replicas;
use super::report::{SetUp, report, tell};
use super::world::World;
use crate::database;
use crate::seed::Seed;

const HELP: &str = "\
A chaos run: faults drawn from a seed, and a checker that compares what the jobs wrote with what the product says.

Usage:
  cargo xtask chaos --faults N [--seed S] [--minutes M] >docs/chaos-report.md
  cargo xtask chaos --postgres --runs N [--seed S]

  --faults N     how many faults
  --postgres     three replicas on PostgreSQL: one is killed every 5 s, the database is restarted twice; nothing may be lost
  --runs N       how many jobs they get
  --seed S       replay the plan and the load of this seed [default: a new one, printed]
  --minutes M    how long the faults come [default: one every 0.8 s]
  --of TEXT      what is tested, for the report [cargo xtask says the commit]
  --plan         only print the plan

The report goes to standard output, in Markdown and whole; the plan, and the story of every run in which an invariant is
broken, go to standard error.

Exit codes: 0 every invariant holds, 1 one is broken or the run could not be made, 2 usage.
";

const WORKERS: usize = 3;
const SLOTS: usize = 3;
/// Runs that are open at once: some wait.
const OPEN: usize = 12;
/// Between two looks for something that a fault can hit, in milliseconds.
const LOOK: u64 = 50;
/// How long everything may take to settle once the faults have stopped: leases, waits before retries, released claims.
const SETTLING: u64 = 300_000;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) faults: u32,
    pub(super) seed: u64,
    pub(super) millis: u64,
    pub(super) of: String,
    pub(super) only_plan: bool,
}

/// What a command line asks for.
#[derive(Debug)]
enum Asked {
    Help,
    Faults(Options),
    Replicas(replicas::Options),
}

fn parse(arguments: &[String]) -> Result<Asked> {
    let (mut faults, mut seed, mut minutes, mut only_plan) = (None, None, None, false);
    let (mut postgres, mut runs) = (false, None);
    let mut of = "an unnamed build".to_owned();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--faults" => faults = Some(value()?.parse::<u32>().context("--faults takes a number")?),
            "--seed" => seed = Some(value()?.parse::<u64>().context("--seed takes a number")?),
            "--minutes" => minutes = Some(value()?.parse::<f64>().context("--minutes takes a number")?),
            "--of" => value()?.clone_into(&mut of),
            "--plan" => only_plan = true,
            "--postgres" => postgres = true,
            "--runs" => runs = Some(value()?.parse::<u64>().context("--runs takes a number")?),
            "--help" | "-h" => return Ok(Asked::Help),
            _ => bail!("there is no option {word}"),
        }
    }
    let seed = seed.unwrap_or_else(|| Seed::fresh("chaos").below(u64::MAX));
    if postgres {
        ensure!(faults.is_none() && minutes.is_none() && !only_plan, "--postgres takes --runs and --seed");
        let runs = runs.context("how many runs? say --runs N")?;
        return Ok(Asked::Replicas(replicas::Options { runs, seed, of }));
    }
    ensure!(runs.is_none(), "--runs goes with --postgres");
    let faults = faults.context("how many faults? say --faults N")?;
    let minutes = minutes.unwrap_or(f64::from(faults) * 0.8 / 60.0);
    ensure!((0.0..=24.0 * 60.0).contains(&minutes), "--minutes is at most a day");
    let millis = u64::try_from(Duration::from_secs_f64(minutes * 60.0).as_millis())?;
    Ok(Asked::Faults(Options { faults, seed, millis, of, only_plan }))
}

pub(super) fn main(arguments: &[String]) -> Result<u8> {
    let options = match parse(arguments) {
        Ok(Asked::Faults(options)) => options,
        Ok(Asked::Replicas(options)) => return replicas::run(&options),
        Ok(Asked::Help) => {
            print!("{HELP}");
            return Ok(0);
        }
        Err(error) => {
            eprintln!("error: {error:#}\n\n{HELP}");
            return Ok(2);
        }
    };
    eprintln!("seed {} (cargo xtask chaos --faults {} --seed {0} replays it)", options.seed, options.faults);
    let plan = plan::drawn(options.seed, options.faults, WORKERS, options.millis);
    for planned in &plan {
        eprintln!("  {planned}");
    }
    if options.only_plan {
        return Ok(0);
    }
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
    let directory = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir()?;
    let begun = boot_millis();
    let history = carry_out(&options, &plan, directory.path())?;
    let found = violations(&history);
    let set_up = SetUp { workers: WORKERS, slots: SLOTS };
    print!("{}", report(&options, set_up, &history, &found, (boot_millis() - begun) / 1000));
    if found.is_empty() {
        return Ok(0);
    }
    tell(&history, &found);
    eprintln!("seed {}; everything is kept in {}", options.seed, directory.keep().display());
    Ok(1)
}

/// Builds the world, lets the plan happen to it, waits until it has settled, and writes down what is left.
fn carry_out(options: &Options, plan: &[Planned], directory: &Path) -> Result<History> {
    let marks = directory.join("marks");
    std::fs::create_dir(&marks)?;
    let mut world = World::build(directory, WORKERS, SLOTS)?;
    let api = Api::of([world.data().as_path()]);
    let program = std::env::current_exe()?;
    let load = Load {
        api: api.clone(),
        seed: options.seed,
        draws: Job::drawn,
        total: u64::MAX,
        program,
        marks: marks.clone(),
        open: OPEN,
    };
    let progress = Progress::default();
    let (outcome, loaded) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load.run(&progress));
        let outcome = happen(&mut world, plan, &progress.over).and_then(|faults| {
            let left = settle(&mut world, &api, &progress.quiet)?;
            Ok((faults, left))
        });
        progress.over.store(true, Ordering::Relaxed);
        progress.settled.store(true, Ordering::Relaxed);
        (outcome, load.join().expect("the load does not panic"))
    });
    let (faults, left) = outcome?;
    collect(world, &api, &marks, loaded, faults, left)
}

/// Carries the plan out, second by second.
fn happen(world: &mut World, plan: &[Planned], over: &AtomicBool) -> Result<BTreeMap<usize, Happened>> {
    let begun = boot_millis();
    // What is due: beginnings as planned, each end when its beginning is known.
    let mut due: BTreeSet<(u64, usize, bool)> =
        plan.iter().enumerate().map(|(place, planned)| (planned.at, place, false)).collect();
    let mut happened: BTreeMap<usize, Happened> = BTreeMap::new();
    while let Some((at, place, ends)) = due.pop_first() {
        while boot_millis() < begun + at {
            world.tend()?;
            pause((begun + at).saturating_sub(boot_millis()).min(50));
        }
        let planned = &plan[place];
        if ends {
            world.end(place, planned.fault).with_context(|| format!("cannot end: {planned}"))?;
            if let Some(one) = happened.get_mut(&place) {
                one.until = boot_millis();
            }
            continue;
        }
        if at == planned.at {
            world.gather_secrets();
        }
        let one = world.begin(place, planned.fault).with_context(|| format!("cannot begin: {planned}"))?;
        let now = boot_millis() - begun;
        if one.missed && now < planned.by {
            due.insert((now + LOOK, place, false));
            continue;
        }
        due.insert(((now + planned.lasts).min(planned.until()).max(at), place, true));
        happened.insert(place, one);
    }
    over.store(true, Ordering::Relaxed);
    Ok(happened)
}

/// Waits until every run has ended or is held, and every record is gone; answers what was still there at the end.
fn settle(world: &mut World, api: &Api, quiet: &AtomicBool) -> Result<Vec<String>> {
    let begun = boot_millis();
    loop {
        world.tend()?;
        let open = api.json("/api/v1/runs?state=pending&state=dispatching&state=running&state=retry_wait&limit=64");
        let mut left = world.left();
        if !quiet.load(Ordering::Relaxed) {
            left.push("somebody may still speak about a run".to_owned());
        }
        match open {
            Ok(open) => {
                let items = open["items"].as_array().cloned().unwrap_or_default();
                left.extend(items.iter().map(|run| format!("run {} is {}", run["id"], run["state"])));
            }
            Err(error) => left.push(format!("the control plane does not answer: {error:#}")),
        }
        if left.is_empty() || boot_millis() - begun > SETTLING {
            return Ok(left);
        }
        pause(200);
    }
}

fn collect(
    mut world: World,
    api: &Api,
    marks: &Path,
    loaded: Loaded,
    mut faults: BTreeMap<usize, Happened>,
    mut left: Vec<String>,
) -> Result<History> {
    for place in &world.given_up {
        if let Some(happened) = faults.get_mut(place) {
            happened.missed = true;
        }
    }
    let mut runs = Vec::new();
    for item in api.list("/api/v1/runs")? {
        runs.push(api.run(item["id"].as_str().context("a run has an id")?)?);
    }
    let audit = api.list("/api/v1/audit")?;
    for worker in 0..WORKERS {
        let said = api.json(&format!("/api/v1/workers/{}", worker_name(worker)))?;
        if said["active_attempts"].as_array().is_none_or(|attempts| !attempts.is_empty()) {
            left.push(format!("{} holds leases: {}", worker_name(worker), said["active_attempts"]));
        }
    }
    left.extend(world.shut_down()?);
    let mut lines = Vec::new();
    for worker in (0..WORKERS).map(worker_name) {
        let text = std::fs::read_to_string(marks.join(&worker)).unwrap_or_default();
        for line in text.lines() {
            lines.push(Mark::parse(&worker, line).with_context(|| format!("a torn line: {line}"))?);
        }
    }
    let mut ends = world.ends.clone();
    ends.extend(loaded.surprises);
    Ok(History {
        submitted: loaded.submitted,
        marks: lines,
        runs,
        faults: faults.into_values().collect(),
        drained: world.drained.clone(),
        seen_over: loaded.seen_over,
        slots: SLOTS,
        ends,
        audit: audit.iter().map(|row| format!("{} {} {}", row["action"], row["subject"], row["facts"])).collect(),
        left,
        contradictions: database::contradictions(&world.data())?,
        leaks: world.leaks()?,
    })
}

#[expect(clippy::disallowed_methods, reason = "the plan's own time passes; nobody waits for a fact here")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_and_a_wrong_one_refused() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let Asked::Faults(options) = parse(&words("--faults 100 --seed 7 --minutes 0.5")).unwrap() else { panic!() };
        assert_eq!((options.faults, options.seed, options.millis), (100, 7, 30_000));
        let Asked::Replicas(options) = parse(&words("--postgres --runs 200 --seed 7")).unwrap() else { panic!() };
        assert_eq!((options.runs, options.seed), (200, 7));
        assert!(parse(&words("--postgres")).is_err() && parse(&words("--faults 9 --runs 200")).is_err());
        assert!(parse(&words("--seed 7")).is_err());
        assert!(parse(&words("--faults many")).is_err());
        assert!(matches!(parse(&words("--help")), Ok(Asked::Help)));
    }
}
