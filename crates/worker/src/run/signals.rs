//! What a person or a service manager tells this process by signal; none is lost, and none is fatal, while it executes
//! its own binary again.
//!
//! A handler takes a signal away from the kernel, on whichever thread it comes to, and what it has noted is gone with the
//! image. So nothing is ever handled: these signals are blocked in every thread, wait in the kernel until one is asked for,
//! and what nobody has asked for is still there for the next image. (Worker design, *Shutdown* and *One start path*.)

use std::io;

use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::readiness::register;
use crate::engine::port::Signal;

/// Those that say how to leave.
const LEAVING: [(Number, SignalKind); 3] = [
    (Number::SIGTERM, SignalKind::terminate()),
    (Number::SIGINT, SignalKind::interrupt()),
    (Number::SIGUSR1, SignalKind::user_defined1()),
];
/// The one that says to begin again.
const STARTING_OVER: [(Number, SignalKind); 1] = [(Number::SIGHUP, SignalKind::hangup())];

/// The signals that are listened to. Each stays where it is until it is acted upon.
pub(super) struct Signals {
    leaving: AsyncFd<SignalFd>,
    starting_over: AsyncFd<SignalFd>,
}

impl Signals {
    /// Listens from now on, also to what has waited since before an `exec`. There is no other thread yet: each that comes
    /// inherits that they are blocked. So does every process that is started; a launcher undoes it
    /// ([`crate::launcher::main`]).
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { leaving: blocked(&LEAVING)?, starting_over: blocked(&STARTING_OVER)? })
    }

    /// The next one. May be dropped and called again.
    pub(super) async fn next(&mut self) -> io::Result<Signal> {
        loop {
            // Whoever is told to leave need not begin again before.
            let taken = tokio::select! {
                biased;
                taken = take(&self.leaving) => taken?,
                taken = take(&self.starting_over) => taken?,
            };
            match taken {
                Number::SIGUSR1 => return Ok(Signal::LeaveRunning),
                Number::SIGHUP => return Ok(Signal::StartOver),
                Number::SIGTERM | Number::SIGINT => return Ok(Signal::Terminate),
                _ => {}
            }
        }
    }
}

/// Blocks signals and opens a descriptor that tells of those that wait.
fn blocked(signals: &[(Number, SignalKind)]) -> io::Result<AsyncFd<SignalFd>> {
    let mut set = SigSet::empty();
    for (number, _) in signals {
        set.add(*number);
    }
    set.thread_block()?;
    for (_, kind) in signals {
        // Its handler never runs. But what is ignored here (by `nohup`, by a shell's `&`) would be in every job as well,
        // and what has a handler is not.
        let _ = signal(*kind)?;
    }
    register(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// One that waits, at once taken away from the kernel.
async fn take(descriptor: &AsyncFd<SignalFd>) -> io::Result<Number> {
    loop {
        let mut ready = descriptor.readable().await?;
        let read = ready.try_io(|descriptor| match descriptor.get_ref().read_signal() {
            Ok(Some(signal)) => Ok(signal.ssi_signo),
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => Err(errno.into()),
        });
        if let Ok(number) = read {
            let number = i32::try_from(number?).map_err(io::Error::other)?;
            return Ok(Number::try_from(number)?);
        }
    }
}
