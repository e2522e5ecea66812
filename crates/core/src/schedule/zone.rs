//! Zones by their IANA names, from the database that comes with the binary.
//!
//! Never the machine's own: two replicas with different system updates would find different fire times, and a container
//! without one would find none. A new rule comes with a new release. (Control design, *Triggers*.)

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::{Offsets, Span, Utc};
use crate::shape::nearest;

/// A zone of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// No zone has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone `{name}`{}", nearest.as_ref().map_or(String::new(), |name| format!(", did you mean `{name}`?")))]
pub struct UnknownZone {
    /// The name, cut to 64 characters.
    pub name: String,
    /// The nearest one that there is.
    pub nearest: Option<String>,
}

impl Zone {
    /// The zone with exactly this name.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        let database = TimeZoneDatabase::bundled();
        let found = database.get(name).ok().filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown());
        found.map(Self).ok_or_else(|| {
            let names = Self::names();
            let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
            UnknownZone { name: name.chars().take(64).collect(), nearest }
        })
    }

    /// The names of all zones.
    pub fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect()
    }
}

impl Offsets for Zone {
    fn span(&self, second: i64) -> Span {
        let (first, last) = (Timestamp::MIN.as_second() + 1, Timestamp::MAX.as_second() - 1);
        let at = |second: i64| Timestamp::from_second(second.clamp(first, last)).unwrap_or_default();
        let second = at(second);
        let from = self.0.preceding(at(second.as_second() + 1)).next().map(|change| change.timestamp().as_second());
        let to = self.0.following(second).next().map(|change| change.timestamp().as_second());
        Span {
            from: from.unwrap_or(-Utc::END),
            to: to.unwrap_or(Utc::END),
            offset: self.0.to_offset(second).seconds().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_one_spelling_and_a_wrong_one_gets_the_nearest() {
        assert!(Zone::named("Europe/Berlin").is_ok() && Zone::named("UTC").is_ok());
        let refused = Zone::named("europe/berlin").unwrap_err();
        assert_eq!(refused.to_string(), "there is no time zone `europe/berlin`, did you mean `Europe/Berlin`?");
        assert_eq!(Zone::named("Etc/Unknown").unwrap_err().nearest, None);
        assert!(Zone::named("").is_err() && Zone::named("/etc/localtime").is_err());
    }

    #[test]
    fn the_zones_come_with_the_binary() {
        assert!(Zone::names().len() > 500, "{}", Zone::names().len());
    }

    #[test]
    fn spans_follow_each_other_without_a_hole() {
        for name in ["Africa/Casablanca", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"] {
            let zone = Zone::named(name).unwrap();
            let mut span = zone.span(0);
            for _ in 0..300 {
                if span.to == Utc::END {
                    break;
                }
                let next = zone.span(span.to);
                assert_eq!(next.from, span.to, "{name}");
                assert_eq!(zone.span(next.to - 1), next, "{name}");
                span = next;
            }
        }
    }
}
