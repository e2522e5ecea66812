//! How full a disk may get before something gives way, and in which order.
//!
//! At the control plane logs give way first (they stay on their workers), then new work, never a renewal or an end: for
//! those a reserve is kept, given up when nothing else is left and taken back when there is room. At a worker a low disk
//! takes no new offer. Every mark has a distance to the one that ends it, so that nothing flickers; on a small file system
//! the marks are shares of it. (Control design, *Logs*; `docs/guide.md`, *When things break*.)

use crate::limits;

/// A file system, as far as its fullness goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that may still be written by us.
    pub free: u64,
    /// Bytes that it has in all.
    pub total: u64,
}

names! {
    /// What a control plane's disk has room for.
    pub enum Room as "room of a disk" {
        /// Everything.
        Ample = "ample",
        /// No more log bytes: they stay on the workers.
        LogsPaused = "logs_paused",
        /// No new work either: what runs goes on, and its ends are written.
        WorkRefused = "work_refused",
    }
}

impl Room {
    /// The room that `space` leaves, after it was `self`.
    #[must_use]
    pub fn after(self, space: Space) -> Self {
        let below = |mark: u64, given_way: bool| {
            // A quarter more ends what began at the mark.
            let mark = if given_way { mark + mark / 4 } else { mark };
            space.free < mark
        };
        let work = share(space, limits::DISK_FOR_WORK, 32);
        let logs = share(space, limits::DISK_FOR_LOGS, 8);
        if below(work, self == Self::WorkRefused) {
            Self::WorkRefused
        } else if below(logs, self != Self::Ample) {
            Self::LogsPaused
        } else {
            Self::Ample
        }
    }

    /// Whether log bytes are taken in.
    pub fn takes_logs(self) -> bool {
        self == Self::Ample
    }

    /// Whether new work is taken in and handed out.
    pub fn takes_work(self) -> bool {
        self != Self::WorkRefused
    }
}

/// `bytes`, or the `nth` part of a file system that is too small for that.
fn share(space: Space, bytes: u64, nth: u64) -> u64 {
    bytes.min(space.total / nth)
}

/// How many bytes a control plane reserves, in each of the two places that must be able to grow.
pub fn reserve(space: Space) -> u64 {
    share(space, limits::DISK_RESERVE, 8)
}

/// Whether a reserve of `bytes` may be taken (back): without it new work still has its room.
pub fn may_reserve(space: Space, bytes: u64) -> bool {
    space.free >= bytes.saturating_add(2 * share(space, limits::DISK_FOR_WORK, 32))
}

/// Whether so little is free that a write that failed, failed for that.
pub fn is_exhausted(space: Space) -> bool {
    space.free < share(space, limits::DISK_EXHAUSTED, 64)
}

/// Whether a worker's disk is too low for a new offer, after it was `low`: accepted work must find room for its record,
/// its receipt and the beginning of its log.
pub fn is_low_for_offers(low: bool, space: Space) -> bool {
    let mark = share(space, limits::DISK_FOR_OFFERS, 8);
    space.free < if low { mark + mark / 2 } else { mark }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(free: u64) -> Space {
        Space { free, total: 1 << 40 }
    }

    #[test]
    fn logs_give_way_before_work_and_nothing_flickers_at_a_mark() {
        let mut room = Room::Ample;
        for (free, expected) in [
            (1000 * MIB, Room::Ample),
            (128 * MIB, Room::Ample),
            (128 * MIB - 1, Room::LogsPaused),
            (150 * MIB, Room::LogsPaused),
            (160 * MIB, Room::Ample),
            (32 * MIB - 1, Room::WorkRefused),
            (39 * MIB, Room::WorkRefused),
            (40 * MIB, Room::LogsPaused),
            (32 * MIB, Room::LogsPaused),
            (0, Room::WorkRefused),
            (1000 * MIB, Room::Ample),
        ] {
            room = room.after(space(free));
            assert_eq!(room, expected, "{free}");
        }
    }

    #[test]
    fn a_small_disk_has_marks_of_its_size() {
        let small = |free| Space { free, total: 64 * MIB };
        assert_eq!(Room::Ample.after(small(8 * MIB)), Room::Ample);
        assert_eq!(Room::Ample.after(small(8 * MIB - 1)), Room::LogsPaused);
        assert_eq!(Room::Ample.after(small(2 * MIB - 1)), Room::WorkRefused);
        assert_eq!(reserve(small(0)), 8 * MIB);
        assert!(is_exhausted(small(MIB - 1)) && !is_exhausted(small(MIB)));
        assert!(is_low_for_offers(false, small(8 * MIB - 1)) && !is_low_for_offers(false, small(8 * MIB)));
        assert!(is_low_for_offers(true, small(12 * MIB - 1)) && !is_low_for_offers(true, small(12 * MIB)));
    }

    #[test]
    fn a_reserve_that_is_taken_back_refuses_no_work() {
        for total in [MIB, 8 * MIB, 64 * MIB, 1 << 30, 1 << 40] {
            for free in (0..40).map(|step| total / 40 * step) {
                let before = Space { free, total };
                let bytes = reserve(before);
                if may_reserve(before, bytes) {
                    let after = Space { free: free - bytes, total };
                    assert!(Room::WorkRefused.after(after).takes_work(), "{free} of {total}");
                }
            }
        }
    }
}
