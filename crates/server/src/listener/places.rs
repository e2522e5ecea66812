//! How many connections a listener keeps: in all, per address of those that have proven nothing, and per worker.
//!
//! Where an address or a worker has too many, the oldest that may go makes room for the newest: whoever holds connections
//! open does not keep out the neighbours behind the same address, nor a restarted agent its own. (Design, *Bounded
//! everywhere*.)

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::id::WorkerId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections of one worker: it uses two, and those that a crash left behind are noticed late.
const PER_WORKER: usize = 16;

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    per_address: usize,
    /// Whether a connection that has asked something keeps its place, whoever comes.
    askers_stay: bool,
    held: Mutex<HashMap<Holder, VecDeque<Arc<Seat>>>>,
}

/// Whom a connection counts against.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Address(IpAddr),
    Worker(WorkerId),
}

/// What of a place its connection shares with those who may want it.
#[derive(Debug, Default)]
struct Seat {
    asked: Arc<AtomicBool>,
    wanted: Notify,
}

impl Places {
    /// Places for workers: `all` connections, of which one address may hold `per_address` without a certificate.
    pub(crate) fn for_workers(all: usize, per_address: u32) -> Self {
        Self::new(all, per_address, false)
    }

    /// Places for operators: `all` connections, `per_address` of one address. A stream that is followed is not cut.
    pub(crate) fn for_operators(all: usize, per_address: u32) -> Self {
        Self::new(all, per_address, true)
    }

    fn new(all: usize, per_address: u32, askers_stay: bool) -> Self {
        let per_address = usize::try_from(per_address).unwrap_or(usize::MAX);
        Self { all: Arc::new(Semaphore::new(all)), per_address, askers_stay, held: Mutex::default() }
    }

    /// A place for a connection from `address`, if there is one or one can be made.
    pub(super) fn take(places: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let permit = Arc::clone(&places.all).try_acquire_owned().ok()?;
        let seat = Arc::new(Seat::default());
        let holder = Holder::Address(address);
        if !places.sit(&holder, &seat, places.per_address) {
            return None;
        }
        Some(Place { _permit: permit, holder, seat, places: Arc::clone(places) })
    }

    /// Counts a seat against its holder; the oldest that may go is told to when there are too many.
    fn sit(&self, holder: &Holder, seat: &Arc<Seat>, allowed: usize) -> bool {
        let mut held = lock(&self.held);
        let seats = held.entry(holder.clone()).or_default();
        if seats.len() >= allowed {
            let may_go = |seat: &Arc<Seat>| !self.askers_stay || !seat.asked.load(Ordering::Relaxed);
            let Some(oldest) = seats.iter().position(may_go).and_then(|at| seats.remove(at)) else {
                return false;
            };
            oldest.wanted.notify_one();
        }
        seats.push_back(Arc::clone(seat));
        true
    }

    /// Counts a seat no more.
    fn rise(&self, holder: &Holder, seat: &Arc<Seat>) {
        let mut held = lock(&self.held);
        if let Some(seats) = held.get_mut(holder) {
            seats.retain(|other| !Arc::ptr_eq(other, seat));
            if seats.is_empty() {
                held.remove(holder);
            }
        }
    }

    #[cfg(test)]
    fn holders(&self) -> usize {
        lock(&self.held).len()
    }
}

/// One connection's place; given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    holder: Holder,
    seat: Arc<Seat>,
    places: Arc<Places>,
}

impl Place {
    /// The connection has shown this worker's certificate: it counts against the worker, no longer against its address.
    pub(super) fn proven(&mut self, worker: &WorkerId) {
        self.places.rise(&self.holder, &self.seat);
        self.holder = Holder::Worker(worker.clone());
        self.places.sit(&self.holder, &self.seat, PER_WORKER);
    }

    /// To be set when the connection asks something.
    pub(super) fn asked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.seat.asked)
    }

    /// Ready when another connection needs the place: this one is to end.
    pub(super) fn wanted(&self) -> impl Future<Output = ()> + Send + use<> {
        let seat = Arc::clone(&self.seat);
        async move { seat.wanted.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.rise(&self.holder, &self.seat);
    }
}

/// A panic elsewhere leaves the counts whole: every change of them is complete before anything can panic.
fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    fn is_wanted(place: &Place) -> bool {
        place.wanted().now_or_never().is_some()
    }

    fn worker(name: &str) -> WorkerId {
        name.parse().unwrap()
    }

    #[test]
    fn the_oldest_stranger_of_an_address_makes_room_for_its_newest_and_for_no_other() {
        let places = Arc::new(Places::for_workers(10, 2));
        let first = Places::take(&places, HERE).unwrap();
        first.asked().store(true, Ordering::Relaxed);
        let second = Places::take(&places, HERE).unwrap();
        let elsewhere = Places::take(&places, THERE).unwrap();
        let third = Places::take(&places, HERE).unwrap();
        assert!(is_wanted(&first), "the oldest goes, whatever it asked");
        assert!(!is_wanted(&second) && !is_wanted(&third) && !is_wanted(&elsewhere));
        drop((first, second, third, elsewhere));
        assert_eq!(places.holders(), 0);
    }

    #[test]
    fn an_operator_who_asked_something_keeps_the_place() {
        let places = Arc::new(Places::for_operators(10, 2));
        let follows = Places::take(&places, HERE).unwrap();
        follows.asked().store(true, Ordering::Relaxed);
        let silent = Places::take(&places, HERE).unwrap();
        let newest = Places::take(&places, HERE).unwrap();
        assert!(is_wanted(&silent) && !is_wanted(&follows));
        newest.asked().store(true, Ordering::Relaxed);
        drop(silent);
        assert!(Places::take(&places, HERE).is_none(), "everybody here is being answered");
        assert!(Places::take(&places, THERE).is_some());
    }

    #[test]
    fn one_worker_never_has_all_the_places() {
        let places = Arc::new(Places::for_workers(1000, 2));
        let mut held = Vec::new();
        for _ in 0..=PER_WORKER {
            let mut place = Places::take(&places, HERE).unwrap();
            place.proven(&worker("nas"));
            held.push(place);
        }
        let wanted = held.iter().map(is_wanted).collect::<Vec<_>>();
        assert!(wanted[0] && wanted[1..].iter().all(|wanted| !wanted), "its oldest goes: {wanted:?}");
        let mut other = Places::take(&places, HERE).unwrap();
        other.proven(&worker("other"));
        assert!(!is_wanted(&other) && !is_wanted(&held[1]));
        drop((held, other));
        assert_eq!(places.holders(), 0);
    }

    #[test]
    fn a_proven_connection_counts_only_among_all_and_its_workers() {
        let places = Arc::new(Places::for_workers(2, 1));
        let mut proven = Places::take(&places, HERE).unwrap();
        proven.proven(&worker("nas"));
        let stranger = Places::take(&places, HERE).unwrap();
        assert!(!is_wanted(&proven));
        assert!(Places::take(&places, THERE).is_none(), "two places in all");
        drop((proven, stranger));
        assert_eq!(places.holders(), 0);
        assert!(Places::take(&places, THERE).is_some());
    }
}
