//! What idle workers that wait cost, and how soon one of them has a run: `cargo xtask bench waiting`.
//!
//! The control plane is the real one, as a process, asked over its real ingress. The workers are clients of this process,
//! each with a certificate, a session, beats and a long poll of its own, and no agent behind: a thousand agents would
//! measure the machine. Every figure stands next to what the same machine can do at all. Nothing here is a test: what is
//! promised is tested elsewhere.

mod fleet;
mod joining;
mod limit;
mod operator;
mod worker;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use leasehold_sql::test_server::{Counters, Laps, TestServer};
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use fleet::{Dispatched, Fleet};
use limit::Limit;
use operator::Operator;

const HELP: &str = "\
What idle workers that wait cost, and how soon one of them has a run.

Usage:
  cargo xtask bench waiting [--workers N] [--runs N] [--idle SECONDS]

  --workers N    waiting workers at most [default: 1000]; also measured with 1, and with 100
  --runs N       runs that are timed with each number of workers [default: 200]
  --idle N       seconds for which a fleet is left alone, and what PostgreSQL writes is counted [default: 60]
";

/// The database of the product on the server that is measured.
const DATABASE: &str = "leasehold";
/// The one that the machine's own limit is measured in.
const PLAIN: &str = "plain";

/// Within this a connection of PostgreSQL that has nothing to do tells what it counted before; a little more.
const UNTOLD: Duration = Duration::from_secs(11);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    workers: usize,
    runs: usize,
    idle: u64,
}

/// Measures and prints tables, as Markdown.
pub fn main(arguments: &[String]) -> Result<()> {
    let Some(options) = parse(arguments)? else {
        print!("{HELP}");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if TestServer::is_there_or_skip("a measurement of PostgreSQL") {
        // No checkpoint in the middle, but those that it asks for.
        let settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("checkpoint_timeout", "15min")];
        let server = TestServer::start_with(&settings)?;
        let cluster = Cluster::prepare_on_postgres(&server.make_database(DATABASE)?)?;
        let limit = runtime.block_on(Limit::of_postgres(&server.make_database(PLAIN)?))?;
        measure(&runtime, "PostgreSQL", cluster, limit, Some(&server), options)?;
    }
    let cluster = Cluster::prepare()?;
    let limit = Limit::of_disk(cluster.directory())?;
    measure(&runtime, "SQLite", cluster, limit, None, options)
}

fn parse(arguments: &[String]) -> Result<Option<Options>> {
    let mut options = Options { workers: 1000, runs: 200, idle: 60 };
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut number = || words.next().with_context(|| format!("{word} takes a number"));
        match word {
            "--workers" => options.workers = number()?.parse()?,
            "--runs" => options.runs = number()?.parse()?,
            "--idle" => options.idle = number()?.parse()?,
            "--help" | "-h" => return Ok(None),
            other => bail!("there is no {other}\n\n{HELP}"),
        }
    }
    Ok(Some(options))
}

/// What was measured with so many workers.
struct Measured {
    workers: usize,
    dispatched: Dispatched,
    limit: Laps,
    resident: u64,
}

/// One control plane, from nobody to all workers.
fn measure(
    runtime: &Runtime,
    on: &str,
    mut cluster: Cluster,
    mut limit: Limit,
    server: Option<&TestServer>,
    options: Options,
) -> Result<()> {
    cluster.start_control()?;
    let ingress = cluster.ingress().parse().context("the ingress is an address of loopback")?;
    let mut fleet = Fleet::new(Operator::at(&cluster.admin_socket()), ingress);
    let (mut measured, mut idle) = (Vec::new(), Vec::new());
    let mut sizes = vec![1, 100, options.workers];
    sizes.retain(|size| *size <= options.workers);
    sizes.dedup();
    if let Some(server) = server {
        idle.push(left_alone(runtime, server, &mut fleet, 0, options)?);
    }
    for workers in sizes {
        eprintln!("{on}: {workers} waiting workers …");
        runtime.block_on(fleet.grow(workers))?;
        eprintln!("{on}: {} runs …", options.runs);
        // Around what is compared with it: the machine is not equally busy all the time.
        let mut machine = runtime.block_on(limit.measure())?;
        let dispatched = runtime.block_on(fleet.dispatch(options.runs))?;
        machine.append(runtime.block_on(limit.measure())?);
        let resident = resident(cluster.control_pid())?;
        measured.push(Measured { workers, dispatched, limit: machine, resident });
        if let (100, Some(server)) = (workers, server) {
            idle.push(left_alone(runtime, server, &mut fleet, workers, options)?);
        }
    }
    drop(fleet);
    tell_latency(on, limit.name(), &measured);
    tell_memory(on, &measured);
    if let Some(limit) = measured.last().map(|measured| &measured.limit) {
        tell_idle(&idle, limit);
    }
    cluster.shut_down()
}

/// A fleet that nobody gave anything to do for a while.
struct Idle {
    workers: usize,
    minutes: f64,
    beats: u64,
    counted: Counters,
}

