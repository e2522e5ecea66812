//! Processes that the kernel does not let go of, for as long as a test wants.

use std::path::{Path, PathBuf};

use anyhow::Result;
use leasehold_sim::eventually::eventually;

/// A freezer of cgroup version 1: what is frozen there does not even hear SIGKILL.
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    /// `None` where this machine has none that we may use; said aloud.
    pub(crate) fn make(test: &str) -> Result<Option<Self>> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup ") && line.ends_with(",freezer"));
        let point = mount.and_then(|line| line.split(' ').nth(4));
        let name = format!("leasehold-{test}-{}", std::process::id());
        let made = point.map(|point| Path::new(point).join(name)).filter(|path| std::fs::create_dir(path).is_ok());
        if made.is_none() {
            eprintln!("skipped: {test} needs root and a freezer of cgroup version 1");
        }
        Ok(made.map(Self))
    }

    /// Holds one process.
    pub(crate) fn hold(&self, pid: &str) -> Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), pid)?;
        self.set("FROZEN")
    }

    /// `FROZEN` or `THAWED`.
    pub(crate) fn set(&self, state: &str) -> Result<()> {
        std::fs::write(self.0.join("freezer.state"), state)?;
        eventually("the freezer", || {
            let is = std::fs::read_to_string(self.0.join("freezer.state")).unwrap_or_default();
            if is.trim() == state { Ok(()) } else { Err(is) }
        })
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let gone = eventually("the freezer to be empty", || std::fs::remove_dir(&self.0).map_err(|e| e.to_string()));
        if let Err(error) = gone {
            eprintln!("{error:#}");
        }
    }
}
