//! One process of the product under a service manager: started again when it ended as it was told to, told of when it
//! ended otherwise.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::boot_millis;
use super::host::signal;

/// Between an end and the next start, in milliseconds.
const RESTART: u64 = 300;

/// A process that is to run.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    log: PathBuf,
    child: Option<Child>,
    /// Told to go, and which codes are an end in order.
    leaving: Option<&'static [i32]>,
    /// Not before this instant is it started again; `None` while a fault holds it down.
    start_at: Option<u64>,
    /// A code that it may end with untold, to stay down: a person is about to take its identity away.
    pub(crate) may_end: Option<i32>,
}

impl Service {
    pub(crate) fn new(name: &str, log: PathBuf) -> Self {
        Self { name: name.to_owned(), log, child: None, leaving: None, start_at: None, may_end: None }
    }

    /// The process that runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it, if it does not run.
    pub(crate) fn start(&mut self, mut command: Command) -> Result<()> {
        self.start_at = None;
        if self.child.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", self.name))?);
        self.leaving = None;
        Ok(())
    }

    /// Whether it is due to be started.
    pub(crate) fn is_due(&self) -> bool {
        self.child.is_none() && self.start_at.is_some_and(|at| at <= boot_millis())
    }

    /// Kills it; it stays down until it is started. Whether it ran.
    pub(crate) fn kill(&mut self) -> Result<bool> {
        self.start_at = None;
        let Some(mut child) = self.child.take() else { return Ok(false) };
        child.kill()?;
        child.wait()?;
        Ok(true)
    }

    /// Sends a signal that it has an answer to. Whether it was there to hear it: one that is still being started is not.
    pub(crate) fn tell(&self, number: Signal) -> bool {
        self.pid().is_some_and(|pid| hears(pid, number) && signal(pid, number))
    }

    /// Tells it to go; it is started again when it has ended with one of these codes. Whether it ran.
    pub(crate) fn tell_to_go(&mut self, number: Signal, codes: &'static [i32]) -> bool {
        let ran = self.tell(number);
        if ran {
            self.leaving = Some(codes);
        }
        ran
    }

    /// Whether it was told to go and has not gone.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some() && self.child.is_some()
    }

    /// Notices that it ended; answers what nobody wanted.
    pub(crate) fn look(&mut self) -> Result<Option<String>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let Some(status) = child.try_wait()? else { return Ok(None) };
        self.child = None;
        let expected = self.leaving.take();
        if self.may_end.is_some() && self.may_end == status.code() {
            self.start_at = None;
            return Ok(None);
        }
        self.start_at = Some(boot_millis() + RESTART);
        if expected.is_some_and(|codes| status.code().is_some_and(|code| codes.contains(&code))) {
            return Ok(None);
        }
        let told = if expected.is_some() { "after it was told to go" } else { "by itself" };
        Ok(Some(format!("{} ended {told} with {status}; its last words: {}", self.name, self.last_words())))
    }

    fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        text.lines().next_back().unwrap_or_default().to_owned()
    }
}

/// Whether a process of the product catches or holds back a signal. The shell that executes it holds signals back, too, for
/// a moment, and then dies of them.
fn hears(pid: u32, signal: Signal) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if !program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("leasehold")) {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = ["SigCgt:", "SigBlk:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).unwrap_or(0)
    });
    (masks[0] | masks[1]) >> (signal.as_raw() - 1) & 1 == 1
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
