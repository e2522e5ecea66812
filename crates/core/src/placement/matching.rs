//! Does a worker have what a placement requires? If not, every single thing it lacks.

use std::collections::BTreeSet;
use std::fmt;

use super::{GpuRequirement, Placement, Requirements, Score, score};
use crate::capability::{Capabilities, Gpu};
use crate::device::{DeviceId, Devices};
use crate::id::WorkerId;

names! {
    /// Why a worker does not take a run: a closed list.
    pub enum MismatchClass as "mismatch class" {
        /// Another processor architecture.
        Arch = "arch",
        /// Another operating system.
        Os = "os",
        /// An executor is missing.
        Executor = "executor",
        /// A runtime is missing.
        RuntimeMissing = "runtime_missing",
        /// A runtime is there in another version.
        RuntimeVersion = "runtime_version",
        /// A label is missing or says something else.
        Label = "label",
        /// Too little memory.
        Memory = "memory",
        /// Too little disk.
        Disk = "disk",
        /// Too few fitting GPUs, or they are in use.
        Gpu = "gpu",
        /// A feature is missing.
        Feature = "feature",
        /// The run names other workers.
        WorkerId = "worker_id",
        /// The worker is not there.
        Offline = "offline",
        /// The worker takes nothing new.
        Draining = "draining",
        /// The worker or what the run belongs to is paused.
        Paused = "paused",
        /// The worker speaks a protocol that the control plane no longer gives work to.
        ProtocolVersion = "protocol_version",
        /// The worker is full.
        NoFreeSlot = "no_free_slot",
        /// A limit of the task or project is reached.
        Limit = "limit",
        /// The worker gave this run back a moment ago.
        RefusedByWorker = "refused_by_worker",
    }
}

impl MismatchClass {
    /// Can only other capabilities or another placement change it? Everything else passes by itself.
    pub const fn is_lasting(self) -> bool {
        match self {
            Self::Arch
            | Self::Os
            | Self::Executor
            | Self::RuntimeMissing
            | Self::RuntimeVersion
            | Self::Label
            | Self::Memory
            | Self::Disk
            | Self::Gpu
            | Self::Feature
            | Self::WorkerId => true,
            Self::Offline
            | Self::Draining
            | Self::Paused
            | Self::ProtocolVersion
            | Self::NoFreeSlot
            | Self::Limit
            | Self::RefusedByWorker => false,
        }
    }
}

/// One thing that keeps a worker from taking a run. Made on demand and shown; only its class is ever stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What kind of thing.
    pub class: MismatchClass,
    /// What the run wants.
    pub wanted: String,
    /// What the worker has.
    pub have: String,
}

impl Mismatch {
    pub(super) fn new(class: MismatchClass, wanted: impl Into<String>, have: impl Into<String>) -> Self {
        Self { class, wanted: wanted.into(), have: have.into() }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wants {}, has {}", self.class, self.wanted, self.have)
    }
}

/// The score of a worker that has everything required, or all that it lacks.
pub fn matches(placement: &Placement, capabilities: &Capabilities, worker: &WorkerId) -> Result<Score, Vec<Mismatch>> {
    let lacks = lacks(placement.require(), capabilities, worker);
    if lacks.is_empty() { Ok(score(placement, capabilities)) } else { Err(lacks) }
}

fn list<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

