//! The conversation over `control`: what an agent may say to a running launcher, and what it hears.
//!
//! Messages: `deadline` (only grows) and `stop(reason)`. Each is answered with the launcher's state, and so is a new
//! connection: that is how a restarted agent re-attaches. The hang-up says that the launcher has ended; the receipt
//! then says how. (Worker design, *Launcher*.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use leasehold_core::attempt::{Handle, Left, StopReason};
use leasehold_core::time::{BootInstant, Millis};
use serde::{Deserialize, Serialize};

use super::receipt::Receipt;
use super::socket;
use crate::attempt_dir::AttemptDir;
use crate::fault::around;
use crate::fault::steps::{CONTROL_CONNECT, CONTROL_SEND};
use crate::process_identity::ProcessIdentity;

/// Most bytes of one message in either direction.
pub const MESSAGE_BYTES: usize = 16 * 1024;

/// What an agent may say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Message {
    Deadline { at_boot_ms: i64 },
    Stop { reason: String, grace_ms: Option<u64> },
}

/// What an agent hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LauncherState {
    /// The job runs.
    Running {
        /// Its process.
        handle: Handle,
        /// Whether it is being stopped, and why.
        stopping: Option<StopReason>,
        /// What has outlived SIGKILL for longer than it should: the kernel does not let go of it.
        left: Option<Left>,
    },
    /// The job has ended and the receipt is on disk.
    Ended,
    /// The job has ended and the receipt cannot be written: here it is. The launcher stays, and goes on trying,
    /// until it succeeds or the attempt's directory is removed.
    Unwritten(Box<Receipt>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum State {
    Running { handle: String, stopping: Option<String>, left: Option<WireLeft> },
    Ended {},
    Unwritten { receipt: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLeft {
    count: u64,
    pids: Vec<u32>,
}

impl LauncherState {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let state = match self {
            Self::Running { handle, stopping, left } => State::Running {
                handle: ProcessIdentity::from_handle(handle).map(|identity| identity.to_string()).unwrap_or_default(),
                stopping: stopping.map(|reason| reason.to_string()),
                left: left.clone().map(|Left { count, pids }| WireLeft { count, pids }),
            },
            Self::Ended => State::Ended {},
            Self::Unwritten(receipt) => {
                State::Unwritten { receipt: String::from_utf8_lossy(&receipt.to_bytes()).into_owned() }
            }
        };
        // Strings and plain enums always serialize.
        serde_json::to_vec(&state).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let refused = || io::Error::new(io::ErrorKind::InvalidData, "unexpected message from the launcher");
        Ok(match serde_json::from_slice(bytes).map_err(|_| refused())? {
            State::Running { handle, stopping, left } => Self::Running {
                handle: handle.parse::<ProcessIdentity>().map_err(|_| refused())?.to_handle(),
                stopping: stopping.map(|reason| reason.parse()).transpose().map_err(|_| refused())?,
                left: left.map(|WireLeft { count, pids }| Left { count, pids }),
            },
            State::Ended {} => Self::Ended,
            State::Unwritten { receipt } => {
                Self::Unwritten(Box::new(Receipt::from_bytes(receipt.as_bytes()).map_err(|_| refused())?))
            }
        })
    }
}

/// An agent's connection to a launcher. Non-blocking: register its descriptor with the runtime, or wait with
/// [`ControlConnection::wait`].
#[derive(Debug)]
pub struct ControlConnection {
    socket: OwnedFd,
}

impl ControlConnection {
    /// Connects to the launcher of an attempt, `None` if none listens (it has just ended: observe again). The first
    /// state is on its way; a launcher that is frozen never sends it.
    pub fn connect(dir: &AttemptDir) -> io::Result<Option<Self>> {
        Ok(around(CONTROL_CONNECT, || socket::connect(dir))?.map(|socket| Self { socket }))
    }

    /// The lease now ends at `deadline`. One that is not later changes nothing.
    pub fn extend(&self, deadline: BootInstant) -> io::Result<()> {
        self.send(&Message::Deadline { at_boot_ms: deadline.get() })
    }

    /// Stops the job. `grace` may only shorten what the task allows; zero kills at once. A second stop keeps the
    /// first one's reason.
    pub fn stop(&self, reason: StopReason, grace: Option<Millis>) -> io::Result<()> {
        self.send(&Message::Stop { reason: reason.to_string(), grace_ms: grace.map(Millis::get) })
    }

    /// The next state: `WouldBlock` when none waits, `None` when the launcher hung up.
    pub fn receive(&self) -> io::Result<Option<LauncherState>> {
        let mut buffer = [0; MESSAGE_BYTES];
        match socket::receive(self.socket.as_fd(), &mut buffer)? {
            0 => Ok(None),
            length => LauncherState::from_bytes(&buffer[..length]).map(Some),
        }
    }

    /// Blocks until a state (or the hang-up) can be received or `timeout` is over; whether it can.
    pub fn wait(&self, timeout: Millis) -> io::Result<bool> {
        socket::wait_readable(self.socket.as_fd(), Some(timeout))
    }

    fn send(&self, message: &Message) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        around(CONTROL_SEND, || socket::send(self.socket.as_fd(), &bytes))
    }
}

impl AsFd for ControlConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::os::fd::AsRawFd for ControlConnection {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}
