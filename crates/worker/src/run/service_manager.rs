//! What the service manager is told: ready, what this process does, that it lives, that it stops.
//!
//! Ready is said once the start path is done on this machine: a worker that cannot reach its control plane has started,
//! and says so in its status. The watchdog is fed from the agent's own loop, so a loop that hangs is noticed. Where there
//! is no manager, nothing is said and nothing is timed. (Worker design, *Shutdown*; `systemd.service(5)`, `sd_notify(3)`.)

use std::time::Duration;

use leasehold_core::time::Millis;
use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior};

/// Beyond the drain: the last words to the control plane.
const LAST_WORDS: Millis = Millis::from_secs(60);

/// The conversation with the service manager.
#[derive(Debug)]
pub(super) struct ServiceManager {
    /// Ticks twice as often as it wants to hear that this process lives.
    watchdog: Option<Interval>,
    ready: bool,
    status: String,
}

impl ServiceManager {
    /// `watchdog` is what the manager asks for, where it does. Called inside the runtime.
    pub(super) fn new(watchdog: Option<Duration>) -> Self {
        let watchdog = watchdog.filter(|longest| !longest.is_zero()).map(|longest| {
            let mut interval = tokio::time::interval(longest / 2);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self { watchdog, ready: false, status: String::new() }
    }

    /// The start path is done. Said once.
    pub(super) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            tell(&[NotifyState::Ready]);
        }
    }

    /// One sentence for people; the same again is not said.
    pub(super) fn status(&mut self, status: String) {
        if self.status != status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// Tells it in time that this process lives; never ready where nobody asks. May be dropped and called again.
    pub(super) async fn feed(&mut self) {
        match &mut self.watchdog {
            Some(interval) => {
                interval.tick().await;
                tell(&[NotifyState::Watchdog]);
            }
            None => std::future::pending().await,
        }
    }
}

/// It executes its own binary again: ready comes from the next image.
pub(super) fn starting_over() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// It was told to stop, and may take as long as its drain does.
pub(super) fn stopping(drain: Millis) {
    let longest = drain.plus(LAST_WORDS).get().saturating_mul(1000);
    tell(&[NotifyState::Stopping, NotifyState::Custom(&format!("EXTEND_TIMEOUT_USEC={longest}"))]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the service manager was not told: {error}");
    }
}
