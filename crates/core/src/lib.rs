//! The law of Leasehold.
//!
//! Every rule of the product (may this session register, may this attempt start, is this lease lost, which
//! worker fits) is a function of this crate: state and facts in, verdict out. Both stores, the worker, the
//! simulation and the model call the same functions, so there is one place to read a rule and one to change it.
//!
//! Never here: I/O, async, serde, a clock, an environment variable. Time and randomness arrive as the
//! [`time::Clock`] and [`time::Entropy`] parameters; the cryptographic provider is named in [`crypto`] alone.

#[macro_use]
pub mod names;

pub mod actor;
pub mod admission;
pub mod attempt;
pub mod cancel;
pub mod canonical;
pub mod capability;
pub mod chain;
pub mod change;
pub mod claim;
pub mod clock_step;
pub mod counter;
pub mod crypto;
pub mod database;
pub mod deadline;
pub mod device;
pub mod directive;
pub mod disk;
pub mod end;
pub mod enrollment;
pub mod event;
pub mod expiry;
pub mod fault;
pub mod frame;
pub mod id;
pub mod inbox;
pub mod join;
pub mod lease;
pub mod limits;
pub mod log;
pub mod lost;
pub mod occupancy;
pub mod offer;
pub mod placement;
pub mod project;
pub mod rate;
pub mod refusal;
pub mod registration;
pub mod remains;
pub mod resolve;
pub mod retry;
pub mod revision;
pub mod role;
pub mod run;
pub mod schedule;
pub mod session;
pub mod shape;
pub mod task;
pub mod ticket;
pub mod time;
pub mod trigger;
pub mod verdict;
pub mod version;
pub mod worker;
