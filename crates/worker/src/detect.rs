//! What this machine can do, asked once at the start, in bounded time.
//!
//! Architecture, operating system, memory, disk, the executor, the runtimes that this version knows how to ask, and the
//! features that its launcher provides. Labels come from the configuration. (Worker design, *Capabilities*.)

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::shape::ShapeError;
use leasehold_core::time::{Clock, Millis};
use leasehold_core::version::Version;
use rustix::event::{PollFd, PollFlags, poll};

/// Runtimes, and how each is asked for its version. `sh` is the system's and has none of its own.
const RUNTIMES: [(&str, &[&str]); 4] = [
    ("bash", &["bash", "--version"]),
    ("sh", &["sh"]),
    ("python", &["python3", "--version"]),
    ("node", &["node", "--version"]),
];
/// How long all runtimes together may take to answer.
const PATIENCE: Millis = Millis::from_secs(5);
const OUTPUT: usize = 4096;
const MIB: u64 = 1024 * 1024;

/// Detects this machine. `path` is the search path that jobs get; `state` stands on the disk that counts.
pub fn detect(
    path: &str,
    state: &Path,
    labels: BTreeMap<String, String>,
    clock: &dyn Clock,
) -> Result<Capabilities, Vec<ShapeError>> {
    Capabilities::new(Claimed {
        arch: std::env::consts::ARCH.to_owned(),
        os: std::env::consts::OS.to_owned(),
        executors: BTreeSet::from(["process".to_owned()]),
        runtimes: runtimes(path, clock),
        labels,
        memory_mib: memory_mib(),
        disk_mib: disk_mib(state),
        gpus: Vec::new(),
        features: features(),
    })
}

/// A program in a search path.
fn find(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

fn runtimes(path: &str, clock: &dyn Clock) -> BTreeMap<String, Version> {
    let until = clock.boot().plus(PATIENCE);
    let mut found = BTreeMap::new();
    for (name, command) in RUNTIMES {
        let Some(program) = find(command[0], path) else { continue };
        let version = if command.len() == 1 {
            // POSIX sh has no version to ask for; its presence is what a placement asks.
            "1".parse().ok()
        } else {
            ask(&program, &command[1..], path, until.since(clock.boot())).and_then(|text| Version::from_printed(&text))
        };
        if let Some(version) = version {
            found.insert(name.to_owned(), version);
        }
    }
    found
}

/// What a program prints, unless it takes longer than `patience`.
fn ask(program: &Path, arguments: &[&str], path: &str, patience: Millis) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdout = child.stdout.take()?;
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(patience.get() / 1000).ok()?,
        tv_nsec: i64::try_from(patience.get() % 1000 * 1_000_000).ok()?,
    };
    let readable = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
    let mut bytes = vec![0; OUTPUT];
    // The first line is what is wanted; a program that prints on is not waited for.
    let length = if readable { stdout.read(&mut bytes).unwrap_or(0) } else { 0 };
    let _ = child.kill();
    let _ = child.wait();
    (length > 0).then(|| String::from_utf8_lossy(&bytes[..length]).into_owned())
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

/// Features of this kernel that the launcher uses. Control groups are none of them yet: a task that asks for a limit
/// they keep is placed elsewhere, or says `best_effort`.
fn features() -> BTreeSet<String> {
    let mut features = BTreeSet::new();
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
        let found = detect(DEFAULT_PATH, state.path(), labels, &MachineClock).unwrap();
        assert_eq!(found.os, "linux");
        assert!(found.executors.contains("process"));
        assert!(found.runtimes.contains_key("sh"));
        assert!(found.memory_mib > 0 && found.disk_mib > 0);
        assert_eq!(found.labels["zone"], "home");
    }

    #[test]
    fn a_program_that_does_not_answer_is_not_waited_for() {
        let sleep = find("sleep", DEFAULT_PATH).unwrap();
        let before = MachineClock.boot();
        assert_eq!(ask(&sleep, &["60"], DEFAULT_PATH, Millis::new(50)), None);
        assert!(MachineClock.boot().since(before) < Millis::from_secs(30));
    }

    #[test]
    fn a_runtime_says_its_version() {
        let bash = find("sh", DEFAULT_PATH).unwrap();
        let text = ask(&bash, &["-c", "echo 'Python 3.11.7'"], DEFAULT_PATH, Millis::from_secs(10)).unwrap();
        assert_eq!(Version::from_printed(&text), "3.11.7".parse().ok());
    }
}
