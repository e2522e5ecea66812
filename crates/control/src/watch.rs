//! Watching a run: its events, in order, as they happen.

use leasehold_core::counter::EventSequence;
use leasehold_core::event::Event;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::limits;
use leasehold_store::call::EventsAfter;

use crate::error::{OperatorResult, ServiceError};
use crate::hints::{Subscription, Topic};
use crate::plane::ControlPlane;

/// Hands out a run's events as they happen, until the run has ended and its last event was handed out.
#[derive(Debug)]
pub struct EventFollower {
    plane: ControlPlane,
    run: RunId,
    after: Option<EventSequence>,
    whole: Subscription,
    latest: Option<(AttemptId, Subscription)>,
}

impl ControlPlane {
    /// A page of a run's events after `after`, oldest first.
    pub async fn events(&self, run: RunId, after: Option<EventSequence>, limit: usize) -> OperatorResult<Vec<Event>> {
        let events = self.store().events(EventsAfter { run, after }, limit.clamp(1, limits::PAGE)).await?;
        if events.is_empty() {
            // Tells a run without news from one that is not.
            self.run_view(run).await?;
        }
        Ok(events)
    }

    /// Follows a run's events from the one after `after` on.
    pub async fn watch(&self, run: RunId, after: Option<EventSequence>) -> OperatorResult<EventFollower> {
        let whole = self.hints().subscribe(Topic::Run(run));
        self.run_view(run).await?;
        Ok(EventFollower { plane: self.clone(), run, after, whole, latest: None })
    }
}

impl EventFollower {
    /// The next events, at least one; none after the last. May be dropped and called again.
    pub async fn next(&mut self) -> OperatorResult<Option<Vec<Event>>> {
        loop {
            // The state is read before the events, so that an end seen here cannot hide events written before it.
            let view = self.plane.run_view(self.run).await?;
            let news = view.attempts.last().map(|attempt| attempt.id);
            let known = self.latest.as_ref().map(|(attempt, _)| *attempt);
            if let Some(attempt) = news.filter(|_| news != known) {
                self.latest = Some((attempt, self.plane.hints().subscribe(Topic::Attempt(attempt))));
                // What happened to it between the look and the subscription is found by looking again.
                continue;
            }
            let page = EventsAfter { run: self.run, after: self.after };
            let events = self.plane.store().events(page, limits::PAGE).await?;
            if let Some(last) = events.last() {
                self.after = Some(last.sequence);
                return Ok(Some(events));
            }
            if view.run.state.is_terminal() {
                return Ok(None);
            }
            let latest = async {
                match &mut self.latest {
                    Some((_, subscription)) => subscription.hinted().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.whole.hinted() => {}
                () = latest => {}
                () = tokio::time::sleep(self.plane.settings().follow_scan.to_std()) => {}
                () = self.plane.drained() => return Err(ServiceError::shutting_down()),
            }
        }
    }

    /// The last event handed out: where to go on after a broken connection.
    pub fn after(&self) -> Option<EventSequence> {
        self.after
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures_util::poll;
    use leasehold_core::event::EventKind;

    use super::*;
    use crate::fixture::{World, plain};

    #[tokio::test(start_paused = true)]
    async fn a_watcher_sees_the_whole_story_in_order_as_it_happens_and_then_its_end() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let run = world.submit(plain()).await;
        let mut follower = world.plane.watch(run, None).await.unwrap();
        let mut story: Vec<Event> = follower.next().await.unwrap().unwrap();
        {
            let mut next = pin!(follower.next());
            assert!(poll!(next.as_mut()).is_pending());
            let taken = agent.take().await;
            let Poll::Ready(events) = poll!(next.as_mut()) else { panic!("the claim did not wake the watcher") };
            story.extend(events.unwrap().unwrap());
            agent.starting(&taken).await;
            agent.running(&taken).await;
            agent.exited(&taken, 0, b"").await;
        }
        while let Some(events) = follower.next().await.unwrap() {
            story.extend(events);
        }
        let kinds: Vec<_> = story.iter().map(|event| event.kind).collect();
        let expected = [
            EventKind::RunAdmitted,
            EventKind::AttemptClaimed,
            EventKind::AttemptStarting,
            EventKind::AttemptRunning,
            EventKind::AttemptEnded,
            EventKind::RunEnded,
        ];
        assert_eq!(kinds, expected);
        assert!(story.is_sorted_by(|one, next| one.sequence < next.sequence));

        let mut resumed = world.plane.watch(run, Some(story[3].sequence)).await.unwrap();
        assert_eq!(resumed.next().await.unwrap().unwrap(), story[4..]);
        assert_eq!(resumed.next().await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_attempt_does_wakes_its_watcher() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let run = world.submit(plain()).await;
        let taken = agent.take().await;
        let mut follower = world.plane.watch(run, None).await.unwrap();
        follower.next().await.unwrap().unwrap();
        let mut next = pin!(follower.next());
        assert!(poll!(next.as_mut()).is_pending());
        agent.starting(&taken).await;
        let Poll::Ready(events) = poll!(next.as_mut()) else { panic!("`starting` did not wake the watcher") };
        assert_eq!(events.unwrap().unwrap()[0].kind, EventKind::AttemptStarting);
    }
}
