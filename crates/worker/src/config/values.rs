//! What was said so far about each key, and where: in the file, by a variable or by a flag. Later words outweigh earlier
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use leasehold_core::limits;
use leasehold_core::shape::nearest;
use leasehold_core::time::Millis;
use toml::de::{DeTable, DeValue};
use tracing::level_filters::LevelFilter;

use super::key::{self, KEYS};
use super::{CgroupSetting, ConfigError, FILE_LIMIT, GpuSetting, gpus, refused};
use crate::join::address_of;
use crate::logging::{Format, Logging};

#[derive(Default)]
pub(super) struct Values {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) server: Option<String>,
    pub(super) allow_root: bool,
    pub(super) detect_runtimes: Option<bool>,
    pub(super) run_as: Vec<String>,
    pub(super) slots: Option<u16>,
    pub(super) gpus: GpuSetting,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) drain_timeout: Option<Millis>,
    pub(super) inbox_records: Option<usize>,
    pub(super) cgroup: CgroupSetting,
    pub(super) logging: Logging,
    /// Where each key was set last.
    pub(super) origins: BTreeMap<&'static str, String>,
}

impl Values {
    pub(super) fn read_file(&mut self, file: &Path, text: &str) -> Result<(), ConfigError> {
        let at = |start: usize| {
            let before = text.get(..start).unwrap_or(text);
            let line = before.split('\n').count();
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            format!("{}:{line}:{column}", file.display())
        };
        if text.len() > FILE_LIMIT {
            return Err(refused(file.display(), format!("at most {FILE_LIMIT} bytes are read")));
        }
        let table = DeTable::parse(text)
            .map_err(|error| refused(at(error.span().unwrap_or(0..0).start), error.message()))?
            .into_inner();
        for (key, value) in &table {
            let place = at(key.span().start);
            let key = key.get_ref().as_ref();
            let Some(known) = key::find(key) else {
                let names = || KEYS.iter().map(|known| known.name);
                let hint = match nearest(key, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known are {}", names().collect::<Vec<_>>().join(", ")),
                };
                return Err(refused(place, format!("unknown key `{}`, {hint}", shown(key))));
            };
            self.origins.insert(known.name, place.clone());
            match value.get_ref() {
                DeValue::Table(labels) if key == "labels" => {
                    for (name, value) in labels {
                        let DeValue::String(value) = value.get_ref() else {
                            return Err(refused(at(name.span().start), "a label is a text, such as site = \"office\""));
                        };
                        self.labels.insert(name.get_ref().clone().into_owned(), value.clone().into_owned());
                    }
                }
                DeValue::Array(list) if key == "gpus" => {
                    self.gpus = gpus::read(list).map_err(|(start, problem)| refused(at(start), problem))?;
                }
                DeValue::Array(users) if key == "run_as" => {
                    let user = |user: &toml::Spanned<DeValue<'_>>| match user.get_ref() {
                        DeValue::String(user) if !user.is_empty() => Some(user.clone().into_owned()),
                        _ => None,
                    };
                    let users: Option<Vec<_>> = users.iter().map(user).collect();
                    self.run_as = users.ok_or_else(|| not_allowed(key, &place, "another kind of member"))?;
                }
                DeValue::String(text)
                    if !matches!(
                        key,
                        "slots" | "inbox_records" | "allow_root" | "detect_runtimes" | "labels" | "run_as"
                    ) =>
                {
                    self.set(known.name, &place, text)?;
                }
                DeValue::Integer(number) if matches!(key, "slots" | "inbox_records") => {
                    self.set(known.name, &place, number.as_str())?;
                }
                DeValue::Boolean(yes) if matches!(key, "allow_root" | "detect_runtimes") => {
                    self.set(known.name, &place, if *yes { "true" } else { "false" })?;
                }
                _ => return Err(not_allowed(key, &place, "another kind of value")),
            }
        }
        Ok(())
    }

    /// What a variable or a flag says, as text.
    pub(super) fn set(&mut self, key: &'static str, place: &dyn Display, text: &str) -> Result<(), ConfigError> {
        let got = || not_allowed(key, place, &format!("got `{}`", shown(text)));
        match key {
            "state_dir" => self.state_dir = Some(absolute(text).ok_or_else(got)?),
            "server" => self.server = Some(address_of(text).ok_or_else(got)?),
            "detect_runtimes" => self.detect_runtimes = Some(yes_or_no(text).ok_or_else(got)?),
            "allow_root" => self.allow_root = yes_or_no(text).ok_or_else(got)?,
            "run_as" => {
                let users: Vec<_> = text.split(',').map(|user| user.trim().to_owned()).collect();
                if users.iter().any(String::is_empty) {
                    return Err(got());
                }
                self.run_as = users;
            }
            "slots" => self.slots = Some(number(text, &(1..=limits::SLOTS)).ok_or_else(got)?),
            "inbox_records" => {
                let range = limits::INBOX_RECORDS..=limits::INBOX_RECORDS_MAX;
                self.inbox_records = Some(number(text, &range).ok_or_else(got)?);
            }
            "gpus" => self.gpus = gpus::of_text(text).map_err(|problem| refused(place, problem))?,
            "labels" => self.add_labels(place, text.split(','))?,
            "drain_timeout" => self.drain_timeout = Some(text.parse().map_err(|_| got())?),
            "cgroup" => {
                self.cgroup = match text {
                    "auto" => CgroupSetting::Auto,
                    "off" => CgroupSetting::Off,
                    path => CgroupSetting::Named(absolute(path).ok_or_else(got)?),
                }
            }
            "log_level" => {
                self.logging.level = match text {
                    "error" => LevelFilter::ERROR,
                    "warn" => LevelFilter::WARN,
                    "info" => LevelFilter::INFO,
                    "debug" => LevelFilter::DEBUG,
                    "trace" => LevelFilter::TRACE,
                    _ => return Err(got()),
                }
            }
            "log_format" => {
                self.logging.format = match text {
                    "text" => Format::Text,
                    "json" => Format::Json,
                    _ => return Err(got()),
                }
            }
            _ => return Err(got()),
        }
        self.origins.insert(key, place.to_string());
        Ok(())
    }

    /// The labels that one place says, each once. Which names and values are good is the capabilities' own check.
    pub(super) fn add_labels<'a>(
        &mut self,
        place: &dyn Display,
        labels: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let mut said = BTreeSet::new();
        for text in labels {
            let pair = text.trim().split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
            let Some((name, value)) = pair else {
                return Err(refused(place, format!("got `{}`, expected a label such as site=office", shown(text))));
            };
            if !said.insert(name) {
                return Err(refused(place, format!("the label `{}` is said twice: say it once", shown(name))));
            }
            self.labels.insert(name.to_owned(), value.to_owned());
            self.origins.insert("labels", place.to_string());
        }
        Ok(())
    }
}

fn not_allowed(key: &str, place: &dyn Display, got: &str) -> ConfigError {
    let allowed = key::find(key).map_or("a known key", |key| key.allowed);
    refused(place, format!("{key}: {got}, expected {allowed}"))
}

/// A whole number of this range.
fn number<T, N>(text: &str, range: &RangeInclusive<N>) -> Option<T>
where
    T: TryFrom<N>,
    N: std::str::FromStr + PartialOrd,
{
    let number: N = text.parse().ok()?;
    if range.contains(&number) { T::try_from(number).ok() } else { None }
}

fn absolute(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    path.is_absolute().then(|| path.to_owned())
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// A text from outside, short and on one line.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
