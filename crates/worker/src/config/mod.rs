//! What a worker's owner configured: `/etc/leasehold/worker.toml`, `LEASEHOLD_WORKER_*`, flags, in that order of growing
//! weight.
//!
//! The binary reads the environment and passes it in; nothing here does. An unknown key or a value out of range is refused
//! before anything starts, with what is allowed. [`key`] holds every key; the commented default file is made from it.
//! (Worker design, *Capabilities and configuration*; decisions, *Users*.)

mod gpus;
mod key;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};

use leasehold_core::capability::Gpu;
use leasehold_core::limits::{self, KIB};
use leasehold_core::time::Millis;

use crate::logging::{Format, Logging};
use key::KEYS;
pub use key::default_file;
use values::Values;

/// The file that is read where no other is named; it need not exist.
pub const FILE: &str = "/etc/leasehold/worker.toml";
/// The state directory of a worker that root runs.
pub const STATE_DIR: &str = "/var/lib/leasehold-worker";
/// The state directory of an ordinary user's worker, from the home directory on.
pub const STATE_DIR_AT_HOME: &str = ".local/state/leasehold-worker";

const FILE_LIMIT: usize = 64 * KIB;

/// The configuration of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the worker keeps its identity, its inbox and its attempts.
    pub state_dir: PathBuf,
    /// Host and port of the control plane, if it moved since `join`.
    pub server: Option<String>,
    /// Whether jobs may run as root.
    pub allow_root: bool,
    /// Users that jobs may run as; the first is the default of a worker that is root.
    pub run_as: Vec<String>,
    /// How many runs it takes at once, 1 to 256; none: one per core.
    pub slots: Option<u16>,
    /// Whether its runtimes are asked for their versions at the start.
    pub detect_runtimes: bool,
    /// Which GPUs it offers.
    pub gpus: GpuSetting,
    /// What its owner says about it.
    pub labels: BTreeMap<String, String>,
    /// How long a drain waits for what runs.
    pub drain_timeout: Millis,
    /// How many records the inbox holds at most.
    pub inbox_records: usize,
    /// Where control groups of jobs are made.
    pub cgroup: CgroupSetting,
    /// What is logged, and how.
    pub logging: Logging,
    /// Where each key was set, for people; a key that nobody set is not here.
    pub origins: BTreeMap<&'static str, String>,
}

/// Which GPUs a worker offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GpuSetting {
    /// Those that this machine is found to have.
    #[default]
    Auto,
    /// None.
    Off,
    /// These, by its owner's word; the machine is not asked.
    Declared(Vec<Gpu>),
}

/// Where control groups of jobs are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CgroupSetting {
    /// Where this machine lets the worker: beside or below its own group.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// In this directory of a cgroup2 file system; the worker does not start where that cannot be.
    Named(PathBuf),
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
    /// `--server`.
    pub server: Option<String>,
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
        /// The variable, the flag, or file, line and column.
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
        for key in KEYS {
            if let Some(text) = (around.variable)(key.variable).filter(|text| !text.is_empty()) {
                values.set(key.name, &key.variable, &text)?;
            }
        }
        for (key, flag, text) in [
            ("server", "--server", &flags.server),
            ("slots", "--slots", &flags.slots),
            ("drain_timeout", "--drain-timeout", &flags.drain_timeout),
        ] {
            if let Some(text) = text {
                values.set(key, &flag, text)?;
            }
        }
        values.add_labels(&"--label", flags.labels.iter().map(String::as_str))?;
        if !flags.run_as.is_empty() {
            values.set("run_as", &"--run-as", &flags.run_as.join(","))?;
        }
        if flags.allow_root {
            values.set("allow_root", &"--allow-root", "true")?;
        }
        // A directory named by hand may be a relative one.
        if let Some(path) = &flags.state_dir {
            values.state_dir = Some(path.clone());
            values.origins.insert("state_dir", "--state-dir".to_owned());
        }
        let state_dir = match values.state_dir {
            Some(path) => path,
            None if around.root => PathBuf::from(STATE_DIR),
            None => {
                let home = (around.variable)("HOME").filter(|home| home.starts_with('/')).ok_or(ConfigError::NoHome)?;
                Path::new(&home).join(STATE_DIR_AT_HOME)
            }
        };
        Ok(Self {
            state_dir,
            server: values.server,
            allow_root: values.allow_root,
            detect_runtimes: values.detect_runtimes.unwrap_or(true),
            run_as: values.run_as,
            slots: values.slots,
            gpus: values.gpus,
            labels: values.labels,
            drain_timeout: values.drain_timeout.unwrap_or(limits::DRAIN_TIMEOUT),
            inbox_records: values.inbox_records.unwrap_or(limits::INBOX_RECORDS),
            cgroup: values.cgroup,
            logging: values.logging,
            origins: values.origins,
        })
    }

    /// What holds, as a `worker.toml`, each line with where it comes from.
    pub fn to_text(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text = String::new();
        for key in KEYS {
            let value = match key.name {
                "state_dir" => Some(quoted(&self.state_dir.display().to_string())),
                "server" => self.server.as_ref().map(|server| quoted(&format!("https://{server}"))),
                "slots" => self.slots.map(|slots| slots.to_string()),
                "labels" => {
                    let label = |(name, value): (&String, &String)| format!("{} = {}", quoted(name), quoted(value));
                    let labels: Vec<_> = self.labels.iter().map(label).collect();
                    Some(if labels.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", labels.join(", ")) })
                }
                "run_as" => {
                    Some(format!("[{}]", self.run_as.iter().map(|user| quoted(user)).collect::<Vec<_>>().join(", ")))
                }
                "gpus" => Some(gpus::to_text(&self.gpus)),
                "detect_runtimes" => Some(self.detect_runtimes.to_string()),
                "allow_root" => Some(self.allow_root.to_string()),
                "drain_timeout" => Some(quoted(&self.drain_timeout.to_string())),
                "inbox_records" => Some(self.inbox_records.to_string()),
                "cgroup" => Some(quoted(&match &self.cgroup {
                    CgroupSetting::Auto => "auto".to_owned(),
                    CgroupSetting::Off => "off".to_owned(),
                    CgroupSetting::Named(path) => path.display().to_string(),
                })),
                "log_level" => Some(quoted(&self.logging.level.to_string())),
                "log_format" => Some(quoted(match self.logging.format {
                    Format::Text => "text",
                    Format::Json => "json",
                })),
                _ => None,
            };
            let origin = self.origins.get(key.name).map_or("default", String::as_str);
            let _ = match (value, key.unset) {
                (Some(value), _) => writeln!(text, "{} = {value}  # {origin}", key.name),
                (None, key::Unset::DependsOn(what, _)) => writeln!(text, "# {}: {what}", key.name),
                (None, key::Unset::Is(_)) => Ok(()),
            };
        }
        text
    }
}
