//! Where a run may go: what a worker must have, and which of those that have it are better.
//!
//! Requirements admit, preferences only order. Both are within hard limits and have one canonical form, whose
//! digest names a lane of the dispatcher. (Control design, *Placement*; ADR-0012 §4.)

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::Value;
use crate::capability::labels;
use crate::crypto::{Digest, Domain};
use crate::id::WorkerId;
use crate::limits::{
    COLLECTION, FEATURES, GPUS, NAME_BYTES, PLACEMENT_BYTES, PREFERENCE_WEIGHT, PREFERENCES, SIZE_MIB,
};
use crate::shape::{Field, Report, ShapeError, ShapeErrorKind};
use crate::version::VersionRange;

mod explain;
mod expression;
mod limited;
mod matching;
mod scoring;

pub use explain::{Availability, Explanation, Outlook, WorkerExplanation, WorkerFacts, explain};
pub use expression::{ExpressionError, parse_preference, parse_requirement};
pub use matching::{Mismatch, MismatchClass, matches, pick_gpus};
pub use scoring::{Candidate, Score, better, left_to_another, rank, score};

/// The executor that everything needs unless it says otherwise.
pub const PROCESS: &str = "process";

/// What a worker must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// One of these architectures; empty: any.
    pub arch: BTreeSet<String>,
    /// One of these operating systems; empty: any.
    pub os: BTreeSet<String>,
    /// All of these executors.
    pub executors: BTreeSet<String>,
    /// All of these runtimes, each within its range.
    pub runtimes: BTreeMap<String, VersionRange>,
    /// All of these labels, with these texts.
    pub labels: BTreeMap<String, String>,
    /// At least this much memory.
    pub memory_mib: u64,
    /// At least this much disk.
    pub disk_mib: u64,
    /// GPUs of one kind.
    pub gpu: Option<GpuRequirement>,
    /// All of these features.
    pub features: BTreeSet<String>,
    /// One of these workers; empty: any.
    pub worker_ids: BTreeSet<WorkerId>,
}

/// GPUs that a run gets for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuRequirement {
    /// Made by this vendor.
    pub vendor: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// With at least this much memory each.
    pub memory_mib: u64,
    /// How many.
    pub count: u32,
}

/// A worker with all of these labels is better by this weight, or worse where it is negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preference {
    /// All of these labels, with these texts.
    pub labels: BTreeMap<String, String>,
    /// From −100 to 100.
    pub weight: i8,
}

/// Checked requirements and preferences: within every limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    require: Requirements,
    prefer: Vec<Preference>,
}

impl Default for Requirements {
    /// Any worker that can run a process.
    fn default() -> Self {
        Self {
            arch: BTreeSet::new(),
            os: BTreeSet::new(),
            executors: BTreeSet::from([PROCESS.to_owned()]),
            runtimes: BTreeMap::new(),
            labels: BTreeMap::new(),
            memory_mib: 0,
            disk_mib: 0,
            gpu: None,
            features: BTreeSet::new(),
            worker_ids: BTreeSet::new(),
        }
    }
}

impl Default for GpuRequirement {
    /// One GPU of any kind.
    fn default() -> Self {
        Self { vendor: None, model: None, memory_mib: 0, count: 1 }
    }
}

impl Default for Placement {
    /// Any worker that can run a process; all alike.
    fn default() -> Self {
        Self { require: Requirements::default(), prefer: Vec::new() }
    }
}

impl Placement {
    /// Checks every limit; answers every mistake.
    pub fn new(require: Requirements, prefer: Vec<Preference>) -> Result<Self, Vec<ShapeError>> {
        Self::from_value(&Self { require, prefer }.to_value())
    }

    /// What a worker must have.
    pub fn require(&self) -> &Requirements {
        &self.require
    }

    /// What makes one better than another, in canonical order.
    pub fn prefer(&self) -> &[Preference] {
        &self.prefer
    }

    /// Reads the shape of a task file's `placement`, and the form that [`Self::to_value`] writes.
    pub fn from_value(value: &Value) -> Result<Self, Vec<ShapeError>> {
        let report = Report::new();
        let placement = Self::read(&report.root(value));
        report.finish(placement)
    }

