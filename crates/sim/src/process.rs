//! One child process of a test: its streams as they come, its end, its signals.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::{PATIENCE, eventually};

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a process ended, with everything it wrote.
#[derive(Debug)]
pub struct Ended {
    /// The command, as a person would type it.
    pub command: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output, as text.
    pub stdout: String,
    /// Standard error, as text.
    pub stderr: String,
}

impl Ended {
    /// The exit code; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Itself, when the exit code is this one.
    ///
    /// # Panics
    ///
    /// With everything the process wrote when it ended in another way.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code(), Some(code), "\n{self}");
        self
    }

    /// The standard output without its last line end.
    pub fn answer(&self) -> &str {
        self.stdout.trim_end_matches('\n')
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "$ {}", self.command)?;
        write!(f, "{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

/// What a process has written so far.
#[derive(Debug, Default)]
struct Captured {
    bytes: Mutex<Vec<u8>>,
    /// Nothing more will come. Set while the bytes are locked.
    closed: AtomicBool,
    grown: Condvar,
}

impl Captured {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic in another thread leaves the bytes as they were.
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }

    fn pump(&self, mut from: impl Read) {
        let mut buffer = [0; 8192];
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 {
                break;
            }
            self.lock().extend_from_slice(&buffer[..count]);
            self.grown.notify_all();
        }
        let bytes = self.lock();
        self.closed.store(true, Ordering::Relaxed);
        drop(bytes);
        self.grown.notify_all();
    }
}

/// A process that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    stdout: Arc<Captured>,
    stderr: Arc<Captured>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command, its input closed, its streams captured.
    pub fn start(command: &mut Command) -> Result<Self> {
        let text = text_of(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {text}"))?;
        let (stdout, stderr) = (Arc::new(Captured::default()), Arc::new(Captured::default()));
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            let captured = Arc::clone(&stdout);
            readers.push(std::thread::spawn(move || captured.pump(pipe)));
        }
        if let Some(pipe) = child.stderr.take() {
            let captured = Arc::clone(&stderr);
            readers.push(std::thread::spawn(move || captured.pump(pipe)));
        }
        Ok(Self { command: text, child, stdout, stderr, readers })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn written(&self, stream: Stream) -> String {
        self.captured(stream).text()
    }

    fn captured(&self, stream: Stream) -> Arc<Captured> {
        match stream {
            Stream::Stdout => Arc::clone(&self.stdout),
            Stream::Stderr => Arc::clone(&self.stderr),
        }
    }

    /// Waits until a stream holds this text, and returns the whole line that does.
    pub fn wait_for_text(&mut self, stream: Stream, text: &str) -> Result<String> {
        let captured = self.captured(stream);
        let mut bytes = captured.lock();
        loop {
            let written = String::from_utf8_lossy(&bytes);
            if let Some(line) = written.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            let closed = captured.closed.load(Ordering::Relaxed);
            let mut late = false;
            if !closed {
                let waited = captured.grown.wait_timeout(bytes, PATIENCE).unwrap_or_else(PoisonError::into_inner);
                (bytes, late) = (waited.0, waited.1.timed_out());
            }
            let written = String::from_utf8_lossy(&bytes);
            if (closed || late) && !written.contains(text) {
                let written = written.into_owned();
                drop(bytes);
                bail!("{} never wrote `{text}`:\n{written}\n{}", self.command, self.stderr.text());
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("a child has a process id")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.command))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Result<Ended> {
        let command = self.command.clone();
        let (stdout, stderr) = (Arc::clone(&self.stdout), Arc::clone(&self.stderr));
        let status = eventually(&format!("the end of {command}"), || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!("running\n--- stdout\n{}\n--- stderr\n{}", stdout.text(), stderr.text())),
            Err(error) => Err(error.to_string()),
        })?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ok(Ended { command, status, stdout: stdout.text(), stderr: stderr.text() })
    }

    /// Kills it at once, as a crash would, and reaps it.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.command))?;
        self.child.wait().with_context(|| format!("cannot reap {}", self.command))?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("$ {}\n--- stdout\n{}\n--- stderr\n{}", self.command, self.stdout.text(), self.stderr.text());
        }
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<Ended> {
    Running::start(command)?.wait()
}

fn text_of(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_code_are_kept() {
        let ended = run(&mut shell("echo out; echo err >&2; exit 3")).unwrap();
        assert_eq!((ended.code(), ended.answer(), ended.stderr.as_str()), (Some(3), "out", "err\n"));
    }

    #[test]
    fn a_text_is_awaited_while_the_process_runs() {
        let mut running = Running::start(&mut shell("echo ready; exec sleep 600")).unwrap();
        assert_eq!(running.wait_for_text(Stream::Stdout, "read").unwrap(), "ready");
        assert!(running.is_running());
        running.kill().unwrap();
    }

    #[test]
    fn a_text_that_never_comes_is_an_error_as_soon_as_the_process_ends() {
        let mut running = Running::start(&mut shell("echo other")).unwrap();
        assert!(running.wait_for_text(Stream::Stdout, "ready").is_err());
    }
}
