//! The worker's command line, one file per verb, and the hidden `launcher`. Shared by the small binary and by
//! `leasehold up`, which runs the same worker from its own binary behind a hidden sub-command.
//!
//! This is the entry of a binary: the one place of the crate that reads the environment.

mod config;
mod doctor;
mod join;
mod quarantine;
mod run;
mod status;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use leasehold_core::shape::nearest;
use lexopt::{Arg, Parser};

use crate::config::{Config, ConfigError, Flags, Surroundings};
use crate::fault;
use crate::launcher;
use crate::logging;
use crate::machine::MachineClock;
use crate::run::Options;

const HELP: &str = "\
leasehold-worker: runs what a Leasehold control plane hands to this machine

Usage:
  leasehold-worker join URL --token TOKEN   make this machine a worker, once
  leasehold-worker run                      take work and run it
  leasehold-worker status                   what it does now, here
  leasehold-worker drain, resume            take nothing new; take work again
  leasehold-worker doctor                   what may be wrong here, and what to do
  leasehold-worker quarantine               what could not be trusted and was kept
  leasehold-worker config default|show      every key of worker.toml, and what holds here

Examples:
  On the control plane:  leasehold worker enroll --name nas
  Here:                  leasehold-worker join https://control.example:7443 --token lhj1_…
                         leasehold-worker run --label zone=home --slots 4

`leasehold-worker COMMAND --help` says more.
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
    Config(config::Shown),
    Worker { wanted: status::Wanted, config: Box<Config> },
    Doctor(doctor::Wanted),
    Quarantine { wanted: quarantine::Wanted, config: Box<Config> },
}

/// The verbs that a person may call.
const VERBS: [&str; 8] = ["join", "run", "status", "drain", "resume", "doctor", "quarantine", "config"];

/// Runs the worker's command line. `prefix` is what stands before these arguments in a call of the current binary:
/// nothing for `leasehold-worker`, the hidden sub-command for `leasehold`.
///
/// Call it before any thread or runtime exists: it may become a launcher.
pub fn run(arguments: impl IntoIterator<Item = OsString>, prefix: &[&str]) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Err(error) = arm_faults() {
        return fail(&error, 2);
    }
    match arguments.first().and_then(|first| first.to_str()) {
        Some("launcher") => return launcher::main(arguments.into_iter().skip(1), &MachineClock),
        // Hidden: for the tests that loop over them.
        Some("fault-points") => return print(&fault::list()),
        _ => {}
    }
    match asked(&arguments, prefix) {
        Ok(Asked::Help(text)) => print(text),
        Ok(Asked::Version) => print(concat!("leasehold-worker ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Asked::Join { url, token, config }) => join::execute(&url, &token, &config),
        Ok(Asked::Run(options)) => run::execute(&options, &arguments, prefix),
        Ok(Asked::Config(shown)) => config::execute(&shown),
        Ok(Asked::Worker { wanted, config }) => status::execute(&wanted, &config),
        Ok(Asked::Doctor(wanted)) => doctor::execute(&wanted),
        Ok(Asked::Quarantine { wanted, config }) => quarantine::execute(&wanted, &config),
        Err(Usage(why)) => fail(&format!("{why}\nTry `leasehold-worker --help`."), 2),
    }
}

fn log(config: &Config) {
    // Refused only where a subscriber is set already, as inside a test's process.
    let _ = logging::start(config.logging, Arc::new(MachineClock));
}

fn print(text: &str) -> ExitCode {
    // A reader that closed the pipe has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn fail(why: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // Whoever reads the code has it, also where nobody reads the words.
    let _ = writeln!(std::io::stderr(), "leasehold-worker: {why}");
    ExitCode::from(code)
}

/// Fault points are armed by tests through the environment, never by configuration.
fn arm_faults() -> Result<(), fault::FaultError> {
    match variable(fault::VARIABLE) {
        Some(text) => fault::arm(&text.to_string_lossy(), variable(fault::STRUCK).map(PathBuf::from)),
        None => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the entry of a binary reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// All that this process was given.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

fn text_variable(name: &str) -> Option<String> {
    variable(name).map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

fn asked(arguments: &[OsString], prefix: &[&str]) -> Result<Asked, Usage> {
    let mut parser = Parser::from_args(arguments.iter().cloned());
    match parser.next()? {
        Some(Arg::Value(verb)) => match verb.to_string_lossy().as_ref() {
            "join" => join::asked(parser),
            "run" => run::asked(parser, prefix),
            "config" => config::asked(parser),
            "doctor" => doctor::asked(parser),
            "quarantine" => quarantine::asked(parser),
            verb @ ("status" | "drain" | "resume") => status::asked(verb, parser),
            other => {
                let hint = match nearest(other, VERBS) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are {}", VERBS.join(", ")),
                };
                Err(Usage(format!("there is no command `{other}`: {hint}")))
            }
        },
        Some(Arg::Long("help") | Arg::Short('h')) | None => Ok(Asked::Help(HELP)),
        Some(Arg::Long("version") | Arg::Short('V')) => Ok(Asked::Version),
        Some(other) => Err(other.unexpected().into()),
    }
}

fn configured(flags: &Flags) -> Result<Config, ConfigError> {
    let root = rustix::process::geteuid().is_root();
    Config::load(&Surroundings { variable: &text_variable, root }, flags)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use leasehold_core::time::Millis;
    use tracing::level_filters::LevelFilter;

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
            ("walk", "there are join, run, status, drain, resume, doctor, quarantine, config"),
            ("quarantine discard", "or --all"),
            ("quarantine discard --all x", "not both"),
            ("drain --timeout 1s", "add --wait"),
            ("jion", "did you mean `join`?"),
            ("config", "`config default` or `config show`"),
            ("config all", "`config all` does not exist"),
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
        for (line, text) in [
            ("--help", HELP),
            ("", HELP),
            ("join --help", join::HELP),
            ("run -h", run::HELP),
            ("config -h", config::HELP),
            ("status --help", status::STATUS_HELP),
            ("drain --help", status::DRAIN_HELP),
            ("resume --help", status::RESUME_HELP),
            ("doctor --help", doctor::HELP),
            ("quarantine --help", quarantine::HELP),
        ] {
            let Ok(Asked::Help(found)) = parsed(line) else { panic!("no help for `{line}`") };
            assert_eq!(found, text);
            assert!(text.contains("Example"));
        }
    }

    #[test]
    fn the_help_of_run_names_every_flag_of_a_key_with_its_variable() {
        let file = crate::config::default_file();
        let outweighed = file.lines().filter_map(|line| line.split_once("Outweighed by ")?.1.strip_suffix('.'));
        let mut flags = 0;
        for (variable, flag) in outweighed.filter_map(|names| names.split_once(" or ")) {
            assert!(run::HELP.contains(&format!("  {flag} ")), "{flag}");
            assert!(run::HELP.contains(variable), "{variable}");
            flags += 1;
        }
        assert_eq!(flags, 7);
    }
}
