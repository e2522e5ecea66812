//! `cargo xtask chaos`: the release build under faults drawn from a seed, judged by what its jobs wrote down; in CI the
//! build that everything else is tested with.
//!
//! The run itself is the program `leasehold-chaos` of the end-to-end harness, which is also what the jobs execute; here
//! it is built, told which binaries to use, and started.

use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow, ensure};

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

/// Both runs of CI, side by side, and beside whatever else is going on: most of each is waiting for leases and restarts.
#[derive(Debug)]
pub(crate) struct Both([JoinHandle<Result<String>>; 2]);

impl Both {
    /// Begins both.
    pub(crate) fn begin(tested: &Binaries) -> Result<Self> {
        let (mut one, mut other) = (prepared(tested)?, prepared(tested)?);
        Ok(Self([thread::spawn(move || told(one.args(CI))), thread::spawn(move || told(other.args(CI_POSTGRES)))]))
    }

    /// Waits for both, and prints what each says.
    pub(crate) fn finish(self) -> Result<()> {
        let told = self.0.map(|run| run.join().map_err(|_| anyhow!("what waited for a run panicked"))?);
        for (on, told) in ["SQLite", "PostgreSQL"].into_iter().zip(told) {
            println!("\non {on}:\n{}", told?);
        }
        Ok(())
    }
}

/// Runs it to its end, and returns all that it says: what went wrong stands in its report.
fn told(chaos: &mut Command) -> Result<String> {
    let output = chaos.output()?;
    let said = [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "chaos ended with {}:\n{said}", output.status);
    Ok(said)
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
