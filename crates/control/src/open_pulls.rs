//! The open pulls of this process: who waits for work, with which asks, and what was claimed for them.
//!
//! In memory only, and only a hint about who waits: the claim's transaction decides. A place is given up when its pull is
//! answered or dropped; a claim in flight is waited for, never forgotten by an answer. (Control design, *Placement*.)

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::capability::Capabilities;
use leasehold_core::claim::Ask;
use leasehold_core::crypto::Digest;
use leasehold_core::device::DeviceId;
use leasehold_core::directive::Directive;
use leasehold_core::id::{OfferId, WorkerId};
use leasehold_core::limits;
use leasehold_core::placement::MismatchClass;
use leasehold_core::refusal::Refusal;
use leasehold_core::session::{Session, SessionFence};
use leasehold_store::announcement::Waits;
use leasehold_store::view::Grant;
use tokio::sync::Notify;

use crate::error::ServiceError;
use crate::pull::same_session;

/// Why the lanes that wait did not go to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reasons {
    pub(crate) counts: BTreeMap<MismatchClass, u32>,
    pub(crate) truncated: bool,
}

impl Default for Reasons {
    /// Nothing was looked at yet.
    fn default() -> Self {
        Self { counts: BTreeMap::new(), truncated: true }
    }
}

/// What a pull takes away.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    pub(crate) grants: Vec<Grant>,
    /// Asks that turned out to be used up.
    pub(crate) gone: Vec<OfferId>,
    pub(crate) failure: Option<ServiceError<Refusal>>,
    pub(crate) reasons: Reasons,
}

/// A pull that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) fence: SessionFence,
    pub(crate) capabilities: Arc<Capabilities>,
    pub(crate) digest: Digest,
    waiting: Mutex<Waiting>,
    changed: Notify,
    looked: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    open: VecDeque<Ask>,
    free: u16,
    /// The worker's devices that are in use.
    busy: Arc<BTreeSet<DeviceId>>,
    in_flight: u16,
    /// Nothing new is claimed for it.
    closing: bool,
    /// There is something to answer, or another pull of its session took its place.
    settled: bool,
    /// A dispatch cycle has looked for work for it.
    looked: bool,
    delivery: Delivery,
}

impl Waiter {
    /// How many runs more it can be given now.
    pub(crate) fn room(&self) -> u16 {
        lock(&self.waiting).room()
    }

    /// How many of its slots are free, whatever it asks for.
    pub(crate) fn free(&self) -> u16 {
        lock(&self.waiting).free
    }

    /// Its worker's devices that something is, or may be, using.
    pub(crate) fn busy(&self) -> Arc<BTreeSet<DeviceId>> {
        Arc::clone(&lock(&self.waiting).busy)
    }

    fn free_and_room(&self) -> (u16, u16) {
        let waiting = lock(&self.waiting);
        (waiting.free, waiting.room())
    }

    /// Whether its pull is being answered or was cut off: what is claimed for it now, a later pull may have to find.
    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.waiting).closing
    }

    /// Takes an ask to claim with.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Reserved> {
        let mut waiting = lock(&self.waiting);
        if waiting.room() == 0 {
            return None;
        }
        let ask = waiting.open.pop_front()?;
        waiting.free -= 1;
        waiting.in_flight += 1;
        drop(waiting);
        Some(Reserved { waiter: Arc::clone(self), ask: ask.clone(), outstanding: Some(ask) })
    }

    fn fail(&self, failure: ServiceError<Refusal>) {
        self.landed(|waiting| {
            waiting.delivery.failure = Some(failure);
            waiting.settled = true;
        });
    }

    fn landed(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = lock(&self.waiting);
        waiting.in_flight = waiting.in_flight.saturating_sub(1);
        change(&mut waiting);
        drop(waiting);
        self.changed.notify_one();
    }

    /// A dispatch cycle is over: with a grant, the pull is answered; without, it knows why.
    pub(crate) fn cycle_ended(&self, reasons: Reasons) {
        let mut waiting = lock(&self.waiting);
        waiting.delivery.reasons = reasons;
        waiting.looked = true;
        if !waiting.delivery.grants.is_empty() || !waiting.delivery.gone.is_empty() {
            waiting.settled = true;
        }
        let settled = waiting.settled;
        drop(waiting);
        self.looked.notify_one();
        if settled {
            self.changed.notify_one();
        }
    }

    fn supersede(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closing = true;
        waiting.settled = true;
        drop(waiting);
        self.changed.notify_one();
    }
}

