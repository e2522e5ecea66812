//! Which process is meant: boot id, process id and start time together, never a process id alone.
//!
//! A process id is reused; within one boot the kernel's start time tells two holders of it apart. Nothing is
//! signalled here or elsewhere in the worker before its identity was compared while a pidfd was held.
//! (Worker design, *Launcher*.)

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use leasehold_core::attempt::Handle;
use leasehold_core::id::BootId;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// This boot's id.
pub fn boot_id() -> io::Result<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// One process of one boot; its text is `boot/pid/start`. That of a job's process is the attempt's [`Handle`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The boot it belongs to.
    pub boot: BootId,
    /// Its process id.
    pub pid: Pid,
    /// Its start time in clock ticks since boot.
    pub start: u64,
}

/// A text is not a process's identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a process identity: expected <boot id>/<pid>/<start time>")]
pub struct IdentityError;

impl ProcessIdentity {
    /// The identity of a live (or not yet reaped) process.
    pub fn of(boot: &BootId, pid: Pid) -> io::Result<Self> {
        Ok(Self { boot: boot.clone(), pid, start: ProcessStat::read(pid)?.start })
    }

    /// As the handle of an attempt.
    pub fn to_handle(&self) -> Handle {
        Handle { boot: self.boot.clone(), pid: self.pid.as_raw_nonzero().get().unsigned_abs(), start_time: self.start }
    }

    /// The process that a handle names; an error where no process can have its pid.
    pub fn from_handle(handle: &Handle) -> Result<Self, IdentityError> {
        let pid = i32::try_from(handle.pid).ok().and_then(positive).ok_or(IdentityError)?;
        Ok(Self { boot: handle.boot.clone(), pid, start: handle.start_time })
    }

    /// A pidfd of exactly this process, `None` if it is gone (or of another boot).
    pub fn open(&self, this_boot: &BootId) -> io::Result<Option<OwnedFd>> {
        if self.boot != *this_boot {
            return Ok(None);
        }
        open_verified(self.pid, self.start)
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid.as_raw_nonzero(), self.start)
    }
}

impl FromStr for ProcessIdentity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let mut parts = text.rsplitn(3, '/');
        let (Some(start), Some(pid), Some(boot)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(IdentityError);
        };
        Ok(Self {
            boot: boot.parse().map_err(|_| IdentityError)?,
            pid: pid.parse().ok().and_then(positive).ok_or(IdentityError)?,
            start: start.parse().map_err(|_| IdentityError)?,
        })
    }
}

/// A process id is positive; the other numbers mean groups or everybody.
fn positive(number: i32) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// A pidfd of the process that has `pid` and started at `start`, `None` if there is none.
pub fn open_verified(pid: Pid, start: u64) -> io::Result<Option<OwnedFd>> {
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    // Compared after the open: the descriptor cannot change its process any more.
    match ProcessStat::read(pid) {
        Ok(stat) if stat.start == start => Ok(Some(fd)),
        Ok(_) => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Signals the process that has `pid` and started at `start`; whether there was one.
pub fn signal_verified(pid: Pid, start: u64, signal: Signal) -> io::Result<bool> {
    let Some(fd) = open_verified(pid, start)? else { return Ok(false) };
    match pidfd_send_signal(&fd, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// What `/proc/<pid>/stat` says, as far as the worker asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Process id.
    pub pid: Pid,
    /// `R`, `S`, `Z`, ….
    pub state: u8,
    /// Parent, 0 for none.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl ProcessStat {
    /// Reads one process.
    pub fn read(pid: Pid) -> io::Result<Self> {
        let text = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/<pid>/stat"))
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name may hold anything, spaces and parentheses too: the last one closes it.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok().and_then(positive)?;
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        // Field N of proc(5) is at N - 3 here.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let signed = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: signed(4)?,
            group: signed(5)?,
            session: signed(6)?,
            start: number(22)?,
        })
    }
}

/// Every process there is right now. One that ends meanwhile is left out.
pub fn table() -> io::Result<Vec<ProcessStat>> {
    let mut table = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()).and_then(positive) else {
            continue;
        };
        match ProcessStat::read(pid) {
            Ok(stat) => table.push(stat),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_anything() {
        let line = b"42 (a) R 1 (b) S 7 42 41 0 -1 4194560 1 2 3 4 10 11 12 13 20 0 1 0 987654 1 2 3";
        let stat = ProcessStat::parse(line).unwrap();
        assert_eq!(stat.pid.as_raw_nonzero().get(), 42);
        assert_eq!((stat.state, stat.parent, stat.group, stat.session), (b'S', 7, 42, 41));
        assert_eq!(stat.start, 987_654);
    }

    #[test]
    fn an_identity_is_its_text() {
        let boot = boot_id().unwrap();
        let identity = ProcessIdentity::of(&boot, rustix::process::getpid()).unwrap();
        assert_eq!(identity.to_string().parse(), Ok(identity.clone()));
        assert!(identity.open(&boot).unwrap().is_some());
        for bad in ["", "a/b", "boot/0/1", "boot/-1/1", "boot/1/", "//"] {
            assert!(bad.parse::<ProcessIdentity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn another_process_with_the_same_id_is_not_meant() {
        let boot = boot_id().unwrap();
        let us = ProcessIdentity::of(&boot, rustix::process::getpid()).unwrap();
        let earlier = ProcessIdentity { start: us.start - 1, ..us.clone() };
        assert!(earlier.open(&boot).unwrap().is_none());
        assert!(!signal_verified(earlier.pid, earlier.start, Signal::KILL).unwrap());
        assert!(us.open(&"another-boot".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn the_table_holds_this_process() {
        let us = rustix::process::getpid();
        assert!(table().unwrap().iter().any(|stat| stat.pid == us));
    }
}
