//! One attempt's directory on this machine: `attempts/<attempt>/{lock,barrier,control,log,receipt,script,work,output}`.
//!
//! Only the agent creates and removes it. Launcher and recovery work through its descriptor, so a directory that is
//! gone is an error, never made again. (Worker design, *The decidable spawn barrier*.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold_core::id::AttemptId;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::durable::{Dir, DurableError};
use crate::fault::around;
use crate::fault::steps::{ATTEMPT_CLEAR, ATTEMPT_LOCK};

/// The lock that a launcher, and its child before the exec, hold.
pub const LOCK: &str = "lock";
/// The one-way latch: a child's identity or a tombstone.
pub const BARRIER: &str = "barrier";
/// The launcher's socket.
pub const CONTROL: &str = "control";
/// The framed log.
pub const LOG: &str = "log";
/// The launcher's word on how the attempt ended.
pub const RECEIPT: &str = "receipt";
/// The script of a revision that has one.
pub const SCRIPT: &str = "script";
/// The job's working directory unless its revision names one.
pub const WORK: &str = "work";
/// Where the job puts its artifacts (`LEASEHOLD_OUTPUT`).
pub const OUTPUT: &str = "output";

/// An attempt's directory, opened.
#[derive(Debug)]
pub struct AttemptDir {
    dir: Dir,
}

impl AttemptDir {
    /// The agent's first step of an attempt: makes `attempts/<attempt>` with its `work` and `output`.
    pub fn create(attempts: &Path, attempt: AttemptId) -> Result<Self, DurableError> {
        let dir = Dir::create(&attempts.join(attempt.to_string()))?;
        for name in [WORK, OUTPUT] {
            Dir::create(&dir.path().join(name))?;
        }
        Ok(Self { dir })
    }

    /// Hands a job what is its own to the user that it runs as: its directories, and its script where it has one.
    pub fn hand_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.dir.let_through()?;
        for name in [WORK, OUTPUT, SCRIPT] {
            match std::os::unix::fs::lchown(self.path(name), Some(uid), Some(gid)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                handed => handed?,
            }
        }
        Ok(())
    }

    /// Opens the directory of `attempt`, `None` if there is none.
    pub fn find(attempts: &Path, attempt: AttemptId) -> Result<Option<Self>, DurableError> {
        match Self::open(&attempts.join(attempt.to_string())) {
            Ok(dir) => Ok(Some(dir)),
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens an attempt's directory by its path.
    pub fn open(path: &Path) -> Result<Self, DurableError> {
        Ok(Self { dir: Dir::open(path)? })
    }

    /// The directory, for durable steps.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Its path, or that of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path to `name` through the open descriptor: short enough for a socket, and never another directory.
    pub fn through_descriptor(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.dir.fd().as_raw_fd()).into()
    }

    /// Takes the lock, `None` if another holds it. It is held until every copy of the descriptor is closed: a child
    /// shares it up to its exec.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        around(ATTEMPT_LOCK, || {
            let fd = openat(&self.dir, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(File::from(fd))),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(errno) => Err(errno.into()),
            }
        })
    }

    /// Whether somebody holds the lock, without taking it away from a launcher that is just starting.
    pub fn is_locked(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(&self.dir, LOCK, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        // A shared lock conflicts with the launcher's exclusive one, and two askers do not disturb each other.
        match flock(&fd, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the directory and everything in it: the attempt is settled and its log shipped or given up.
    pub fn remove(self) -> io::Result<()> {
        let path = self.dir.path();
        around(ATTEMPT_CLEAR, || {
            let removed = match std::fs::remove_dir_all(path) {
                // Jobs leave read-only directories behind (module caches do); they are ours to open.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    open_directories(path)?;
                    std::fs::remove_dir_all(path)
                }
                removed => removed,
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }
}

/// Gives the owner every permission on all directories below `path`; links are not followed.
fn open_directories(path: &Path) -> io::Result<()> {
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(())
}
