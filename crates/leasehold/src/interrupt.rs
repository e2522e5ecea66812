//! Ctrl-C and SIGTERM, one after another.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask this process to stop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Ready when the next one came. May be dropped and called again.
    pub(crate) async fn next(&mut self) {
        let (interrupt, terminate) = (self.interrupt.recv(), self.terminate.recv());
        tokio::select! {
            _ = interrupt => {}
            _ = terminate => {}
        }
    }
}
