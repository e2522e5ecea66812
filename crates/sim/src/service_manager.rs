//! A service manager as far as a service sees it: the socket that it tells things to, and signals in the order that
//! systemd sends them.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use rustix::process::Signal;

use crate::eventually::PATIENCE;

/// The socket of `NOTIFY_SOCKET`.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl ServiceManager {
    /// Listens in this directory.
    pub fn listen(directory: &Path) -> Result<Self> {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path)?;
        Ok(Self { socket, path })
    }

    /// Makes a command a service of this manager, watched where `watchdog` says so.
    pub fn serve(&self, command: &mut Command, watchdog: Option<Duration>) {
        command.env("NOTIFY_SOCKET", &self.path);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
    }

    /// The next message within this time; none when nothing was said.
    pub fn hear(&self, within: Duration) -> Result<Option<String>> {
        let mut buffer = [0; 4096];
        self.socket.set_read_timeout(Some(within))?;
        match self.socket.recv(&mut buffer) {
            Ok(length) => Ok(Some(String::from_utf8_lossy(&buffer[..length]).into_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until something is said that holds this text, and answers the whole message.
    pub fn wait_for(&self, text: &str) -> Result<String> {
        let mut heard = Vec::new();
        while let Some(message) = self.hear(PATIENCE)? {
            if message.contains(text) {
                return Ok(message);
            }
            heard.push(message);
        }
        bail!("the service never said `{text}`, but: {heard:?}")
    }

    /// Forgets what was said so far.
    pub fn forget(&self) -> Result<()> {
        while self.hear(Duration::from_millis(1))?.is_some() {}
        Ok(())
    }
}

/// A unit file as its keys say it.
#[derive(Debug)]
pub struct Unit(Vec<(String, String)>);

impl Unit {
    /// Reads `Key=value` lines; the last of a key counts.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            let Some((key, value)) = line.split_once('=') else { bail!("no `Key=value`: {line}") };
            keys.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self(keys))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// The signal that a key names; systemd's own where the unit says nothing.
    pub fn signal(&self, key: &str, otherwise: Signal) -> Result<Signal> {
        match self.get(key) {
            None => Ok(otherwise),
            Some("SIGTERM") => Ok(Signal::TERM),
            Some("SIGUSR1") => Ok(Signal::USR1),
            Some("SIGABRT") => Ok(Signal::ABORT),
            Some(other) => bail!("{key}={other} is no signal that a test knows"),
        }
    }
}

/// Whether `systemd-analyze` can be asked here. In CI it must be: a check that never ran would be green.
///
/// # Panics
///
/// In CI, when it is missing.
#[expect(clippy::disallowed_methods, reason = "CI tells itself through the environment")]
pub fn is_there_or_skip(test: &str) -> bool {
    if Command::new("systemd-analyze").arg("--version").output().is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{test} needs systemd-analyze (package systemd), and CI must run it");
    eprintln!("skipped: {test} needs systemd-analyze (package systemd)");
    false
}
