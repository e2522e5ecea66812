//! What this machine can do, asked once at the start, in bounded time.
//!
//! What takes that time, asking the runtimes, is handed on to the next image of this process where it begins again only
//! because its session has ended: until the new session's first heartbeat no lease is renewed.
//!
//! Architecture, operating system, memory, disk, the executor, the runtimes that this version knows how to ask, and the
//! features that its launcher provides. Labels come from the configuration. (Worker design, *Capabilities*.)

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::{Clock, Millis};
use leasehold_core::version::Version;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use crate::fault::steps::RUNTIME_SPAWN;
use crate::start;

/// Runtimes, and how each is asked for its version. POSIX `sh` has none to ask for.
const RUNTIMES: [(&str, &str, Option<&str>); 4] = [
    // First: it is never waited for.
    ("sh", "sh", None),
    ("bash", "bash", Some("--version")),
    ("python", "python3", Some("--version")),
    ("node", "node", Some("--version")),
];
/// How long all runtimes together may take to answer.
const PATIENCE: Millis = Millis::from_secs(5);
const OUTPUT: usize = 4096;
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

/// A program in a search path.
fn find(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

/// The runtimes that answer in time. A program on a file system that hangs cannot be stopped, not even asked for: a
/// thread of their own asks them, and is left behind where it comes to that.
fn runtimes(path: &str, clock: &dyn Clock) -> BTreeMap<String, Version> {
    let until = clock.boot().plus(PATIENCE);
    let (found, answers) = mpsc::channel();
    let searched = path.to_owned();
    let asking = std::thread::Builder::new().name("detection".to_owned()).spawn(move || {
        for (name, program, question) in RUNTIMES {
            if let Some(version) = find(program, &searched).and_then(|file| version_of(&file, question, &searched)) {
                // Nobody listens any more: the start went on without.
                let _ = found.send((name.to_owned(), version));
            }
        }
    });
    if let Err(error) = asking {
        tracing::warn!("the runtimes of this machine are not asked for: {error}");
        return BTreeMap::new();
    }
    let mut known = BTreeMap::new();
    loop {
        let left = until.since(clock.boot());
        match answers.recv_timeout(Duration::from_millis(left.get())) {
            Ok((name, version)) => _ = known.insert(name, version),
            Err(RecvTimeoutError::Disconnected) => return known,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("not every runtime of this machine answered within {PATIENCE}");
                return known;
            }
        }
    }
}

/// The version of a runtime that is there: what it says, or [`Version::UNKNOWN`] where it says none.
fn version_of(program: &Path, question: Option<&str>, path: &str) -> Option<Version> {
    let Some(question) = question else { return Some(Version::UNKNOWN) };
    let text = ask(program, &[question], path, PATIENCE)?;
    Some(Version::from_printed(&text).unwrap_or(Version::UNKNOWN))
}

/// What a program prints, unless it takes longer than `patience` for its first line.
fn ask(program: &Path, arguments: &[&str], path: &str, patience: Millis) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = start::spawn(RUNTIME_SPAWN, &mut command).ok()?;
    let mut stdout = child.stdout.take()?;
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(patience.get() / 1000).ok()?,
        tv_nsec: i64::try_from(patience.get() % 1000 * 1_000_000).ok()?,
    };
    let mut text = Vec::with_capacity(OUTPUT);
    let mut buffer = [0; OUTPUT];
    // The first line is what is wanted; a program that prints on is not waited for.
    while text.len() < OUTPUT && !text.contains(&b'\n') {
        let ready = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
        match if ready { stdout.read(&mut buffer).unwrap_or(0) } else { 0 } {
            0 => break,
            length => text.extend_from_slice(&buffer[..length]),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
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
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn a_program_that_does_not_answer_is_not_waited_for() {
        let sleep = find("sleep", DEFAULT_PATH).unwrap();
        let before = MachineClock.boot();
        assert_eq!(ask(&sleep, &["60"], DEFAULT_PATH, Millis::new(50)), None);
        assert!(MachineClock.boot().since(before) < Millis::from_secs(30));
    }

    #[test]
    fn a_runtime_that_hangs_does_not_hold_up_the_start() {
        let bin = tempfile::tempdir().unwrap();
        for name in ["bash", "python3"] {
            // Its child outlives it and keeps the output open.
            let script = "#!/bin/sh\n/bin/sleep 60 &\nexec /bin/sleep 60\n";
            std::fs::write(bin.path().join(name), script).unwrap();
            std::fs::set_permissions(bin.path().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("/bin/sh", bin.path().join("sh")).unwrap();
        let before = MachineClock.boot();
        let found = runtimes(bin.path().to_str().unwrap(), &MachineClock);
        let took = MachineClock.boot().since(before);
        assert!(took < PATIENCE.plus(PATIENCE), "both together have {PATIENCE}, not each: {took}");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["sh"]);
    }

    #[test]
    fn a_first_line_may_come_in_pieces() {
        let sh = find("sh", DEFAULT_PATH).unwrap();
        let script = "printf 'Python '; sleep 0.1; echo 3.11.7; exec sleep 60";
        let text = ask(&sh, &["-c", script], DEFAULT_PATH, Millis::from_secs(10));
        assert_eq!(text.as_deref(), Some("Python 3.11.7\n"));
    }

    #[test]
    fn a_runtime_says_its_version() {
        let bash = find("sh", DEFAULT_PATH).unwrap();
        let text = ask(&bash, &["-c", "echo 'Python 3.11.7'"], DEFAULT_PATH, Millis::from_secs(10)).unwrap();
        assert_eq!(Version::from_printed(&text), "3.11.7".parse().ok());
    }
}
