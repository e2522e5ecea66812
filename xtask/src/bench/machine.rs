//! What this machine can do at all: bare spawns, durable files, and the time from a spawn to the program's beginning.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Quantiles, stamp};

/// How often `/bin/true` can be spawned and waited for, on `threads` threads.
pub(crate) fn spawns_per_second(threads: usize, span: Duration) -> Result<f64> {
    let end = stamp::boot_nanos() + nanos(span);
    let begun = stamp::boot_nanos();
    let counts = std::thread::scope(|scope| {
        let spawners: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || -> Result<u32> {
                    let mut count = 0;
                    while stamp::boot_nanos() < end {
                        Command::new("/bin/true").status().context("cannot spawn /bin/true")?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        spawners.into_iter().map(|spawner| spawner.join().unwrap_or(Ok(0))).sum::<Result<u32>>()
    })?;
    Ok(per_second(counts, begun, stamp::boot_nanos()))
}

/// How often a new file of 512 bytes can be written, synced, renamed, and its directory synced.
pub(crate) fn syncs_per_second(span: Duration) -> Result<f64> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let begun = stamp::boot_nanos();
    let end = begun + nanos(span);
    let mut count = 0;
    while stamp::boot_nanos() < end {
        durable_file(directory.path(), count)?;
        count += 1;
    }
    Ok(per_second(count, begun, stamp::boot_nanos()))
}

#[expect(clippy::disallowed_methods, reason = "the rename is what is measured")]
fn durable_file(directory: &Path, number: u32) -> Result<()> {
    let new = directory.join("new");
    let mut file = File::create(&new)?;
    file.write_all(&[7; 512])?;
    file.sync_all()?;
    fs::rename(&new, directory.join(number.to_string()))?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// From a bare spawn to the spawned program's beginning, one at a time.
pub(crate) fn start_latency(times: usize) -> Result<Quantiles> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let file = directory.path().join("stamps");
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut millis = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = stamp::boot_nanos();
        Command::new(&program).arg("stamp").arg(&file).status().context("cannot spawn the stamp")?;
        let last = stamp::read(&file).pop().context("the stamp wrote nothing")?;
        millis.push(to_millis(last - begun));
    }
    Ok(Quantiles::of(millis))
}

/// A number of nanoseconds in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "spans of seconds fit a float")]
pub(crate) fn to_millis(nanos: i128) -> f64 {
    nanos as f64 / 1e6
}

/// A count over a span as a rate.
pub(crate) fn per_second(count: u32, begun: i128, ended: i128) -> f64 {
    f64::from(count) / (to_millis(ended - begun) / 1e3)
}

fn nanos(span: Duration) -> i128 {
    i128::try_from(span.as_nanos()).unwrap_or(i128::MAX)
}
