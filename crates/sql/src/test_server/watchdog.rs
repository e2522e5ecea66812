//! Who ends the server and removes its directory, also after the test was killed.
//!
//! A shell that reads a pipe of ours until it closes: when the server is dropped, when the process ends, and when it is
//! killed. Then it ends the server by the process id in its data directory, and removes the directory. A process id is only
//! trusted where the process stands in that data directory.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Result;

const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r _; do :; done
server() {
    pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) &&
        [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$1/data" ]
}
for signal in QUIT KILL; do
    server "$1" && kill -s "$signal" "$pid"
    looks=0
    while [ "$looks" -lt 100 ] && server "$1"; do
        sleep 0.05
        looks=$((looks + 1))
    done
done
rm -rf "$1"
"#;

/// The shell. Dropping it lets it do its work, and waits for it.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Over a server whose data directory will be `directory/data`.
    pub(super) fn over(directory: &Path) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "watchdog"]).arg(directory).current_dir("/");
        // A Ctrl-C at the terminal is for us; what it does to us closes the pipe.
        shell.process_group(0);
        Ok(Self(shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Kills the processes of the server whose data directory this is, all at once, and waits until none is left.
#[expect(clippy::disallowed_methods, reason = "the pause between two looks at what the kernel tells nobody")]
pub(super) fn kill(data: &Path) -> std::result::Result<(), String> {
    for _ in 0..1200 {
        let found = standing_in(data);
        if found.is_empty() {
            // Where nobody has reaped the server yet, its process id still counts as somebody's.
            return fs::remove_file(data.join("postmaster.pid")).map_err(|error| error.to_string());
        }
        let mut kill = Command::new("kill");
        kill.args(["-s", "KILL"]).args(found.iter().map(ToString::to_string));
        // Some may have ended since.
        let _ = kill.stdin(Stdio::null()).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("processes in {} do not die", data.display()))
}

/// Every process of a server works in its data directory.
fn standing_in(data: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let here = |process: &Path| fs::read_link(process.join("cwd")).is_ok_and(|directory| directory == data);
    let named = entries.flatten().filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    named.filter(|(_, process)| here(process)).map(|(pid, _)| pid).collect()
}

/// Waits until a directory is gone.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the pause between two looks at what the watchdog tells nobody")]
pub(super) fn gone(directory: &Path) -> std::result::Result<(), String> {
    for _ in 0..1200 {
        if !directory.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("{} is still there", directory.display()))
}
