//! What is on disk about a launch, asked in the one order that cannot mislead: lock, barrier, receipt.
//!
//! A free lock makes the other two final (nobody is left who writes them). A held lock may become free while the
//! rest is read; then the receipt that is read says so. (Worker design, *The decidable spawn barrier*.)

use leasehold_core::attempt::Callback;
use leasehold_core::id::{AttemptId, BootId};
use leasehold_core::verdict::{BarrierFact, LockFact, ReceiptFact};

use super::barrier::{Barrier, BarrierError, JobIdentity, link_tombstone};
use super::receipt::{Conclusion, Receipt, ReceiptError};
use crate::attempt_dir::AttemptDir;
use crate::durable::DurableError;

/// What was found.
#[derive(Debug)]
pub struct Observation {
    /// Whether a launcher (or its child before the exec) lives.
    pub lock: LockFact,
    /// Who stands at the barrier.
    pub barrier: Option<Barrier>,
    /// The launcher's last word.
    pub receipt: Option<Receipt>,
    /// What is there and cannot be trusted, for people. A receipt that cannot is none; a barrier that cannot is still
    /// taken, and never a proof that nothing ran.
    pub damage: Vec<String>,
}

/// An attempt's directory cannot be read; nothing may be concluded.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The lock cannot be asked.
    #[error("the attempt's lock cannot be asked: {0}")]
    Lock(#[from] std::io::Error),
    /// The barrier cannot be read or linked.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// The receipt cannot be read.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
}

/// Looks, and changes nothing.
pub fn observe(dir: &AttemptDir) -> Result<Observation, ObserveError> {
    let lock = if dir.is_locked()? { LockFact::Held } else { LockFact::Free };
    look_behind(lock, dir)
}

/// Barrier, then receipt.
fn look_behind(lock: LockFact, dir: &AttemptDir) -> Result<Observation, ObserveError> {
    let mut damage = Vec::new();
    let barrier = match Barrier::read(dir) {
        Err(error @ (BarrierError::Damaged(_) | BarrierError::Durable(DurableError::Unsafe { .. }))) => {
            damage.push(error.to_string());
            Some(Barrier::Unreadable)
        }
        read => read?,
    };
    let receipt = match Receipt::read(dir) {
        Err(error @ (ReceiptError::Damaged(_) | ReceiptError::Durable(DurableError::Unsafe { .. }))) => {
            damage.push(error.to_string());
            None
        }
        read => read?,
    };
    Ok(Observation { lock, barrier, receipt, damage })
}

/// Decides the barrier: links a tombstone where nobody stands, then looks. Only in the boot that wrote `launching`,
/// and only for an attempt that is not to start any more.
pub fn decide(dir: &AttemptDir, this_boot: &BootId) -> Result<Observation, ObserveError> {
    let lock = if dir.is_locked()? { LockFact::Held } else { LockFact::Free };
    // Whoever won, the name is there now.
    link_tombstone(dir, this_boot).map_err(BarrierError::from)?;
    look_behind(lock, dir)
}

impl Observation {
    /// The barrier, for the verdict.
    pub fn barrier_fact(&self) -> BarrierFact {
        match &self.barrier {
            None => BarrierFact::Absent,
            Some(Barrier::Tombstone) => BarrierFact::Tombstone,
            // Whoever it is, he may have executed.
            Some(Barrier::Child(_) | Barrier::Unreadable) => BarrierFact::Child,
        }
    }

    /// The receipt, for the verdict. One that is not authentic is none.
    pub fn receipt_fact(&self, attempt: AttemptId, callback: &Callback) -> ReceiptFact {
        match self.authentic_receipt(attempt, callback).map(|receipt| &receipt.conclusion) {
            None => ReceiptFact::Absent,
            Some(Conclusion::Rejected(rejection)) => ReceiptFact::Rejected(rejection.reason),
            Some(Conclusion::Ended(_)) => ReceiptFact::Ended,
        }
    }

    /// The receipt, if it is the word of the launch that `callback` names.
    pub fn authentic_receipt(&self, attempt: AttemptId, callback: &Callback) -> Option<&Receipt> {
        self.receipt.as_ref().filter(|receipt| receipt.is_authentic(attempt, callback))
    }

    /// The identity that a child left, for the handle and for stopping what a dead launcher left behind.
    pub fn identity(&self) -> Option<&JobIdentity> {
        match &self.barrier {
            Some(Barrier::Child(identity)) => Some(identity),
            _ => None,
        }
    }
}
