//! Times as people read them: RFC 3339, in the zone of this machine unless told otherwise. (Product, *The command line*.)

use clap::Args;
use jiff::tz::{Offset, TimeZone};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use leasehold_core::schedule::{Offsets as _, Zone};
use leasehold_core::time::{Clock, Millis, UtcMillis};

use crate::system::SystemClock;

/// How times are shown.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct TimeArgs {
    /// Show times in UTC instead of this machine's time zone
    #[arg(long, env = "LEASEHOLD_UTC")]
    pub utc: bool,
}

impl TimeArgs {
    /// A time to the second; what no calendar holds is shown as its milliseconds.
    pub(crate) fn show(self, at: UtcMillis) -> String {
        self.show_in(at, &if self.utc { TimeZone::UTC } else { TimeZone::system() })
    }

    fn show_in(self, at: UtcMillis, zone: &TimeZone) -> String {
        let round = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
        let timestamp = Timestamp::from_millisecond(at.get()).and_then(|timestamp| timestamp.round(round));
        match timestamp {
            Ok(timestamp) if self.utc => timestamp.to_string(),
            Ok(timestamp) => timestamp.display_with_offset(zone.to_offset(timestamp)).to_string(),
            Err(_) => format!("{} ms", at.get()),
        }
    }
}

/// A time on the clocks of a schedule's zone, as the control plane knows it; of a zone that this program does not know, in UTC.
pub(crate) fn in_zone(at: UtcMillis, zone: &str) -> String {
    let seconds = at.get().div_euclid(1000);
    let offset = Zone::named(zone).ok().map_or(0, |zone| zone.span(seconds).offset);
    let offset = i32::try_from(offset).ok().and_then(|offset| Offset::from_seconds(offset).ok()).unwrap_or(Offset::UTC);
    format!("{} {zone}", TimeArgs::default().show_in(at, &TimeZone::fixed(offset)))
}

/// How long ago `at` was, to its largest unit: `3m`, `2h`, `5d`.
pub(crate) fn age(at: UtcMillis) -> String {
    coarse(SystemClock.utc().since(at))
}

/// A span to its largest unit.
pub(crate) fn coarse(span: Millis) -> String {
    let seconds = span.get() / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_to_the_second_with_their_offset() {
        let at = UtcMillis::new(1_700_000_000_999);
        assert_eq!(TimeArgs { utc: true }.show(at), "2023-11-14T22:13:20Z");
        let zone = TimeZone::fixed(Offset::constant(8));
        assert_eq!(TimeArgs::default().show_in(at, &zone), "2023-11-15T06:13:20+08:00");
        assert_eq!(TimeArgs { utc: true }.show(UtcMillis::new(i64::MAX)), "9223372036854775807 ms");
    }

    #[test]
    fn a_fire_time_is_shown_on_the_clocks_of_its_zone() {
        for (hours, told) in [(0, "2027-03-14T01:30:00-05:00"), (1, "2027-03-14T03:30:00-04:00")] {
            let at = UtcMillis::new(1_805_005_800_000).plus(Millis::from_secs(hours * 3600));
            assert_eq!(in_zone(at, "America/New_York"), format!("{told} America/New_York"));
        }
        assert_eq!(in_zone(UtcMillis::new(0), "UTC"), "1970-01-01T00:00:00+00:00 UTC");
        assert_eq!(in_zone(UtcMillis::new(0), "Moon/Tycho"), "1970-01-01T00:00:00+00:00 Moon/Tycho");
    }

    #[test]
    fn ages_name_their_largest_unit() {
        for (seconds, told) in [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (172_799, "47h"), (172_800, "2d")] {
            assert_eq!(coarse(Millis::from_secs(seconds)), told);
        }
    }
}
