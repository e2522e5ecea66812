//! `cargo xtask bench waiting` in a process of its own: the waiting workers, and what is measured with them.

use std::process::ExitCode;

use leasehold_sim::waiting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match waiting::main(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
