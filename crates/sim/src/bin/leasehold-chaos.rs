//! `cargo xtask chaos` in a process of its own: the run, and, as `job`, the program that its jobs execute.

use std::process::ExitCode;

use leasehold_sim::chaos;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((word, rest)) if word == "job" => chaos::job(rest, variable),
        _ => chaos::main(&arguments),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the binary: what its launcher tells a job")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
