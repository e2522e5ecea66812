//! The signal that the server stops: seen by every listener, connection and stream.

use tokio::sync::watch;

/// Whoever waits for the drain.
#[derive(Debug, Clone)]
pub(crate) struct Drain(watch::Receiver<bool>);

/// Whoever begins it.
#[derive(Debug)]
pub(crate) struct DrainSwitch(watch::Sender<bool>);

impl DrainSwitch {
    /// A switch that is off.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// What waits for it.
    pub(crate) fn drain(&self) -> Drain {
        Drain(self.0.subscribe())
    }

    /// From now on the server drains.
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Ready once the drain has begun, or its switch is gone.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error says that the switch is gone: nobody would ever end what waits for it.
        let _ = receiver.wait_for(|draining| *draining).await;
    }
}
