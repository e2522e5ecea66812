//! Worker faults: what keeps a machine from doing its part, as its agent knows it now; a person should look.
//!
//! A fault judges no run and fences nobody. The agent says its current faults with a heartbeat when they have changed; the
//! control plane keeps the list and shows it. (Worker design, *Inbox*: quarantine; protocol, *heartbeat*.)

use crate::id::AttemptId;
use crate::time::UtcMillis;

names! {
    /// What is wrong.
    pub enum FaultKind as "worker fault" {
        /// A file of the state directory could not be trusted and was moved away.
        Quarantined = "quarantined",
        /// The disk is nearly full: nothing new is accepted.
        DiskLow = "disk_low",
        /// The state directory cannot be written.
        StateUnwritable = "state_unwritable",
        /// A part of the state directory cannot be read.
        StateUnreadable = "state_unreadable",
        /// The record of an attempt contradicts what is on disk.
        RecordDamaged = "record_damaged",
        /// The machine's wall clock is far from the control plane's.
        Clock = "clock",
        /// The control plane refuses something of an attempt for its size.
        TooLarge = "too_large",
        /// The control plane refuses a call about an attempt.
        Refused = "refused",
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// With which attempt, where it is about one.
    pub attempt: Option<AttemptId>,
    /// In words: what, where, what to do. At most [`crate::limits::FAULT_DETAIL_BYTES`]; never a secret.
    pub detail: String,
    /// Since when, by the worker's wall clock.
    pub since: UtcMillis,
}
