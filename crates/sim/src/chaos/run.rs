//! One chaos run from its seed to its verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::api::Api;
use super::boot_millis;
use super::checker::{Violation, violations};
use super::fault::{EXCLUDED, worker_name};
use super::history::{Happened, History, Mark};
use super::load::{Load, Loaded};
use super::plan::{self, Planned};
use super::world::World;
use crate::database;
use crate::seed::Seed;

const HELP: &str = "\
A chaos run: faults drawn from a seed, and a checker that compares what the jobs wrote with what the product says.

Usage:
  cargo xtask chaos --faults N [--seed S] [--minutes M] [--report FILE]

  --faults N     how many faults
  --seed S       replay the plan and the load of this seed [default: a new one, printed]
  --minutes M    how long the faults come [default: one every 0.8 s]
  --report FILE  write what was done and found, in Markdown
  --of TEXT      what is tested, for the report [cargo xtask says the commit]
  --plan         only print the plan

Exit codes: 0 every invariant holds, 1 one is broken or the run could not be made, 2 usage.
";

const WORKERS: usize = 3;
const SLOTS: usize = 3;
/// Runs that are open at once: some wait.
const OPEN: usize = 12;
/// How long everything may take to settle once the faults have stopped: leases, waits before retries, released claims.
const SETTLING: u64 = 300_000;

#[derive(Debug)]
struct Options {
    faults: u32,
    seed: u64,
    millis: u64,
    report: Option<PathBuf>,
    of: String,
    only_plan: bool,
}

fn parse(arguments: &[String]) -> Result<Option<Options>> {
    let (mut faults, mut seed, mut minutes, mut report, mut only_plan) = (None, None, None, None, false);
    let mut of = "an unnamed build".to_owned();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--faults" => faults = Some(value()?.parse::<u32>().context("--faults takes a number")?),
            "--seed" => seed = Some(value()?.parse::<u64>().context("--seed takes a number")?),
            "--minutes" => minutes = Some(value()?.parse::<f64>().context("--minutes takes a number")?),
            "--report" => report = Some(PathBuf::from(value()?)),
            "--of" => value()?.clone_into(&mut of),
            "--plan" => only_plan = true,
            "--help" | "-h" => return Ok(None),
            _ => bail!("there is no option {word}"),
        }
    }
    let faults = faults.context("how many faults? say --faults N")?;
    let minutes = minutes.unwrap_or(f64::from(faults) * 0.8 / 60.0);
    ensure!((0.0..=24.0 * 60.0).contains(&minutes), "--minutes is at most a day");
    let millis = u64::try_from(Duration::from_secs_f64(minutes * 60.0).as_millis())?;
    let seed = seed.unwrap_or_else(|| Seed::fresh("chaos").below(u64::MAX));
    Ok(Some(Options { faults, seed, millis, report, of, only_plan }))
}

pub(super) fn main(arguments: &[String]) -> Result<u8> {
    let options = match parse(arguments) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return Ok(0);
        }
        Err(error) => {
            eprintln!("error: {error:#}\n\n{HELP}");
            return Ok(2);
        }
    };
    println!("seed {} (cargo xtask chaos --faults {} --seed {0} replays it)", options.seed, options.faults);
    let plan = plan::drawn(options.seed, options.faults, WORKERS, options.millis);
    for planned in &plan {
        println!("  {planned}");
    }
    for (what, why) in EXCLUDED {
        println!("  never: {what}: {why}");
    }
    if options.only_plan {
        return Ok(0);
    }
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
    let directory = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir()?;
    let begun = boot_millis();
    let history = carry_out(&options, &plan, directory.path())?;
    let found = violations(&history);
    let summary = summary(&options, &history, (boot_millis() - begun) / 1000);
    print!("{summary}");
    if let Some(file) = &options.report {
        std::fs::write(file, report(&options, &summary, &found))?;
    }
    if found.is_empty() {
        println!("every invariant holds");
        return Ok(0);
    }
    tell(&history, &found);
    println!("seed {}; everything is kept in {}", options.seed, directory.keep().display());
    Ok(1)
}

/// Builds the world, lets the plan happen to it, waits until it has settled, and writes down what is left.
fn carry_out(options: &Options, plan: &[Planned], directory: &Path) -> Result<History> {
    let marks = directory.join("marks");
    std::fs::create_dir(&marks)?;
    let mut world = World::build(directory, WORKERS, SLOTS)?;
    let api = Api::of(&world.data());
    let program = std::env::current_exe()?;
    let load = Load { api: api.clone(), seed: options.seed, program, marks: marks.clone(), open: OPEN };
    let (over, settled) = (AtomicBool::new(false), AtomicBool::new(false));
    let (outcome, loaded) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load.run(&over, &settled));
        let outcome = happen(&mut world, plan, &over).and_then(|faults| {
            let left = settle(&mut world, &api)?;
            Ok((faults, left))
        });
        over.store(true, Ordering::Relaxed);
        settled.store(true, Ordering::Relaxed);
        (outcome, load.join().expect("the load does not panic"))
    });
    let (faults, left) = outcome?;
    collect(world, &api, &marks, loaded, faults, left)
}

