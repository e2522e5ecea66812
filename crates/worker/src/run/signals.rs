//! What a person or a service manager tells this process by signal; none is lost, and none is fatal, while it executes
//! its own binary again.
//!
//! Handlers do not survive an `exec`, and by default each of these signals kills. So they are blocked before it: one that
//! comes meanwhile waits in the kernel, and the next image hears it once its own handlers are there. One that was heard
//! before and not acted upon is sent again. (Worker design, *Shutdown* and *One start path*.)

use std::pin::pin;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal as Number};
use rustix::process::{Signal as ToSend, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::engine::port::Signal;

/// The signals that are listened to.
pub(super) struct Signals {
    terminate: Stream,
    interrupt: Stream,
    leave: Stream,
    hang_up: Stream,
}

/// The same signals as a set.
fn ours() -> SigSet {
    let mut set = SigSet::empty();
    for number in [Number::SIGTERM, Number::SIGINT, Number::SIGUSR1, Number::SIGHUP] {
        set.add(number);
    }
    set
}

/// Signals that were heard and not acted upon.
#[derive(Debug, Default)]
pub(super) struct Unheeded(Vec<ToSend>);

impl Signals {
    /// Listens from now on, also to what has waited since before an `exec`. Nothing else runs in this process yet: what
    /// it starts must not inherit a blocked signal.
    pub(super) fn listen() -> std::io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            leave: signal(SignalKind::user_defined1())?,
            hang_up: signal(SignalKind::hangup())?,
        };
        ours().thread_unblock()?;
        Ok(signals)
    }

    /// The next one. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Terminate,
            _ = self.leave.recv() => Signal::LeaveRunning,
            _ = self.hang_up.recv() => Signal::StartOver,
        }
    }

    /// From now on signals wait for the next image of this process. Answers what was heard already.
    pub(super) async fn hold(&mut self) -> std::io::Result<Unheeded> {
        ours().thread_block()?;
        // What a handler has noted reaches the streams with the runtime's next look at its descriptors.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut unheeded = Unheeded::default();
        for (stream, number) in
            [(&mut self.terminate, ToSend::TERM), (&mut self.interrupt, ToSend::INT), (&mut self.leave, ToSend::USR1)]
        {
            let mut heard = pin!(stream.recv());
            let heard = std::future::poll_fn(|context| Poll::Ready(heard.as_mut().poll(context).is_ready())).await;
            if heard {
                unheeded.0.push(number);
            }
        }
        Ok(unheeded)
    }
}

impl Unheeded {
    /// Sends them again, to wait with the others. The other threads are gone: none could take one away.
    pub(super) fn send_again(self) {
        for number in self.0 {
            if let Err(error) = kill_process(getpid(), number) {
                tracing::warn!("a signal is lost: {error}");
            }
        }
    }
}
