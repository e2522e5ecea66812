//! A worker whose binary is a file of its own, which an upgrade may replace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use leasehold_sim::cluster::Cluster;
use leasehold_sim::process;

pub(crate) struct Upgraded {
    program: PathBuf,
}

impl Upgraded {
    /// From now on the worker is started from a file that is a copy of `binary`.
    pub(crate) fn new(cluster: &mut Cluster, worker: usize, binary: &Path) -> Result<Self> {
        let home = cluster.directory().join(format!("bin-{worker}"));
        fs::create_dir(&home)?;
        let upgraded = Self { program: home.join("leasehold-worker") };
        upgraded.replace(binary)?;
        cluster.worker_program(worker, &upgraded.program);
        Ok(upgraded)
    }

    /// As a package manager does it: a new file in the old one's place.
    pub(crate) fn replace(&self, binary: &Path) -> Result<()> {
        let beside = self.program.with_extension("new");
        // By a process of its own: a file that this one had open for writing may be busy in a child of another test.
        process::run(Command::new("cp").arg(binary).arg(&beside))?.expect_code(0);
        rustix::fs::rename(&beside, &self.program)?;
        Ok(())
    }
}
