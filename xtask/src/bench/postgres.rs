//! The product on PostgreSQL: calls at the store's port, and the same after a million runs.
//!
//! What measures is a test of the crate that may name the driver; here it is built and started, and its tables are kept.
//! The server is a private one with `fsync` on: its plain commits of one row, measured in the same minutes, are the limit
//! that every figure stands next to.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Options, machine_now};
use crate::checkout;

/// Measures and prints tables, as Markdown.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("{}\n", machine_now());
    let mut store = checkout::cargo();
    store.args(["test", "--release", "--locked", "--package", "leasehold-sql", "--lib", "postgres::tests::throughput"]);
    store.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    store.env("LEASEHOLD_BENCH_ENDED", options.ended.to_string());
    store.env("LEASEHOLD_BENCH_SECONDS", options.seconds.to_string());
    keep_tables(&mut store)?;
    println!("{}", machine_now());
    Ok(())
}

/// Runs a program and prints what it measured as it comes; without a single table it has measured nothing.
fn keep_tables(command: &mut Command) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut tables = 0;
    for line in BufReader::new(child.stdout.take().context("its output is piped")?).lines() {
        let line = line?;
        tables += usize::from(line.starts_with("## "));
        if !is_noise(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    if tables == 0 {
        bail!("nothing was measured: is PostgreSQL installed? `cargo xtask environment` installs it");
    }
    Ok(())
}

/// What the test runner says around the tables.
fn is_noise(line: &str) -> bool {
    line == "ok" || ["running ", "test ", "test result: "].iter().any(|words| line.starts_with(words))
}

#[cfg(test)]
mod tests {
    use super::is_noise;

    #[test]
    fn tables_are_told_from_what_the_test_runner_says() {
        for line in ["running 2 tests", "test postgres::tests::throughput::a ... ", "ok", "test result: ok. 2 passed"] {
            assert!(is_noise(line), "{line}");
        }
        for line in ["## Calls at the store's port", "| 8 | claim | 700 |", "", "tests of time: p50"] {
            assert!(!is_noise(line), "{line}");
        }
    }
}
