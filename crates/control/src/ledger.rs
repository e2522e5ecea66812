//! Ledgers: what is kept no longer goes, page by page.
//!
//! One loop, owned by [`ControlPlane::run`]. Every replica looks; nothing is decided by what a ledger has forgotten. Which lines
//! go says [`leasehold_core::schedule::kept_from`]. While the disk has no room for new work they stay: to delete takes room, too.

use leasehold_core::limits::{LEDGER_LOOK, PAGE};
use leasehold_core::time::Millis;
use leasehold_core::trigger::TriggerKey;
use leasehold_store::outcome::StoreError;

use crate::plane::ControlPlane;

/// Between two rounds while there is more: whoever waits for the store comes first.
const ROUND_MIN: Millis = Millis::from_secs(1);
/// Pages in one round; the rest is the next round's.
const ROUND_PAGES: usize = 16;

impl ControlPlane {
    /// Runs rounds until the control plane drains.
    pub(crate) async fn ledger_loop(&self) {
        let mut from = None;
        while !self.is_draining() {
            from = self.ledger_round(from).await.unwrap_or_else(|error| {
                tracing::warn!(error = %error, "ledgers were not looked through; they are again");
                None
            });
            let wait = if from.is_some() { ROUND_MIN } else { LEDGER_LOOK };
            tokio::select! {
                () = tokio::time::sleep(wait.to_std()) => {}
                () = self.drained() => break,
            }
        }
    }

    /// Looks through ledgers from that of `from` on; answers where to go on, if that was not all.
    pub(crate) async fn ledger_round(&self, mut from: Option<TriggerKey>) -> Result<Option<TriggerKey>, StoreError> {
        if !self.room().takes_work() {
            return Ok(None);
        }
        for _ in 0..ROUND_PAGES {
            let pruned = self.store().prune_ledgers(from, PAGE).await?;
            if pruned.lines > 0 {
                tracing::debug!(lines = pruned.lines, "lines of schedule ledgers went");
            }
            from = pruned.rest;
            if from.is_none() {
                break;
            }
        }
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::id::ProjectName;
    use leasehold_core::limits::{LEDGER_AGE, LEDGER_LINES};
    use leasehold_store::call::LedgerPage;
    use leasehold_store::port::Store as _;

    use super::*;
    use crate::fixture::World;
    use crate::schedule::tests::applied;

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_no_longer_goes_while_the_control_plane_runs() {
        let world = World::new().await;
        applied(&world, "* * * * * *").await;
        let (project, task) = (ProjectName::default(), "report".parse().unwrap());
        let page = LedgerPage { project, task, trigger: None, before: None };
        let lines = async || world.store.ledger(page.clone(), 10_000).await.unwrap().len();
        for _ in 0..20 {
            world.clock.advance(Millis::from_secs(60));
            world.plane.schedule_round().await.unwrap();
        }
        assert_eq!(lines().await, 1200);
        world.clock.advance(LEDGER_AGE.times(2));
        let running = world.start();
        // The fortnight that passed is a line or two itself.
        while lines().await > LEDGER_LINES + 3 {
            tokio::task::yield_now().await;
        }
        running.stop().await;
    }
}
