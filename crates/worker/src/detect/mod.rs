//! What this machine can do, asked once at the start, in bounded time.
//!
//! What takes that time, asking the runtimes, is handed on to the next image of this process where it begins again only
//! because its session has ended: until the new session's first heartbeat no lease is renewed.
//!
//! Architecture, operating system, memory, disk, the executor, the runtimes that this version knows how to ask, and the
//! features that its launcher provides. Labels come from the configuration. (Worker design, *Capabilities*.)

mod probe;
mod runtimes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::Clock;
use leasehold_core::version::Version;
use serde::{Deserialize, Serialize};

use runtimes::runtimes;

const MIB: u64 = 1024 * 1024;

/// The runtimes that were found, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtimes {
    /// The version of this program that asked.
    software: String,
    /// The search path that jobs get.
    searched: String,
    versions: BTreeMap<String, String>,
}

impl Runtimes {
    /// Asks the runtimes in a search path.
    pub fn here(searched: &str, clock: &dyn Clock) -> Self {
        let found = runtimes(searched, clock).into_iter();
        Self {
            software: env!("CARGO_PKG_VERSION").to_owned(),
            searched: searched.to_owned(),
            versions: found.map(|(name, version)| (name, version.to_string())).collect(),
        }
    }

    /// Whether this very version of this program would ask the same.
    pub fn is_of(&self, searched: &str) -> bool {
        self.software == env!("CARGO_PKG_VERSION") && self.searched == searched
    }

    /// For the next image of this process.
    pub fn to_text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// What an earlier image of this process said; nothing where it makes no sense.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn versions(&self) -> BTreeMap<String, Version> {
        let versions = self.versions.iter();
        versions.filter_map(|(name, version)| Some((name.clone(), version.parse().ok()?))).collect()
    }
}

/// What this machine can do, with the runtimes that were found. `state` stands on the disk that counts; `groups` are the
/// features of its control groups.
pub fn detect(
    runtimes: &Runtimes,
    state: &Path,
    groups: BTreeSet<String>,
    labels: BTreeMap<String, String>,
) -> Result<Capabilities, Vec<ShapeError>> {
    Capabilities::new(Claimed {
        arch: std::env::consts::ARCH.to_owned(),
        os: std::env::consts::OS.to_owned(),
        executors: BTreeSet::from(["process".to_owned()]),
        runtimes: runtimes.versions(),
        labels,
        memory_mib: memory_mib(),
        disk_mib: disk_mib(state),
        gpus: Vec::new(),
        features: features(groups),
    })
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn disk_mib(state: &Path) -> u64 {
    rustix::fs::statvfs(state).map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_frsize) / MIB)
}

/// Features that the launcher uses: those of the control groups, and of this kernel.
fn features(groups: BTreeSet<String>) -> BTreeSet<String> {
    let mut features = groups;
    let pid = rustix::process::getpid();
    if rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).is_ok() {
        features.insert("pidfd".to_owned());
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::environment::DEFAULT_PATH;
    use crate::machine::MachineClock;

    #[test]
    fn this_machine_can_run_something() {
        let state = tempfile::tempdir().unwrap();
        let labels = BTreeMap::from([("zone".to_owned(), "home".to_owned())]);
        let groups = BTreeSet::from(["cgroup-kill".to_owned()]);
        let runtimes = Runtimes::here(DEFAULT_PATH, &MachineClock);
        let found = detect(&runtimes, state.path(), groups, labels).unwrap();
        assert_eq!(found.os, "linux");
        assert!(found.executors.contains("process"));
        assert_eq!(found.runtimes.get("sh"), Some(&Version::UNKNOWN), "POSIX sh has no version, and none is invented");
        assert!(found.memory_mib > 0 && found.disk_mib > 0);
        assert_eq!(found.labels["zone"], "home");
        assert!(found.features.contains("cgroup-kill"));
    }

    #[test]
    fn what_was_found_is_handed_on_whole_and_not_to_another_search_or_version() {
        let found = Runtimes::here(DEFAULT_PATH, &MachineClock);
        assert_eq!(found.versions(), runtimes(DEFAULT_PATH, &MachineClock));
        let handed = Runtimes::from_text(&found.to_text().unwrap()).unwrap();
        assert!(handed == found && handed.is_of(DEFAULT_PATH) && !handed.is_of("/opt/bin"));
        assert!(!Runtimes { software: "0.0.9".to_owned(), ..handed }.is_of(DEFAULT_PATH));
        for nonsense in ["", "{}", "[]", "{\"software\":\"1\"}"] {
            assert_eq!(Runtimes::from_text(nonsense), None, "{nonsense}");
        }
    }
}
