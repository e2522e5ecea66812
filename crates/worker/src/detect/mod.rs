//! What this machine can do, asked once at the start, in bounded time.
//!
//! What takes that time, asking the runtimes and the GPUs, is handed on to the next image of this process where it begins
//! again only because its session has ended: until the new session's first heartbeat no lease is renewed.
//!
//! Architecture, operating system, memory, disk, the executor, the runtimes that this version knows how to ask, the GPUs,
//! and the features that its launcher provides. Labels come from the configuration. (Worker design, *Capabilities*.)

#[cfg(test)]
#[path = "../../tests/support/executable.rs"]
mod executable;
mod gpus;
mod probe;
mod runtimes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use leasehold_core::capability::{Capabilities, Claimed, Gpu};
use leasehold_core::offer::RUN_FACTS;
use leasehold_core::shape::ShapeError;
use leasehold_core::time::Clock;
use leasehold_core::version::Version;
use serde::{Deserialize, Serialize};

use runtimes::runtimes;

const MIB: u64 = 1024 * 1024;

/// Where this machine's programs are searched; nothing is found where nothing is searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searched {
    /// The search path of the runtimes: the one that jobs get.
    pub runtimes: Option<String>,
    /// The search path of the tools that know the GPUs.
    pub gpus: Option<String>,
}

/// What was found, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The version of this program that asked.
    software: String,
    searched: Searched,
    runtimes: BTreeMap<String, String>,
    gpus: Vec<FoundGpu>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoundGpu {
    id: String,
    vendor: String,
    model: String,
    memory_mib: u64,
}

impl Found {
    /// Asks this machine.
    pub fn here(searched: Searched, clock: &dyn Clock) -> Self {
        let until = clock.boot().plus(gpus::PATIENCE);
        // Both at once: a driver that wakes its cards takes as long as all runtimes.
        let looking = searched.gpus.as_deref().and_then(gpus::look);
        let runtimes = searched.runtimes.as_deref().map(|path| runtimes(path, clock)).unwrap_or_default();
        let gpus = looking.map(|answer| {
            let left = Duration::from_millis(until.since(clock.boot()).get());
            answer.recv_timeout(left).unwrap_or_else(|_| {
                tracing::warn!(
                    "this machine does not say within {} which GPUs it has: none is offered",
                    gpus::PATIENCE
                );
                Vec::new()
            })
        });
        Self {
            software: env!("CARGO_PKG_VERSION").to_owned(),
            searched,
            runtimes: runtimes.into_iter().map(|(name, version)| (name, version.to_string())).collect(),
            gpus: gpus.unwrap_or_default().into_iter().map(FoundGpu::of).collect(),
        }
    }

    /// Whether this very version of this program would ask the same.
    pub fn is_of(&self, searched: &Searched) -> bool {
        self.software == env!("CARGO_PKG_VERSION") && self.searched == *searched
    }

    /// For the next image of this process.
    pub fn to_text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// What an earlier image of this process said; nothing where it makes no sense.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn runtimes(&self) -> BTreeMap<String, Version> {
        let versions = self.runtimes.iter();
        versions.filter_map(|(name, version)| Some((name.clone(), version.parse().ok()?))).collect()
    }

    /// The GPUs that were found.
    pub fn gpus(&self) -> Vec<Gpu> {
        self.gpus.iter().filter_map(FoundGpu::to_core).collect()
    }
}

impl FoundGpu {
    fn of(gpu: Gpu) -> Self {
        Self { id: gpu.id.to_string(), vendor: gpu.vendor, model: gpu.model, memory_mib: gpu.memory_mib }
    }

    fn to_core(&self) -> Option<Gpu> {
        let (vendor, model) = (self.vendor.clone(), self.model.clone());
        Some(Gpu { id: self.id.parse().ok()?, vendor, model, memory_mib: self.memory_mib })
    }
}

/// What this machine can do, with what was found and the GPUs that count. `state` stands on the disk that counts; `groups`
/// are the features of its control groups.
pub fn detect(
    found: &Found,
    gpus: Vec<Gpu>,
    state: &Path,
    groups: BTreeSet<String>,
    labels: BTreeMap<String, String>,
) -> Result<Capabilities, Vec<ShapeError>> {
    Capabilities::new(Claimed {
        arch: std::env::consts::ARCH.to_owned(),
        os: std::env::consts::OS.to_owned(),
        executors: BTreeSet::from(["process".to_owned()]),
        runtimes: found.runtimes(),
        labels,
        memory_mib: memory_mib(),
        disk_mib: disk_mib(state),
        gpus,
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

/// Features that the launcher uses: those of the control groups, and of this kernel; and what this program understands.
fn features(groups: BTreeSet<String>) -> BTreeSet<String> {
    let mut features = groups;
    features.insert(RUN_FACTS.to_owned());
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

    fn searched(runtimes: &str, gpus: Option<&str>) -> Searched {
        Searched { runtimes: Some(runtimes.to_owned()), gpus: gpus.map(str::to_owned) }
    }

    #[test]
    fn this_machine_can_run_something() {
        let state = tempfile::tempdir().unwrap();
        let labels = BTreeMap::from([("zone".to_owned(), "home".to_owned())]);
        let groups = BTreeSet::from(["cgroup-kill".to_owned()]);
        let found = Found::here(searched(DEFAULT_PATH, None), &MachineClock);
        let gpu = Gpu { id: "0".parse().unwrap(), vendor: "nvidia".into(), model: "T4".into(), memory_mib: 1 };
        let able = detect(&found, vec![gpu.clone()], state.path(), groups, labels).unwrap();
        assert_eq!(able.os, "linux");
        assert!(able.executors.contains("process"));
        assert_eq!(able.runtimes.get("sh"), Some(&Version::UNKNOWN), "POSIX sh has no version, and none is invented");
        assert!(able.memory_mib > 0 && able.disk_mib > 0);
        assert_eq!(able.labels["zone"], "home");
        assert!(able.features.contains("cgroup-kill") && able.features.contains(RUN_FACTS));
        assert_eq!(able.gpus, [gpu]);
    }

    #[test]
    fn what_was_found_is_handed_on_whole_and_not_to_another_search_or_version() {
        let mut found = Found::here(searched(DEFAULT_PATH, None), &MachineClock);
        assert_eq!(found.runtimes(), runtimes(DEFAULT_PATH, &MachineClock));
        assert_eq!(found.gpus(), [], "nothing was searched");
        let gpu = Gpu { id: "GPU-1".parse().unwrap(), vendor: "nvidia".into(), model: "T4".into(), memory_mib: 15_360 };
        found.gpus.push(FoundGpu::of(gpu.clone()));
        let handed = Found::from_text(&found.to_text().unwrap()).unwrap();
        assert_eq!((&handed, handed.gpus()), (&found, vec![gpu]));
        assert!(handed.is_of(&searched(DEFAULT_PATH, None)) && !handed.is_of(&searched("/opt/bin", None)));
        assert!(!handed.is_of(&searched(DEFAULT_PATH, Some(DEFAULT_PATH))));
        assert!(!Found { software: "0.0.9".to_owned(), ..handed }.is_of(&found.searched));
        for nonsense in ["", "{}", "[]", "{\"software\":\"1\"}"] {
            assert_eq!(Found::from_text(nonsense), None, "{nonsense}");
        }
    }
}
