//! The binaries that the end-to-end tests start: this build's, and those of the release before.
//!
//! This build's are those of the tests' own profile, compiled for the tests before: to optimize the same code once more would
//! take longer than all that is then tested, and these check every sum for an overflow. What a release is built from is
//! tested as it is released, by hand: `docs/releases.md`.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow, ensure};

use crate::checkout::{cargo, run, target_directory};
use crate::ci::TEST;
use crate::previous_release;

/// The shipped programs.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) leasehold: PathBuf,
    pub(crate) worker: PathBuf,
}

impl Binaries {
    /// Those that the environment names, as for the harness by hand; else those of the tests' own build.
    pub(crate) fn tested() -> Result<Self> {
        if let (Some(leasehold), Some(worker)) = (told("LEASEHOLD_BIN"), told("LEASEHOLD_WORKER_BIN")) {
            return Ok(Self { leasehold, worker });
        }
        // Cargo builds a package's programs before its tests: with all tests, it is what was built for them already.
        run(cargo().args(TEST).args(["--quiet", "--no-run"]))?;
        Self::of_profile("debug")
    }

    /// The release build.
    pub(crate) fn released() -> Result<Self> {
        run(cargo().args(["build", "--release", "--locked", "--bins"]))?;
        Self::of_profile("release")
    }

    fn of_profile(profile: &str) -> Result<Self> {
        let directory = target_directory()?.join(profile);
        let found = Self { leasehold: directory.join("leasehold"), worker: directory.join("leasehold-worker") };
        for binary in [&found.leasehold, &found.worker] {
            ensure!(binary.is_file(), "cargo built the programs, and there is no {}", binary.display());
        }
        Ok(found)
    }

    /// Tells a program of the harness to start them.
    pub(crate) fn tell<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LEASEHOLD_BIN", &self.leasehold).env("LEASEHOLD_WORKER_BIN", &self.worker)
    }
}

#[expect(clippy::disallowed_methods, reason = "the harness hears of them in the same way")]
fn told(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

/// The release before while it is being built, if that was begun. Left alone, it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct Building(Option<JoinHandle<Result<()>>>);

impl Building {
    /// Begins to build it at the lowest priority, beside tests that mostly wait.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_with(|| thread::spawn(previous_release::build_beside));
    }

    /// Waits for what was begun, and builds what is missing.
    pub(crate) fn finish(&mut self) -> Result<previous_release::Binaries> {
        if let Some(begun) = self.0.take() {
            begun.join().map_err(|_| anyhow!("the build beside the tests panicked"))??;
        }
        previous_release::build()
    }
}
