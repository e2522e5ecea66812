//! The `limits` of a revision: how long, how much, how many.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::attempt::{LimitMeans, LimitsKept};
use crate::canonical::Value;
use crate::limits as bound;
use crate::run::OnLost;
use crate::shape::Field;
use crate::time::Millis;

names! {
    /// What the launcher does with a job whose lease nobody renews.
    pub enum OnLeaseLoss as "on_lease_loss policy" {
        /// The job is stopped before the lease ends.
        Stop = "stop",
        /// The job may finish: only where nothing starts in its place but by a person.
        Finish = "finish",
    }
}

/// A share of processors, in thousandths of a core. Written as text, `1.5` or `2`: canonical bytes have no floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(u32);

/// A text is not a share of processors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of cores: expected a text such as \"1.5\", from 0.001 to 1024")]
pub struct CpuError(String);

/// How long, how much, how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long the process may run; none: as long as it likes.
    pub timeout: Option<Millis>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Millis,
    /// Memory of the job.
    pub memory_mib: Option<u64>,
    /// Processors of the job.
    pub cpu: Option<Cpu>,
    /// Processes and threads of the job.
    pub pids: Option<u32>,
    /// Log quota.
    pub log_mib: u32,
    /// Runs of this task at once; none: any number.
    pub concurrency: Option<u32>,
    /// Whether a lost run keeps its place until it is resolved.
    pub mutex: bool,
    /// Whether a worker without the control groups may do what it can.
    pub best_effort: bool,
    /// Whether descendants may outlive the job.
    pub keep_descendants: bool,
    /// What the launcher does with a job whose lease nobody renews.
    pub on_lease_loss: OnLeaseLoss,
    /// How long artifacts may take to upload before the end.
    pub artifact_upload: Millis,
    /// How long the machine may be out of reach before the run is declared lost.
    pub lease: Millis,
    /// From claim to running.
    pub start: Millis,
}

const KEYS: [&str; 14] = [
    "artifact_upload",
    "best_effort",
    "concurrency",
    "cpu",
    "grace",
    "keep_descendants",
    "lease",
    "log_mib",
    "memory_mib",
    "mutex",
    "on_lease_loss",
    "pids",
    "start",
    "timeout",
];

impl Limits {
    /// The defaults; a lost run that is retried by itself has a shorter lease.
    pub(super) fn of(on_lost: OnLost) -> Self {
        Self {
            timeout: None,
            grace: bound::GRACE,
            memory_mib: None,
            cpu: None,
            pids: None,
            log_mib: bound::LOG_MIB,
            concurrency: None,
            mutex: false,
            best_effort: false,
            keep_descendants: false,
            on_lease_loss: OnLeaseLoss::Stop,
            artifact_upload: bound::ARTIFACT_UPLOAD,
            lease: if on_lost == OnLost::Retry { bound::RUN_LEASE_RETRY } else { bound::RUN_LEASE },
            start: bound::START_WINDOW,
        }
    }

    pub(super) fn read(field: &Field<'_>, on_lost: OnLost) -> Self {
        let default = Self::of(on_lost);
        let Some(table) = field.table(&KEYS) else {
            return default;
        };
        let switch = |key: &str| table.optional(key).and_then(|f| f.boolean()).unwrap_or(false);
        let count = |key: &str, most: u32| table.optional(key).and_then(|f| f.unsigned(1..=most));
        let span = |key: &str, least, most| table.optional(key).and_then(|f| f.duration(least..=most));
        let memory = table.optional("memory_mib").and_then(|f| f.integer(1..=bound::SIZE_MIB));
        let limits = Self {
            timeout: span("timeout", bound::TIMEOUT_MIN, bound::TIMEOUT_MAX),
            grace: span("grace", Millis::ZERO, bound::GRACE_MAX).unwrap_or(default.grace),
            memory_mib: memory.and_then(|size| u64::try_from(size).ok()),
            cpu: table.optional("cpu").and_then(|f| read_cpu(&f)),
            pids: count("pids", bound::PIDS_MAX),
            log_mib: count("log_mib", bound::LOG_MIB_MAX).unwrap_or(default.log_mib),
            concurrency: count("concurrency", bound::CONCURRENCY_MAX),
            mutex: switch("mutex"),
            best_effort: switch("best_effort"),
            keep_descendants: switch("keep_descendants"),
            on_lease_loss: table
                .optional("on_lease_loss")
                .and_then(|f| f.named(OnLeaseLoss::ALL))
                .unwrap_or(default.on_lease_loss),
            artifact_upload: span("artifact_upload", Millis::ZERO, bound::ARTIFACT_UPLOAD_MAX)
                .unwrap_or(default.artifact_upload),
            lease: span("lease", bound::RUN_LEASE_MIN, bound::RUN_LEASE_MAX).unwrap_or(default.lease),
            start: span("start", bound::START_WINDOW_MIN, bound::START_WINDOW_MAX).unwrap_or(default.start),
        };
        if limits.on_lease_loss == OnLeaseLoss::Finish && !(on_lost == OnLost::Hold && limits.mutex) {
            let allowed =
                "finish only with retry.on_lost = \"hold\" and limits.mutex = true: else a second one may start";
            table.conflict(
                "on_lease_loss",
                format!("finish with on_lost = {on_lost}, mutex = {}", limits.mutex),
                allowed,
            );
        }
        limits
    }

