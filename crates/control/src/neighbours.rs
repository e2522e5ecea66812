//! The other replicas of this control plane, as they announced who waits there.
//!
//! Replicas know nothing of each other but this. It is a preference and never a fact: an announcement that is not repeated
//! dies by this process's own boot-time clock, one that turned out wrong counts no more until the next, and a replica that
//! says nothing has nobody. Nothing is stored, nobody is waited for; the claim's transaction decides. (Control design,
//! *Placement*.)

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::capability::Capabilities;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ReplicaId, WorkerId};
use leasehold_core::limits::{ANNOUNCED_FOR, REPLICAS};
use leasehold_core::time::BootInstant;
use leasehold_store::announcement::{Announcement, Waits};
use tokio::sync::Notify;

use crate::open_pulls::Waiter;
use crate::plane::ControlPlane;

/// Capabilities that are kept; then all but what is announced now are forgotten.
const KINDS: usize = 256;

/// Capabilities that are asked for in a row, and the pause before more: whatever is announced, the store has other work.
const ASKED: usize = 16;
const PAUSE: Duration = Duration::from_millis(500);

/// Which announcement something was read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) replica: ReplicaId,
    pub(crate) number: u64,
}

/// A worker that waits at another replica.
#[derive(Debug, Clone)]
pub(crate) struct Neighbour {
    pub(crate) source: Source,
    pub(crate) waits: Waits,
    pub(crate) capabilities: Arc<Capabilities>,
}

/// What is known of the other replicas.
#[derive(Debug)]
pub(crate) struct Neighbours {
    own: ReplicaId,
    known: Mutex<Known>,
    /// Something was heard that names capabilities which are not known here.
    unknown: Notify,
    /// Whether the dispatcher leaves runs to others at the moment.
    leaves: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    replicas: HashMap<ReplicaId, Heard>,
    /// Capabilities never change under their digest.
    kinds: HashMap<Digest, Arc<Capabilities>>,
}

#[derive(Debug)]
struct Heard {
    number: u64,
    until: BootInstant,
    waiting: Vec<Waits>,
}

impl Neighbours {
    /// Of the replica `own`, which knows of nobody yet.
    pub(crate) fn of(own: ReplicaId) -> Self {
        Self { own, known: Mutex::default(), unknown: Notify::new(), leaves: AtomicBool::new(false) }
    }

    /// Under which id this replica announces.
    pub(crate) fn own(&self) -> ReplicaId {
        self.own
    }

    /// An announcement came; answers whether runs that are left to others at the moment should be looked at again.
    pub(crate) fn heard(&self, announcement: Announcement, now: BootInstant) -> bool {
        let Announcement { replica, number, waiting } = announcement;
        let mut known = self.lock();
        known.replicas.retain(|_, heard| heard.until > now);
        let late = known.replicas.get(&replica).is_some_and(|heard| heard.number >= number);
        let one_more = !known.replicas.contains_key(&replica);
        if replica == self.own || late || (one_more && known.replicas.len() >= REPLICAS) {
            return false;
        }
        let unknown = waiting.iter().any(|waits| !known.kinds.contains_key(&waits.capabilities));
        let heard = Heard { number, until: now.plus(ANNOUNCED_FOR), waiting };
        let changed = known.replicas.get(&replica).is_none_or(|before| before.waiting != heard.waiting);
        known.replicas.insert(replica, heard);
        drop(known);
        if unknown {
            self.unknown.notify_one();
        }
        changed && self.leaves.load(Ordering::Relaxed)
    }

    /// What was announced there turned out wrong: nobody took what was left to it.
    pub(crate) fn doubt(&self, source: Source) {
        let mut known = self.lock();
        if let Some(heard) = known.replicas.get_mut(&source.replica)
            && heard.number == source.number
        {
            heard.waiting.clear();
        }
    }

    /// Whether the dispatcher leaves runs to others at the moment.
    pub(crate) fn leaves(&self, leaves: bool) {
        self.leaves.store(leaves, Ordering::Relaxed);
    }

    /// Those that wait elsewhere, as far as it is known what they can do. Who waits `here` by now waits nowhere else.
    pub(crate) fn waiting(&self, now: BootInstant, here: &[Arc<Waiter>]) -> Vec<Neighbour> {
        let known = self.lock();
        if known.replicas.is_empty() {
            return Vec::new();
        }
        let here: HashSet<&WorkerId> = here.iter().map(|waiter| &waiter.fence.worker).collect();
        let alive = known.replicas.iter().filter(|(_, heard)| heard.until > now);
        let everybody = alive.flat_map(|(replica, heard)| {
            let source = Source { replica: *replica, number: heard.number };
            heard.waiting.iter().map(move |waits| (source, waits))
        });
        everybody
            .filter(|(_, waits)| !here.contains(&waits.worker))
            .filter_map(|(source, waits)| {
                let capabilities = Arc::clone(known.kinds.get(&waits.capabilities)?);
                Some(Neighbour { source, waits: waits.clone(), capabilities })
            })
            .collect()
    }

