//! How many connections a listener keeps: in all, and per address of those that have not shown a worker's certificate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    strangers_per_address: u32,
    strangers: Mutex<HashMap<IpAddr, u32>>,
}

impl Places {
    /// Room for `all` connections, of which one address may hold `strangers_per_address` without a certificate.
    pub(crate) fn new(all: usize, strangers_per_address: u32) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), strangers_per_address, strangers: Mutex::default() }
    }

    /// A place for a connection from `address`, if there is one.
    pub(super) fn take(places: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let permit = Arc::clone(&places.all).try_acquire_owned().ok()?;
        let mut strangers = lock(&places.strangers);
        let held = strangers.entry(address).or_insert(0);
        if *held >= places.strangers_per_address {
            return None;
        }
        *held += 1;
        Some(Place { _permit: permit, stranger: Some(address), places: Arc::clone(places) })
    }

    #[cfg(test)]
    fn strangers(&self) -> usize {
        lock(&self.strangers).len()
    }
}

/// One connection's place; given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    stranger: Option<IpAddr>,
    places: Arc<Places>,
}

impl Place {
    /// The connection has shown a worker's certificate: it no longer counts against its address.
    pub(super) fn proven(&mut self) {
        let Some(address) = self.stranger.take() else { return };
        let mut strangers = lock(&self.places.strangers);
        if let Some(held) = strangers.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                strangers.remove(&address);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.proven();
    }
}

/// A panic elsewhere leaves the counts whole: every change of them is one operation.
fn lock(strangers: &Mutex<HashMap<IpAddr, u32>>) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
    strangers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn strangers_of_one_address_do_not_take_the_places_of_another() {
        let places = Arc::new(Places::new(10, 2));
        let first = Places::take(&places, HERE).unwrap();
        let _second = Places::take(&places, HERE).unwrap();
        assert!(Places::take(&places, HERE).is_none());
        assert!(Places::take(&places, THERE).is_some());
        drop(first);
        assert!(Places::take(&places, HERE).is_some());
    }

    #[test]
    fn a_proven_connection_counts_only_among_all() {
        let places = Arc::new(Places::new(2, 1));
        let mut worker = Places::take(&places, HERE).unwrap();
        worker.proven();
        assert_eq!(places.strangers(), 0);
        let stranger = Places::take(&places, HERE).unwrap();
        assert!(Places::take(&places, THERE).is_none(), "two places in all");
        drop((worker, stranger));
        assert_eq!(places.strangers(), 0);
        assert!(Places::take(&places, THERE).is_some());
    }
}
