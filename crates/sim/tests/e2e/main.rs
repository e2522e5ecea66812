//! End to end: the shipped binaries as real processes, one file per promise.
//!
//! `cargo xtask ci e2e` hands over the release build; `cargo test -p leasehold-sim` builds and uses the dev profile.

mod bad_input;
mod examples;
mod kill_the_agent;
mod refusals;
mod serve_and_join;
mod two_hundred_runs;
mod up_runs_a_command;
