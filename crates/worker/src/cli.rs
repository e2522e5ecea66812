//! The worker's command line: `join`, `run`, and the hidden `launcher`. Shared by the small binary and by `leasehold up`,
//! which runs the same worker from its own binary behind a hidden sub-command.
//!
//! This is the entry of a binary: the one place of the crate that reads the environment.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use lexopt::{Arg, Parser, ValueExt};
use tracing::level_filters::LevelFilter;

use crate::config::{Config, ConfigError, Flags, Surroundings};
use crate::durable::fault;
use crate::join::{address_of, join};
use crate::launcher;
use crate::launcher::environment::{DEFAULT_PATH, UserEnvironment};
use crate::launcher::spawn::LauncherProgram;
use crate::logging;
use crate::machine::{MachineClock, MachineEntropy};
use crate::run::{Options, run as run_worker};

const HELP: &str = "\
leasehold-worker: runs what a Leasehold control plane hands to this machine

Usage:
  leasehold-worker join URL --token TOKEN   make this machine a worker, once
  leasehold-worker run                      take work and run it

Examples:
  On the control plane:  leasehold worker enroll --name nas
  Here:                  leasehold-worker join https://control.example:7443 --token lhj1_…
                         leasehold-worker run --label zone=home --slots 4

`leasehold-worker COMMAND --help` says more.
";

const JOIN_HELP: &str = "\
Makes this machine a worker, once. The private key is made here and never leaves.

Usage: leasehold-worker join URL --token TOKEN [--state-dir DIR] [--allow-root]

  URL                https://HOST:7443, as `leasehold worker enroll` prints it
  --token TOKEN      the join token it prints (or LEASEHOLD_WORKER_TOKEN); good for one machine
  --state-dir DIR    where the identity is kept (or LEASEHOLD_WORKER_STATE_DIR)
  --allow-root       jobs of this worker may run as root

Example:
  leasehold-worker join https://control.example:7443 --token lhj1_…
";

const RUN_HELP: &str = "\
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

/// What is wrong with the command line, and what would be right.
#[derive(Debug)]
struct Usage(String);

impl From<ConfigError> for Usage {
    fn from(error: ConfigError) -> Self {
        Self(error.to_string())
    }
}

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Self {
        Self(error.to_string())
    }
}

