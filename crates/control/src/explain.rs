//! Why a run is still pending, per worker, and what is open about a lost one, on demand. Decided by
//! [`leasehold_core::placement::explain`] and [`leasehold_core::lost::question`].

use leasehold_core::counter::SessionVersion;
use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::limits;
use leasehold_core::lost::{Question, question};
use leasehold_core::occupancy::LimitFact;
use leasehold_core::placement::{Availability, Explanation, Outlook, WorkerFacts, explain};
use leasehold_core::remains::in_words;
use leasehold_core::run::RunState;
use leasehold_core::session::Session;
use leasehold_core::worker::WorkerState;
use leasehold_store::view::{RunFacts, RunView, WorkerView};

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::plane::ControlPlane;
use crate::sessions::PROTOCOLS;

/// Workers that one explanation looks at.
pub const EXPLAINED_WORKERS: usize = 16 * limits::PAGE;

/// A run with the answer to *why is it still pending*.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunExplanation {
    /// The run.
    pub run: RunView,
    /// The answer, while it is pending.
    pub explanation: Option<Explanation>,
    /// The limits that it is under, full or not, while it is pending.
    pub limits: Vec<LimitFact>,
    /// Whether there are more workers than were looked at.
    pub truncated: bool,
    /// What is open about it, while it is lost.
    pub question: Option<Question>,
    /// What of it could not be killed, a sentence for each attempt.
    pub remains: Vec<String>,
}

impl ControlPlane {
    /// Explains a run, against every worker there is, up to [`EXPLAINED_WORKERS`].
    pub async fn explain(&self, run: RunId) -> OperatorResult<RunExplanation> {
        let mut facts = self.facts(run, None).await?;
        let remains = in_words(&facts.view.attempts);
        if facts.view.run.state != RunState::Pending {
            let question = question(&facts.view.run, &facts.view.attempts, &facts.view.revision);
            return Ok(RunExplanation {
                run: facts.view,
                explanation: None,
                limits: Vec::new(),
                truncated: false,
                question,
                remains,
            });
        }
        let mut workers = Vec::new();
        let truncated = loop {
            let full = facts.workers.len() >= limits::PAGE;
            workers.extend(facts.workers.iter().map(|worker| self.worker_facts(worker, &facts)));
            let last = facts.workers.last().map(|worker| worker.worker.id.clone());
            if !full {
                break false;
            }
            if workers.len() >= EXPLAINED_WORKERS {
                break true;
            }
            facts = self.facts(run, last).await?;
        };
        let mut explanation = explain(facts.view.revision.placement(), &facts.limits, &workers, facts.now.utc);
        if explanation.outlook == Outlook::Ready && !self.room().takes_work() {
            explanation.outlook = Outlook::Limited;
            "the control plane's disk is nearly full: nothing new is started until there is room again"
                .clone_into(&mut explanation.nearest);
        }
        let RunFacts { view, limits, .. } = facts;
        Ok(RunExplanation { run: view, explanation: Some(explanation), limits, truncated, question: None, remains })
    }

    async fn facts(&self, run: RunId, after: Option<WorkerId>) -> OperatorResult<RunFacts> {
        let facts = self.store().run_facts(run, after, limits::PAGE).await?;
        facts.ok_or_else(|| ServiceError::Refused(Denied::not_found("run", &run)))
    }

    fn worker_facts(&self, view: &WorkerView, facts: &RunFacts) -> WorkerFacts {
        let session = view.session.as_ref();
        let now = view.now.lease;
        let refused = facts.refused.iter().find(|(worker, refused)| *worker == view.worker.id && refused.until > now);
        let free_slots = session.map_or(0, |session| {
            let active = u32::try_from(view.active.len()).unwrap_or(u32::MAX);
            u32::from(session.max_runs).saturating_sub(active)
        });
        WorkerFacts {
            worker: view.worker.id.clone(),
            capabilities: session.map(|session| session.capabilities.clone()),
            state: match session {
                _ if view.worker.state == WorkerState::Revoked => Availability::Offline,
                Some(session) if !session.is_live(now) => Availability::Offline,
                Some(session) if !view.worker.takes_work(session) => Availability::Draining,
                Some(session) if !PROTOCOLS.contains(&session.protocol) => Availability::UnsupportedProtocol,
                Some(session) if free_slots > 0 && self.takes_nothing(session) => Availability::Paused,
                Some(_) => Availability::Online,
                None => Availability::Offline,
            },
            free_slots,
            busy_devices: view.device_holders.keys().cloned().collect(),
            refused_for: refused.map(|(_, refused)| refused.until.since(now)),
        }
    }

