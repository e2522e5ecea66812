//! Idle workers that wait: how soon one of them has a run, what each costs in memory, and what an idle minute writes.
//!
//! The measurement is the program `leasehold-waiting` of the end-to-end harness; here it is built, told which binaries to
//! use, and started. Built as what it measures is: a thousand clients that take their time would be measured instead.

use std::process::Command;

use anyhow::Result;

use super::{Options, machine_now};
use crate::checkout::{cargo, run as run_command, target_directory};

/// Measures and prints tables, as Markdown.
pub(crate) fn run(options: &Options) -> Result<()> {
    run_command(cargo().args(["build", "--release", "--locked", "--bins"]))?;
    let own = ["build", "--release", "--locked", "--package", "leasehold-sim", "--bin", "leasehold-waiting"];
    run_command(cargo().args(own))?;
    let release = target_directory()?.join("release");
    println!("{}", machine_now());
    let mut waiting = Command::new(release.join("leasehold-waiting"));
    waiting.args(["--workers", &options.workers.to_string(), "--idle", &options.idle.to_string()]);
    waiting.env("LEASEHOLD_BIN", release.join("leasehold"));
    waiting.env("LEASEHOLD_WORKER_BIN", release.join("leasehold-worker"));
    run_command(&mut waiting)?;
    println!("\n{}", machine_now());
    Ok(())
}
