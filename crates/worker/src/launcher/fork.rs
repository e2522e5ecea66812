//! The launcher's two needs that the type system cannot check, and why they are sound. Nothing else of the launcher
//! is `unsafe`.
#![expect(unsafe_code, reason = "descriptors by number, and code between fork and exec; each with its proof")]

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

use crate::fault::steps::JOB_FORK;
use crate::start;

/// Marks every descriptor but 0, 1 and 2 close-on-exec: what the agent inherited from somebody must not reach a job.
pub(super) fn close_inherited_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if number <= 2 {
            continue;
        }
        // SAFETY: the kernel has just listed `number` as open in this process, it is single-threaded, and nothing is
        // closed inside the loop: the descriptor stays open for the borrow. It is not kept.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl_setfd(fd, FdFlags::CLOEXEC) {
            Ok(()) | Err(Errno::BADF) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Forks, runs `before_exec` in the child, executes `command`. An error says that nothing was executed.
pub(super) fn spawn<F>(mut command: Command, before_exec: F) -> io::Result<Child>
where
    F: FnMut() -> io::Result<()> + Send + Sync + 'static,
{
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the launcher has more than one thread"));
    }
    // SAFETY: a child of a multi-threaded process may only call what is async-signal-safe, because another thread may
    // have held any lock (the allocator's, for one) at the fork. This process has one thread, counted above, and
    // starts none: no lock is held by anybody else, so `before_exec` may allocate and format.
    unsafe { command.pre_exec(before_exec) };
    start::spawn(JOB_FORK, &mut command)
}
