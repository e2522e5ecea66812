//! The decidable spawn barrier: one name that exactly one side can create.
//!
//! The child links its identity to it just before it executes; recovery links a tombstone to it. Whoever is second
//! does nothing. In the boot that wrote `launching` a tombstone proves that nothing ran and nothing will; the
//! child's file *is* the handle. No fsync: within a boot the page cache is the truth.
//! (Worker design, *The decidable spawn barrier*.)

use leasehold_core::counter::AttemptNumber;
use leasehold_core::id::{BootId, RunId};
use serde::{Deserialize, Serialize};

use crate::attempt_dir::{AttemptDir, BARRIER};
use crate::durable::{Dir, DurableError, Latched};
use crate::fault::steps::file;
use crate::process_identity::ProcessIdentity;

const SCHEMA: &str = "leasehold/barrier/v1";
const BARRIER_BYTES: usize = 8192;

/// Who stands at the barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Barrier {
    /// A job's process: about to execute, or it did.
    Child(JobIdentity),
    /// Recovery: nothing ran, nothing will.
    Tombstone,
    /// Somebody, in a file that cannot be trusted. The name is taken; whose it is nobody can tell.
    Unreadable,
}

/// Everything by which a job's processes can be found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIdentity {
    /// The direct child; leader of the job's process group.
    pub process: ProcessIdentity,
    /// The launcher; leader of the job's session.
    pub launcher: ProcessIdentity,
    /// Which run, as the job's environment says it.
    pub run: RunId,
    /// Which attempt of it, as the job's environment says it.
    pub attempt_number: AttemptNumber,
    /// The directory of the control group that its processes are in, if they are in one of their own.
    pub cgroup: Option<String>,
}

/// A barrier exists and cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// The file cannot be read or created.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The file is not a barrier of this version.
    #[error("the barrier is damaged: {0}")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    holder: Holder,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Holder {
    Child { process: String, launcher: String, run: String, attempt_number: u64, cgroup: Option<String> },
    Tombstone { boot: String },
}

impl Barrier {
    /// Who stands at the barrier, if anybody.
    pub fn read(dir: &AttemptDir) -> Result<Option<Self>, BarrierError> {
        let Some(bytes) = dir.dir().read(BARRIER, BARRIER_BYTES)? else { return Ok(None) };
        let damaged = |why: &dyn std::fmt::Display| BarrierError::Damaged(why.to_string());
        let file: File = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if file.schema != SCHEMA {
            return Err(BarrierError::Damaged(format!("unknown schema `{}`", file.schema)));
        }
        Ok(Some(match file.holder {
            Holder::Tombstone { .. } => Self::Tombstone,
            Holder::Child { process, launcher, run, attempt_number, cgroup } => Self::Child(JobIdentity {
                process: process.parse().map_err(|error| damaged(&error))?,
                launcher: launcher.parse().map_err(|error| damaged(&error))?,
                run: run.parse().map_err(|error| damaged(&error))?,
                attempt_number: AttemptNumber::new(attempt_number).map_err(|error| damaged(&error))?,
                cgroup,
            }),
        }))
    }
}

/// The child's side: links its identity.
pub(super) fn link_child(dir: &Dir, identity: &JobIdentity) -> Result<Latched, DurableError> {
    let holder = Holder::Child {
        process: identity.process.to_string(),
        launcher: identity.launcher.to_string(),
        run: identity.run.to_string(),
        attempt_number: identity.attempt_number.get(),
        cgroup: identity.cgroup.clone(),
    };
    dir.latch::<file::Barrier>(BARRIER, "child", &content(holder))
}

/// Recovery's side: links a tombstone. `Won` in the boot that wrote `launching` proves that nothing ran and nothing
/// will; `Taken` means that [`Barrier::read`] has the answer.
pub fn link_tombstone(dir: &AttemptDir, this_boot: &BootId) -> Result<Latched, DurableError> {
    let holder = Holder::Tombstone { boot: this_boot.to_string() };
    dir.dir().latch::<file::Tombstone>(BARRIER, "tombstone", &content(holder))
}

fn content(holder: Holder) -> Vec<u8> {
    // Strings and numbers always serialize; an empty file would read as damaged, never as a proof.
    serde_json::to_vec(&File { schema: SCHEMA.to_owned(), holder }).unwrap_or_default()
}