    /// The worker features that these limits need.
    pub(super) fn features(&self) -> impl Iterator<Item = &'static str> {
        let needs = [
            (self.memory_mib.is_some(), "cgroup-memory"),
            (self.cpu.is_some(), "cgroup-cpu"),
            (self.pids.is_some(), "cgroup-pids"),
        ];
        let strict = !self.best_effort;
        needs.into_iter().filter_map(move |(limited, feature)| (limited && strict).then_some(feature))
    }

    /// How a worker with these features keeps the limits, or the feature that it lacks.
    pub fn kept(&self, features: &BTreeSet<String>) -> Result<LimitsKept, &'static str> {
        let means = |asked: bool, feature: &'static str, otherwise: LimitMeans| match asked {
            false => Ok(None),
            true if features.contains(feature) => Ok(Some(LimitMeans::Cgroup)),
            true if self.best_effort => Ok(Some(otherwise)),
            true => Err(feature),
        };
        Ok(LimitsKept {
            memory: means(self.memory_mib.is_some(), "cgroup-memory", LimitMeans::Rlimit)?,
            cpu: means(self.cpu.is_some(), "cgroup-cpu", LimitMeans::None)?,
            pids: means(self.pids.is_some(), "cgroup-pids", LimitMeans::Rlimit)?,
        })
    }

    pub(super) fn to_value(&self) -> Value {
        let span = |span: Millis| Value::text(span.to_string());
        let mut entries = vec![
            ("artifact_upload", span(self.artifact_upload)),
            ("best_effort", Value::Bool(self.best_effort)),
            ("grace", span(self.grace)),
            ("keep_descendants", Value::Bool(self.keep_descendants)),
            ("lease", span(self.lease)),
            ("log_mib", Value::Int(self.log_mib.into())),
            ("mutex", Value::Bool(self.mutex)),
            ("on_lease_loss", Value::text(self.on_lease_loss.as_str())),
            ("start", span(self.start)),
        ];
        if let Some(timeout) = self.timeout {
            entries.push(("timeout", span(timeout)));
        }
        if let Some(memory) = self.memory_mib {
            entries.push(("memory_mib", Value::number(memory)));
        }
        if let Some(cpu) = self.cpu {
            entries.push(("cpu", Value::text(cpu.to_string())));
        }
        if let Some(pids) = self.pids {
            entries.push(("pids", Value::Int(pids.into())));
        }
        if let Some(concurrency) = self.concurrency {
            entries.push(("concurrency", Value::Int(concurrency.into())));
        }
        Value::map(entries)
    }
}

/// Whole cores may be written as a number.
fn read_cpu(field: &Field<'_>) -> Option<Cpu> {
    if let Value::Int(_) = field.value() {
        let cores = field.unsigned(1..=bound::CPU_MILLI_MAX / 1000)?;
        return Some(Cpu(cores * 1000));
    }
    field.parsed(bound::NAME_BYTES)
}

impl Cpu {
    /// Thousandths of a core.
    pub const fn milli(self) -> u32 {
        self.0
    }
}

impl FromStr for Cpu {
    type Err = CpuError;

    fn from_str(text: &str) -> Result<Self, CpuError> {
        let refused = || CpuError(text.chars().take(64).collect());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 3 || whole.len() > 4 {
            return Err(refused());
        }
        let milli: u32 = format!("{whole}{part:0<3}").parse().map_err(|_| refused())?;
        if (1..=bound::CPU_MILLI_MAX).contains(&milli) { Ok(Self(milli)) } else { Err(refused()) }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:03}", self.0 % 1000);
        let part = part.trim_end_matches('0');
        write!(f, "{}{}{part}", self.0 / 1000, if part.is_empty() { "" } else { "." })
    }
}