enum Asked {
    Help(&'static str),
    Version,
    Join { url: String, token: String, config: Box<Config> },
    Run(Box<Options>),
}

/// Runs the worker's command line. `prefix` is what stands before these arguments in a call of the current binary:
/// nothing for `leasehold-worker`, the hidden sub-command for `leasehold`.
///
/// Call it before any thread or runtime exists: it may become a launcher.
pub fn run(arguments: impl IntoIterator<Item = OsString>, prefix: &[&str]) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Err(error) = arm_fault() {
        return fail(&error, 2);
    }
    if arguments.first().is_some_and(|first| first == "launcher") {
        return launcher::main(arguments.into_iter().skip(1), &MachineClock);
    }
    match asked(&arguments, prefix) {
        Ok(Asked::Help(text)) => print(text),
        Ok(Asked::Version) => print(concat!("leasehold-worker ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Asked::Join { url, token, config }) => become_worker(&url, &token, &config),
        Ok(Asked::Run(options)) => work(&options, &arguments, prefix),
        Err(Usage(why)) => fail(&format!("{why}\nTry `leasehold-worker --help`."), 2),
    }
}

fn log(config: &Config) {
    // Refused only where a subscriber is set already, as inside a test's process.
    let _ = logging::start(config.logging, Arc::new(MachineClock));
}

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    // A reader that closed the pipe has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn fail(why: &dyn std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("leasehold-worker: {why}");
    ExitCode::from(code)
}

/// Fault points are armed by tests through the environment, never by configuration.
fn arm_fault() -> Result<(), fault::FaultError> {
    if let Some(text) = variable(fault::VARIABLE) {
        fault::arm(text.to_string_lossy().parse()?);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the entry of a binary reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn text_variable(name: &str) -> Option<String> {
    variable(name).map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

fn asked(arguments: &[OsString], prefix: &[&str]) -> Result<Asked, Usage> {
    let mut parser = Parser::from_args(arguments.iter().cloned());
    match parser.next()? {
        Some(Arg::Value(command)) if command == "join" => asked_join(parser),
        Some(Arg::Value(command)) if command == "run" => asked_run(parser, prefix),
        Some(Arg::Long("help") | Arg::Short('h')) | None => Ok(Asked::Help(HELP)),
        Some(Arg::Long("version") | Arg::Short('V')) => Ok(Asked::Version),
        Some(Arg::Value(other)) => {
            Err(Usage(format!("there is no command `{}`: it is `join` or `run`", other.to_string_lossy())))
        }
        Some(other) => Err(other.unexpected().into()),
    }
}

fn asked_join(mut parser: Parser) -> Result<Asked, Usage> {
    let (mut url, mut token, mut flags) = (None, None, Flags::default());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("token") => token = Some(parser.value()?.string()?),
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("allow-root") => flags.allow_root = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(JOIN_HELP)),
            Arg::Value(value) if url.is_none() => url = Some(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let missing =
        |what: &str| Usage(format!("{what} is missing: paste the line that `leasehold worker enroll` printed"));
    Ok(Asked::Join {
        url: url.ok_or_else(|| missing("the control plane's URL"))?,
        token: token.or_else(|| text_variable("LEASEHOLD_WORKER_TOKEN")).ok_or_else(|| missing("--token"))?,
        config: Box::new(configured(&flags)?),
    })
}

fn asked_run(mut parser: Parser, prefix: &[&str]) -> Result<Asked, Usage> {
    let (mut flags, mut quiet) = (Flags::default(), false);
    let mut server = text_variable("LEASEHOLD_WORKER_SERVER");
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("server") => server = Some(parser.value()?.string()?),
            Arg::Long("slots") => flags.slots = Some(parser.value()?.string()?),
            Arg::Long("label") => flags.labels.push(parser.value()?.string()?),
            Arg::Long("drain-timeout") => {
                let text = parser.value()?.string()?;
                flags.drain_timeout = Some(text);
            }
            Arg::Long("run-as") => flags.run_as.push(parser.value()?.string()?),
            Arg::Long("allow-root") => flags.allow_root = true,
            Arg::Long("quiet") | Arg::Short('q') => quiet = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(RUN_HELP)),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut config = configured(&flags)?;
    if quiet {
        config.logging.level = config.logging.level.min(LevelFilter::WARN);
    }
    let moved = |url: String| {
        address_of(&url).ok_or_else(|| {
            Usage(format!("--server: `{url}` is not the URL of a control plane: expected https://HOST:7443"))
        })
    };
    let program = LauncherProgram::default();
    let before = prefix.iter().map(OsString::from);
    Ok(Asked::Run(Box::new(Options {
        config,
        server: server.map(moved).transpose()?,
        user: user_environment(),
        launcher: LauncherProgram { arguments: before.chain(program.arguments).collect(), ..program },
    })))
}

fn configured(flags: &Flags) -> Result<Config, ConfigError> {
    let root = rustix::process::geteuid().is_root();
    Config::load(&Surroundings { variable: &text_variable, root }, flags)
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

fn become_worker(url: &str, token: &str, config: &Config) -> ExitCode {
    log(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    match runtime.block_on(join(&config.state_dir, url, token, config.allow_root)) {
        Ok(identity) => {
            let text = format!("joined as worker {}; start it with `leasehold-worker run`", identity.worker);
            tracing::info!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, error.code()),
    }
}

fn work(options: &Options, arguments: &[OsString], prefix: &[&str]) -> ExitCode {
    log(&options.config);
    match run_worker(options, &MachineClock, MachineEntropy) {
        Ok(exit) => match exit.code() {
            Some(code) => ExitCode::from(code),
            None => start_over(arguments, prefix),
        },
        Err(error) => fail(&error, error.code()),
    }
}

/// The start path again, by this very binary: the launchers stay children of this process.
fn start_over(arguments: &[OsString], prefix: &[&str]) -> ExitCode {
    let error = Command::new("/proc/self/exe").args(prefix).args(arguments).exec();
    fail(&format!("cannot start over: {error}"), 1)
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Millis;

    use super::*;

    fn parsed(line: &str) -> Result<Asked, Usage> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        asked(&arguments, &["worker-process"])
    }

    fn refused(line: &str) -> String {
        match parsed(line) {
            Err(Usage(why)) => why,
            Ok(_) => panic!("`{line}` was taken"),
        }
    }

    #[test]
    fn a_run_takes_what_it_is_told() {
        let line =
            "run --state-dir /srv/w --slots 4 --label zone=home --label tier=2 --drain-timeout 90s --run-as jobs -q";
        let Ok(Asked::Run(options)) = parsed(line) else { panic!("not a run") };
        let config = options.config;
        assert_eq!(config.state_dir, PathBuf::from("/srv/w"));
        assert_eq!((config.slots, config.drain_timeout), (Some(4), Millis::from_secs(90)));
        assert_eq!(config.labels["zone"], "home");
        assert_eq!(config.run_as, ["jobs"]);
        assert_eq!(config.logging.level, LevelFilter::WARN);
        assert_eq!(options.launcher.arguments, ["worker-process", "launcher"]);
    }

    #[test]
    fn a_join_needs_a_url_and_a_token() {
        let line = "join https://h:7443 --token lhj1_x --state-dir /srv/w --allow-root";
        let Ok(Asked::Join { url, token, config }) = parsed(line) else { panic!("not a join") };
        assert_eq!((url.as_str(), token.as_str(), config.allow_root), ("https://h:7443", "lhj1_x", true));
        assert!(refused("join --token x --state-dir /srv/w").contains("URL is missing"));
    }

    #[test]
    fn a_mistake_is_answered_with_what_would_be_right() {
        for (line, why) in [
            ("walk", "it is `join` or `run`"),
            ("run --state-dir /srv/w --slots 0", "1 to 256"),
            ("run --state-dir /srv/w --label zone", "zone"),
            ("run --state-dir /srv/w --drain-timeout 90", "duration"),
            ("run --unknown", "--unknown"),
            ("run more", "more"),
        ] {
            assert!(refused(line).contains(why), "{line}: {}", refused(line));
        }
    }

    #[test]
    fn help_teaches_by_example() {
        for (line, text) in [("--help", HELP), ("", HELP), ("join --help", JOIN_HELP), ("run -h", RUN_HELP)] {
            let Ok(Asked::Help(found)) = parsed(line) else { panic!("no help for `{line}`") };
            assert_eq!(found, text);
            assert!(text.contains("Example"));
        }
    }
}
