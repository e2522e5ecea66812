//! Which history of a database may be trusted, when there can be more than one.
//!
//! A PostgreSQL standby that is promoted begins a new timeline, with a higher number; the old primary, when it comes back,
//! still is on the lower one and lacks what was acknowledged since. A control plane remembers the highest that it has seen
//! and trusts no lower one. Two standbys promoted from the same primary have the same number: who promotes them tells them
//! apart, nobody else can. (`docs/operating-postgresql.md`.)

use std::fmt;

/// A database cluster: the number that it was given when it was made, and that its standbys and backups share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterId(u64);

/// How often the cluster's history has branched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timeline(u32);

macro_rules! number {
    ($name:ident, $number:ty) => {
        impl $name {
            /// The one with this number.
            pub const fn new(number: $number) -> Self {
                Self(number)
            }

            /// Its number.
            pub const fn get(self) -> $number {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(ClusterId, u64);
number!(Timeline, u32);

/// The history that a connection stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// Of which cluster.
    pub cluster: ClusterId,
    /// On which timeline.
    pub timeline: Timeline,
}

/// What to do with a history that is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It is the one that is remembered.
    Known,
    /// It is to be remembered, durably, before it is used.
    Remember,
}

/// Why a history is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// An old primary.
    #[error(
        "it is on timeline {found}, and timeline {seen} was seen before: an old primary, which lacks what was acknowledged \
         since another server took its place"
    )]
    Older {
        /// The highest that was seen.
        seen: Timeline,
        /// Its own.
        found: Timeline,
    },
    /// Another cluster altogether.
    #[error("it is another cluster (system identifier {found}) than the one that was seen before ({seen})")]
    Another {
        /// The one that was seen.
        seen: ClusterId,
        /// This one.
        found: ClusterId,
    },
}

/// Whether to trust `found`, after `seen` was the last that was trusted.
pub fn trust(seen: Option<History>, found: History) -> Result<Trust, Distrust> {
    let Some(seen) = seen else { return Ok(Trust::Remember) };
    if seen.cluster != found.cluster {
        return Err(Distrust::Another { seen: seen.cluster, found: found.cluster });
    }
    match found.timeline.cmp(&seen.timeline) {
        std::cmp::Ordering::Less => Err(Distrust::Older { seen: seen.timeline, found: found.timeline }),
        std::cmp::Ordering::Equal => Ok(Trust::Known),
        std::cmp::Ordering::Greater => Ok(Trust::Remember),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(cluster: u64, timeline: u32) -> History {
        History { cluster: ClusterId::new(cluster), timeline: Timeline::new(timeline) }
    }

    #[test]
    fn a_timeline_is_never_left_for_an_older_one_nor_the_cluster_for_another() {
        assert_eq!(trust(None, history(7, 3)), Ok(Trust::Remember));
        let seen = Some(history(7, 3));
        assert_eq!(trust(seen, history(7, 3)), Ok(Trust::Known));
        assert_eq!(trust(seen, history(7, 4)), Ok(Trust::Remember));
        let older = trust(seen, history(7, 2)).unwrap_err();
        assert_eq!(older, Distrust::Older { seen: Timeline::new(3), found: Timeline::new(2) });
        assert!(older.to_string().contains("old primary"), "{older}");
        for timeline in [1, 3, 9] {
            assert!(matches!(trust(seen, history(8, timeline)), Err(Distrust::Another { .. })));
        }
    }
}
