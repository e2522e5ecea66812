//! `cargo xtask chaos`: the release build under faults drawn from a seed, judged by what its jobs wrote down; in CI the
//! build that everything else is tested with.
//!
//! The run itself is the program `leasehold-chaos` of the end-to-end harness, which is also what the jobs execute; here
//! it is built, told which binaries to use, and started.

use std::process::Command;
use std::thread;

use anyhow::{Result, anyhow};

use crate::binaries::Binaries;
use crate::checkout::{cargo, output_of, root, run as run_command, target_directory};
use crate::ci::{END_TO_END, TEST};

/// What CI asks for: about two minutes in all, and one seed, so that a change is judged by the same plan as the change
/// before it: one under which leases are lost while jobs live, a worker is deleted and a machine destroyed. New seeds are
/// for `cargo xtask chaos`.
pub(crate) const CI: [&str; 6] = ["--faults", "90", "--minutes", "1.1", "--seed", "566"];

/// What CI asks for on PostgreSQL: enough that replicas are killed several times and the database is restarted twice. The two
/// thousand jobs of the promise are for `cargo xtask chaos --postgres --runs 2000`: they would take as long as all the rest.
pub(crate) const CI_POSTGRES: [&str; 5] = ["--postgres", "--runs", "400", "--seed", "566"];

/// Builds what is needed and makes a run with these arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    run_command(prepared(&Binaries::released()?)?.args(arguments))
}

/// Both runs of CI, side by side: most of each is waiting for leases and restarts.
pub(crate) fn run_both(tested: &Binaries) -> Result<()> {
    let (mut one, mut other) = (prepared(tested)?, prepared(tested)?);
    let beside = thread::spawn(move || output_of(other.args(CI_POSTGRES)));
    let first = run_command(one.args(CI));
    let second = beside.join().map_err(|_| anyhow!("what waited for the run on PostgreSQL panicked"))?;
    println!("\non PostgreSQL:\n{}", second?);
    first
}

/// The program, built, and told what to start.
fn prepared(binaries: &Binaries) -> Result<Command> {
    // Cargo builds a package's programs before its tests: with the tests, it is the one that CI has built already.
    run_command(cargo().args(TEST).args(["--test", END_TO_END, "--no-run"]))?;
    let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
    let commit = output_of(Command::new("git").args(describe).current_dir(root()))?;
    let mut chaos = Command::new(target_directory()?.join("debug/leasehold-chaos"));
    binaries.tell(&mut chaos).args(["--of", &format!("commit {}", commit.trim())]);
    Ok(chaos)
}