    /// Reads canonical bytes; refuses every other spelling.
    pub fn from_canonical_bytes(bytes: &[u8]) -> Result<Self, Vec<ShapeError>> {
        let refused = |got: String| vec![ShapeError::new("", ShapeErrorKind::Value, got, "canonical JSON")];
        let value = Value::parse_canonical(bytes, PLACEMENT_BYTES).map_err(|error| refused(error.to_string()))?;
        let placement = Self::from_value(&value)?;
        if placement.to_canonical_bytes() == bytes {
            Ok(placement)
        } else {
            Err(refused("a placement in another than its canonical form".to_owned()))
        }
    }

    /// Reads a placement inside a larger value; mistakes are in the field's report.
    pub(crate) fn read(field: &Field<'_>) -> Self {
        let Some(table) = field.table(&["prefer", "require"]) else {
            return Self::default();
        };
        let require = table.optional("require").map(|f| read_requirements(&f)).unwrap_or_default();
        let mut prefer: Vec<Preference> = Vec::new();
        for member in table.optional("prefer").map(|f| f.list(PREFERENCES)).unwrap_or_default() {
            let Some(preference) = read_preference(&member) else { continue };
            if prefer.iter().any(|other| other.labels == preference.labels) {
                member.refuse(ShapeErrorKind::Value, "the same labels twice", "every label set once");
            }
            prefer.push(preference);
        }
        prefer.sort_by(|a, b| a.labels.cmp(&b.labels));
        let placement = Self { require, prefer };
        let size = placement.to_canonical_bytes().len();
        if size > PLACEMENT_BYTES {
            let allowed = format!("at most {PLACEMENT_BYTES} bytes of canonical JSON");
            field.refuse(ShapeErrorKind::Limit, format!("{size} bytes"), allowed);
        }
        placement
    }

    /// The same placement with more features required: what limits of a revision imply.
    pub(crate) fn with_features<'f>(mut self, features: impl IntoIterator<Item = &'f str>) -> Self {
        self.require.features.extend(features.into_iter().map(str::to_owned));
        self
    }

    /// The one form of this placement, with every default written out.
    pub fn to_value(&self) -> Value {
        let prefer = |preference: &Preference| {
            Value::map([("labels", texts(&preference.labels)), ("weight", Value::Int(preference.weight.into()))])
        };
        Value::map([
            ("prefer", Value::List(self.prefer.iter().map(prefer).collect())),
            ("require", self.require.to_value()),
        ])
    }

    /// The canonical bytes.
    pub fn to_canonical_bytes(&self) -> Vec<u8> {
        self.to_value().to_bytes()
    }

    /// The digest of the canonical bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(Domain::Placement, &self.to_canonical_bytes())
    }
}

fn texts(entries: &BTreeMap<String, String>) -> Value {
    Value::map(entries.iter().map(|(key, text)| (key, Value::text(text))))
}

impl Requirements {
    /// The one form of these requirements.
    pub fn to_value(&self) -> Value {
        let runtimes = self.runtimes.iter().map(|(name, range)| (name, Value::text(range.to_string())));
        let mut entries = vec![
            ("arch", Value::texts(&self.arch)),
            ("disk_mib", Value::number(self.disk_mib)),
            ("executors", Value::texts(&self.executors)),
            ("features", Value::texts(&self.features)),
            ("labels", texts(&self.labels)),
            ("memory_mib", Value::number(self.memory_mib)),
            ("os", Value::texts(&self.os)),
            ("runtimes", Value::map(runtimes)),
            ("worker_ids", Value::texts(self.worker_ids.iter().map(WorkerId::as_str))),
        ];
        if let Some(gpu) = &self.gpu {
            entries.push(("gpu", gpu.to_value()));
        }
        Value::map(entries)
    }
}

impl GpuRequirement {
    fn to_value(&self) -> Value {
        let mut entries =
            vec![("count", Value::Int(self.count.into())), ("memory_mib", Value::number(self.memory_mib))];
        if let Some(model) = &self.model {
            entries.push(("model", Value::text(model)));
        }
        if let Some(vendor) = &self.vendor {
            entries.push(("vendor", Value::text(vendor)));
        }
        Value::map(entries)
    }
}