/// Carries the plan out, second by second.
fn happen(world: &mut World, plan: &[Planned], over: &AtomicBool) -> Result<Vec<Happened>> {
    let begun = boot_millis();
    let mut steps: Vec<(u64, usize, bool)> = Vec::new();
    for (place, planned) in plan.iter().enumerate() {
        steps.push((planned.at, place, false));
        steps.push((planned.until, place, true));
    }
    // What begins and ends in one instant begins first.
    steps.sort_by_key(|(at, place, ends)| (*at, *place, *ends));
    let mut happened: BTreeMap<usize, Happened> = BTreeMap::new();
    for (at, place, ends) in steps {
        while boot_millis() < begun + at {
            world.tend()?;
            pause((begun + at).saturating_sub(boot_millis()).min(50));
        }
        let fault = plan[place].fault;
        if ends {
            world.end(place, fault).with_context(|| format!("cannot end: {}", plan[place]))?;
            if let Some(one) = happened.get_mut(&place) {
                one.until = boot_millis();
            }
        } else {
            world.gather_secrets();
            let one = world.begin(place, fault).with_context(|| format!("cannot begin: {}", plan[place]))?;
            happened.insert(place, one);
        }
    }
    over.store(true, Ordering::Relaxed);
    Ok(happened.into_values().collect())
}

/// Waits until every run has ended or is held, and every record is gone; answers what was still there at the end.
fn settle(world: &mut World, api: &Api) -> Result<Vec<String>> {
    let begun = boot_millis();
    loop {
        world.tend()?;
        let open = api.json("/api/v1/runs?state=pending&state=dispatching&state=running&state=retry_wait&limit=64");
        let mut left = world.left();
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
    faults: Vec<Happened>,
    mut left: Vec<String>,
) -> Result<History> {
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
        faults,
        seen_over: loaded.seen_over,
        slots: SLOTS,
        ends,
        audit: audit.iter().map(|row| format!("{} {} {}", row["action"], row["subject"], row["facts"])).collect(),
        left,
        contradictions: database::contradictions(&world.data())?,
        leaks: world.leaks()?,
    })
}

/// Counts per fault and per outcome, as a table that fits a report.
fn summary(options: &Options, history: &History, seconds: u64) -> String {
    use std::fmt::Write as _;

    let mut faults: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for happened in &history.faults {
        let count = faults.entry(happened.fault.name()).or_default();
        count.0 += 1;
        count.1 += u32::from(happened.missed);
    }
    let mut states: BTreeMap<&str, u32> = BTreeMap::new();
    let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
    let mut logs: BTreeMap<&str, u32> = BTreeMap::new();
    for run in &history.runs {
        *states.entry(&run.state).or_default() += 1;
        for attempt in &run.attempts {
            *logs.entry(&attempt.log.state).or_default() += 1;
            let outcome = attempt.outcome.as_ref().map_or("none".to_owned(), |outcome| {
                let why = outcome.evidence.as_ref().or(outcome.reason.as_ref());
                let which = if outcome.kind == "exited" { "" } else { why.map_or("", String::as_str) };
                format!("{} {which}", outcome.kind).trim_end().to_owned()
            });
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    let mut text = String::new();
    let starts = history.marks.iter().filter(|mark| mark.what == super::history::What::Start).count();
    let (runs, seed) = (history.runs.len(), options.seed);
    let _ = writeln!(text, "seed {seed}, {} faults, {runs} runs, {starts} starts, {seconds} s", history.faults.len());
    let _ = writeln!(text, "\n| fault | times | nothing was hit |\n| --- | --- | --- |");
    for (name, (times, missed)) in faults {
        let _ = writeln!(text, "| {name} | {times} | {missed} |");
    }
    let cancels = history.submitted.values().filter(|submitted| submitted.cancelled).count();
    let timeouts = history.submitted.values().filter(|submitted| submitted.job.timeout.is_some()).count();
    let _ = writeln!(text, "| cancel by a person | {cancels} | |\n| time limit of a job | {timeouts} | |");
    for (what, counts) in [
        ("run", states.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<Vec<_>>()),
        ("outcome of an attempt", outcomes.into_iter().collect()),
        ("log of an attempt", logs.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()),
    ] {
        let _ = writeln!(text, "\n| {what} | how many |\n| --- | --- |");
        for (name, count) in counts {
            let _ = writeln!(text, "| {name} | {count} |");
        }
    }
    text
}

fn report(options: &Options, summary: &str, found: &[Violation]) -> String {
    use std::fmt::Write as _;

    let Options { faults, seed, of, millis, .. } = options;
    let minutes = Duration::from_millis(*millis).as_secs_f64() / 60.0;
    let verdict = match found.len() {
        0 => "**Every invariant holds.**".to_owned(),
        count => format!("**{count} violations.**"),
    };
    let mut text = format!(
        "# A chaos run\n\n`cargo xtask chaos --faults {faults} --minutes {minutes:.1} --seed {seed}` on {of}.\n\n{verdict}\n\n{WORKERS} workers \
         with {SLOTS} slots each and a control plane, each on a machine of its own: a network namespace, a wall clock that \
         jumps, a boot id that changes. The jobs wrote down their own starts, lives and ends; afterwards that was compared \
         with every run, attempt, event and log of the product, and nothing was left: no process, no file, no lease.\n\n\
         {summary}\nNever drawn, because no promise is made for it:\n\n"
    );
    for (what, why) in EXCLUDED {
        let _ = writeln!(text, "- {what}: {why}");
    }
    text
}

/// Every violation, and the story of each run that is in one.
fn tell(history: &History, found: &[Violation]) {
    let mut told: Vec<&str> = Vec::new();
    for violation in found {
        println!("\n{violation}");
        if let Some(run) = violation.run.as_deref().filter(|run| !told.contains(run)) {
            told.push(run);
            print!("{}", history.story(run));
        }
    }
    println!("\n{} violations", found.len());
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
        let options = parse(&words("--faults 100 --seed 7 --minutes 0.5")).unwrap().unwrap();
        assert_eq!((options.faults, options.seed, options.millis), (100, 7, 30_000));
        assert!(parse(&words("--seed 7")).is_err());
        assert!(parse(&words("--faults many")).is_err());
        assert!(parse(&words("--help")).unwrap().is_none());
    }
}
