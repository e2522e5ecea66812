//! A person deletes a worker: from the commit on, nobody speaks for it.
//!
//! Decided by [`leasehold_core::worker::Worker::deleted`]; what it held, where the machine is gone, by
//! [`leasehold_core::end::destroyed`].

use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_store::call::DeleteWorker;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::why;

/// What became of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Whether it changed anything; otherwise the worker had been deleted before.
    pub changed: bool,
    /// How many runs it settled, or gave evidence to.
    pub runs: usize,
}

impl ControlPlane {
    /// The worker's identity, tickets and enrollments end. Refused while it holds anything, unless the person is sure that
    /// the machine is gone (`destroyed`): that is then evidence about what it held.
    pub async fn delete_worker(
        &self,
        caller: &Caller,
        worker: WorkerId,
        destroyed: bool,
        why: Option<String>,
    ) -> OperatorResult<Deleted> {
        why::check(why.as_deref()).map_err(ServiceError::Refused)?;
        let limit = limits::DESTROYED_PAGE;
        let call = DeleteWorker { actor: caller.actor.clone(), worker: worker.clone(), destroyed, limit, why };
        let (mut changed, mut settled) = (false, 0);
        loop {
            let outcome = self.store().delete_worker(call.clone()).await?;
            changed |= outcome.is_applied();
            let deletion = outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &worker)))?;
            // An open pull is refused now; what was held may wait for another worker.
            self.hints().changed(&Topic::Worker(worker.clone()));
            for run in &deletion.runs {
                self.hints().changed(&Topic::Run(*run));
            }
            if !deletion.runs.is_empty() {
                self.hints().dispatch();
                self.hints().recovery();
            }
            settled += deletion.runs.len();
            // Nobody speaks for it any more, so what is left only shrinks.
            if !deletion.more || deletion.runs.is_empty() {
                break;
            }
        }
        tracing::info!(
            worker.id = %worker, actor = %caller.actor, origin = %caller.origin, destroyed, changed, settled,
            "worker deleted"
        );
        Ok(Deleted { changed, runs: settled })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::limits;
    use leasehold_core::refusal::RefusalCode;
    use leasehold_core::run::RunState;

    use super::Deleted;
    use crate::error::{Denied, ServiceError};
    use crate::fixture::{World, caller, plain};

    #[tokio::test(start_paused = true)]
    async fn an_open_pull_is_refused_at_once() {
        let world = World::new().await;
        let running = world.start();
        let agent = world.agent("nas", 2).await;
        let began = tokio::time::Instant::now();
        let pull = tokio::spawn(agent.pull(world.asks(2), limits::PULL_WAIT));
        while world.plane.open_pulls().len() == 0 {
            tokio::task::yield_now().await;
        }
        let deleted = world.plane.delete_worker(&caller(), "nas".parse().unwrap(), false, None).await.unwrap();
        assert_eq!(deleted, Deleted { changed: true, runs: 0 });
        let refused = pull.await.unwrap().unwrap_err();
        assert!(
            matches!(&refused, ServiceError::Refused(refusal) if refusal.code == RefusalCode::Revoked),
            "{refused:?}"
        );
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        let again = world.plane.delete_worker(&caller(), "nas".parse().unwrap(), true, None).await.unwrap();
        assert_eq!(again, Deleted { changed: false, runs: 0 });
        let missing = world.plane.delete_worker(&caller(), "box".parse().unwrap(), true, None).await;
        assert!(matches!(missing, Err(ServiceError::Refused(Denied::NotFound { what: "worker", .. }))), "{missing:?}");
        running.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_page_is_settled_by_one_call() {
        let world = World::new().await;
        let count = limits::DESTROYED_PAGE + 1;
        let agent = world.agent("nas", u16::try_from(count).unwrap()).await;
        let mut held = Vec::new();
        while held.len() < count {
            world.submit(plain()).await;
            held.push(agent.take().await.offer.run);
        }
        let name = || "nas".parse().unwrap();
        let refused = world.plane.delete_worker(&caller(), name(), false, None).await.unwrap_err();
        assert!(refused.to_string().contains("65 live attempts"), "{refused}");
        let deleted = world.plane.delete_worker(&caller(), name(), true, Some("burnt down".to_owned())).await.unwrap();
        assert_eq!(deleted, Deleted { changed: true, runs: count });
        for run in held {
            let view = world.plane.run_view(run).await.unwrap();
            assert_eq!(view.run.state, RunState::Pending, "nothing of it had started");
        }
    }
}
