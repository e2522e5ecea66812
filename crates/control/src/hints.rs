//! Hints: what wakes those that wait inside this process, and in other replicas of it.
//!
//! A hint may be lost, repeated or late: whoever waits looks again by time, too, and looks *after* subscribing. A hint
//! carries no fact. (Design, *Authority is one row*; hints wake, scans guarantee.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::id::{AttemptId, RunId, WorkerId};
use leasehold_store::hint::{Hint, HintExchange};
use tokio::sync::{Notify, watch};

use crate::announce::Why;
use crate::plane::ControlPlane;

/// What a hint is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// A run's state or events.
    Run(RunId),
    /// An attempt's state or events.
    Attempt(AttemptId),
    /// An attempt's log.
    Log(AttemptId),
    /// A worker's session, slots or directives.
    Worker(WorkerId),
}

type Topics = Mutex<HashMap<Topic, watch::Sender<()>>>;

/// The process's notifier.
#[derive(Default)]
pub(crate) struct Hints {
    topics: Arc<Topics>,
    dispatch: Notify,
    recovery: Notify,
    schedule: Notify,
    chains: Notify,
    /// Where other replicas are told, if the store has any.
    replicas: Option<Arc<dyn HintExchange>>,
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hints")
    }
}

impl Hints {
    /// Hints that are said to other replicas, too, and heard of them by [`ControlPlane::relay_loop`].
    pub(crate) fn among(replicas: Option<Arc<dyn HintExchange>>) -> Self {
        Self { replicas, ..Self::default() }
    }

    /// Whether there may be other replicas.
    pub(crate) fn reach_others(&self) -> bool {
        self.replicas.is_some()
    }

    /// Waits for what other replicas say.
    async fn hear(&self) -> Vec<Hint> {
        match &self.replicas {
            Some(replicas) => replicas.hear().await,
            None => std::future::pending().await,
        }
    }

    fn wake_everybody(&self) {
        for sender in lock(&self.topics).values() {
            sender.send_replace(());
        }
        self.dispatch.notify_one();
        self.recovery.notify_one();
        self.schedule.notify_one();
        self.chains.notify_one();
    }

    /// Tells the other replicas, and nobody here.
    pub(crate) fn announce(&self, hint: Hint) {
        self.say(|| hint);
    }

    fn say(&self, hint: impl FnOnce() -> Hint) {
        if let Some(replicas) = &self.replicas {
            replicas.say(hint());
        }
    }

    /// What is hinted from now on about `topic` wakes the subscription.
    pub(crate) fn subscribe(&self, topic: Topic) -> Subscription {
        let receiver = lock(&self.topics).entry(topic.clone()).or_insert_with(|| watch::Sender::new(())).subscribe();
        Subscription { topic, receiver: Some(receiver), topics: Arc::clone(&self.topics) }
    }

    /// Something about `topic` may have changed.
    pub(crate) fn changed(&self, topic: &Topic) {
        self.wake(topic);
        self.say(|| match topic {
            Topic::Run(run) => Hint::Run(*run),
            Topic::Attempt(attempt) => Hint::Attempt(*attempt),
            Topic::Log(attempt) => Hint::Log(*attempt),
            Topic::Worker(worker) => Hint::Worker(worker.clone()),
        });
    }

    fn wake(&self, topic: &Topic) {
        if let Some(sender) = lock(&self.topics).get(topic) {
            sender.send_replace(());
        }
    }

    /// Somebody waits for a run, here: other replicas have nothing for it.
    pub(crate) fn asked(&self) {
        self.dispatch.notify_one();
    }

    /// A run may be waiting for a worker.
    pub(crate) fn dispatch(&self) {
        self.dispatch.notify_one();
        self.say(|| Hint::Dispatch);
    }

    /// Waits for [`Hints::dispatch`] or [`Hints::asked`]; one given while nobody waited counts.
    pub(crate) async fn dispatch_hinted(&self) {
        self.dispatch.notified().await;
    }

