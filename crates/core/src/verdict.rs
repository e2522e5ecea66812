//! The recovery verdict: what a restarted agent may conclude about an attempt, from observed facts alone.
//!
//! The spawn barrier is one name that exactly one side can create, so a launch is *decided*, not guessed. A tombstone
//! proves something only in the boot that wrote `launching`. (Worker design, *The decidable spawn barrier*; beyond
//! ADR-0111, which leaves a crash after `launching` unknown.)

use crate::attempt::RejectReason;

/// Whose name stands on the barrier, after recovery tried to link its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierFact {
    /// Nobody's (only seen while nothing was tried, or when the directory is missing).
    Absent,
    /// Recovery's tombstone: the launcher can no longer win.
    Tombstone,
    /// A child's: about to execute, running, or ended.
    Child,
}

/// What the launcher left as its last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptFact {
    /// No receipt, or none that is authentic.
    Absent,
    /// Nothing of the user's ran.
    Rejected(RejectReason),
    /// The process ended.
    Ended,
}

/// Whether a launcher (or a child before its exec) lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockFact {
    /// Somebody holds the attempt's lock.
    Held,
    /// Nobody does.
    Free,
}

/// How far the inbox record had come, as far as the verdict needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// `accepted`: nothing was acknowledged.
    Accepted,
    /// `starting_acknowledged`: the launcher was never called.
    BeforeLaunch,
    /// `launching` or later: the launcher may have been called.
    Launched,
}

/// What was observed about one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// How far the record had come.
    pub progress: Progress,
    /// Whether the record was written in this boot.
    pub same_boot: bool,
    /// Whether the attempt's directory is there.
    pub directory: bool,
    /// The barrier.
    pub barrier: BarrierFact,
    /// The receipt.
    pub receipt: ReceiptFact,
    /// The lock.
    pub lock: LockFact,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was acknowledged: go on where it stopped, with `starting`.
    Resume,
    /// Nothing of the user's ran, and the launcher says why.
    NotSpawned(RejectReason),
    /// Nothing of the user's ran, and nothing can any more: always safe to retry.
    NeverSpawned,
    /// Its receipt is there: submit it.
    Ended,
    /// It runs: re-attach and carry on.
    Running,
    /// A launcher is at work and has not decided yet: ask the barrier again when its lock is free or its name is there.
    Undecided,
    /// The launcher died: stop what its identity names, verify, then it is lost.
    LauncherDied,
    /// The machine started anew: lost when the lease ends.
    Rebooted,
    /// The record contradicts itself: never a proof.
    Damaged,
}

/// Judges one attempt.
pub fn judge(observed: Observed) -> Verdict {
    let Observed { progress, same_boot, directory, barrier, receipt, lock } = observed;
    match (receipt, progress) {
        (ReceiptFact::Rejected(reason), Progress::Launched) => return Verdict::NotSpawned(reason),
        (ReceiptFact::Ended, Progress::Launched) => return Verdict::Ended,
        // A receipt before any launch is not this record's.
        (ReceiptFact::Rejected(_) | ReceiptFact::Ended, _) => return Verdict::Damaged,
        (ReceiptFact::Absent, _) => {}
    }
    match progress {
        Progress::Accepted => Verdict::Resume,
        Progress::BeforeLaunch if same_boot => Verdict::NeverSpawned,
        Progress::BeforeLaunch => Verdict::Rebooted,
        Progress::Launched if !same_boot => Verdict::Rebooted,
        Progress::Launched if !directory => Verdict::Damaged,
        Progress::Launched => match (barrier, lock) {
            (BarrierFact::Tombstone, _) => Verdict::NeverSpawned,
            (BarrierFact::Child, LockFact::Held) => Verdict::Running,
            (BarrierFact::Child, LockFact::Free) => Verdict::LauncherDied,
            (BarrierFact::Absent, _) => Verdict::Undecided,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed() -> Observed {
        Observed {
            progress: Progress::Launched,
            same_boot: true,
            directory: true,
            barrier: BarrierFact::Child,
            receipt: ReceiptFact::Absent,
            lock: LockFact::Held,
        }
    }

    fn all() -> impl Iterator<Item = Observed> {
        let progress = [Progress::Accepted, Progress::BeforeLaunch, Progress::Launched];
        let barrier = [BarrierFact::Absent, BarrierFact::Tombstone, BarrierFact::Child];
        let receipt = [ReceiptFact::Absent, ReceiptFact::Rejected(RejectReason::Exec), ReceiptFact::Ended];
        let mut facts = Vec::new();
        for progress in progress {
            for barrier in barrier {
                for receipt in receipt {
                    for bits in 0..8u8 {
                        facts.push(Observed {
                            progress,
                            same_boot: bits & 1 == 0,
                            directory: bits & 2 == 0,
                            barrier,
                            receipt,
                            lock: if bits & 4 == 0 { LockFact::Held } else { LockFact::Free },
                        });
                    }
                }
            }
        }
        facts.into_iter()
    }

    #[test]
    fn the_table_of_the_worker_design_holds_row_by_row() {
        let rejected = ReceiptFact::Rejected(RejectReason::Exec);
        for (facts, verdict) in [
            (Observed { receipt: rejected, ..observed() }, Verdict::NotSpawned(RejectReason::Exec)),
            (Observed { receipt: rejected, same_boot: false, ..observed() }, Verdict::NotSpawned(RejectReason::Exec)),
            (Observed { receipt: ReceiptFact::Ended, ..observed() }, Verdict::Ended),
            (Observed { receipt: ReceiptFact::Ended, same_boot: false, ..observed() }, Verdict::Ended),
            (Observed { barrier: BarrierFact::Tombstone, ..observed() }, Verdict::NeverSpawned),
            (observed(), Verdict::Running),
            (Observed { lock: LockFact::Free, ..observed() }, Verdict::LauncherDied),
            (Observed { same_boot: false, ..observed() }, Verdict::Rebooted),
            (Observed { directory: false, barrier: BarrierFact::Absent, ..observed() }, Verdict::Damaged),
        ] {
            assert_eq!(judge(facts), verdict, "{facts:?}");
        }
    }

    #[test]
    fn never_spawned_is_proven_only_in_the_boot_of_the_record() {
        for facts in all().filter(|facts| judge(*facts) == Verdict::NeverSpawned) {
            assert!(facts.same_boot, "{facts:?}");
            assert_eq!(facts.receipt, ReceiptFact::Absent, "{facts:?}");
            assert!(facts.progress == Progress::BeforeLaunch || facts.barrier == BarrierFact::Tombstone, "{facts:?}");
        }
    }

    #[test]
    fn a_running_verdict_needs_the_childs_name_and_a_held_lock() {
        for facts in all().filter(|facts| judge(*facts) == Verdict::Running) {
            assert!(facts.same_boot && facts.barrier == BarrierFact::Child && facts.lock == LockFact::Held);
        }
    }
}
