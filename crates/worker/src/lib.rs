//! The headless worker of Leasehold: agent, inbox, launcher.
//!
//! It talks to one control plane and to processes of its own machine; it never reaches a store, a SQL driver or the
//! control plane's services.

pub mod attempt_dir;
pub mod cgroup;
pub mod cli;
pub mod client;
pub mod config;
pub mod detect;
pub mod doctor;
pub mod durable;
pub mod engine;
pub mod fault;
pub mod identity;
pub mod inbox;
pub mod join;
pub mod launcher;
pub mod logging;
pub mod machine;
pub mod orphans;
pub mod pause;
pub mod pending_claims;
pub mod process_identity;
pub mod run;
pub mod session_file;
mod start;
pub mod state;
pub mod state_dir;
pub mod status;
