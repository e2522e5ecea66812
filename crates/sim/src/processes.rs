//! Processes of this machine, found by what they name: how a test proves that nothing is left.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::eventually;

/// A process that names a directory in its arguments, its environment or as its working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub pid: u32,
    /// Its arguments, as one line.
    pub command: String,
}

/// Every live process, other than this one, that names a path.
pub fn naming(path: &Path) -> Vec<Found> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let needle = path.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let process = entry.path();
        // An ended process that nobody has reaped has no arguments and no environment.
        let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let directory = fs::read_link(process.join("cwd")).unwrap_or_default();
        if contains(&arguments, needle) || contains(&environment, needle) || directory.starts_with(path) {
            let command = String::from_utf8_lossy(&arguments).replace('\0', " ").trim_end().to_owned();
            found.push(Found { pid, command });
        }
    }
    found
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Waits until no process names a path.
pub fn wait_until_none_names(path: &Path) -> Result<()> {
    eventually(&format!("no process to name {}", path.display()), || {
        let found = naming(path);
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    })
}

/// Kills every process that names a path, until none does.
pub fn kill_all_naming(path: &Path) -> Result<()> {
    eventually(&format!("every process that names {} to die", path.display()), || {
        let found = naming(path);
        for process in &found {
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
                // It may have ended by itself since.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::{Running, Stream};

    #[test]
    fn a_process_is_found_by_its_directory_and_killed() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo here; sleep 600"]).current_dir(directory.path());
        let mut running = Running::start(&mut command).unwrap();
        running.wait_for_text(Stream::Stdout, "here").unwrap();
        assert!(naming(directory.path()).iter().any(|found| found.pid == running.pid()));
        // The shell becomes a zombie, which names nothing, until it is reaped below.
        kill_all_naming(directory.path()).unwrap();
        assert_eq!(running.wait().unwrap().code(), None);
        wait_until_none_names(directory.path()).unwrap();
    }
}
