//! The command line: noun and verb, the frequent ones at top level. Each verb is a file that knows its flags, its help
//! and what it does. (Product, *The command line*.)

mod audit;
mod completion;
mod connected;
mod doctor;
mod following;
mod migrate_store;
mod openapi;
mod project;
mod run;
mod runs;
mod schedule;
mod serve;
mod task;
mod up;
mod version;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::failure;

/// Run commands on machines you own: never twice, never lost, never a guess
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = AFTER_HELP, arg_required_else_help = true)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  leasehold up -- sh -c 'uname -a'     a control plane, a worker and one run
  leasehold up                         the same, and stay
  leasehold run -- make test           run a command, follow its output
  leasehold ps                         what runs, what waits, what ended
  leasehold worker enroll --name nas   the line that makes a machine a worker

Exit codes:
  0 done · 1 error · 2 usage · 3 not found · 4 not allowed · 5 the run failed
  6 cancelled · 7 timed out · 8 lost or unknown
  9 still pending at --wait-timeout · 10 conflict · 130 interrupted";

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value per process: nothing is moved around")]
enum Command {
    /// Start a control plane and a worker on this machine; with a command, run it and end with its exit code
    Up(up::Up),
    /// Start a control plane: worker ingress and operator API
    Serve(serve::Serve),
    /// Run a command or a specification
    Run(run::Run),
    /// List, read, cancel and explain runs
    #[command(subcommand)]
    Runs(runs::Runs),
    /// List runs (the same as `runs list`)
    Ps(runs::list::List),
    /// Print the output of a run (the same as `runs logs`)
    Logs(runs::logs::Logs),
    /// Stop a run (the same as `runs cancel`)
    Cancel(runs::cancel::Cancel),
    /// Say why a run is still pending (the same as `runs explain`)
    Explain(runs::explain::Explain),
    /// Apply, list, run and delete tasks: what is kept in files
    #[command(subcommand)]
    Task(task::Task),
    /// See when tasks fire and what became of it; pause, resume and backfill
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Enroll machines, look at them, drain, resume and delete them
    #[command(subcommand)]
    Worker(worker::Worker),
    /// List, make, limit and delete projects
    #[command(subcommand)]
    Project(project::Project),
    /// See who changed what, when and from where
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Look after a control plane: is it well, and what is to be done
    Doctor(doctor::Doctor),
    /// Move the store of a control plane from SQLite to PostgreSQL
    MigrateStore(migrate_store::MigrateStore),
    #[command(name = "openapi", about = "Print the description of the operator API (OpenAPI 3.1)")]
    OpenApi(openapi::OpenApi),
    /// Print a completion script for a shell
    Completion(completion::Completion),
    /// Print the version of this program and of the control plane it reaches
    Version(version::Version),
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    // Prints usage, help and mistakes itself, and ends with 2 for a mistake.
    let CommandLine { command } = CommandLine::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            failure::tell(&anyhow::Error::new(error).context("cannot start the runtime"));
            return Exit::Error.into();
        }
    };
    let ended = runtime.block_on(execute(command));
    // A read of stdin or a write that hangs must not keep the process.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        Err(error) if failure::is_closed_pipe(&error) => Exit::Error.into(),
        Err(error) => {
            failure::tell(&error);
            failure::exit(&error).into()
        }
    }
}

async fn execute(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Up(up) => Box::pin(up.execute()).await,
        Command::Serve(serve) => serve.execute().await,
        Command::Run(run) => Box::pin(run.execute()).await,
        Command::Runs(runs) => runs.execute().await,
        Command::Ps(list) => list.execute().await,
        Command::Logs(logs) => logs.execute().await,
        Command::Cancel(cancel) => cancel.execute().await,
        Command::Explain(explain) => explain.execute().await,
        Command::Task(task) => task.execute().await,
        Command::Schedule(schedule) => schedule.execute().await,
        Command::Worker(worker) => worker.execute().await,
        Command::Project(project) => project.execute().await,
        Command::Audit(audit) => audit.execute().await,
        Command::Doctor(doctor) => doctor.execute().await,
        Command::MigrateStore(migrate) => Box::pin(migrate.execute()).await,
        Command::OpenApi(openapi) => openapi.execute(),
        Command::Completion(completion) => completion.execute(),
        Command::Version(version) => version.execute().await,
    }
}

/// Prints a document for programs.
fn print_json(document: &serde_json::Value) -> anyhow::Result<Exit> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    std::io::Write::write_all(&mut std::io::stdout().lock(), &text)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_verb_teaches_by_example() {
        fn check(command: &clap::Command, path: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:") && help.contains(path), "`{path}` has no example");
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        check(&CommandLine::command(), "leasehold");
    }

    #[test]
    fn no_help_is_wrapped_where_nobody_meant_it() {
        fn check(command: &clap::Command, path: &str) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for width in [80, 100] {
                let told = command.clone().term_width(width).render_long_help().to_string();
                assert!(told.ends_with(&format!("{}\n", after.trim_end())), "`{path} --help` at {width}:\n{told}");
                // A usage is one line, however long it is.
                let long = |line: &&str| line.chars().count() > width && !line.starts_with("Usage: ");
                assert_eq!(told.lines().find(long), None, "`{path} --help` at {width}");
            }
            command.get_subcommands().for_each(|inner| check(inner, &format!("{path} {}", inner.get_name())));
        }
        check(&CommandLine::command(), "leasehold");
    }

    #[test]
    fn every_variable_is_named_in_the_help_of_its_flag() {
        let up = CommandLine::command().find_subcommand_mut("up").unwrap().render_long_help().to_string();
        assert!(up.contains("LEASEHOLD_LISTEN"), "{up}");
    }
}
