//! What a worker's owner configured: `/etc/leasehold/worker.toml`, `LEASEHOLD_WORKER_*`, flags, in that order of growing
//! weight.
//!
//! The binary reads the environment and passes it in; nothing here does. An unknown key or a value out of range is refused
//! before anything starts, with what is allowed. (Worker design, *Capabilities and configuration*; decisions, *Uid*.)

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use leasehold_core::limits::{self, KIB};
use leasehold_core::shape::nearest;
use leasehold_core::time::Millis;
use toml::de::{DeTable, DeValue};
use tracing::level_filters::LevelFilter;

use crate::logging::{Format, Logging};

/// The file that is read where no other is named; it need not exist.
pub const FILE: &str = "/etc/leasehold/worker.toml";
/// The state directory of a worker that root runs.
pub const STATE_DIR: &str = "/var/lib/leasehold-worker";
/// The state directory of an ordinary user's worker, from the home directory on.
pub const STATE_DIR_AT_HOME: &str = ".local/state/leasehold-worker";

const FILE_LIMIT: usize = 64 * KIB;

/// Every key of `worker.toml`, the variable that outweighs it, and what it may be.
const KEYS: [(&str, &str, &str); 8] = [
    ("state_dir", "LEASEHOLD_WORKER_STATE_DIR", "an absolute path"),
    ("allow_root", "LEASEHOLD_WORKER_ALLOW_ROOT", "true or false (in the environment also 1 or 0)"),
    ("run_as", "LEASEHOLD_WORKER_RUN_AS", "names of users: a list of texts, or in the environment `ann,bob`"),
    ("slots", "LEASEHOLD_WORKER_SLOTS", "a whole number from 1 to 256"),
    ("labels", "LEASEHOLD_WORKER_LABELS", "texts by name: a table, or in the environment `k=v,k=v`"),
    ("drain_timeout", "LEASEHOLD_WORKER_DRAIN_TIMEOUT", "a duration such as 10m"),
    ("log_level", "LEASEHOLD_WORKER_LOG_LEVEL", "error, warn, info, debug or trace"),
    ("log_format", "LEASEHOLD_WORKER_LOG_FORMAT", "text or json"),
];

/// The configuration of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the worker keeps its identity, its inbox and its attempts.
    pub state_dir: PathBuf,
    /// Whether jobs may run as root.
    pub allow_root: bool,
    /// Users that jobs may run as; the first is the default of a worker that is root.
    pub run_as: Vec<String>,
    /// How many runs it takes at once, 1 to 256; none: one per core.
    pub slots: Option<u16>,
    /// What its owner says about it.
    pub labels: BTreeMap<String, String>,
    /// How long a drain waits for what runs.
    pub drain_timeout: Millis,
    /// What is logged, and how.
    pub logging: Logging,
}

/// What surrounds the process, as the binary found it.
pub struct Surroundings<'a> {
    /// Looks up a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the process is root's.
    pub root: bool,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("root", &self.root).finish_non_exhaustive()
    }
}

