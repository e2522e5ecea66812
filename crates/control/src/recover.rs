//! Recovery: bounded scans that declare what ran out and begin what is due.
//!
//! One loop, owned by [`ControlPlane::run`]. Every scan is idempotent and run by every replica; a hint only makes it
//! earlier. (Control design, *Recovery*.)

use std::time::Duration;

use leasehold_core::id::AttemptId;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_store::outcome::StoreError;
use leasehold_store::view::Scanned;

use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::rounds::Pace;

/// The shortest between two rounds: hints may be many.
const ROUND_MIN: Millis = Millis::new(250);
/// Pages of one scan in one round; the rest is the next round's.
const ROUND_PAGES: usize = 16;
/// After a round that the store did not answer.
const ROUND_RETRY: Millis = Millis::from_secs(1);

impl ControlPlane {
    /// Runs rounds until the control plane drains.
    pub(crate) async fn recovery_loop(&self) {
        let pace = Pace { gathered: Some(ROUND_MIN), retry: ROUND_RETRY };
        let failed = |error: &StoreError| tracing::warn!(error = %error, "a recovery scan failed; it is repeated");
        self.rounds(pace, || self.recovery_round(), || self.hints().recovery_hinted(), failed).await;
    }

    /// One round of every scan; answers how long until the next.
    pub(crate) async fn recovery_round(&self) -> Result<Duration, StoreError> {
        let mut round = Round::default();
        for scan in [Scan::ExpireLeases, Scan::StopOverdue, Scan::BeginRetries] {
            let mut more = true;
            for _ in 0..ROUND_PAGES {
                let scanned = self.scan(scan).await?;
                more = scanned.more;
                round.took(self, &scanned);
                if !more {
                    break;
                }
            }
            round.more |= more;
        }
        if round.changed {
            // A claim that ran out, or a retry that is due, waits for a worker.
            self.hints().dispatch();
        }
        let settings = self.settings();
        let wait = match round.next {
            _ if round.more => ROUND_MIN,
            Some(next) => next.max(ROUND_MIN).min(settings.recovery_scan),
            None => settings.recovery_idle,
        };
        Ok(wait.to_std())
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, StoreError> {
        match scan {
            Scan::ExpireLeases => self.store().expire_leases(limits::PAGE).await,
            Scan::StopOverdue => self.store().stop_overdue(limits::PAGE).await,
            Scan::BeginRetries => {
                let ids = (0..limits::PAGE).map(|_| AttemptId::new(self.utc(), self.entropy())).collect();
                self.store().begin_retries(ids).await
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Scan {
    ExpireLeases,
    StopOverdue,
    BeginRetries,
}

#[derive(Default)]
struct Round {
    changed: bool,
    more: bool,
    next: Option<Millis>,
}

impl Round {
    /// Notes what a scan did.
    fn took(&mut self, plane: &ControlPlane, scanned: &Scanned) {
        for run in &scanned.runs {
            plane.hints().changed(&Topic::Run(*run));
        }
        for worker in &scanned.workers {
            // A slot is free again, or an open pull has a stop to tell of.
            plane.hints().changed(&Topic::Worker(worker.clone()));
        }
        self.changed |= !scanned.runs.is_empty();
        if let Some(next) = scanned.next {
            self.next = Some(self.next.map_or(next, |earlier| earlier.min(next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::canonical::Value;
    use leasehold_core::run::RunState;

    use super::*;
    use crate::fixture::{World, granted, plain, revision};

    #[tokio::test(start_paused = true)]
    async fn what_waits_decides_when_the_next_round_is() {
        let world = World::new().await;
        let settings = world.plane.settings().clone();
        assert_eq!(world.plane.recovery_round().await.unwrap(), settings.recovery_idle.to_std(), "nothing lives");
        let agent = world.agent("nas", 1).await;
        world.submit(plain()).await;
        let taken = agent.take().await;
        let wait = world.plane.recovery_round().await.unwrap();
        assert!(wait <= settings.recovery_scan.to_std(), "a claim lives: {wait:?}");
        agent.starting(&taken).await;
        agent.exited(&taken, 0, b"").await;
        assert_eq!(world.plane.recovery_round().await.unwrap(), settings.recovery_idle.to_std(), "it is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_loop_begins_a_retry_when_it_is_due_and_its_attempt_goes_out() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let retry = Value::map([("max_attempts", Value::Int(2)), ("on", Value::texts(["failed"]))]);
        let run = world.submit(revision([("retry", retry)])).await;
        let taken = agent.take().await;
        agent.starting(&taken).await;
        agent.exited(&taken, 1, b"").await;
        assert_eq!(world.plane.run_view(run).await.unwrap().run.state, RunState::RetryWait);

        let running = world.start();
        let pull = tokio::spawn(agent.pull(vec![world.ask()], limits::PULL_WAIT));
        world.clock.advance(limits::RETRY_INITIAL);
        let pulled = pull.await.unwrap().unwrap();
        let offer = &granted(&pulled)[0];
        assert_eq!((offer.run, offer.number.get()), (run, 2));
        running.stop().await;
    }
}
