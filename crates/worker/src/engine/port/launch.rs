//! What a launcher is given, what it says, and what it leaves on disk.

use leasehold_core::attempt::{Callback, Handle, Left, LogPin, RejectReason, Usage};
use leasehold_core::crypto::CompletionToken;
use leasehold_core::end::Ending;
use leasehold_core::offer::Offer;
use leasehold_core::time::{BootInstant, Millis};
use leasehold_core::verdict::{BarrierFact, LockFact};

/// Everything a launcher needs to start one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The offer.
    pub offer: Offer,
    /// When the lease may end.
    pub lease_deadline: BootInstant,
    /// How long a renewal makes it last.
    pub lease: Millis,
    /// When the process has run long enough.
    pub timeout_at: Option<BootInstant>,
    /// Which launch this is.
    pub callback: Callback,
    /// Proves that a receipt is this launch's.
    pub token: CompletionToken,
}

/// What the launcher said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchAnswer {
    /// The user's process was started; the control connection is there.
    Started(Handle),
    /// Nothing of the user's ran.
    Rejected {
        /// Which step refused.
        reason: RejectReason,
        /// In the launcher's words.
        detail: String,
    },
    /// Neither is certain.
    Unknown(String),
}

/// What is on disk about one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whether its directory is there.
    pub directory: bool,
    /// Whose name stands on the spawn barrier.
    pub barrier: BarrierFact,
    /// The child that the barrier names.
    pub handle: Option<Handle>,
    /// The launcher's last word.
    pub receipt: Option<Receipt>,
    /// Whether a launcher, or its child before the exec, lives.
    pub lock: LockFact,
    /// Framed bytes of the log.
    pub log: u64,
}

/// A launcher's last word, not yet known to be authentic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// How it ended: exited, stopped or rejected.
    pub ending: Ending,
    /// Which launch says so.
    pub callback: Callback,
    /// The token whose digest the inbox record holds.
    pub token: CompletionToken,
    /// The log, complete.
    pub log: Option<LogPin>,
    /// What the job used up.
    pub usage: Option<Usage>,
    /// What the kernel would not let go when the launcher stopped it, unless it went since.
    pub left: Option<Left>,
    /// Something was left, and went.
    pub left_gone: bool,
}
