//! Chaos: the real binaries on machines of their own, jobs that write down what they do, and faults drawn from a seed.
//!
//! Afterwards a checker compares what the jobs wrote with what the product says, against the invariants of the design. A
//! plan is printed before it is carried out, and the same seed makes the same plan and the same load again; the moments
//! in between are the machine's. Needs root, for the machines are network namespaces. (Design, *How we know*.)

mod api;
mod checker;
mod errand;
mod fault;
mod history;
mod host;
mod jobs;
mod load;
mod plan;
mod replicas;
mod report;
mod run;
mod secrets;
mod service;
mod world;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

/// The program that the jobs of a chaos run execute; `variable` reads the environment.
pub fn job(arguments: &[String], variable: impl Fn(&str) -> Option<String>) -> Result<u8> {
    jobs::run(arguments, variable)
}

/// A chaos run as its command line asks for it; the exit code of the process: 0 when every invariant holds.
pub fn main(arguments: &[String]) -> Result<u8> {
    run::main(arguments)
}

/// The boot-time clock, in milliseconds: the one clock that everybody here shares.
fn boot_millis() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}
