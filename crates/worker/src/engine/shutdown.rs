//! Drain, offline, exit.
//!
//! SIGTERM: draining, one last pull with no wait settles the asks, beats go on, running attempts may finish within the
//! drain timeout; then offline and exit 0. A second SIGTERM stops the jobs with grace. What does not end in time stays
//! with its launcher, and the exit code says so: never *stopped safely* without proof. (Worker design, *Shutdown*.)

use leasehold_core::attempt::StopReason;
use leasehold_core::time::{BootInstant, Millis};

use super::port::{Exit, Level};
use super::{Barred, Engine};

#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// Told to go: until when running attempts may finish.
    until: Option<BootInstant>,
    stops_jobs: bool,
    /// Since when nothing but the control plane's word is missing.
    empty_since: Option<BootInstant>,
}

/// How long the control plane may take to confirm that a worker with nothing left is offline.
const CONFIRMATION: Millis = Millis::from_secs(30);

impl Shutdown {
    pub(super) const fn is_draining(&self) -> bool {
        self.until.is_some()
    }

    pub(super) fn deadline(&self) -> Option<BootInstant> {
        let confirmed_by = self.empty_since.map(|since| since.plus(CONFIRMATION));
        self.until.map(|until| confirmed_by.map_or(until, |by| by.min(until)))
    }
}

impl Engine {
    pub(super) fn terminate(&mut self) {
        if self.shutdown.until.is_none() {
            self.shutdown.until = Some(self.now.boot.plus(self.config.drain_timeout));
            let open = self.occupied();
            let text =
                format!("told to stop: draining, {open} attempts may finish within {}", self.config.drain_timeout);
            return self.report(Level::Info, None, text);
        }
        if self.shutdown.stops_jobs {
            return;
        }
        self.shutdown.stops_jobs = true;
        self.report(Level::Info, None, "told to stop again: stopping the jobs");
        for held in self.records.values_mut().filter(|held| !held.record.state().is_settled()) {
            held.stop.get_or_insert(StopReason::Shutdown);
        }
    }

    /// Nothing is open: what remains is a settled record whose log nobody takes now.
    fn is_empty(&self) -> bool {
        let done = |held: &super::Held| held.record.state().is_settled() && !held.is_busy() && held.may_be_left();
        self.releases.is_empty() && self.records.values().all(done)
    }

    pub(super) fn is_ready_for_offline(&self) -> bool {
        self.shutdown.is_draining() && self.beat.drained && self.pull.settled && self.is_empty()
    }

    pub(super) fn advance_shutdown(&mut self) {
        let now = self.now.boot;
        if self.barred == Some(Barred::Revoked) {
            let holds = |held: &super::Held| {
                !held.record.state().is_settled() && held.lease.deadline.is_some_and(|deadline| deadline > now)
            };
            if !self.records.values().any(holds) {
                self.exit(Exit::Revoked);
            }
        }
        if self.shutdown.until.is_some() && self.is_empty() {
            self.shutdown.empty_since.get_or_insert(now);
        } else {
            self.shutdown.empty_since = None;
        }
        let Some(deadline) = self.shutdown.deadline() else { return };
        if self.live.is_none() && self.records.is_empty() && self.releases.is_empty() {
            // Never registered, nothing held, nothing asked for: nobody waits for an offline.
            return self.exit(Exit::Done);
        }
        if now >= deadline {
            let text = match self.occupied() {
                0 => "the control plane did not confirm that this worker is offline".to_owned(),
                open => format!("the drain timed out: {open} attempts stay with their launchers for the next start"),
            };
            self.report(Level::Fault, None, text);
            self.exit(Exit::DrainTimedOut);
        }
    }
}
