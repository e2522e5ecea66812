//! The disk of the machine: the state directory of its agent, and the attempts' directories.

use std::collections::BTreeMap;

use leasehold_core::attempt::Handle;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::inbox::InboxState;
use leasehold_core::verdict::{BarrierFact, LockFact};

use super::World;
use crate::engine::port::{Ask, Effect, Found, Receipt};
use crate::inbox::record::Record;
use crate::session_file::SessionFile;

/// What survives a crash of the agent.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) session: SessionFile,
    pub(crate) asks: Vec<Ask>,
    pub(crate) records: BTreeMap<OfferId, Record>,
    pub(crate) directories: BTreeMap<AttemptId, Directory>,
    /// Whether a person at the machine drained it.
    pub(crate) drained_here: bool,
    pub(crate) writes: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Barrier {
    #[default]
    Absent,
    Tombstone,
    Child(Handle),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    pub(super) barrier: Barrier,
    pub(super) receipt: Option<Receipt>,
    pub(super) locked: bool,
    pub(super) log: u64,
}

impl Disk {
    /// The directory of an attempt that has one.
    pub(super) fn directory(&mut self, attempt: AttemptId) -> &mut Directory {
        self.directories.get_mut(&attempt).unwrap()
    }
}

impl World {
    pub(super) fn write(&mut self, effect: &Effect) {
        match effect {
            Effect::WriteRecord { record, .. } => {
                if let Some(old) = self.disk.records.get(&record.id()) {
                    let next = old.version == record.version || record.may_replace(old);
                    assert!(next, "seed {}: {:?} over {:?}", self.seed, record.stage, old.stage);
                }
                self.disk.records.insert(record.id(), (**record).clone());
            }
            Effect::RemoveRecord { offer, .. } => {
                let old = self.disk.records.remove(offer);
                // An offer that the disk did not take is removed without ever having been acknowledged.
                let removable = |state: InboxState| state.is_settled() || state == InboxState::Accepted;
                assert!(old.is_none_or(|old| removable(old.state())), "seed {}: an open record removed", self.seed);
            }
            Effect::WriteSession { file, .. } => self.disk.session = (**file).clone(),
            Effect::WriteAsks { asks, .. } => self.disk.asks.clone_from(asks),
            Effect::CreateDirectory { attempt, .. } => {
                self.disk.directories.entry(*attempt).or_default();
            }
            Effect::RemoveDirectory { attempt, .. } => {
                // One that is only on its way may lose its directory: it never makes one, and cannot link in it.
                let alive = |directory: &Directory| directory.locked && matches!(directory.barrier, Barrier::Child(_));
                let alive = self.disk.directories.get(attempt).is_some_and(alive);
                assert!(!alive, "seed {}: the directory of a running job removed\n{}", self.seed, self.story());
                self.disk.directories.remove(attempt);
            }
            _ => {}
        }
    }

    pub(super) fn observe(&mut self, attempt: AttemptId, tombstone: bool) -> Found {
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            return Found {
                directory: false,
                barrier: BarrierFact::Absent,
                handle: None,
                receipt: None,
                lock: LockFact::Free,
                log: 0,
            };
        };
        let lock = if directory.locked { LockFact::Held } else { LockFact::Free };
        if tombstone && matches!(directory.barrier, Barrier::Absent) {
            directory.barrier = Barrier::Tombstone;
        }
        Found {
            directory: true,
            barrier: match &directory.barrier {
                Barrier::Absent => BarrierFact::Absent,
                Barrier::Tombstone => BarrierFact::Tombstone,
                Barrier::Child(_) => BarrierFact::Child,
            },
            handle: match &directory.barrier {
                Barrier::Child(handle) => Some(handle.clone()),
                Barrier::Absent | Barrier::Tombstone => None,
            },
            receipt: directory.receipt.clone(),
            lock,
            log: directory.log,
        }
    }
}
