//! `cargo xtask ci`: the checks, each with a heading and a duration, and a table at the end.
//!
//! The order is by cost: what is cheap and fails often comes first. Profiles are chosen so that steps share what
//! they compile: clippy and docs share the check artefacts, everything that runs the dev profile.

use std::fmt::{self, Write as _};
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::binaries::{Binaries, Building};
use crate::checkout::{cargo, root, run as run_command};
use crate::{chaos, environment, kubernetes, licences, postgres18, previous_release, walls};

/// What `cargo xtask ci` was asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Only these steps; all of them when empty.
    pub(crate) only: Vec<Step>,
    /// Run the steps after a failed one too.
    pub(crate) keep_going: bool,
    /// Only print what the steps are.
    pub(crate) list: bool,
}

/// How every step begins to test: of the whole workspace, whatever it then selects. One package alone asks less of what it
/// depends on, so that all of that would be compiled once more.
pub(crate) const TEST: [&str; 3] = ["test", "--locked", "--workspace"];

/// The test target of real processes.
pub(crate) const END_TO_END: &str = "e2e";

/// One check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Environment,
    Fmt,
    Walls,
    Licences,
    Kubernetes,
    Clippy,
    Docs,
    Test,
    Postgres18,
    E2e,
    Chaos,
}

impl Step {
    const ALL: [Self; 11] = [
        Self::Environment,
        Self::Fmt,
        Self::Walls,
        Self::Licences,
        Self::Kubernetes,
        Self::Clippy,
        Self::Docs,
        Self::Test,
        Self::Postgres18,
        Self::Chaos,
        Self::E2e,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Fmt => "fmt",
            Self::Walls => "walls",
            Self::Licences => "licences",
            Self::Kubernetes => "kubernetes",
            Self::Clippy => "clippy",
            Self::Docs => "docs",
            Self::Test => "test",
            Self::Postgres18 => "postgres18",
            Self::E2e => "e2e",
            Self::Chaos => "chaos",
        }
    }

    fn describes(self) -> &'static str {
        match self {
            Self::Environment => "the programs that tests need are installed (or named, for an ordinary user)",
            Self::Fmt => "every file is formatted",
            Self::Walls => "what each crate may name and depend on",
            Self::Licences => "every dependency has a licence we accept",
            Self::Kubernetes => "the example for Kubernetes is what its API takes",
            Self::Clippy => "the workspace lint table, warnings are errors",
            Self::Docs => "the documentation builds without a warning",
            Self::Test => "unit, property and contract tests",
            Self::Postgres18 => "the store on PostgreSQL 18, beside the distribution's version",
            Self::E2e => {
                "the two programs as real processes: runs, crashes, refusals, examples, an upgrade from the release before"
            }
            Self::Chaos => {
                "faults drawn from one seed, on SQLite and on PostgreSQL, judged by what the jobs wrote (needs root)"
            }
        }
    }

    /// Checks; what later ones of these steps can do meanwhile is begun.
    fn check(self, beside: &mut Beside) -> Result<()> {
        match self {
            Self::Environment => environment::prepare(),
            Self::Fmt => run_command(cargo().args(["fmt", "--all", "--check"])),
            Self::Walls => walls::check(),
            Self::Licences => licences::check(),
            Self::Kubernetes => kubernetes::check(),
            Self::Clippy => run_command(cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ])),
            Self::Docs => run_command(
                cargo()
                    .args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"])
                    .args(["--features", "leasehold-store/test-suite"])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            ),
            Self::Test => {
                if beside.has(Self::E2e) {
                    run_tests(&["--no-run"])?;
                    beside.building.begin();
                }
                run_tests(&[])?;
                run_command(cargo().args(TEST).args(["--quiet", "--doc"]))
            }
            Self::Postgres18 => {
                if beside.has(Self::Chaos) {
                    beside.chaos = Some(chaos::Both::begin(&Binaries::tested()?)?);
                }
                postgres18::check()
            }
            Self::Chaos => match beside.chaos.take() {
                Some(begun) => begun.finish(),
                None => chaos::Both::begin(&Binaries::tested()?)?.finish(),
            },
            Self::E2e => end_to_end(&Binaries::tested()?, &beside.building.finish()?),
        }
    }
}

