//! The program that a measured job executes: it writes down when it began, on the boot-time clock, and ends.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Nanoseconds of the boot-time clock: the same clock for whoever spawns and whoever is spawned.
pub(crate) fn boot_nanos() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Appends the time of our own beginning to `file`.
pub(crate) fn stamp(file: &Path) -> Result<()> {
    let now = boot_nanos();
    let mut out = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot open {}", file.display()))?;
    writeln!(out, "{now}").context("cannot write the stamp")
}

/// The stamps in `file`, in order.
pub(crate) fn read(file: &Path) -> Vec<i128> {
    std::fs::read_to_string(file).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
}
