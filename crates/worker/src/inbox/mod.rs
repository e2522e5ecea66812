//! The inbox: one file per offer, extended in place from delivery to settlement. There is no second journal.
//!
//! (Worker design, *Inbox*; ADR-0111 §1.)

pub mod directory;
pub mod file;
pub mod record;
