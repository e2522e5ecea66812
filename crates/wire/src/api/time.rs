//! Wall-clock times as people and programs both read them: RFC 3339 in UTC, with milliseconds where there are any.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use leasehold_core::time::UtcMillis;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A wall-clock time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub UtcMillis);

/// A text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time: write RFC 3339, such as 2026-01-31T03:00:00Z")]
pub struct TimeError(pub String);

impl From<UtcMillis> for Time {
    fn from(at: UtcMillis) -> Self {
        Self(at)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A clock beyond the calendar (year 9999) shows the nearest time that the calendar has.
        let bound = if self.0.get() < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_millisecond(self.0.get()).unwrap_or(bound).fmt(f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Time({self})")
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let timestamp: Timestamp = text.parse().map_err(|_| TimeError(text.chars().take(64).collect()))?;
        Ok(Self(UtcMillis::new(timestamp.as_millisecond())))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc_and_come_back() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_767_225_600_123, "2026-01-01T00:00:00.123Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            let time = Time(UtcMillis::new(millis));
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
    }

    #[test]
    fn other_offsets_are_understood_and_other_texts_refused() {
        assert_eq!("1970-01-01T08:00:00+08:00".parse(), Ok(Time(UtcMillis::new(0))));
        for text in ["", "yesterday", "2026-01-31", "2026-01-31T03:00:00"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert!(Time(UtcMillis::new(i64::MAX)).to_string().starts_with("9999-"));
    }
}
