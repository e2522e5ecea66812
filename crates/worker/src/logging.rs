//! Log lines on stderr, under the `tracing` facade: time, level, message, fields; as text or as JSON.
//!
//! Small on purpose: no spans, no filters by module. What libraries below say is shown from `warn` on only, because
//! their finer levels may show headers, and a header may be a token. (Worker design, *Capabilities and configuration*.)

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::time::{Clock, UtcMillis};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Metadata, Subscriber};

/// The targets of our own crates begin with this.
const OURS: &str = "leasehold";

/// How a line is spelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
    /// The finest level that is shown.
    pub level: LevelFilter,
    /// How a line is spelled.
    pub format: Format,
}

impl Default for Logging {
    fn default() -> Self {
        Self { level: LevelFilter::INFO, format: Format::Text }
    }
}

/// Writes every event as one line.
pub struct Lines<W> {
    logging: Logging,
    clock: Arc<dyn Clock>,
    writer: Mutex<W>,
}

impl<W> fmt::Debug for Lines<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("logging", &self.logging).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> Lines<W> {
    /// A subscriber that writes to `writer`.
    pub fn new(logging: Logging, clock: Arc<dyn Clock>, writer: W) -> Self {
        Self { logging, clock, writer: Mutex::new(writer) }
    }
}

/// Logs to stderr from now on, for the life of the process.
pub fn start(logging: Logging, clock: Arc<dyn Clock>) -> Result<(), SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Lines::new(logging, clock, std::io::stderr()))
}

impl<W: Write + Send + 'static> Subscriber for Lines<W> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let finest = if metadata.target().starts_with(OURS) {
            self.logging.level
        } else {
            self.logging.level.min(LevelFilter::WARN)
        };
        metadata.is_event() && *metadata.level() <= finest
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.logging.level)
    }

    // Spans are never enabled, so none of these is reached with one of ours.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let time = Timestamp(self.clock.utc());
        let level = *event.metadata().level();
        let mut line = match self.logging.format {
            Format::Text => text(&time, level, said),
            Format::Json => json(&time, level, event.metadata().target(), said),
        };
        line.push('\n');
        // One write per line, so that lines of several processes do not mix. A log that cannot be written stops nothing.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.write_all(line.as_bytes());
    }
}

fn text(time: &Timestamp, level: Level, said: Said) -> String {
    let mut line = format!("{time} {level:<5} {}", printable(&said.message));
    for (name, value) in said.fields {
        let plain = match value {
            Value::String(text) if !text.is_empty() && !text.contains([' ', '"', '=']) => printable(&text),
            other => other.to_string(),
        };
        let _ = write!(line, " {name}={plain}");
    }
    line
}

fn json(time: &Timestamp, level: Level, target: &str, said: Said) -> String {
    let mut object = Map::new();
    // A field never hides what every line has.
    object.extend(said.fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    object.insert("time".to_owned(), time.to_string().into());
    object.insert("level".to_owned(), level.to_string().to_lowercase().into());
    object.insert("target".to_owned(), target.into());
    object.insert("message".to_owned(), said.message.into());
    Value::Object(object).to_string()
}

/// One line stays one line, and a terminal is told nothing.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn take(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
        } else {
            self.fields.push((field.name(), value));
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.take(field, value.to_string().into());
    }
}

/// An instant of the wall clock as RFC 3339 in UTC, with milliseconds.
pub(crate) fn rfc3339(at: UtcMillis) -> String {
    Timestamp(at).to_string()
}

/// Shown as RFC 3339 in UTC, with milliseconds.
struct Timestamp(UtcMillis);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.get();
        let (days, of_day) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", of_day % 1000)
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar: years are counted from March, so that
/// the leap day is a year's last, in eras of 400 years, which are all 146,097 days long.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::BootInstant;

    use super::*;

    struct Frozen;

    impl Clock for Frozen {
        fn utc(&self) -> UtcMillis {
            UtcMillis::new(1_709_210_096_007)
        }

        fn boot(&self) -> BootInstant {
            BootInstant::new(0)
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(logging: Logging, say: impl FnOnce()) -> String {
        let shared = Shared::default();
        tracing::subscriber::with_default(Lines::new(logging, Arc::new(Frozen), shared.clone()), say);
        let bytes = shared.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_text_line_has_time_level_message_and_fields() {
        let lines = logged(Logging::default(), || {
            tracing::info!(attempt.id = %"a-1", count = 3, why = "no disk", "started\nnow\u{1b}[31m");
            tracing::debug!("not shown");
        });
        assert_eq!(
            lines,
            "2024-02-29T12:34:56.007Z INFO  started\u{fffd}now\u{fffd}[31m attempt.id=a-1 count=3 why=\"no disk\"\n"
        );
    }

    #[test]
    fn a_json_line_is_one_object_whose_own_keys_win() {
        let logging = Logging { level: LevelFilter::DEBUG, format: Format::Json };
        let line = logged(logging, || tracing::debug!(time = "never", done = true, n = -1, "say \"it\""));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["time"], "2024-02-29T12:34:56.007Z");
        assert_eq!((&value["level"], &value["message"]), (&"debug".into(), &"say \"it\"".into()));
        assert_eq!((&value["done"], &value["n"]), (&true.into(), &(-1).into()));
    }

    #[test]
    fn libraries_are_heard_from_warnings_on_whatever_the_level() {
        let logging = Logging { level: LevelFilter::TRACE, format: Format::Text };
        let lines = logged(logging, || {
            tracing::debug!(target: "h2::codec", "headers with a token");
            tracing::info!(target: "hyper", "no");
            tracing::warn!(target: "rustls", "heard");
            tracing::trace!("ours");
        });
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.contains("heard") && lines.contains("ours"));
        let quiet = Logging { level: LevelFilter::ERROR, format: Format::Text };
        assert_eq!(logged(quiet, || tracing::warn!(target: "rustls", "too quiet")), "");
    }

    #[test]
    fn days_become_dates() {
        for (millis, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(UtcMillis::new(millis)).to_string(), shown);
        }
    }
}