fn lacks(require: &Requirements, have: &Capabilities, worker: &WorkerId) -> Vec<Mismatch> {
    let mut lacks = Vec::new();
    let mut lack = |class, wanted: String, have: String| lacks.push(Mismatch::new(class, wanted, have));
    if !require.arch.is_empty() && !require.arch.contains(&have.arch) {
        lack(MismatchClass::Arch, list(&require.arch), have.arch.clone());
    }
    if !require.os.is_empty() && !require.os.contains(&have.os) {
        lack(MismatchClass::Os, list(&require.os), have.os.clone());
    }
    for executor in require.executors.difference(&have.executors) {
        lack(MismatchClass::Executor, executor.clone(), list(&have.executors));
    }
    for (name, range) in &require.runtimes {
        match have.runtimes.get(name) {
            None => lack(MismatchClass::RuntimeMissing, format!("{name} {range}"), format!("no {name}")),
            Some(version) if !range.admits(version) => {
                lack(MismatchClass::RuntimeVersion, format!("{name} {range}"), format!("{name} {version}"));
            }
            Some(_) => {}
        }
    }
    for (key, text) in &require.labels {
        match have.labels.get(key) {
            None => lack(MismatchClass::Label, format!("{key}={text}"), format!("no label {key}")),
            Some(other) if other != text => {
                lack(MismatchClass::Label, format!("{key}={text}"), format!("{key}={other}"));
            }
            Some(_) => {}
        }
    }
    for (class, wanted, has) in [
        (MismatchClass::Memory, require.memory_mib, have.memory_mib),
        (MismatchClass::Disk, require.disk_mib, have.disk_mib),
    ] {
        if has < wanted {
            lack(class, format!("{wanted} MiB"), format!("{has} MiB"));
        }
    }
    if let Some(gpu) = &require.gpu
        && pick_gpus(gpu, have, &BTreeSet::new()).is_none()
    {
        lack(MismatchClass::Gpu, gpu.to_string(), describe_gpus(&have.gpus));
    }
    for feature in require.features.difference(&have.features) {
        lack(MismatchClass::Feature, feature.clone(), format!("no {feature}"));
    }
    if !require.worker_ids.is_empty() && !require.worker_ids.contains(worker) {
        let named: Vec<_> = require.worker_ids.iter().map(WorkerId::as_str).collect();
        lack(MismatchClass::WorkerId, named.join(" or "), worker.to_string());
    }
    lacks
}

/// The devices that a run gets: those that fit and are not in `busy`, the smallest first so that large ones stay
/// free for who needs them, then by id. `None` where they do not suffice.
pub fn pick_gpus(want: &GpuRequirement, have: &Capabilities, busy: &BTreeSet<DeviceId>) -> Option<Devices> {
    let mut fitting: Vec<&Gpu> =
        have.gpus.iter().filter(|gpu| want.is_met_by(gpu) && !busy.contains(&gpu.id)).collect();
    fitting.sort_by(|a, b| (a.memory_mib, &a.id).cmp(&(b.memory_mib, &b.id)));
    let count = usize::try_from(want.count).ok()?;
    let picked = fitting.get(..count)?;
    Devices::new(picked.iter().map(|gpu| gpu.id.clone()).collect()).ok()
}

impl GpuRequirement {
    fn is_met_by(&self, gpu: &Gpu) -> bool {
        self.vendor.as_ref().is_none_or(|vendor| *vendor == gpu.vendor)
            && self.model.as_ref().is_none_or(|model| *model == gpu.model)
            && gpu.memory_mib >= self.memory_mib
    }

    /// What a worker has that has enough of them, in words: how many fit, and how many of those nobody uses.
    pub(super) fn in_use(&self, have: &Capabilities, busy: &BTreeSet<DeviceId>) -> String {
        let fitting = || have.gpus.iter().filter(|gpu| self.is_met_by(gpu));
        let free = fitting().filter(|gpu| !busy.contains(&gpu.id)).count();
        format!("{free} free of {} that fit", fitting().count())
    }
}

impl fmt::Display for GpuRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GPU", self.count)?;
        for word in [&self.vendor, &self.model].into_iter().flatten() {
            write!(f, " {word}")?;
        }
        if self.memory_mib > 0 {
            write!(f, " with {} MiB", self.memory_mib)?;
        }
        Ok(())
    }
}

fn describe_gpus(gpus: &[Gpu]) -> String {
    if gpus.is_empty() {
        return "no GPU".to_owned();
    }
    let one = |gpu: &Gpu| format!("{} {} with {} MiB", gpu.vendor, gpu.model, gpu.memory_mib);
    gpus.iter().map(one).collect::<Vec<_>>().join(", ")
}
