//! The launcher with real processes, through the released binary's hidden sub-command.
#![expect(clippy::unwrap_used, reason = "in the harness of a test a panic is the report")]

mod barrier;
mod cgroup;
mod disk;
#[path = "../support/executable.rs"]
mod executable;
mod launch;
mod output;
mod run;
mod run_as;
mod stop;
mod stubborn;