    /// Capabilities that were announced and are not known, each with a worker that has them; `here` many are known.
    fn missing(&self, here: &[Arc<Waiter>]) -> Vec<(Digest, WorkerId)> {
        let mut known = self.lock();
        let known = &mut *known;
        let announced: HashSet<Digest> =
            known.replicas.values().flat_map(|heard| &heard.waiting).map(|waits| waits.capabilities).collect();
        if known.kinds.len() > KINDS {
            known.kinds.retain(|digest, _| announced.contains(digest));
        }
        for waiter in here {
            if announced.contains(&waiter.digest) {
                known.kinds.entry(waiter.digest).or_insert_with(|| Arc::clone(&waiter.capabilities));
            }
        }
        let mut asked = BTreeSet::new();
        let everybody = known.replicas.values().flat_map(|heard| &heard.waiting);
        everybody
            .filter(|waits| !known.kinds.contains_key(&waits.capabilities))
            .filter(|waits| asked.insert(*waits.capabilities.as_bytes()))
            .map(|waits| (waits.capabilities, waits.worker.clone()))
            .take(ASKED)
            .collect()
    }

    fn learn(&self, digest: Digest, capabilities: Capabilities) {
        self.lock().kinds.entry(digest).or_insert_with(|| Arc::new(capabilities));
    }

    /// A panic elsewhere leaves it whole: every change under the lock is complete before anything can panic.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPlane {
    /// Finds out what those can do that wait elsewhere, for ever: one read for each kind of machine that this replica never
    /// saw.
    pub(crate) async fn learn_loop(&self) {
        loop {
            self.neighbours().unknown.notified().await;
            for (digest, worker) in self.neighbours().missing(&self.open_pulls().with_room()) {
                match self.store().worker(&worker).await {
                    Ok(Some(view)) => {
                        let capabilities = view.session.map(|session| session.capabilities);
                        if let Some(capabilities) = capabilities.filter(|found| found.digest() == digest) {
                            self.neighbours().learn(digest, capabilities);
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(%error, "what a worker of another replica can do is not known yet");
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Millis;

    use super::*;
    use crate::fixture::capabilities;

    const NOW: BootInstant = BootInstant::new(1_000_000);

    fn replica(number: u64) -> ReplicaId {
        format!("01900000-0000-7000-8000-{number:012}").parse().unwrap()
    }

    fn said(by: u64, number: u64, workers: &[&str]) -> Announcement {
        let waits = |name: &&str| Waits {
            worker: name.parse().unwrap(),
            capabilities: capabilities().digest(),
            free: 1,
            room: 1,
        };
        Announcement { replica: replica(by), number, waiting: workers.iter().map(waits).collect() }
    }

    fn known() -> Neighbours {
        let neighbours = Neighbours::of(replica(0));
        neighbours.learn(capabilities().digest(), capabilities());
        neighbours
    }

    fn names(neighbours: &Neighbours, now: BootInstant) -> Vec<String> {
        let mut names: Vec<_> =
            neighbours.waiting(now, &[]).iter().map(|there| there.waits.worker.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_word_of_each_replica_counts_until_it_is_not_repeated() {
        let neighbours = known();
        neighbours.heard(said(1, 7, &["a", "b"]), NOW);
        neighbours.heard(said(2, 1, &["c"]), NOW);
        neighbours.heard(said(1, 6, &["late"]), NOW);
        neighbours.heard(said(0, 9, &["own"]), NOW);
        assert_eq!(names(&neighbours, NOW), ["a", "b", "c"]);
        let later = NOW.plus(ANNOUNCED_FOR).minus(Millis::new(1));
        neighbours.heard(said(1, 8, &["b"]), later);
        assert_eq!(names(&neighbours, later), ["b", "c"]);
        assert_eq!(names(&neighbours, NOW.plus(ANNOUNCED_FOR)), ["b"], "nothing was heard of the other");
        neighbours.heard(said(1, 9, &[]), later);
        assert_eq!(names(&neighbours, later), ["c"]);
    }

    #[test]
    fn what_proved_wrong_counts_no_more_until_the_next_word() {
        let neighbours = known();
        neighbours.heard(said(1, 1, &["a"]), NOW);
        let source = neighbours.waiting(NOW, &[])[0].source;
        neighbours.heard(said(1, 2, &["b"]), NOW);
        neighbours.doubt(source);
        assert_eq!(names(&neighbours, NOW), ["b"], "it has said something since");
        neighbours.doubt(Source { number: 2, ..source });
        assert_eq!(names(&neighbours, NOW), Vec::<String>::new());
        neighbours.heard(said(1, 3, &["b"]), NOW);
        assert_eq!(names(&neighbours, NOW), ["b"]);
    }

    #[test]
    fn only_what_changes_something_wakes_and_only_while_runs_are_left() {
        let neighbours = known();
        assert!(!neighbours.heard(said(1, 1, &["a"]), NOW));
        neighbours.leaves(true);
        assert!(!neighbours.heard(said(1, 2, &["a"]), NOW), "the same again");
        assert!(neighbours.heard(said(1, 3, &[]), NOW));
    }

    #[test]
    fn any_number_of_words_takes_a_bounded_room() {
        let neighbours = known();
        for other in 0..1000 {
            neighbours.heard(said(1 + other, 1, &["a"]), NOW);
        }
        assert_eq!(neighbours.lock().replicas.len(), REPLICAS);
        neighbours.heard(said(5000, 1, &["b"]), NOW.plus(ANNOUNCED_FOR));
        assert_eq!(neighbours.lock().replicas.len(), 1, "the dead make room");
        assert!(neighbours.missing(&[]).is_empty());
    }
}