    /// Something may come due.
    pub(crate) fn recovery(&self) {
        self.recovery.notify_one();
    }

    /// Waits for [`Hints::recovery`]; one given while nobody waited counts.
    pub(crate) async fn recovery_hinted(&self) {
        self.recovery.notified().await;
    }

    /// Schedules may have changed.
    pub(crate) fn schedule(&self) {
        self.schedule.notify_one();
    }

    /// Waits for [`Hints::schedule`]; one given while nobody waited counts.
    pub(crate) async fn schedule_hinted(&self) {
        self.schedule.notified().await;
    }

    /// A run may have succeeded that others follow. Other replicas find it by themselves, should this one not.
    pub(crate) fn chains(&self) {
        self.chains.notify_one();
    }

    /// Waits for [`Hints::chains`]; one given while nobody waited counts.
    pub(crate) async fn chains_hinted(&self) {
        self.chains.notified().await;
    }

    #[cfg(test)]
    pub(crate) fn topics(&self) -> usize {
        lock(&self.topics).len()
    }
}

impl ControlPlane {
    /// Wakes those that wait here by what other replicas say, for ever.
    pub(crate) async fn relay_loop(&self) {
        let hints = self.hints();
        loop {
            for hint in hints.hear().await {
                match hint {
                    Hint::Waits(announcement) => {
                        if self.neighbours().heard(announcement, self.clock().boot()) {
                            hints.asked();
                        }
                    }
                    Hint::Dispatch => hints.dispatch.notify_one(),
                    Hint::Run(run) => hints.wake(&Topic::Run(run)),
                    Hint::Attempt(attempt) => hints.wake(&Topic::Attempt(attempt)),
                    Hint::Log(attempt) => hints.wake(&Topic::Log(attempt)),
                    Hint::Worker(worker) => hints.wake(&Topic::Worker(worker)),
                    Hint::Missed => {
                        hints.wake_everybody();
                        // Perhaps nobody heard what was said here either.
                        self.announce(Why::Repeat);
                    }
                }
            }
        }
    }
}

/// A place among those that a topic's hints wake; given up when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    topic: Topic,
    receiver: Option<watch::Receiver<()>>,
    topics: Arc<Topics>,
}

impl Subscription {
    /// Waits for a hint that was given since the last wait, or since the subscription. Safe to drop and call again.
    pub(crate) async fn hinted(&mut self) {
        // The sender lives as long as this subscription is counted, so only a hint ends the wait.
        let hinted = match &mut self.receiver {
            Some(receiver) => receiver.changed().await.is_ok(),
            None => false,
        };
        if !hinted {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = lock(&self.topics);
        self.receiver = None;
        if topics.get(&self.topic).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.topic);
        }
    }
}

/// A panic elsewhere leaves the map whole: every change of it is one operation.
fn lock(topics: &Topics) -> MutexGuard<'_, HashMap<Topic, watch::Sender<()>>> {
    topics.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(worker: &str) -> Topic {
        Topic::Worker(worker.parse().unwrap())
    }

    #[tokio::test]
    async fn a_hint_given_between_subscribing_and_waiting_is_not_missed() {
        let hints = Hints::default();
        let mut subscription = hints.subscribe(topic("a"));
        hints.changed(&topic("b"));
        hints.changed(&topic("a"));
        subscription.hinted().await;
        let again = tokio::select! {
            biased;
            () = subscription.hinted() => true,
            () = std::future::ready(()) => false,
        };
        assert!(!again, "one hint wakes once");
    }

    #[test]
    fn a_topic_that_nobody_waits_for_takes_no_room() {
        let hints = Hints::default();
        let first = hints.subscribe(topic("a"));
        let second = hints.subscribe(topic("a"));
        drop(first);
        assert_eq!(hints.topics(), 1);
        drop(second);
        hints.changed(&topic("a"));
        assert_eq!(hints.topics(), 0);
    }
}
