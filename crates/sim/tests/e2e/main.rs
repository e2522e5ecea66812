//! End to end: the shipped binaries as real processes, one file per promise.
//!
//! `cargo xtask ci e2e` says which they are, `cargo test -p leasehold-sim` builds them: both in the dev profile, unless
//! `LEASEHOLD_BIN` and `LEASEHOLD_WORKER_BIN` name others.

mod at_the_machine;
mod bad_input;
mod cases;
mod chains;
mod control_groups;
mod control_plane_drain;
mod control_plane_faults;
mod damaged_files;
mod devices;
mod disks;
mod doctor;
mod examples;
mod exit_codes;
mod fault_points;
mod fences;
mod first_night;
mod freezer;
mod kill_the_agent;
mod live_jobs;
mod marks;
mod metrics;
mod operate;
mod postgres;
mod refusals;
mod releases;
mod rolling_upgrade;
mod schedules;
mod secrets;
mod serve_and_join;
mod signals;
mod survive;
mod tasks;
mod two_hundred_runs;
mod up_runs_a_command;
mod upgraded;
mod webhooks;
