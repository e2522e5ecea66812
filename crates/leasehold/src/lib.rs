//! The command line of Leasehold, its control plane, and both with a worker in one command (`up`).
//!
//! Verbs live in `commands`, one file each; `compose` is the only place that picks a store. Data goes to stdout,
//! everything else to stderr. The clocks, randomness and environment of the process are read here and handed down; no
//! decision about a run, session or lease is made here. (Product, *The command line*; decisions.)

mod advertise;
mod client;
mod commands;
mod compose;
mod control_plane;
mod data_directory;
mod database;
mod doctor;
mod exit;
mod explanation;
mod failure;
mod follow;
mod interrupt;
mod local_worker;
mod log_words;
mod logging;
mod master_key;
mod output;
mod pairs;
mod question;
mod reference;
mod run_page;
mod run_request;
#[cfg(test)]
mod scripted_server;
mod service_manager;
mod spec;
mod sse;
mod system;
mod target;
mod task_files;
mod task_toml;
mod times;
mod waiting;

use std::process::ExitCode;

/// The binary: hidden sub-commands first, which must start before any thread or runtime exists; then the command line.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(hidden) if hidden == local_worker::LAUNCHER => {
            leasehold_worker::launcher::main(arguments, &system::SystemClock)
        }
        Some(hidden) if hidden == local_worker::WORKER_PROCESS => local_worker::main(arguments),
        _ => {
            database::hide_password();
            commands::main()
        }
    }
}
