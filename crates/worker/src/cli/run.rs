//! `leasehold-worker run`: the agent, until it is told to stop; and again, by this very process, where it starts over.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};
use tracing::level_filters::LevelFilter;

use super::{Asked, Usage, configured, environment, fail, log, text_variable};
use crate::config::Flags;
use crate::detect::Found;
use crate::launcher::environment::{DEFAULT_PATH, UserEnvironment};
use crate::launcher::spawn::LauncherProgram;
use crate::machine::{MachineClock, MachineEntropy};
use crate::run::{Ended, Options, run as run_worker};
use crate::start;

pub(super) const HELP: &str = "\
Takes work and runs it, until it is told to stop.

Usage: leasehold-worker run [OPTIONS]

  --state-dir DIR       where `join` put the identity (or LEASEHOLD_WORKER_STATE_DIR);
                        default /var/lib/leasehold-worker, or ~/.local/state/leasehold-worker
  --server URL          where the control plane is now, if it moved since `join` (or LEASEHOLD_WORKER_SERVER)
  --config FILE         read this file instead of /etc/leasehold/worker.toml
  --slots N             runs at once, 1 to 256 (or LEASEHOLD_WORKER_SLOTS); default one per core
  --label KEY=VALUE     what a placement may ask for; repeatable (or LEASEHOLD_WORKER_LABELS=a=1,b=2)
  --drain-timeout TIME  how long running jobs may take to finish after SIGTERM, such as 90s or 10m
                        (or LEASEHOLD_WORKER_DRAIN_TIMEOUT); default 10m
  --run-as USER         a user that jobs may run as; repeatable; for a worker that runs as root the first
                        is the default (or LEASEHOLD_WORKER_RUN_AS=a,b)
  --allow-root          jobs may run as root (or LEASEHOLD_WORKER_ALLOW_ROOT=1)
  --take-over           try again with a state directory that had stopped for good (exit codes 20 and 25), once
                        `leasehold worker grant-takeover NAME` has allowed it
  -q, --quiet           say only what is wrong

Signals:
  SIGTERM, SIGINT       take nothing new, let running jobs finish, leave; a second one stops the jobs
  SIGUSR1               leave at once; running jobs go on, and the next start carries them on
  SIGHUP                look at the machine again and register anew; running jobs go on

Exit codes: 0 done, 1 error, 2 usage, 20 fenced, 21 revoked, 22 protocol refused, 23 drain timed out,
            24 identity or state directory refused, 25 ticket spent

Example:
  leasehold-worker run --label zone=home --slots 4
";

pub(super) fn asked(mut parser: Parser, prefix: &[&str]) -> Result<Asked, Usage> {
    let (mut flags, mut quiet, mut take_over) = (Flags::default(), false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("server") => flags.server = Some(parser.value()?.string()?),
            Arg::Long("slots") => flags.slots = Some(parser.value()?.string()?),
            Arg::Long("label") => flags.labels.push(parser.value()?.string()?),
            Arg::Long("drain-timeout") => flags.drain_timeout = Some(parser.value()?.string()?),
            Arg::Long("run-as") => flags.run_as.push(parser.value()?.string()?),
            Arg::Long("allow-root") => flags.allow_root = true,
            Arg::Long("take-over") => take_over = true,
            Arg::Long("quiet") | Arg::Short('q') => quiet = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(HELP)),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut config = configured(&flags)?;
    if quiet {
        config.logging.level = config.logging.level.min(LevelFilter::WARN);
    }
    let program = LauncherProgram::default();
    let before = prefix.iter().map(OsString::from);
    Ok(Asked::Run(Box::new(Options {
        config,
        take_over,
        user: user_environment(),
        watchdog: sd_notify::watchdog_enabled(),
        found: text_variable(start::FOUND).and_then(|text| Found::from_text(&text)),
        launcher: LauncherProgram { arguments: before.chain(program.arguments).collect(), ..program },
    })))
}

/// What every job inherits of this process's environment.
fn user_environment() -> UserEnvironment {
    let default = UserEnvironment::default();
    UserEnvironment {
        path: text_variable("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned()),
        home: text_variable("HOME").unwrap_or(default.home),
        lang: text_variable("LANG").unwrap_or(default.lang),
        user: text_variable("USER").unwrap_or_else(own_user),
    }
}

/// A service often has no `USER`: then the machine's own file says who this is, and else the number does.
fn own_user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    crate::run::users::name_of(uid).unwrap_or_else(|| uid.to_string())
}

pub(super) fn execute(options: &Options, arguments: &[OsString], prefix: &[&str]) -> ExitCode {
    log(&options.config);
    let program = own_file();
    match run_worker(options, &MachineClock, MachineEntropy) {
        Ok(Ended { exit, found }) => match exit.code() {
            Some(code) => ExitCode::from(code),
            None => start_over(program.as_deref(), arguments, prefix, found.as_ref()),
        },
        Err(error) => fail(&error, error.code()),
    }
}

/// The file that this process was started from, by the name it had then: an upgrade puts another file there.
fn own_file() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    // The kernel's word for a file that was replaced already, before an earlier start over.
    let name = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Some(name.unwrap_or(path))
}

/// The start path again, by the same process, so that the launchers stay its children: with the binary that stands on
/// disk now or, where that cannot be executed, with the one that runs; and with what need not be looked for again.
fn start_over(program: Option<&Path>, arguments: &[OsString], prefix: &[&str], found: Option<&Found>) -> ExitCode {
    let found = found.and_then(Found::to_text).map(|text| (start::FOUND.into(), text.into()));
    let environment: Vec<_> = environment().filter(|(name, _)| name != start::FOUND).chain(found).collect();
    let line: Vec<&OsStr> = prefix.iter().map(OsStr::new).chain(arguments.iter().map(OsString::as_os_str)).collect();
    if let Some(program) = program {
        let error = start::exec(program, &line, &environment);
        tracing::error!("{} cannot be executed, the binary that runs goes on: {error}", program.display());
    }
    let error = start::exec(Path::new("/proc/self/exe"), &line, &environment);
    fail(&format!("cannot start over: {error}"), 1)
}
