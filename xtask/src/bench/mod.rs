//! `cargo xtask bench`: how fast the whole product is, next to what this machine can do at all, in the same run.
//!
//! Ratios carry over from machine to machine, digits do not; so every figure of the product stands beside the bare limit that it
//! is a share of. Nothing here gates anything: performance is shown, safety is tested.

mod machine;
mod memory;
mod postgres;
mod product;
mod stamp;
mod tasks;
mod waiting;

use std::time::Duration;

use anyhow::Result;

pub(crate) use stamp::stamp;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole product on one machine, on its embedded database.
    Product,
    /// The store on PostgreSQL.
    Postgres,
    /// Idle workers that wait.
    Waiting,
    /// Tasks by the thousand, and their schedules.
    Tasks,
}

impl Part {
    const ALL: [Self; 4] = [Self::Product, Self::Postgres, Self::Waiting, Self::Tasks];
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "product" => Ok(Self::Product),
            "postgres" => Ok(Self::Postgres),
            "waiting" => Ok(Self::Waiting),
            "tasks" => Ok(Self::Tasks),
            other => Err(format!("there is nothing called {other} to measure: product, postgres, waiting or tasks")),
        }
    }
}

/// What to measure, and how much of it.
pub(crate) struct Options {
    /// Only these; all where none is named.
    pub(crate) only: Vec<Part>,
    /// Runs of `/bin/true` for the throughput.
    pub(crate) runs: usize,
    /// Runs for the latency, one at a time.
    pub(crate) starts: usize,
    /// Runs that have ended in the database before the aged part is measured.
    pub(crate) ended: u64,
    /// Seconds of each state of the aged part.
    pub(crate) seconds: u64,
    /// Waiting workers at most.
    pub(crate) workers: usize,
    /// Seconds for which idle workers are left alone.
    pub(crate) idle: u64,
    /// Tasks, each with a schedule.
    pub(crate) tasks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            runs: 400,
            starts: 50,
            ended: 1_000_000,
            seconds: 60,
            workers: 1000,
            idle: 60,
            tasks: 10_000,
        }
    }
}

/// Measures what was asked for, and prints tables.
pub(crate) fn run(options: &Options) -> Result<()> {
    for part in Part::ALL.into_iter().filter(|part| options.only.is_empty() || options.only.contains(part)) {
        match part {
            Part::Product => of_product(options)?,
            Part::Postgres => postgres::run(options)?,
            Part::Waiting => waiting::run(options)?,
            Part::Tasks => tasks::run(options)?,
        }
    }
    Ok(())
}

/// What the figures depend on, as it is now.
fn machine_now() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    format!("{cores} processors, load average {load}.")
}

/// Machine and product, in one table.
fn of_product(options: &Options) -> Result<()> {
    eprintln!("building the released binaries …");
    product::build()?;
    eprintln!("measuring the machine …");
    let spawns = machine::spawns_per_second(2, Duration::from_secs(2))?;
    let syncs = machine::syncs_per_second(Duration::from_secs(2))?;
    let bare = machine::start_latency(options.starts)?;
    eprintln!("measuring the product: {} starts …", options.starts);
    let mut product = product::Product::start()?;
    let idle = product.memory_of_worker()?;
    let started = product.start_latency(options.starts)?;
    eprintln!("measuring the product: memory …");
    let launcher = product.memory_of_launcher()?;
    eprintln!("measuring the product: {} runs …", options.runs);
    let rate = product.runs_per_second(options.runs)?;
    let busy = product.memory_of_worker()?;
    product.stop()?;

    println!("{:<52} {:>12} {:>12} {:>8}", "", "product", "machine", "ratio");
    let row = |name: &str, ours: f64, limit: f64, unit: &str| {
        println!(
            "{name:<52} {:>12} {:>12} {:>8.3}",
            format!("{ours:.2} {unit}"),
            format!("{limit:.2} {unit}"),
            ours / limit
        );
    };
    row("/bin/true runs per second | bare spawns, 2 threads", rate, spawns, "/s");
    row("/bin/true runs per second | synced new files", rate, syncs, "/s");
    row("submit → process start, p50 | bare spawn → start", started.p50, bare.p50, "ms");
    row("submit → process start, p99 | bare spawn → start", started.p99, bare.p99, "ms");
    println!("{:<52} {:>12}", "idle worker, resident (private dirty)", idle.text());
    println!("{:<52} {:>12}", "worker after the runs, resident (private dirty)", busy.text());
    println!("{:<52} {:>12}\n", "one launcher, resident (private dirty)", launcher.text());
    Ok(())
}

/// Two points of a distribution, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

impl Quantiles {
    fn of(mut millis: Vec<f64>) -> Self {
        millis.sort_by(f64::total_cmp);
        let at = |share: f64| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of samples"
            )]
            let index = ((millis.len() as f64 - 1.0) * share).round() as usize;
            millis.get(index).copied().unwrap_or(f64::NAN)
        };
        Self { p50: at(0.5), p99: at(0.99) }
    }
}
