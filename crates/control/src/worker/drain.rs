//! A person drains a worker, and resumes it. The claim is refused from the commit on; the machine hears it by a directive.

use leasehold_core::id::WorkerId;
use leasehold_store::call::DrainWorker;
use leasehold_store::view::WorkerView;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::why;

/// What became of a drain or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
    /// The worker as it is then.
    pub worker: WorkerView,
}

/// What a person wishes of a worker.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Drain,
    Resume,
}

impl ControlPlane {
    /// The worker is given nothing new from now on; what it holds goes on.
    pub async fn drain_worker(
        &self,
        caller: &Caller,
        worker: WorkerId,
        why: Option<String>,
    ) -> OperatorResult<Drained> {
        self.wish(caller, worker, why, Wish::Drain).await
    }

    /// The worker takes work again.
    pub async fn resume_worker(
        &self,
        caller: &Caller,
        worker: WorkerId,
        why: Option<String>,
    ) -> OperatorResult<Drained> {
        self.wish(caller, worker, why, Wish::Resume).await
    }

    async fn wish(
        &self,
        caller: &Caller,
        worker: WorkerId,
        why: Option<String>,
        wish: Wish,
    ) -> OperatorResult<Drained> {
        why::check(why.as_deref()).map_err(ServiceError::Refused)?;
        let call = DrainWorker { actor: caller.actor.clone(), worker: worker.clone(), why };
        let outcome = match wish {
            Wish::Drain => self.store().drain_worker(call).await?,
            Wish::Resume => self.store().resume_worker(call).await?,
        };
        let changed = outcome.is_applied();
        let view = outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &worker)))?;
        tracing::info!(worker.id = %worker, actor = %caller.actor, origin = %caller.origin, changed, ?wish, "worker wish");
        // An open pull learns of it now.
        self.hints().changed(&Topic::Worker(worker));
        Ok(Drained { changed, worker: view })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::directive::Directive;
    use leasehold_core::limits;
    use leasehold_core::placement::MismatchClass;
    use leasehold_core::session::Said;
    use leasehold_core::time::Millis;

    use crate::error::{Denied, ServiceError};
    use crate::fixture::{World, caller, granted, plain};
    use crate::pull::AskAnswer;

    #[tokio::test(start_paused = true)]
    async fn a_drain_answers_the_open_pull_at_once_and_until_it_is_obeyed() {
        let world = World::new().await;
        let running = world.start();
        let agent = world.agent("nas", 2).await;
        let began = tokio::time::Instant::now();
        let pull = tokio::spawn(agent.pull(world.asks(2), limits::PULL_WAIT));
        while world.plane.open_pulls().len() == 0 {
            tokio::task::yield_now().await;
        }
        let drained = world.plane.drain_worker(&caller(), "nas".parse().unwrap(), None).await.unwrap();
        assert!(drained.changed);
        let pulled = pull.await.unwrap().unwrap();
        assert_eq!(pulled.directives, [Directive::Drain]);
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        let idle = |answer: &AskAnswer| matches!(answer, AskAnswer::None(none) if none.counts.contains_key(&MismatchClass::Draining));
        assert!(pulled.asks.iter().all(|(_, answer)| idle(answer)), "{:?}", pulled.asks);

        // Whether it obeys or not, it is given nothing.
        let run = world.submit(plain()).await;
        let pulled = agent.pull(world.asks(2), Millis::ZERO).await.unwrap();
        assert_eq!((granted(&pulled).len(), pulled.directives), (0, vec![Directive::Drain]));
        let explained = world.plane.explain(run).await.unwrap().explanation.unwrap();
        assert_eq!(explained.leading, Some(MismatchClass::Draining));

        let obeys = Said { slots: 0, obeys_drain: true };
        let version = agent.version().await;
        world.plane.heartbeat(&agent.principal, agent.session, version, obeys, None, Vec::new()).await.unwrap();
        let pull = tokio::spawn(agent.pull(Vec::new(), limits::PULL_WAIT));
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(!pull.is_finished(), "obeyed, it is not told again");
        assert!(world.plane.resume_worker(&caller(), "nas".parse().unwrap(), None).await.unwrap().changed);
        assert_eq!(pull.await.unwrap().unwrap().directives, [Directive::Resume]);
        let pulled = agent.pull(world.asks(2), limits::PULL_WAIT).await.unwrap();
        assert_eq!(granted(&pulled)[0].run, run);
        running.stop().await;
    }

    #[tokio::test]
    async fn it_is_idempotent_and_names_what_is_not_there() {
        let world = World::new().await;
        world.agent("nas", 1).await;
        let name = || "nas".parse().unwrap();
        for changed in [true, false] {
            let drained = world.plane.drain_worker(&caller(), name(), Some("disk".to_owned())).await.unwrap();
            assert_eq!((drained.changed, drained.worker.worker.drain.unwrap().why.as_deref()), (changed, Some("disk")));
        }
        for changed in [true, false] {
            let resumed = world.plane.resume_worker(&caller(), name(), None).await.unwrap();
            assert_eq!((resumed.changed, resumed.worker.worker.drain), (changed, None));
        }
        let missing = world.plane.drain_worker(&caller(), "box".parse().unwrap(), None).await;
        assert!(matches!(missing, Err(ServiceError::Refused(Denied::NotFound { what: "worker", .. }))), "{missing:?}");
        let long = world.plane.drain_worker(&caller(), name(), Some("x".repeat(limits::WHY_BYTES + 1))).await;
        assert!(matches!(long, Err(ServiceError::Refused(Denied::Invalid { .. }))), "{long:?}");
    }
}
