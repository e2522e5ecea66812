//! The `control` socket: seqpacket, addressed through the directory's descriptor, only for our own user.
//!
//! `/proc/self/fd/N/control` is short whatever the state directory's path is (a socket's path ends at 107 bytes),
//! and it can never be another attempt's. (Launcher facts.)

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use leasehold_core::time::Millis;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect as connect_socket, listen as listen_on, recv, send as send_on, socket_with,
};

use crate::attempt_dir::{AttemptDir, CONTROL};
use crate::fault::around;
use crate::fault::steps::CONTROL_LISTEN;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
const BACKLOG: i32 = 4;

/// Binds and listens. The caller holds the attempt's lock: a socket that is there already is a dead launcher's.
pub(super) fn listen(dir: &AttemptDir) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(dir.through_descriptor(CONTROL))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    around(CONTROL_LISTEN, || {
        bind(&socket, &address)?;
        listen_on(&socket, BACKLOG).map_err(io::Error::from)
    })?;
    Ok(socket)
}

/// The next waiting connection of our own user (or root); another's is closed. `None` when none waits.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    loop {
        let socket = match accept_with(listener, FLAGS) {
            Ok(socket) => socket,
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let peer = socket_peercred(&socket)?.uid;
        if peer == rustix::process::geteuid() || peer.is_root() {
            return Ok(Some(socket));
        }
    }
}

/// Connects to the launcher of `dir`, `None` if none listens.
pub(super) fn connect(dir: &AttemptDir) -> io::Result<Option<OwnedFd>> {
    let address = SocketAddrUnix::new(dir.through_descriptor(CONTROL))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    match connect_socket(&socket, &address) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let peer = socket_peercred(&socket)?.uid;
    if peer == rustix::process::geteuid() || peer.is_root() {
        Ok(Some(socket))
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens on the launcher's socket"))
    }
}

/// Sends one message; `WouldBlock` when the peer does not read.
pub(super) fn send(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    send_on(socket, message, SendFlags::NOSIGNAL).map(drop).map_err(io::Error::from)
}

/// Receives one message; 0 is the hang-up.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    match recv(socket, buffer, RecvFlags::empty()) {
        Ok((_, length)) => Ok(length),
        // A peer that died with unread messages is a hang-up, too.
        Err(Errno::CONNRESET) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Blocks until `fd` is readable (or hung up) or `timeout` is over; whether it is.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Millis>) -> io::Result<bool> {
    let timeout = timeout.map(timespec);
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A span for the kernel.
pub(super) fn timespec(span: Millis) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.get() / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(span.get() % 1000).unwrap_or(0) * 1_000_000,
    }
}
