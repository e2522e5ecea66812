//! The control plane of one process: its store, keys and clocks, and the loops that it owns.
//!
//! Cheap to clone. Nothing runs detached: [`ControlPlane::run`] owns dispatcher and recovery and ends them. (Examples to
//! follow: every task has an owner and an end.)

use std::sync::Arc;

use leasehold_core::disk::Room;
use leasehold_core::id::ReplicaId;
use leasehold_core::registration::Cadence;
use leasehold_core::time::{Clock, Entropy, Millis, UtcMillis};
use leasehold_store::port::Store;
use tokio::sync::watch;

use crate::announce::Announced;
use crate::hints::Hints;
use crate::install::Keys;
use crate::metrics::Metrics;
use crate::neighbours::Neighbours;
use crate::open_pulls::OpenPulls;
use crate::readiness::Readiness;
use crate::room::{Elsewhere, Volume};

/// What an installation may tune; the defaults are the design's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cadence that sessions are given.
    pub cadence: Cadence,
    /// How often lanes are read while a worker waits and no hint came.
    pub dispatch_scan: Millis,
    /// How often an open pull looks at its session again when no hint came.
    pub pull_refresh: Millis,
    /// How often a follower of a log or of events looks again when no hint came.
    pub follow_scan: Millis,
    /// The longest between two recovery scans while anything waits.
    pub recovery_scan: Millis,
    /// The longest between two recovery scans while nothing does.
    pub recovery_idle: Millis,
    /// Where what happens is counted; the store is to be given a clone of it as its observer.
    pub metrics: Metrics,
    /// Where the store keeps its bytes.
    pub volume: Arc<dyn Volume>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cadence: Cadence::default(),
            dispatch_scan: Millis::from_secs(2),
            pull_refresh: Millis::from_secs(5),
            follow_scan: Millis::from_secs(1),
            recovery_scan: Millis::from_secs(5),
            recovery_idle: Millis::from_secs(30),
            metrics: Metrics::default(),
            volume: Arc::new(Elsewhere),
        }
    }
}

/// The services of one control plane process.
#[derive(Clone)]
pub struct ControlPlane {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    keys: Keys,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    settings: Settings,
    hints: Hints,
    open_pulls: OpenPulls,
    neighbours: Neighbours,
    announced: Announced,
    draining: watch::Sender<bool>,
    /// What the disk had room for when it was asked last.
    room: std::sync::Mutex<Room>,
    readiness: Readiness,
}

impl ControlPlane {
    /// The services over `store`. `keys` are what [`crate::install::open`] answered for the same store.
    pub fn new(
        store: Arc<dyn Store>,
        keys: Keys,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        settings: Settings,
    ) -> Self {
        let hints = Hints::among(store.hints());
        let neighbours = Neighbours::of(ReplicaId::new(clock.utc(), &*entropy));
        let inner = Inner {
            store,
            keys,
            clock,
            entropy,
            settings,
            hints,
            open_pulls: OpenPulls::default(),
            neighbours,
            announced: Announced::default(),
            draining: watch::Sender::new(false),
            room: std::sync::Mutex::new(Room::Ample),
            readiness: Readiness::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Owns the loops of the control plane, dispatcher, recovery and schedules, until `shutdown` is ready; to be called once.
    ///
    /// Then open pulls and followers are answered at once, new ones too, and this returns when all loops have finished
    /// what they were doing. Dropping the future instead ends the loops between two store calls; what they had claimed
    /// is recovered by the asks it was claimed with.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let begin_drain = async {
            shutdown.await;
            self.inner.draining.send_replace(true);
        };
        let listen = async {
            tokio::select! {
                () = self.relay_loop() => {}
                () = self.learn_loop() => {}
                () = self.drained() => {}
            }
        };
        tokio::join!(
            begin_drain,
            self.dispatch_loop(),
            self.recovery_loop(),
            self.schedule_loop(),
            self.chain_loop(),
            self.ledger_loop(),
            self.announce_loop(),
            listen
        );
    }

    /// The installation's keys: certificates, pin and trust domain.
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    pub(crate) fn utc(&self) -> UtcMillis {
        self.inner.clock.utc()
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.inner.entropy
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.inner.hints
    }

    pub(crate) fn open_pulls(&self) -> &OpenPulls {
        &self.inner.open_pulls
    }

    pub(crate) fn neighbours(&self) -> &Neighbours {
        &self.inner.neighbours
    }

    pub(crate) fn announced(&self) -> &Announced {
        &self.inner.announced
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.inner.readiness
    }

    pub(crate) fn last_room(&self) -> std::sync::MutexGuard<'_, Room> {
        // Nothing can panic while it is held.
        self.inner.room.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.inner.draining.borrow()
    }

    /// Ready once the control plane drains.
    pub(crate) async fn drained(&self) {
        let mut draining = self.inner.draining.subscribe();
        // The sender lives as long as `self`.
        let _ = draining.wait_for(|draining| *draining).await;
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("trust_domain", &self.keys().trust_domain().as_str())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::LeaseFence;

    use super::*;
    use crate::end::End;
    use crate::logs::LogFollower;
    use crate::principal::{Caller, SessionRef, WorkerPrincipal};
    use crate::pull::Pull;
    use crate::watch::EventFollower;

    /// Compiles only while what handlers await can move between threads.
    #[test]
    fn services_can_be_awaited_on_any_thread() {
        fn can_move<T: Send>(_: T) {}
        fn worker(plane: &ControlPlane, worker: &WorkerPrincipal, session: SessionRef, lease: LeaseFence) {
            can_move(plane.starting(worker, session, lease));
        }
        fn pull(plane: &ControlPlane, worker: &WorkerPrincipal, pull: Pull) {
            can_move(plane.pull(worker, pull));
        }
        fn end(plane: &ControlPlane, worker: &WorkerPrincipal, session: SessionRef, end: End) {
            can_move(plane.end(worker, session, end));
        }
        fn cancel(plane: &ControlPlane, caller: &Caller, run: leasehold_core::id::RunId) {
            can_move(plane.cancel(caller, run, None));
            can_move(plane.explain(run));
            can_move(plane.run(std::future::ready(())));
        }
        fn follow(log: &mut LogFollower, events: &mut EventFollower) {
            can_move(log.next());
            can_move(events.next());
        }
        let _ = (worker, pull, end, cancel, follow);
    }
}
