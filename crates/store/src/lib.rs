//! The store port of Leasehold: what the control plane may ask of a database, and what it may conclude from the answer.
//!
//! Each method of [`port::Store`] is one short transaction with a name from the domain: load, decide by a function of
//! `leasehold-core`, write. No caller composes transactions and no SQL leaves an adapter. [`contract`] is one suite
//! of tests for every implementation, [`model`] the implementation in memory, [`faulty`] the one that fails on purpose.
//! (Control design, *Store*; ADR-0012 §6.)

pub mod announcement;
pub mod call;
#[cfg(feature = "test-suite")]
pub mod contract;
#[cfg(feature = "test-suite")]
pub mod faulty;
pub mod hint;
pub mod method;
#[cfg(feature = "test-suite")]
pub mod model;
pub mod observe;
pub mod outcome;
pub mod port;
pub mod view;
pub mod webhook;
