//! Descriptors that the runtime waits for: timer, log watch, control connections, signals.
//!
//! Never here: anything but the registration. It needs `unsafe` because the runtime must rely on a descriptor staying the
//! same and open; the types that may be registered guarantee that by owning it.

#![expect(unsafe_code, reason = "the runtime's only registration that is not deprecated is unsafe; see `register`")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::signalfd::SignalFd;
use tokio::io::unix::AsyncFd;

use crate::launcher::ControlConnection;

/// A value that owns one descriptor for its whole life and always names that one.
pub(super) trait OwnsDescriptor: AsRawFd {}

impl OwnsDescriptor for OwnedFd {}
impl OwnsDescriptor for ControlConnection {}
impl OwnsDescriptor for SignalFd {}

/// Registers a descriptor with the runtime.
pub(super) fn register<T: OwnsDescriptor>(value: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `T` owns its descriptor: it stays open until `T` is dropped, and `as_raw_fd` always names it. `AsyncFd`
    // owns `T`, deregisters before it drops it, and gives no way here to replace it.
    let registered = unsafe { AsyncFd::register(value) };
    registered.map_err(|error| error.into_parts().1)
}