/// An ask that is being claimed with. Its pull is not answered before it is settled, one way or another.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) ask: Ask,
    outstanding: Option<Ask>,
}

impl Reserved {
    /// The ask got a run.
    pub(crate) fn granted(mut self, grant: Grant) {
        self.outstanding = None;
        self.waiter.landed(|waiting| waiting.delivery.grants.push(grant));
    }

    /// The ask got nothing and can be claimed with again.
    pub(crate) fn returned(mut self) {
        if let Some(ask) = self.outstanding.take() {
            self.waiter.landed(|waiting| {
                waiting.open.push_front(ask);
                waiting.free = waiting.free.saturating_add(1);
            });
        }
    }

    /// The ask turned out to be used up; its slot may go to another.
    pub(crate) fn gone(mut self) {
        if let Some(ask) = self.outstanding.take() {
            self.waiter.landed(|waiting| {
                waiting.delivery.gone.push(ask.offer);
                waiting.free = waiting.free.saturating_add(1);
            });
        }
    }

    /// The ask got nothing because the worker has no room, whatever was thought before.
    pub(crate) fn full(mut self) {
        if let Some(ask) = self.outstanding.take() {
            self.waiter.landed(|waiting| {
                waiting.open.push_front(ask);
                waiting.free = 0;
            });
        }
    }

    /// The pull cannot be answered but with this.
    pub(crate) fn failed(mut self, failure: ServiceError<Refusal>) {
        self.outstanding = None;
        self.waiter.fail(failure);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.outstanding.take().is_some() {
            let reason = "the dispatcher stopped while it claimed".to_owned();
            self.waiter.fail(ServiceError::Unknown { reason });
        }
    }
}

impl Waiting {
    fn room(&self) -> u16 {
        if self.closing || self.settled {
            return 0;
        }
        self.free.min(u16::try_from(self.open.len()).unwrap_or(u16::MAX))
    }
}

#[derive(Debug, Default)]
struct Registry {
    next: u64,
    /// In the order they came.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    by_worker: HashMap<WorkerId, u64>,
    /// Directives that a worker's session was told in the answer to a pull.
    told: HashMap<WorkerId, (SessionFence, HashSet<Directive>)>,
}

/// The open pulls of this process.
#[derive(Debug, Default)]
pub(crate) struct OpenPulls {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    registry: Mutex<Registry>,
    /// Somebody began to wait with room, or left.
    changed: Notify,
}

impl OpenPulls {
    /// A place for a pull; an earlier one of the same worker is answered now. Answers whether there was one: what was claimed
    /// for it meanwhile may be this pull's, too.
    pub(crate) fn enter(&self, fence: &SessionFence, session: &Session, asks: &[Ask]) -> (Place, bool) {
        let waiter = Arc::new(Waiter {
            fence: fence.clone(),
            capabilities: Arc::new(session.capabilities.clone()),
            digest: session.capabilities.digest(),
            waiting: Mutex::new(Waiting { open: asks.iter().cloned().collect(), ..Waiting::default() }),
            changed: Notify::new(),
            looked: Notify::new(),
        });
        let mut registry = lock(&self.shared.registry);
        let number = registry.next;
        registry.next += 1;
        registry.waiters.insert(number, Arc::clone(&waiter));
        let earlier = registry.by_worker.insert(fence.worker.clone(), number);
        let earlier = earlier.and_then(|number| registry.waiters.get(&number).cloned());
        drop(registry);
        if let Some(earlier) = &earlier {
            earlier.supersede();
        }
        (Place { shared: Arc::clone(&self.shared), number, waiter }, earlier.is_some())
    }

    /// Those that can be given a run now, in the order they came.
    pub(crate) fn with_room(&self) -> Vec<Arc<Waiter>> {
        lock(&self.shared.registry).waiters.values().filter(|waiter| waiter.room() > 0).cloned().collect()
    }

