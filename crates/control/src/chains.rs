//! Chains: the runs that successes become, page by page.
//!
//! One loop, owned by [`ControlPlane::run`]. Every replica settles; a hint only makes it earlier, and whoever admits a run of
//! it has used up what it follows in the same transaction. While the disk has no room for new work, what came waits. Decided
//! by [`leasehold_core::chain`].

use std::time::Duration;

use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_store::outcome::StoreError;

use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::rounds::Pace;

/// The shortest between two rounds: ends may be many.
const ROUND_MIN: Millis = Millis::new(20);
/// Pages in one round; the rest is the next round's.
const ROUND_PAGES: usize = 16;
/// After a round that the store did not answer, or that left something to another replica.
const ROUND_RETRY: Millis = Millis::from_secs(1);

impl ControlPlane {
    /// Runs rounds until the control plane drains.
    pub(crate) async fn chain_loop(&self) {
        let pace = Pace { gathered: Some(ROUND_MIN), retry: ROUND_RETRY };
        let failed = |error: &StoreError| tracing::warn!(error = %error, "chains were not settled; it is repeated");
        self.rounds(pace, || self.chain_round(), || self.hints().chains_hinted(), failed).await;
    }

    /// Settles what is new; answers how long until the next round.
    pub(crate) async fn chain_round(&self) -> Result<Duration, StoreError> {
        if !self.room().takes_work() {
            return Ok(self.settings().recovery_scan.to_std());
        }
        for _ in 0..ROUND_PAGES {
            let chained = self.store().settle_chains(limits::PAGE).await?;
            for run in &chained.runs {
                tracing::info!(run.id = %run, "run submitted by a chain");
                self.hints().changed(&Topic::Run(*run));
            }
            if !chained.runs.is_empty() {
                self.hints().dispatch();
            }
            if !chained.more {
                let wait = if chained.skipped { ROUND_RETRY } else { self.settings().recovery_scan };
                return Ok(wait.to_std());
            }
        }
        Ok(ROUND_MIN.to_std())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use leasehold_core::canonical::Value;
    use leasehold_core::disk::Space;
    use leasehold_core::id::{ProjectName, RunId, TaskName};
    use leasehold_core::run::RunState;
    use leasehold_store::call::RunFilter;
    use leasehold_store::port::Store as _;

    use super::*;
    use crate::fixture::{World, caller, granted, revision};
    use crate::room::Volume;
    use crate::task::{Apply, RunTask};

    fn name(name: &str) -> TaskName {
        name.parse().unwrap()
    }

    async fn chained(world: &World) {
        let of = |of: &str, after: &[&str]| {
            let after = Value::texts(after.iter().copied());
            (name(of), revision([("name", Value::text(of)), ("after", after)]))
        };
        let tasks = [of("first", &[]), of("second", &["first"])].into();
        let apply = Apply { project: ProjectName::default(), tasks, prune: false, cascade: false, plan: None };
        assert!(world.plane.apply_tasks(&caller(), apply).await.unwrap());
    }

    async fn run(world: &World, of: &str) -> RunId {
        let (project, parameters) = (ProjectName::default(), BTreeMap::new());
        let run = RunTask { project, name: name(of), parameters, idempotency_key: None };
        world.plane.run_task(&caller(), run).await.unwrap().run.run.id
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_wakes_its_follower_which_goes_out_with_what_it_follows() {
        let world = World::new().await;
        chained(&world).await;
        let agent = world.agent("nas", 1).await;
        let first = run(&world, "first").await;
        let running = world.start();
        let taken = agent.take().await;
        agent.starting(&taken).await;
        agent.exited(&taken, 0, b"").await;
        let pulled = agent.pull(vec![world.ask()], limits::PULL_WAIT).await.unwrap();
        let offer = &granted(&pulled)[0];
        assert_eq!(offer.task, Some(name("second")));
        let after = world.plane.run_view(offer.run).await.unwrap().run.after.unwrap();
        assert_eq!(after.to_string(), format!("first={first}"));
        running.stop().await;
    }

    /// A disk that is nearly full while it says so.
    #[derive(Debug, Default)]
    struct Disk(AtomicBool);

    impl Volume for Disk {
        fn space(&self) -> Option<Space> {
            let free = if self.0.load(Ordering::Relaxed) { 1 << 20 } else { 1 << 39 };
            Some(Space { free, total: 1 << 40 })
        }
    }

    #[tokio::test]
    async fn while_the_disk_is_full_what_came_waits() {
        let disk = Arc::new(Disk::default());
        let world = World::on(disk.clone()).await;
        chained(&world).await;
        let agent = world.agent("nas", 1).await;
        run(&world, "first").await;
        let taken = agent.take().await;
        agent.starting(&taken).await;
        agent.exited(&taken, 0, b"").await;
        let seconds = || async {
            let of = RunFilter { task: Some(name("second")), ..RunFilter::default() };
            world.store.runs(of, 9).await.unwrap().into_iter().map(|found| found.run.state).collect::<Vec<_>>()
        };
        disk.0.store(true, Ordering::Relaxed);
        world.plane.chain_round().await.unwrap();
        assert_eq!(seconds().await, []);
        disk.0.store(false, Ordering::Relaxed);
        world.plane.chain_round().await.unwrap();
        assert_eq!(seconds().await, [RunState::Pending]);
    }
}
