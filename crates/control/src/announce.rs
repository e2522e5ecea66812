//! Tells the other replicas who waits here, so that each run goes to whoever fits best.
//!
//! Said at once when somebody better begins to wait and when runs went out, at most once a second for the former; repeated
//! every few seconds while somebody waits. That somebody left is said with the next of these: a worker asks again a moment
//! after each answer, and a fleet that has nothing to do must not talk about it. The store of one process has nobody to tell:
//! there nothing of this runs. (Control design, *Placement*.)

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::limits::ANNOUNCE_EVERY;
use leasehold_store::announcement::{Announcement, Waits};
use leasehold_store::hint::Hint;
use tokio::time::MissedTickBehavior;

use crate::plane::ControlPlane;

/// How long those who begin to wait are gathered: workers come together.
const GATHERED: Duration = Duration::from_millis(20);

/// The shortest time between two announcements that only somebody new was the reason for.
const APART: Duration = Duration::from_secs(1);

/// What was announced last.
#[derive(Debug, Default)]
pub(crate) struct Announced(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    number: u64,
    waiting: Vec<Waits>,
}

/// Why it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody began to wait, or left.
    Moved,
    /// Runs went out.
    Claimed,
    /// Time has passed, or what was said may not have been heard.
    Repeat,
    /// Nobody will wait here any more.
    Over,
}

impl ControlPlane {
    /// Announces who waits here until the control plane drains; then, that nobody does.
    pub(crate) async fn announce_loop(&self) {
        if !self.hints().reach_others() {
            return;
        }
        let mut repeat = tokio::time::interval(ANNOUNCE_EVERY.to_std());
        repeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pause = async |span| {
            tokio::select! {
                () = tokio::time::sleep(span) => {}
                () = self.drained() => {}
            }
        };
        loop {
            tokio::select! {
                () = self.drained() => break,
                _ = repeat.tick() => {
                    self.announce(Why::Repeat);
                }
                () = self.open_pulls().changed() => {
                    pause(GATHERED).await;
                    if self.announce(Why::Moved) {
                        pause(APART).await;
                    }
                }
            }
        }
        self.announce(Why::Over);
    }

    /// Says who waits here, if there is a reason to; answers whether it did.
    pub(crate) fn announce(&self, why: Why) -> bool {
        if !self.hints().reach_others() {
            return false;
        }
        let takes_work = why != Why::Over && self.room().takes_work();
        let waiting = if takes_work { self.open_pulls().best() } else { Vec::new() };
        // A panic elsewhere leaves it whole.
        let mut said = self.announced().0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match why {
            Why::Moved => better(&said.waiting, &waiting),
            Why::Claimed | Why::Over => said.waiting != waiting,
            Why::Repeat => !(said.waiting.is_empty() && waiting.is_empty()),
        };
        if reason {
            *said = Said { number: said.number + 1, waiting: waiting.clone() };
            let announcement = Announcement { replica: self.neighbours().own(), number: said.number, waiting };
            self.hints().announce(Hint::Waits(announcement));
        }
        reason
    }
}

/// Whether somebody waits `now` that others would leave a run to sooner than to whoever `said` names of the same kind.
fn better(said: &[Waits], now: &[Waits]) -> bool {
    let place = |waits: &Waits| (Reverse(waits.free), waits.worker.clone());
    let best =
        |of: &[Waits], like: &Waits| of.iter().filter(|waits| waits.capabilities == like.capabilities).map(place).min();
    now.iter().any(|waits| best(said, waits).is_none_or(|before| place(waits) < before))
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::{Digest, Domain};

    use super::*;

    fn waits(kind: &[u8], worker: &str, free: u16) -> Waits {
        let capabilities = Digest::of(Domain::Capabilities, kind);
        Waits { worker: worker.parse().unwrap(), capabilities, free, room: 1 }
    }

    #[test]
    fn only_a_better_one_of_a_kind_is_news() {
        let said = [waits(b"x", "b", 2), waits(b"x", "c", 1)];
        assert!(!better(&said, &said));
        assert!(!better(&said, &said[1..]), "that the best left can wait");
        assert!(!better(&said, &[]));
        assert!(!better(&said, &[waits(b"x", "b", 2), waits(b"x", "a", 1)]), "one that goes behind");
        assert!(better(&said, &[waits(b"x", "c", 3)]), "more free slots");
        assert!(better(&said, &[waits(b"x", "a", 2)]));
        assert!(better(&said, &[waits(b"y", "z", 1)]), "another kind");
    }
}