    /// The best of those that can be given a run now, as they are announced: of each kind of machine the first, then of each the
    /// second, as many as fit.
    pub(crate) fn best(&self) -> Vec<Waits> {
        let mut kinds: BTreeMap<[u8; 32], Vec<Waits>> = BTreeMap::new();
        for waiter in self.with_room() {
            let (free, room) = waiter.free_and_room();
            if room > 0 {
                let (worker, capabilities) = (waiter.fence.worker.clone(), waiter.digest);
                let waits = Waits { worker, capabilities, free, room };
                kinds.entry(*waiter.digest.as_bytes()).or_default().push(waits);
            }
        }
        for kind in kinds.values_mut() {
            kind.sort_by(|one, other| (Reverse(one.free), &one.worker).cmp(&(Reverse(other.free), &other.worker)));
        }
        let deepest = kinds.values().map(Vec::len).max().unwrap_or_default();
        let by_rank = (0..deepest).flat_map(|rank| kinds.values().filter_map(move |kind| kind.get(rank)));
        by_rank.take(limits::ANNOUNCED).cloned().collect()
    }

    /// Waits until somebody began to wait with room, or left. For one caller at a time; what happened before counts.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Whether this worker waits here to be given something.
    pub(crate) fn asks(&self, worker: &WorkerId) -> bool {
        let registry = lock(&self.shared.registry);
        let waiter = registry.by_worker.get(worker).and_then(|number| registry.waiters.get(number));
        waiter.is_some_and(|waiter| waiter.room() > 0)
    }

    /// Whether a directive is there that this session was not told yet.
    pub(crate) fn has_news(&self, fence: &SessionFence, directives: &[Directive]) -> bool {
        let registry = lock(&self.shared.registry);
        let told = registry.told.get(&fence.worker).filter(|(session, _)| same_session(session, fence));
        directives.iter().any(|directive| told.is_none_or(|(_, told)| !told.contains(directive)))
    }

    /// The session was told these, and what it was told before is over.
    pub(crate) fn told(&self, fence: &SessionFence, directives: &[Directive]) {
        let mut registry = lock(&self.shared.registry);
        if directives.is_empty() {
            registry.told.remove(&fence.worker);
        } else {
            registry.told.insert(fence.worker.clone(), (fence.clone(), directives.iter().cloned().collect()));
        }
    }

    /// How many pulls are open.
    pub(crate) fn len(&self) -> usize {
        lock(&self.shared.registry).waiters.len()
    }
}

/// What the store's counts made of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refreshed {
    /// How many runs more the pull can be given now.
    pub(crate) room: u16,
    /// Whether it could be given what it could not be given before.
    pub(crate) look_again: bool,
}

/// A pull's place among the open ones; given up when closed or dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    number: u64,
    waiter: Arc<Waiter>,
}

impl Place {
    /// Notes how many slots the store counts as free, and which devices as in use.
    pub(crate) fn refresh(&self, free_slots: u16, busy: &BTreeSet<DeviceId>) -> Refreshed {
        let mut waiting = lock(&self.waiter.waiting);
        let before = waiting.room();
        // A claim in flight may or may not be counted already.
        waiting.free = free_slots.saturating_sub(waiting.in_flight);
        let room = waiting.room();
        let other_devices = *waiting.busy != *busy;
        if other_devices {
            waiting.busy = Arc::new(busy.clone());
        }
        drop(waiting);
        if before != room {
            self.shared.changed.notify_one();
        }
        Refreshed { room, look_again: room > before || room > 0 && other_devices }
    }

    /// Waits until there is something to answer. May be dropped and called again.
    pub(crate) async fn settled(&self) {
        while !lock(&self.waiter.waiting).settled {
            self.waiter.changed.notified().await;
        }
    }

    /// Waits until a dispatch cycle has looked for work for it. May be dropped and called again.
    pub(crate) async fn looked(&self) {
        while !lock(&self.waiter.waiting).looked {
            self.waiter.looked.notified().await;
        }
    }

    /// Nothing new is claimed from now on; waits for the claims in flight and takes what there is.
    pub(crate) async fn close(self) -> Delivery {
        loop {
            {
                let mut waiting = lock(&self.waiter.waiting);
                waiting.closing = true;
                if waiting.in_flight == 0 {
                    return std::mem::take(&mut waiting.delivery);
                }
            }
            self.waiter.changed.notified().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.waiter.waiting).closing = true;
        let mut registry = lock(&self.shared.registry);
        registry.waiters.remove(&self.number);
        if registry.by_worker.get(&self.waiter.fence.worker) == Some(&self.number) {
            registry.by_worker.remove(&self.waiter.fence.worker);
        }
        drop(registry);
        self.shared.changed.notify_one();
    }
}

/// A panic elsewhere leaves the state whole: every change under a lock is complete before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
