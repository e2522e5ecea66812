//! `leasehold-worker`: the small binary of an edge device.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_worker::cli::run(std::env::args_os().skip(1), &[])
}