const REQUIRE_KEYS: [&str; 10] =
    ["arch", "disk_mib", "executors", "features", "gpu", "labels", "memory_mib", "os", "runtimes", "worker_ids"];

fn read_requirements(field: &Field<'_>) -> Requirements {
    let default = Requirements::default();
    let Some(table) = field.table(&REQUIRE_KEYS) else {
        return default;
    };
    let names =
        |key: &str, limit: usize| table.optional(key).map(|f| f.set(limit, |member| member.name().map(str::to_owned)));
    let executors = names("executors", COLLECTION).unwrap_or(default.executors);
    if let Some(f) = table.optional("executors")
        && *f.value() == Value::List(Vec::new())
    {
        f.refuse(ShapeErrorKind::Value, "an empty list", "at least one executor; leave it out for `process`");
    }
    Requirements {
        arch: names("arch", COLLECTION).unwrap_or_default(),
        os: names("os", COLLECTION).unwrap_or_default(),
        executors,
        runtimes: table.optional("runtimes").map(|f| read_runtimes(&f)).unwrap_or_default(),
        labels: table.optional("labels").map(|f| labels(&f)).unwrap_or_default(),
        memory_mib: table.optional("memory_mib").map_or(0, |f| read_size(&f)),
        disk_mib: table.optional("disk_mib").map_or(0, |f| read_size(&f)),
        gpu: table.optional("gpu").and_then(|f| read_gpu(&f)),
        features: names("features", FEATURES).unwrap_or_default(),
        worker_ids: table
            .optional("worker_ids")
            .map(|f| f.set(COLLECTION, |f| f.parsed(NAME_BYTES)))
            .unwrap_or_default(),
    }
}

fn read_size(field: &Field<'_>) -> u64 {
    field.integer(0..=SIZE_MIB).and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

fn read_runtimes(field: &Field<'_>) -> BTreeMap<String, VersionRange> {
    let entries = field.entries(COLLECTION).into_iter().filter(|(key, entry)| entry.key_is_name(key));
    entries.filter_map(|(key, entry)| Some((key.to_owned(), entry.parsed(NAME_BYTES)?))).collect()
}

fn read_gpu(field: &Field<'_>) -> Option<GpuRequirement> {
    let table = field.table(&["count", "memory_mib", "model", "vendor"])?;
    let most = u32::try_from(GPUS).unwrap_or(u32::MAX);
    Some(GpuRequirement {
        vendor: table.optional("vendor").and_then(|f| f.name().map(str::to_owned)),
        model: table.optional("model").and_then(|f| f.line(NAME_BYTES).map(str::to_owned)),
        memory_mib: table.optional("memory_mib").map_or(0, |f| read_size(&f)),
        count: table.optional("count").and_then(|f| f.unsigned(1..=most)).unwrap_or(1),
    })
}

fn read_preference(field: &Field<'_>) -> Option<Preference> {
    let table = field.table(&["label", "labels", "weight"])?;
    let weight = table.required("weight", "a whole number from -100 to 100");
    let weight = weight.and_then(|f| f.integer(-PREFERENCE_WEIGHT..=PREFERENCE_WEIGHT));
    let set = match (table.optional("label"), table.optional("labels")) {
        (Some(label), None) => read_label(&label).into_iter().collect(),
        (None, Some(set)) => {
            if *set.value() == Value::Map(BTreeMap::new()) {
                table.conflict("labels", "no labels", "at least one label");
            }
            labels(&set)
        }
        (None, None) if table.is_misspelled("label") || table.is_misspelled("labels") => return None,
        _ => {
            table.conflict("label", "both or neither of `label` and `labels`", "exactly one of them");
            return None;
        }
    };
    Some(Preference { labels: set, weight: i8::try_from(weight?).ok()? })
}

/// `disk=ssd`, the short form of one label.
fn read_label(field: &Field<'_>) -> Option<(String, String)> {
    let text = field.line(2 * NAME_BYTES + 1)?;
    let label = expression::split_label(text);
    if label.is_none() {
        field.refuse(ShapeErrorKind::Value, format!("`{text}`"), "a label such as `disk=ssd`");
    }
    label
}

#[cfg(test)]
mod tests;
