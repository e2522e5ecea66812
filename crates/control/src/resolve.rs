//! A person's word on a lost run. Decided by [`leasehold_core::resolve::resolve`].

use leasehold_core::counter::AttemptNumber;
use leasehold_core::id::RunId;
use leasehold_core::resolve::{Resolve, Verb};
use leasehold_store::call::ResolveRun;
use leasehold_store::port::Unmet;
use leasehold_store::view::RunView;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::why;

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The verb.
    pub verb: Verb,
    /// Their reason.
    pub why: Option<String>,
    /// The attempt that it is about; none: the run's latest.
    pub attempt: Option<AttemptNumber>,
}

/// What became of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What the word did.
    pub resolve: Resolve,
    /// The run as it is then.
    pub run: RunView,
}

impl ControlPlane {
    /// Notes what a person says about a lost run, or closes its question by it; a retry begins at once.
    pub async fn resolve(&self, caller: &Caller, run: RunId, said: Said) -> OperatorResult<Resolved> {
        let Said { verb, why, attempt } = said;
        why::check(why.as_deref()).map_err(ServiceError::Refused)?;
        let call = ResolveRun { actor: caller.actor.clone(), run, verb, why, attempt };
        let (resolve, view) = self
            .store()
            .resolve_run(call)
            .await?
            .into_result()
            .map_err(|unmet| match (&unmet, attempt) {
                (Unmet::NotFound("attempt"), Some(of)) => {
                    Denied::no_part(format_args!("attempt {of}"), format_args!("run `{run}`"))
                }
                _ => Denied::of(&unmet, &run),
            })
            .map_err(ServiceError::Refused)?;
        tracing::info!(run.id = %run, actor = %caller.actor, origin = %caller.origin, %verb, outcome = ?resolve, "run resolve");
        self.hints().changed(&Topic::Run(run));
        if let Some(latest) = view.attempts.last() {
            self.hints().changed(&Topic::Attempt(latest.id));
        }
        // Attempt N+1 is due now.
        self.hints().recovery();
        // A lost run may have kept a place until now.
        self.hints().dispatch();
        // It may have succeeded, and be followed.
        self.hints().chains();
        Ok(Resolved { resolve, run: view })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::limits;
    use leasehold_core::lost;
    use leasehold_core::run::RunState;
    use leasehold_core::time::Millis;

    use super::*;
    use crate::fixture::{World, caller, granted, plain};

    #[tokio::test(start_paused = true)]
    async fn a_persons_retry_goes_out_at_once_and_explains_itself_before() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let run = world.submit(plain()).await;
        let taken = agent.take().await;
        agent.starting(&taken).await;
        world.clock.advance(limits::RUN_LEASE.plus(Millis::from_secs(2)));
        world.plane.recovery_round().await.unwrap();
        let explained = world.plane.explain(run).await.unwrap();
        let question: lost::Question = explained.question.unwrap();
        let verbs: Vec<_> = question.options.iter().map(|(verb, _)| *verb).collect();
        assert_eq!(verbs, Verb::ALL);

        let running = world.start();
        let other = world.agent("box", 1).await;
        let pull = tokio::spawn(other.pull(vec![world.ask()], limits::PULL_WAIT));
        let said = Said { verb: Verb::Retry, why: None, attempt: None };
        let resolved = world.plane.resolve(&caller(), run, said.clone()).await.unwrap();
        assert_eq!((resolved.resolve, resolved.run.run.state), (Resolve::Closed, RunState::RetryWait));
        let pulled = pull.await.unwrap().unwrap();
        assert_eq!((granted(&pulled)[0].run, granted(&pulled)[0].number.get()), (run, 2));
        let refused = world.plane.resolve(&caller(), run, said).await.unwrap_err();
        assert!(matches!(refused, ServiceError::Refused(Denied::Resolve(_))), "{refused}");
        running.stop().await;
    }
}