/// What the command line says; it outweighs everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--config`: a file that must exist.
    pub config: Option<PathBuf>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--allow-root`.
    pub allow_root: bool,
    /// `--run-as USER`, once for each; they replace the others.
    pub run_as: Vec<String>,
    /// `--slots`.
    pub slots: Option<String>,
    /// `--label k=v`, once for each; they are added to the others.
    pub labels: Vec<String>,
    /// `--drain-timeout`.
    pub drain_timeout: Option<String>,
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Which.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A value is not allowed.
    #[error("{place}: {problem}")]
    Value {
        /// The variable, the flag, or file and line.
        place: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// There is no place for the state directory.
    #[error("where is the state directory? HOME is not set: set LEASEHOLD_WORKER_STATE_DIR to an absolute path")]
    NoHome,
}

fn refused(place: impl Display, problem: impl Into<String>) -> ConfigError {
    ConfigError::Value { place: place.to_string(), problem: problem.into() }
}

impl Config {
    /// Reads the file and lays environment and flags over it.
    pub fn load(around: &Surroundings<'_>, flags: &Flags) -> Result<Self, ConfigError> {
        let named = flags.config.clone().or_else(|| (around.variable)("LEASEHOLD_WORKER_CONFIG").map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| PathBuf::from(FILE));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => String::new(),
            Err(source) => return Err(ConfigError::Read { file: path.display().to_string(), source }),
        };
        Self::of(&path, &text, around, flags)
    }

    /// The configuration of the file's text, the environment and the flags.
    fn of(file: &Path, text: &str, around: &Surroundings<'_>, flags: &Flags) -> Result<Self, ConfigError> {
        let mut values = Values::default();
        values.read_file(file, text)?;
        for (key, variable, _) in KEYS {
            if let Some(text) = (around.variable)(variable).filter(|text| !text.is_empty()) {
                values.set(key, &variable, &text)?;
            }
        }
        if let Some(slots) = &flags.slots {
            values.set("slots", &"--slots", slots)?;
        }
        if let Some(timeout) = &flags.drain_timeout {
            values.set("drain_timeout", &"--drain-timeout", timeout)?;
        }
        for label in &flags.labels {
            let (name, value) = read_label(&"--label", label)?;
            values.labels.insert(name, value);
        }
        let state_dir = match flags.state_dir.clone().or(values.state_dir) {
            Some(path) => path,
            None if around.root => PathBuf::from(STATE_DIR),
            None => {
                let home = (around.variable)("HOME").filter(|home| home.starts_with('/')).ok_or(ConfigError::NoHome)?;
                Path::new(&home).join(STATE_DIR_AT_HOME)
            }
        };
        Ok(Self {
            state_dir,
            allow_root: flags.allow_root || values.allow_root,
            run_as: if flags.run_as.is_empty() { values.run_as } else { flags.run_as.clone() },
            slots: values.slots,
            labels: values.labels,
            drain_timeout: values.drain_timeout.unwrap_or(limits::DRAIN_TIMEOUT),
            logging: values.logging,
        })
    }
}

fn most_slots() -> u16 {
    u16::try_from(limits::SLOTS).unwrap_or(u16::MAX)
}

/// What was said so far; later words outweigh earlier ones.
#[derive(Default)]
struct Values {
    state_dir: Option<PathBuf>,
    allow_root: bool,
    run_as: Vec<String>,
    slots: Option<u16>,
    labels: BTreeMap<String, String>,
    drain_timeout: Option<Millis>,
    logging: Logging,
}

impl Values {
    fn read_file(&mut self, file: &Path, text: &str) -> Result<(), ConfigError> {
        let at = |start: usize| {
            let line = text.get(..start).unwrap_or(text).split('\n').count();
            format!("{}:{line}", file.display())
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
            if !KEYS.iter().any(|(known, ..)| *known == key) {
                let known = || KEYS.map(|(known, ..)| known).join(", ");
                let hint = match nearest(key, KEYS.map(|(known, ..)| known)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known are {}", known()),
                };
                return Err(refused(place, format!("unknown key `{}`, {hint}", shown(key))));
            }
            match value.get_ref() {
                DeValue::Table(labels) if key == "labels" => {
                    for (name, value) in labels {
                        let DeValue::String(value) = value.get_ref() else {
                            return Err(refused(at(name.span().start), "a label is a text, such as site = \"office\""));
                        };
                        self.labels.insert(name.get_ref().clone().into_owned(), value.clone().into_owned());
                    }
                }
                DeValue::Array(users) if key == "run_as" => {
                    let user = |user: &toml::Spanned<DeValue<'_>>| match user.get_ref() {
                        DeValue::String(user) if !user.is_empty() => Some(user.clone().into_owned()),
                        _ => None,
                    };
                    let users: Option<Vec<_>> = users.iter().map(user).collect();
                    self.run_as = users.ok_or_else(|| not_allowed(key, &place, "another kind of member"))?;
                }
                DeValue::String(text) if !matches!(key, "slots" | "allow_root" | "labels" | "run_as") => {
                    self.set(key, &place, text)?;
                }
                DeValue::Integer(number) if key == "slots" => self.set(key, &place, number.as_str())?,
                DeValue::Boolean(yes) if key == "allow_root" => {
                    self.set(key, &place, if *yes { "true" } else { "false" })?;
                }
                _ => return Err(not_allowed(key, &place, "another kind of value")),
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, place: &dyn Display, text: &str) -> Result<(), ConfigError> {
        let got = || not_allowed(key, place, &format!("got `{}`", shown(text)));
        match key {
            "state_dir" => self.state_dir = Some(absolute(text).ok_or_else(got)?),
            "allow_root" => self.allow_root = yes_or_no(text).ok_or_else(got)?,
            "run_as" => {
                let users: Vec<_> = text.split(',').map(|user| user.trim().to_owned()).collect();
                if users.iter().any(String::is_empty) {
                    return Err(got());
                }
                self.run_as = users;
            }
            "slots" => {
                let slots = text.parse().ok().filter(|slots| (1..=most_slots()).contains(slots));
                self.slots = Some(slots.ok_or_else(got)?);
            }
            "labels" => {
                for label in text.split(',') {
                    let (name, value) = read_label(place, label)?;
                    self.labels.insert(name, value);
                }
            }
            "drain_timeout" => self.drain_timeout = Some(text.parse().map_err(|_| got())?),
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
        Ok(())
    }
}

fn not_allowed(key: &str, place: &dyn Display, got: &str) -> ConfigError {
    let allowed = KEYS.iter().find(|(known, ..)| *known == key).map_or("a known key", |(.., allowed)| *allowed);
    refused(place, format!("{key}: {got}, expected {allowed}"))
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

/// Name and value of `k=v`. Which names and values are good is the capabilities' own check.
fn read_label(place: &dyn Display, text: &str) -> Result<(String, String), ConfigError> {
    match text.trim().split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(refused(place, format!("got `{}`, expected a label such as site=office", shown(text)))),
    }
}

/// A text from outside, short and on one line.
fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: (&str, &str) = ("HOME", "/home/ann");

    fn config(text: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let around = Surroundings { variable: &variable, root: false };
        Config::of(Path::new("worker.toml"), text, &around, flags).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_a_good_configuration() {
        let config = config("", &[HOME], &Flags::default()).unwrap();
        let expected = Config {
            state_dir: "/home/ann/.local/state/leasehold-worker".into(),
            allow_root: false,
            run_as: Vec::new(),
            slots: None,
            labels: BTreeMap::new(),
            drain_timeout: limits::DRAIN_TIMEOUT,
            logging: Logging::default(),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn root_keeps_its_state_where_services_do() {
        let around = Surroundings { variable: &|_| None, root: true };
        let config = Config::of(Path::new("worker.toml"), "", &around, &Flags::default()).unwrap();
        assert_eq!(config.state_dir, Path::new(STATE_DIR));
    }

    #[test]
    fn flags_outweigh_the_environment_and_that_the_file() {
        let file = "state_dir = '/file'\nslots = 1\nallow_root = true\nrun_as = ['ann']\ndrain_timeout = '1m'\nlog_level = 'warn'\n\
                    log_format = 'json'\nlabels = { site = 'file', rack = '7' }";
        let of_file = config(file, &[], &Flags::default()).unwrap();
        assert_eq!((of_file.state_dir.to_str(), of_file.slots, of_file.allow_root), (Some("/file"), Some(1), true));
        assert_eq!((of_file.drain_timeout, of_file.run_as), (Millis::from_secs(60), vec!["ann".to_owned()]));
        assert_eq!(of_file.logging, Logging { level: LevelFilter::WARN, format: Format::Json });

        let environment = [
            ("LEASEHOLD_WORKER_STATE_DIR", "/variable"),
            ("LEASEHOLD_WORKER_SLOTS", "2"),
            ("LEASEHOLD_WORKER_ALLOW_ROOT", "0"),
            ("LEASEHOLD_WORKER_RUN_AS", "bob, eve"),
            ("LEASEHOLD_WORKER_LABELS", "site=variable,os=own"),
            ("LEASEHOLD_WORKER_DRAIN_TIMEOUT", ""),
        ];
        let of_both = config(file, &environment, &Flags::default()).unwrap();
        assert_eq!(
            (of_both.state_dir.to_str(), of_both.slots, of_both.allow_root),
            (Some("/variable"), Some(2), false)
        );
        assert_eq!(of_both.drain_timeout, Millis::from_secs(60), "an empty variable says nothing");
        assert_eq!(of_both.run_as, ["bob", "eve"]);
        let labels: Vec<_> = of_both.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["os=own", "rack=7", "site=variable"]);

        let flags = Flags {
            state_dir: Some("/flag".into()),
            slots: Some("3".to_owned()),
            allow_root: true,
            run_as: vec!["zoe".to_owned()],
            labels: vec!["site=flag".to_owned()],
            ..Flags::default()
        };
        let of_all = config(file, &environment, &flags).unwrap();
        assert_eq!((of_all.state_dir.to_str(), of_all.slots, of_all.allow_root), (Some("/flag"), Some(3), true));
        assert_eq!((of_all.labels["site"].as_str(), of_all.run_as), ("flag", vec!["zoe".to_owned()]));
    }

    #[test]
    fn what_is_not_allowed_names_its_place_and_what_is() {
        for (text, variables, expected) in [
            ("slots = 1\nslot = 2", &[][..], "worker.toml:2: unknown key `slot`, did you mean `slots`?"),
            ("wings = 2", &[], "worker.toml:1: unknown key `wings`, known are state_dir, "),
            ("slots = ", &[], "worker.toml:1: "),
            ("\nslots = 0", &[], "worker.toml:2: slots: got `0`, expected a whole number from 1 to 256"),
            ("slots = '2'", &[], "slots: another kind of value, expected a whole number"),
            ("allow_root = 1", &[], "allow_root: another kind of value, expected true or false"),
            ("state_dir = 'here'", &[], "state_dir: got `here`, expected an absolute path"),
            ("run_as = 'ann'", &[], "run_as: another kind of value, expected names of users"),
            ("run_as = [1]", &[], "run_as: another kind of member, expected names of users"),
            ("", &[("LEASEHOLD_WORKER_RUN_AS", "ann,")], "got `ann,`, expected names of users"),
            ("labels = 'a=b'", &[], "labels: another kind of value, expected texts by name"),
            ("[labels]\nsite = 3", &[], "worker.toml:2: a label is a text"),
            ("", &[("LEASEHOLD_WORKER_SLOTS", "257")], "LEASEHOLD_WORKER_SLOTS: slots: got `257`"),
            ("", &[("LEASEHOLD_WORKER_LABELS", "a=b,c")], "LEASEHOLD_WORKER_LABELS: got `c`, expected a label"),
            ("", &[("LEASEHOLD_WORKER_ALLOW_ROOT", "yes")], "got `yes`, expected true or false"),
            ("", &[("LEASEHOLD_WORKER_DRAIN_TIMEOUT", "10")], "got `10`, expected a duration such as 10m"),
            ("", &[("LEASEHOLD_WORKER_LOG_LEVEL", "loud")], "expected error, warn, info"),
            ("", &[("LEASEHOLD_WORKER_LOG_FORMAT", "xml")], "expected text or json"),
            ("", &[("HOME", "")], "set LEASEHOLD_WORKER_STATE_DIR"),
        ] {
            let error = config(text, variables, &Flags::default()).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_named_file_must_exist_and_the_default_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("other.toml");
        let flags = Flags { config: Some(file.clone()), ..Flags::default() };
        let around = Surroundings { variable: &|_| None, root: true };
        assert!(Config::load(&around, &flags).unwrap_err().to_string().contains("cannot read"));
        std::fs::write(&file, "slots = 9").unwrap();
        assert_eq!(Config::load(&around, &flags).unwrap().slots, Some(9));
    }
}
