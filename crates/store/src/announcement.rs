//! What a replica tells the others of those that wait at it, so that a run goes to whoever fits best, wherever that worker's
//! pull is open.
//!
//! One line of text within a hint, bounded, with a version; what is not exactly that is nothing. Like every hint it may be
//! lost, repeated or late, and nothing but a moment's preference depends on it: the claim decides. It names capabilities by
//! their digest; the store has them. (Control design, *Placement*.)

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use leasehold_core::crypto::Digest;
use leasehold_core::id::{ReplicaId, WorkerId};
use leasehold_core::limits::{ANNOUNCED, PULL_ASKS, SLOTS};

use crate::hint::NotAHint;

/// The form that is written and read; a replica that writes another is taken as having nobody.
const VERSION: &str = "1";

/// Who waits at a replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// Which replica.
    pub replica: ReplicaId,
    /// Its how many-th announcement: an earlier one that comes late says nothing any more.
    pub number: u64,
    /// The best of those that wait with room; none: nobody does.
    pub waiting: Vec<Waits>,
}

/// A worker that waits with room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waits {
    /// Which worker.
    pub worker: WorkerId,
    /// Digest of its capabilities.
    pub capabilities: Digest,
    /// How many of its slots are free.
    pub free: u16,
    /// How many runs it can be given now: no more than it asks for.
    pub room: u16,
}

impl Waits {
    fn key(&self) -> (&WorkerId, &[u8; 32], u16, u16) {
        (&self.worker, self.capabilities.as_bytes(), self.free, self.room)
    }
}

impl Ord for Waits {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Waits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Announcement {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (it.replica, it.number);
        key(self).cmp(&key(other)).then_with(|| self.waiting.cmp(&other.waiting))
    }
}

impl PartialOrd for Announcement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION} {} {}", self.replica, self.number)?;
        for Waits { worker, capabilities, free, room } in &self.waiting {
            write!(f, " {worker},{capabilities},{free},{room}")?;
        }
        Ok(())
    }
}

impl FromStr for Announcement {
    type Err = NotAHint;

    fn from_str(text: &str) -> Result<Self, NotAHint> {
        let mut words = text.split(' ');
        if words.next() != Some(VERSION) {
            return Err(NotAHint);
        }
        let replica = words.next().and_then(|word| word.parse().ok()).ok_or(NotAHint)?;
        let number = words.next().and_then(|word| word.parse().ok()).ok_or(NotAHint)?;
        let waiting = words.take(ANNOUNCED + 1).map(waits).collect::<Result<Vec<_>, _>>()?;
        let workers: BTreeSet<&WorkerId> = waiting.iter().map(|waits| &waits.worker).collect();
        if waiting.len() > ANNOUNCED || workers.len() < waiting.len() {
            return Err(NotAHint);
        }
        let announcement = Self { replica, number, waiting };
        // One spelling, as it is written: no signs, no leading zeros.
        if announcement.to_string() == text { Ok(announcement) } else { Err(NotAHint) }
    }
}

fn waits(word: &str) -> Result<Waits, NotAHint> {
    let parts: Vec<&str> = word.split(',').collect();
    let [worker, capabilities, free, room] = parts[..] else { return Err(NotAHint) };
    let worker = worker.parse().map_err(|_| NotAHint)?;
    let capabilities = capabilities.parse().map_err(|_| NotAHint)?;
    let (free, room): (u16, u16) = (free.parse().map_err(|_| NotAHint)?, room.parse().map_err(|_| NotAHint)?);
    let possible = room > 0 && room <= free && u32::from(free) <= SLOTS && usize::from(room) <= PULL_ASKS;
    if possible { Ok(Waits { worker, capabilities, free, room }) } else { Err(NotAHint) }
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::Domain;

    use super::*;

    const REPLICA: &str = "01900000-0000-7000-8000-000000000001";

    fn nas(free: u16, room: u16) -> Waits {
        let capabilities = Digest::of(Domain::Capabilities, b"some");
        Waits { worker: "nas".parse().unwrap(), capabilities, free, room }
    }

    fn longest() -> Announcement {
        let waiting = (0..ANNOUNCED).map(|number| Waits {
            worker: format!("{number:063}").parse().unwrap(),
            free: 256,
            room: 16,
            ..nas(1, 1)
        });
        Announcement { replica: REPLICA.parse().unwrap(), number: u64::MAX, waiting: waiting.collect() }
    }

    #[test]
    fn an_announcement_survives_its_text_and_the_longest_fits_a_notification() {
        let replica = REPLICA.parse().unwrap();
        for waiting in [vec![], vec![nas(4, 2)], longest().waiting] {
            let announcement = Announcement { replica, number: 7, waiting };
            assert_eq!(announcement.to_string().parse(), Ok(announcement));
        }
        assert!(longest().to_string().len() < 6000, "{}", longest().to_string().len());
    }

    #[test]
    fn what_is_not_exactly_an_announcement_is_nothing() {
        let waits = |text: &str| format!("1 {REPLICA} 7 {text}");
        let digest = nas(1, 1).capabilities;
        let good = format!("nas,{digest},4,2");
        assert!(waits(&good).parse::<Announcement>().is_ok());
        let many = (0..=ANNOUNCED).map(|number| format!("w{number},{digest},4,2")).collect::<Vec<_>>().join(" ");
        for other in [
            String::new(),
            "1".to_owned(),
            format!("1 {REPLICA}"),
            format!("2 {REPLICA} 7"),
            format!("1 {REPLICA} -7"),
            format!("1 {REPLICA} 07"),
            format!("1 {REPLICA} 7 "),
            format!("1 {} 7", REPLICA.replace("-7", "-4")),
            waits(&format!("{good} {good}")),
            waits(&format!("nas,{digest},4")),
            waits(&format!("nas,{digest},4,2,1")),
            waits(&format!("nas,{digest},4,0")),
            waits(&format!("nas,{digest},4,5")),
            waits(&format!("nas,{digest},257,2")),
            waits(&format!("nas,{digest},30,17")),
            waits(&format!("nas,{digest},+4,2")),
            waits(&format!("NAS,{digest},4,2")),
            waits(&format!("nas,{},4,2", digest.to_string().to_uppercase())),
            waits(&many),
        ] {
            assert_eq!(other.parse::<Announcement>(), Err(NotAHint), "{other}");
        }
    }
}
