//! Ctrl-C, SIGTERM and the end of the terminal, one after another.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask this process to stop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Until it came: a shell repeats what the kernel has said, and that is no second wish.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Whoever was started by `nohup` outlives its terminal.
        let hangup = if ignores(SignalKind::hangup()) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Ready when the next one came. May be dropped and called again.
    pub(crate) async fn next(&mut self) {
        let (interrupt, terminate) = (self.interrupt.recv(), self.terminate.recv());
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt => {}
            _ = terminate => {}
            _ = hangup => self.hangup = None,
        }
    }
}

/// Whether this process was started with `kind` ignored; unknown counts as that, and leaves it as it is.
fn ignores(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_none_or(|ignored| ignored & (1 << (kind.as_raw_value() - 1)) != 0)
}
