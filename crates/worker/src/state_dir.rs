//! The state directory: one owner for the life of the process, and one agent per worker on a host.
//!
//! An OS lock excludes a second process on the same directory; a named socket, made of trust domain and worker id,
//! excludes a copy of the directory on the same host. Two different workers on one host are allowed. (Worker design,
//! *One start path*; decisions, *Two workers on one host*.)

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::durable::{Dir, DurableError, may_pass};
use crate::fault::around;
use crate::fault::steps::STATE_LOCK;
use crate::identity::Identity;

/// A state directory that this process owns.
#[derive(Debug)]
pub struct StateDir {
    dir: Dir,
    attempts: PathBuf,
    _lock: OwnedFd,
}

/// The state directory cannot be owned.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// It cannot be opened.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Another process owns it.
    #[error("another worker runs on {0}: stop it first, or choose another directory with --state-dir")]
    Owned(String),
    /// Another agent of this worker runs on this host.
    #[error("an agent of worker {0} runs on this host already, on another state directory: a worker has one agent")]
    Twin(String),
}

impl OwnError {
    /// Whether the disk is what failed: the same may work later, without a person.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Durable(error) => error.may_pass(),
            Self::Io { source, .. } => may_pass(source),
            Self::Owned(_) | Self::Twin(_) => false,
        }
    }
}

/// How often a name that is taken is tried again: about two seconds in all.
const TRIES: u32 = 100;

/// Takes what may be `taken` for a moment longer than its owner lived: an agent that was killed while it spawned leaves a
/// child that holds the lock and the name until it executes.
fn patiently(mut pause: impl FnMut(), mut take: impl FnMut() -> Result<(), Errno>, taken: Errno) -> Result<(), Errno> {
    for _ in 0..TRIES {
        match take() {
            Err(errno) if errno == taken => pause(),
            done => return done,
        }
    }
    take()
}

#[expect(clippy::disallowed_methods, reason = "no event tells that another process let a lock go")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

impl StateDir {
    /// Takes the state directory for the life of this process.
    pub fn own(path: &Path) -> Result<Self, OwnError> {
        let dir = Dir::open(path)?;
        let io = |source: std::io::Error| OwnError::Io { path: path.display().to_string(), source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(&dir, "lock", flags, Mode::RUSR | Mode::WUSR).map_err(std::io::Error::from);
        let lock = around(STATE_LOCK, open).map_err(io)?;
        match patiently(pause, || flock(&lock, FlockOperation::NonBlockingLockExclusive), Errno::WOULDBLOCK) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OwnError::Owned(path.display().to_string())),
            Err(errno) => return Err(io(errno.into())),
        }
        let attempts = path.join("attempts");
        Dir::create(&attempts)?;
        Ok(Self { dir, attempts, _lock: lock })
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Lets the users that jobs run as reach their directories in `attempts`.
    pub fn let_through(&self) -> Result<(), OwnError> {
        let io = |source: std::io::Error| OwnError::Io { path: self.attempts.display().to_string(), source };
        self.dir.let_through().map_err(io)?;
        Dir::open(&self.attempts)?.let_through().map_err(io)
    }

    /// Where the attempts' directories are.
    pub fn attempts(&self) -> &Path {
        &self.attempts
    }
}

/// Refuses a second agent of the same worker on this host; held until dropped.
pub fn only_agent(identity: &Identity) -> Result<OwnedFd, OwnError> {
    let name = format!("leasehold-worker/{}/{}", identity.trust_domain, identity.worker);
    let io = |source: Errno| OwnError::Io { path: format!("@{name}"), source: source.into() };
    // An abstract name has at most 107 bytes; a longer one is told apart by its digest.
    let short = if name.len() <= 100 {
        name.clone()
    } else {
        let digest = leasehold_core::crypto::Digest::of(leasehold_core::crypto::Domain::Body, name.as_bytes());
        format!("leasehold-worker/{digest}")
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(io)?;
    let address = SocketAddrUnix::new_abstract_name(short.as_bytes()).map_err(io)?;
    match patiently(pause, || bind(socket.as_fd(), &address), Errno::ADDRINUSE) {
        Ok(()) => Ok(socket),
        Err(Errno::ADDRINUSE) => Err(OwnError::Twin(identity.worker.to_string())),
        Err(errno) => Err(io(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dying_agents_child_still_holds_is_waited_for_and_a_living_ones_is_not_taken() {
        let (mut held, mut pauses) = (3, 0);
        let take = || {
            held -= 1;
            if held > 0 { Err(Errno::WOULDBLOCK) } else { Ok(()) }
        };
        assert_eq!(patiently(|| pauses += 1, take, Errno::WOULDBLOCK), Ok(()));
        assert_eq!(pauses, 2);
        assert_eq!(patiently(|| {}, || Err(Errno::WOULDBLOCK), Errno::WOULDBLOCK), Err(Errno::WOULDBLOCK));
        assert_eq!(patiently(|| panic!("not taken"), || Err(Errno::ACCESS), Errno::WOULDBLOCK), Err(Errno::ACCESS));
    }

    #[test]
    fn a_state_directory_has_one_owner_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        Dir::create(&path).unwrap();
        let owned = StateDir::own(&path).unwrap();
        assert!(matches!(StateDir::own(&path), Err(OwnError::Owned(_))));
        drop(owned);
        StateDir::own(&path).unwrap();
    }
}
