//! The binaries that the end-to-end tests start: this build's, and those of the release before.
//!
//! The tests before them mostly wait, for a database or a deadline. A whole check therefore builds these beside those, at the
//! lowest priority, and the end-to-end tests find them built.

use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use crate::checkout::{cargo, run, target_directory, yielding};
use crate::previous_release;

/// The shipped programs, of this build and of the release before.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) leasehold: PathBuf,
    pub(crate) worker: PathBuf,
    pub(crate) previous: previous_release::Binaries,
}

/// What is being built, if it was begun. Left alone, it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct Building(Option<JoinHandle<Result<()>>>);

impl Building {
    /// Begins to build, beside whatever comes next.
    pub(crate) fn begin(&mut self) {
        // The one of before first: it shares the directory of what tests build, and the next step may want that.
        let build = || {
            previous_release::build_beside()?;
            run(yielding(&build()).arg("--quiet"))
        };
        self.0.get_or_insert_with(|| thread::spawn(build));
    }

    /// Waits for what was begun, and builds what is missing.
    pub(crate) fn finish(&mut self) -> Result<Released> {
        if let Some(begun) = self.0.take() {
            begun.join().map_err(|_| anyhow!("the build beside the tests panicked"))??;
        }
        run(&mut build())?;
        let release = target_directory()?.join("release");
        Ok(Released {
            leasehold: release.join("leasehold"),
            worker: release.join("leasehold-worker"),
            previous: previous_release::build()?,
        })
    }
}

fn build() -> Command {
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--bins"]);
    build
}