/// What goes on beside the steps, and which steps there are.
#[derive(Debug, Default)]
struct Beside {
    steps: Vec<Step>,
    building: Building,
    chaos: Option<chaos::Both>,
}

impl Beside {
    fn has(&self, step: Step) -> bool {
        self.steps.contains(&step)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|step| step.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|step| step.name()).collect();
            format!("there is no step `{name}`; the steps are: {}", known.join(", "))
        })
    }
}

/// Every test target but the end-to-end ones.
fn run_tests(how: &[&str]) -> Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let tests = targets.filter(|target| target.is_test() && target.name != END_TO_END);
    let tests = tests.flat_map(|target| ["--test", &target.name]);
    let mut command = cargo();
    run_command(waiting(command.args(TEST).args(["--quiet", "--lib", "--bins"]).args(tests).args(how)))
}

/// More at once than there are processors: most of the time of these tests is waiting for a database or a process.
pub(crate) fn waiting(tests: &mut Command) -> &mut Command {
    let threads = std::thread::available_parallelism().map_or(4, |processors| 2 * processors.get());
    tests.env("RUST_TEST_THREADS", threads.to_string())
}

/// The harness knows the product only from outside: it builds in seconds, and starts what it is told.
fn end_to_end(tested: &Binaries, before: &previous_release::Binaries) -> Result<()> {
    // Their time is waiting, for leases, drains and restarts; more than this and the time bounds they assert get tight.
    let threads = 4 * std::thread::available_parallelism()?.get();
    let mut command = cargo();
    command
        .args(TEST)
        .args(["--no-fail-fast", "--test", END_TO_END, "--", "--test-threads", &threads.to_string()])
        .env("LEASEHOLD_PREVIOUS_BIN", &before.leasehold)
        .env("LEASEHOLD_PREVIOUS_WORKER_BIN", &before.worker);
    run_command(tested.tell(&mut command))
}

struct Finished {
    step: Step,
    took: Duration,
    failure: Option<String>,
}

/// Runs the chosen steps; fails when one of them failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for step in Step::ALL {
            println!("{step:<12} {}", step.describes());
        }
        return Ok(());
    }
    let steps = if options.only.is_empty() { Step::ALL.to_vec() } else { options.only.clone() };
    let mut finished = Vec::new();
    let mut beside = Beside { steps: steps.clone(), ..Beside::default() };
    for step in steps {
        eprintln!("\n=== {step}: {}", step.describes());
        let (took, outcome) = timed(|| step.check(&mut beside));
        let failure = outcome.err().map(|error| format!("{error:#}"));
        match &failure {
            None => eprintln!("--- {step}: ok in {}", seconds(took)),
            Some(failure) => eprintln!("--- {step}: FAILED in {}\n{failure}", seconds(took)),
        }
        let stop = failure.is_some() && !options.keep_going;
        finished.push(Finished { step, took, failure });
        if stop {
            break;
        }
    }
    eprint!("\n{}", table(&finished));
    let failed: Vec<&str> =
        finished.iter().filter(|done| done.failure.is_some()).map(|done| done.step.name()).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; nothing is decided by it")]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let outcome = work();
    (begin.elapsed(), outcome)
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn table(finished: &[Finished]) -> String {
    let mut text = String::new();
    let mut total = Duration::ZERO;
    for done in finished {
        total += done.took;
        let verdict = if done.failure.is_some() { "FAILED" } else { "ok" };
        let _ = writeln!(text, "{:<12} {verdict:<6} {:>9}", done.step, seconds(done.took));
    }
    let _ = writeln!(text, "{:<12} {:<6} {:>9}", "total", "", seconds(total));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_found_by_its_name() {
        for step in Step::ALL {
            assert_eq!(step.name().parse::<Step>(), Ok(step));
        }
    }

    #[test]
    fn the_table_names_what_failed() {
        let text = table(&[
            Finished { step: Step::Fmt, took: Duration::from_millis(1500), failure: None },
            Finished { step: Step::Walls, took: Duration::from_millis(500), failure: Some("a wall".to_owned()) },
        ]);
        assert_eq!(
            text,
            "fmt          ok         1.5 s\nwalls        FAILED     0.5 s\ntotal                   2.0 s\n"
        );
    }
}
