//! Ten thousand tasks, each with a schedule, all due at one minute: how long applying them takes, how soon their runs are there,
//! and what they cost in memory.
//!
//! The control plane is the released one on its embedded database. No worker is there, so that nothing but the schedules is
//! measured: the runs stay pending.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

use super::machine::{per_second, syncs_per_second, to_millis};
use super::memory::{Memory, forget_peak};
use super::product;
use super::{Options, machine_now, stamp};
use crate::checkout::target_directory;

/// How long applying may take before the minute at which everything is due.
const AHEAD: Duration = Duration::from_secs(75);
/// Due triggers that the control plane reads at once (`core::limits::PAGE`).
const PAGE: usize = 64;
/// How long the runs may be awaited.
const PATIENCE: Duration = Duration::from_mins(10);

/// Measures and prints a table.
pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!("building the released binaries …");
    product::build()?;
    let syncs = syncs_per_second(Duration::from_secs(2))?;
    println!("{}\n", machine_now());
    let place = Place::start()?;
    let serve = place.serve.id();
    let before = Memory::of(serve)?;
    forget_peak(serve)?;
    let due = next_minute(AHEAD)?;
    eprintln!("applying {} tasks …", options.tasks);
    place.write_tasks(options.tasks, due)?;
    let first = place.apply()?;
    let again = place.apply()?;
    let (applying, applied) = (Memory::peak(serve)?, Memory::of(serve)?);
    ensure!(since_epoch()? < due, "applying took longer than {} s: nothing is due any more", AHEAD.as_secs());

    eprintln!("waiting for {} runs, due at {} s after the epoch …", options.tasks, due.as_secs());
    let from_due = |now: Duration| now.saturating_sub(due);
    let looks = place.evaluations()?;
    let begun = place.until_runs(1)?;
    let settled = Memory::of(serve)?;
    forget_peak(serve)?;
    let ended = place.until_runs(options.tasks)?;
    let (firing, fired) = (Memory::peak(serve)?, Memory::of(serve)?);
    let pages = place.evaluations()?.saturating_sub(looks);
    let took = from_due(ended);
    let rate = per_second(u32::try_from(options.tasks)?, 0, i128::try_from(took.as_nanos())?);

    println!("| {} tasks with a schedule each, due at one minute | |\n| --- | --- |", options.tasks);
    println!("| applied from as many files | {:.2} s |", to_millis(first) / 1000.0);
    println!("| applied once more, nothing changed | {:.2} s |", to_millis(again) / 1000.0);
    println!("| first run after the minute | {:.2} s |", from_due(begun).as_secs_f64());
    println!("| last run after the minute | {:.2} s |", took.as_secs_f64());
    println!("| runs per second, of {syncs:.0} synced files per second | {rate:.0} ({:.3}) |", rate / syncs);
    let each = to_f64(options.tasks)? / to_f64(pages.max(1))?;
    println!(
        "| due triggers read in pages of at most {PAGE}, each a transaction | {pages} pages, {each:.1} runs each |"
    );
    println!("| control plane before, resident (private dirty) | {} |", before.text());
    println!("| the most while they were applied, resident | {applying} KiB |");
    println!("| when they were | {} |", applied.text());
    println!("| when the minute came | {} |", settled.text());
    println!("| the most while they fired, resident | {firing} KiB |");
    println!("| when they had | {} |\n", fired.text());
    Ok(())
}

/// A control plane and a directory of tasks.
struct Place {
    directory: tempfile::TempDir,
    serve: Child,
}

impl Place {
    fn start() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let mut serve = leasehold(directory.path())?;
        serve.args(["serve", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0"]);
        let serve = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot start leasehold")?;
        let place = Self { directory, serve };
        while place.pending().is_err() {
            pause();
        }
        Ok(place)
    }

    fn write_tasks(&self, tasks: usize, due: Duration) -> Result<()> {
        let minutes = due.as_secs() / 60;
        let (hour, minute) = (minutes / 60 % 24, minutes % 60);
        let folder = self.directory.path().join("tasks");
        std::fs::create_dir(&folder)?;
        for number in 0..tasks {
            let mut text = String::new();
            writeln!(text, "name = \"task-{number}\"\n[command]\nargv = [\"true\"]")?;
            writeln!(text, "[[trigger]]\nname = \"daily\"\ncron = \"{minute} {hour} * * *\"\ntime_zone = \"UTC\"")?;
            std::fs::write(folder.join(format!("task-{number}.toml")), text)?;
        }
        Ok(())
    }

    /// Nanoseconds that it took.
    fn apply(&self) -> Result<i128> {
        let begun = stamp::boot_nanos();
        let mut apply = leasehold(self.directory.path())?;
        let applied = apply.args(["task", "apply", "-q", "-f", "tasks"]).stdout(Stdio::null()).status()?;
        ensure!(applied.success(), "task apply ended with {applied}");
        Ok(stamp::boot_nanos() - begun)
    }

    /// Runs that wait.
    fn pending(&self) -> Result<usize> {
        self.counted("leasehold_runs{state=\"pending\"")
    }

    /// Pages of due triggers that were read; a look that finds nothing due is one.
    fn evaluations(&self) -> Result<usize> {
        self.counted("leasehold_store_calls_total{call=\"fire_triggers\"")
    }

    /// The sum of the metrics that begin so.
    fn counted(&self, begins: &str) -> Result<usize> {
        let text = product::ask(&self.directory.path().join("leasehold-data/admin.sock"), "GET", "/metrics", "")?;
        let mut lines = text.lines().filter(|line| line.starts_with(begins)).peekable();
        ensure!(lines.peek().is_some(), "no metric {begins}");
        lines.try_fold(0, |sum, line| {
            let count = line.rsplit(' ').next().unwrap_or_default();
            // A gauge is written as a number with or without a fraction.
            let whole: usize = count.split('.').next().unwrap_or(count).parse().with_context(|| line.to_owned())?;
            Ok(sum + whole)
        })
    }

    /// When so many runs were there, since the epoch.
    fn until_runs(&self, runs: usize) -> Result<Duration> {
        let begun = since_epoch()?;
        loop {
            let now = since_epoch()?;
            let pending = self.pending()?;
            if pending >= runs {
                return Ok(now);
            }
            if now.saturating_sub(begun) > PATIENCE {
                bail!("{pending} of {runs} runs are there");
            }
            pause();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.serve.kill();
        let _ = self.serve.wait();
    }
}

fn leasehold(directory: &Path) -> Result<Command> {
    let mut command = Command::new(target_directory()?.join("release/leasehold"));
    command.current_dir(directory).stdin(Stdio::null());
    for variable in ["LEASEHOLD_ADDR", "LEASEHOLD_TOKEN", "LEASEHOLD_PROJECT", "LEASEHOLD_CACERT"] {
        command.env_remove(variable);
    }
    Ok(command)
}

fn to_f64(count: usize) -> Result<f64> {
    Ok(f64::from(u32::try_from(count)?))
}

#[expect(clippy::disallowed_methods, reason = "schedules follow the wall clock, and so does who measures them")]
fn since_epoch() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// The first full minute that is at least so far away, since the epoch.
fn next_minute(ahead: Duration) -> Result<Duration> {
    let seconds = (since_epoch()? + ahead).as_secs();
    Ok(Duration::from_secs(seconds.next_multiple_of(60)))
}

/// Between two counts: each is work for the control plane, too.
#[expect(clippy::disallowed_methods, reason = "a bench polls")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}
