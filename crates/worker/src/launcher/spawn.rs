//! The agent's side of a launch: start the launcher, hand it the request, take its tagged answer.
//!
//! Blocking, bounded by a patience: for a thread of its own, never for the runtime's. The launcher is our own binary
//! through `/proc/self/exe`: an upgrade that replaces the file does not change what is started.
//! (Worker design, *From offer to running*, steps 5 and 6.)

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold_core::attempt::RejectReason;
use leasehold_core::time::Millis;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::answer::{ANSWER_BYTES, Answer, LaunchOutcome, Rejection};
use super::request::LaunchRequest;
use super::socket::{timespec, wait_readable};
use crate::attempt_dir::AttemptDir;
use crate::fault::around;
use crate::fault::steps::{ANSWER_RECEIVE, LAUNCHER_SPAWN, REQUEST_SEND};
use crate::process_identity::ProcessIdentity;
use crate::start;

/// How a launcher is started: a program and the arguments before the attempt's directory.
#[derive(Debug, Clone)]
pub struct LauncherProgram {
    /// The binary.
    pub program: PathBuf,
    /// Its hidden sub-command.
    pub arguments: Vec<OsString>,
}

impl Default for LauncherProgram {
    /// This very binary, sub-command `launcher`.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec!["launcher".into()] }
    }
}

/// A launch as far as the agent sees it.
#[derive(Debug)]
pub struct Launch {
    /// What may be concluded.
    pub outcome: LaunchOutcome,
    /// The launcher, where one could be started: reap it when `control` hangs up. Dropping it leaves it running.
    pub launcher: Option<Child>,
}

/// Starts the attempt's launcher and waits at most `patience` for each step of the conversation.
/// `launching` is durable before this is called.
pub fn spawn(program: &LauncherProgram, dir: &AttemptDir, request: &LaunchRequest, patience: Millis) -> Launch {
    let bytes = match request.to_bytes() {
        Ok(bytes) => bytes,
        // Our own proof: no launcher was started.
        Err(error) => {
            let rejection = Rejection::new(RejectReason::Request, error);
            return Launch { outcome: LaunchOutcome::Rejected(rejection), launcher: None };
        }
    };
    let mut command = Command::new(&program.program);
    command.args(&program.arguments).arg(dir.dir().path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = match start::spawn(LAUNCHER_SPAWN, &mut command) {
        Ok(launcher) => launcher,
        // Nothing was executed; still only the barrier decides, so that there is one rule.
        Err(error) => return Launch { outcome: unknown(&"cannot start the launcher", &error), launcher: None },
    };
    let outcome = match (launcher.stdin.take(), launcher.stdout.take()) {
        (Some(stdin), Some(stdout)) => converse(stdin, stdout, &bytes, patience),
        _ => LaunchOutcome::Unknown { detail: "the launcher has no pipes".to_owned() },
    };
    Launch { outcome, launcher: Some(launcher) }
}

/// Reaps a launcher that an earlier image of this very process started (an agent that executed its own binary again
/// keeps its children, not its [`Child`] values). Whether it was ours and had ended.
pub fn reap(launcher: &ProcessIdentity) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(launcher.pid), options), Ok(Some(_)))
}

fn unknown(what: &dyn std::fmt::Display, error: &dyn std::fmt::Display) -> LaunchOutcome {
    LaunchOutcome::Unknown { detail: format!("{what}: {error}") }
}

fn converse(stdin: ChildStdin, stdout: ChildStdout, request: &[u8], patience: Millis) -> LaunchOutcome {
    // A launcher that refuses before it has read everything closes the pipe; its answer says why.
    match around(REQUEST_SEND, || send(stdin, request, patience)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return unknown(&"the launch request was not taken", &error);
        }
        _ => {}
    }
    match around(ANSWER_RECEIVE, || receive(stdout, patience)) {
        Ok(answer) => Answer::conclude(&answer),
        Err(error) => unknown(&"the launcher's answer cannot be read", &error),
    }
}

fn receive(mut stdout: ChildStdout, patience: Millis) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while answer.last() != Some(&b'\n') && answer.len() <= ANSWER_BYTES {
        if !wait_readable(stdout.as_fd(), Some(patience))? {
            return Err(io::Error::other(format!("it did not come within {patience}")));
        }
        match stdout.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn send(mut stdin: ChildStdin, request: &[u8], patience: Millis) -> io::Result<()> {
    ioctl_fionbio(&stdin, true)?;
    let timeout = timespec(patience);
    let mut rest = request;
    while !rest.is_empty() {
        match stdin.write(rest) {
            Ok(length) => rest = &rest[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if poll(&mut [PollFd::new(&stdin, PollFlags::OUT)], Some(&timeout))? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