    /// Whether a worker takes nothing by its own word: it said so with its last heartbeat, and does not ask here since.
    fn takes_nothing(&self, session: &Session) -> bool {
        // Every session begins with no slots, and its first heartbeat comes at once.
        let has_beaten = session.version > SessionVersion::FIRST;
        has_beaten && session.slots == 0 && !self.open_pulls().asks(&session.worker)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use leasehold_core::canonical::Value;
    use leasehold_core::claim::ReleaseReason;
    use leasehold_core::placement::MismatchClass;
    use leasehold_core::time::Millis;

    use super::*;
    use crate::fixture::{World, labelled, plain, revision};

    async fn outlook(world: &World, run: RunId) -> (Outlook, Option<MismatchClass>) {
        let explained = world.plane.explain(run).await.unwrap().explanation.unwrap();
        (explained.outlook, explained.leading)
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_waiting_has_its_own_answer() {
        let world = World::new().await;
        let run = world.submit(plain()).await;
        let elsewhere = world.submit(labelled("site", "moon")).await;
        assert_eq!(outlook(&world, run).await, (Outlook::NoWorkers, None));

        let agent = world.agent("nas", 1).await;
        assert_eq!(outlook(&world, run).await, (Outlook::Ready, None));
        assert_eq!(outlook(&world, elsewhere).await, (Outlook::Never, Some(MismatchClass::Label)));

        let taken = agent.take().await;
        assert_eq!(taken.offer.run, run);
        assert_eq!(world.plane.explain(run).await.unwrap().explanation, None, "it no longer waits");
        let next = world.submit(plain()).await;
        assert_eq!(outlook(&world, next).await, (Outlook::Busy, Some(MismatchClass::NoFreeSlot)));

        world
            .plane
            .release(&agent.principal, agent.session, taken.lease.clone(), ReleaseReason::DiskLow)
            .await
            .unwrap();
        assert_eq!(outlook(&world, run).await, (Outlook::Busy, Some(MismatchClass::RefusedByWorker)));

        world.plane.drain(&agent.principal, agent.session, agent.version().await).await.unwrap();
        assert_eq!(outlook(&world, next).await, (Outlook::Busy, Some(MismatchClass::Draining)));
        world.clock.advance(limits::SESSION_LEASE);
        assert_eq!(outlook(&world, next).await, (Outlook::Busy, Some(MismatchClass::Offline)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_takes_nothing_by_its_own_word_is_not_called_ready() {
        let world = World::new().await;
        let run = world.submit(plain()).await;
        let agent = world.agent("nas", 1).await;
        agent.beat_with(0).await;
        assert_eq!(outlook(&world, run).await, (Outlook::Busy, Some(MismatchClass::Paused)));
        agent.beat().await;
        assert_eq!(outlook(&world, run).await, (Outlook::Ready, None));

        // What it asks for counts, whatever it said before.
        agent.beat_with(0).await;
        let pull = tokio::spawn(agent.pull(world.asks(1), Millis::from_secs(20)));
        while world.plane.open_pulls().len() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(outlook(&world, run).await, (Outlook::Ready, None));
        pull.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_limit_names_the_run_that_is_waited_for() {
        let world = World::new().await;
        let agent = world.agent("nas", 4).await;
        world.limit_project(Some(1)).await;
        let mutex = Value::map([("mutex", Value::Bool(true))]);
        let run = world.submit(revision([("limits", mutex)])).await;
        let taken = agent.take().await;
        agent.starting(&taken).await;
        let next = world.submit(plain()).await;
        assert_eq!(outlook(&world, next).await, (Outlook::Limited, Some(MismatchClass::Limit)));
        world.clock.advance(Millis::from_secs(90));
        let words = async || world.plane.explain(next).await.unwrap().explanation.unwrap().nearest;
        let held = format!("waiting for the one place of project default, held by run {run} on worker nas for 1m30s");
        assert_eq!(words().await, held);

        // Its machine is gone: the run is lost, and keeps its place.
        world.clock.advance(Millis::from_secs(700));
        world.plane.recovery_round().await.unwrap();
        assert_eq!(world.plane.run_view(run).await.unwrap().run.state, RunState::Lost);
        let lost = words().await;
        assert!(lost.contains(&format!("held by run {run} on worker nas")), "{lost}");
        assert!(
            lost.ends_with("it is lost, and with `mutex` it keeps its place until its question is closed"),
            "{lost}"
        );
        let explained = world.plane.explain(next).await.unwrap();
        assert_eq!(explained.explanation.unwrap().workers[0].mismatches.last().unwrap().class, MismatchClass::Limit);
        assert_eq!(explained.limits[0].holders[0].run, run);
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_of_every_page_is_named_with_what_it_lacks() {
        let world = World::new().await;
        let run = world.submit(labelled("site", "moon")).await;
        for number in 0..limits::PAGE + 3 {
            let site = BTreeMap::from([("site".to_owned(), format!("earth-{number}"))]);
            world.agent_with(&format!("worker-{number:03}"), 1, site).await;
        }
        let explained = world.plane.explain(run).await.unwrap();
        let explanation = explained.explanation.unwrap();
        assert_eq!(explanation.workers.len(), limits::PAGE + 3);
        assert_eq!(explanation.classes[&MismatchClass::Label] as usize, limits::PAGE + 3);
        let last = explanation.workers.last().unwrap();
        assert_eq!((last.worker.as_str(), last.mismatches[0].have.as_str()), ("worker-066", "site=earth-66"));
        assert!(!explained.truncated);
    }
}