fn left_alone(
    runtime: &Runtime,
    server: &TestServer,
    fleet: &mut Fleet,
    workers: usize,
    options: Options,
) -> Result<Idle> {
    eprintln!("PostgreSQL: {workers} waiting workers are left alone for {} s …", options.idle);
    runtime.block_on(fleet.all_wait())?;
    runtime.block_on(async { tokio::time::sleep(UNTOLD).await });
    let (before, beats) = (Counters::before(server, DATABASE)?, fleet.beats());
    let span = Duration::from_secs(options.idle);
    runtime.block_on(async { tokio::time::sleep(span).await });
    let (after, beats) = (Counters::after(server, DATABASE)?, fleet.beats() - beats);
    runtime.block_on(fleet.all_wait())?;
    Ok(Idle { workers, minutes: span.as_secs_f64() / 60.0, beats, counted: after.since(&before) })
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has resident memory")?;
    let kib = line.split_whitespace().next().context("it is a number")?;
    Ok(kib.parse()?)
}

fn tell_latency(on: &str, limit: &str, measured: &[Measured]) {
    println!("\n## From a run to a waiting worker, on {on}\n");
    println!(
        "Milliseconds, one run at a time. An offer that is there before the answer to the submission counts as 0 after it.\n"
    );
    heading(&[
        "waiting workers",
        "runs",
        "request → answer, p50",
        "p99",
        "answer → offer, p50",
        "p99",
        "max",
        "request → offer, p50",
        "p99",
        "max",
        &format!("{limit}, p50"),
        "request → offer, of it",
    ]);
    for Measured { workers, dispatched: Dispatched { answered, after_answer, offered }, limit, .. } in measured {
        let ms = |millis: f64| format!("{millis:.2}");
        line(&[
            workers.to_string(),
            offered.count().to_string(),
            ms(answered.p50()),
            ms(answered.p99()),
            ms(after_answer.p50()),
            ms(after_answer.p99()),
            ms(after_answer.max()),
            ms(offered.p50()),
            ms(offered.p99()),
            ms(offered.max()),
            ms(limit.p50()),
            format!("{:.1}", offered.p50() / limit.p50()),
        ]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "KiB of a process, and counts of workers")]
fn tell_memory(on: &str, measured: &[Measured]) {
    println!("\n## Memory of the control plane, on {on}\n");
    heading(&["waiting workers", "resident, MiB", "each further worker, KiB"]);
    let first = measured.first();
    for one in measured {
        let further = first.filter(|first| first.workers < one.workers).map_or_else(
            || "–".to_owned(),
            |first| {
                let grown = one.resident as f64 - first.resident as f64;
                format!("{:.1}", grown / (one.workers - first.workers) as f64)
            },
        );
        line(&[one.workers.to_string(), format!("{:.1}", one.resident as f64 / 1024.0), further]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a minute")]
fn tell_idle(idle: &[Idle], limit: &Laps) {
    if idle.is_empty() {
        return;
    }
    println!("\n## What an idle minute makes PostgreSQL do\n");
    println!(
        "The log's records and bytes are of the whole server. The last column is of {:.0} commits of one row in a second, on \
         one connection.\n",
        limit.per_second()
    );
    heading(&[
        "waiting workers",
        "beats",
        "transactions that wrote",
        "all transactions",
        "log records",
        "log, KiB",
        "log bytes a beat",
        "wrote, of the commits",
    ]);
    for Idle { workers, minutes, beats, counted } in idle {
        let a_minute = |count: u64| format!("{:.0}", count as f64 / minutes);
        line(&[
            workers.to_string(),
            a_minute(*beats),
            a_minute(counted.wrote),
            a_minute(counted.all),
            a_minute(counted.records),
            format!("{:.1}", counted.bytes as f64 / 1024.0 / minutes),
            if *beats == 0 { "–".to_owned() } else { format!("{:.0}", counted.bytes as f64 / *beats as f64) },
            format!("{:.5}", counted.wrote as f64 / (minutes * 60.0) / limit.per_second()),
        ]);
    }
    println!("\nRows written in that minute, in every table that was written at all:\n");
    heading(&["waiting workers", "rows of", "inserted", "updated in their page (HOT)", "updated otherwise", "deleted"]);
    for Idle { workers, minutes, counted, .. } in idle {
        if counted.tables.is_empty() {
            let none = ["none", "0", "0", "0", "0"].map(str::to_owned);
            line(&[&[workers.to_string()], none.as_slice()].concat());
        }
        for (table, counts) in &counted.tables {
            let counts = counts.map(|count| format!("{:.0}", count as f64 / minutes));
            line(&[&[workers.to_string(), table.clone()], counts.as_slice()].concat());
        }
    }
}

/// One line of a table.
fn line(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn heading(cells: &[&str]) {
    line(&cells.iter().map(ToString::to_string).collect::<Vec<_>>());
    line(&cells.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Options>> {
        parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn how_much_is_measured_can_be_told() {
        let options = parsed(&["--workers", "20", "--idle", "5"]).unwrap();
        assert_eq!(options, Some(Options { workers: 20, runs: 200, idle: 5 }));
        assert_eq!(parsed(&["--help"]).unwrap(), None);
        assert!(parsed(&["--worker", "20"]).is_err());
        assert!(parsed(&["--runs"]).is_err());
    }

    #[test]
    fn the_memory_of_a_process_is_read() {
        assert!(resident(std::process::id()).unwrap() > 100);
    }
}
