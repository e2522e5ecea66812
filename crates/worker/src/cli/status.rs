//! `leasehold-worker status`, `drain` and `resume`: what the worker of this machine does, and whether it takes work.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_core::time::Millis;
use lexopt::{Arg, Parser, ValueExt};

use super::{Asked, Usage, configured, fail, print};
use crate::config::{Config, Flags};
use crate::durable::Dir;
use crate::identity::{self, Identity};
use crate::run::RunError;
use crate::state::StateFile;
use crate::status::survey::survey;
use crate::status::{Agent, AskError, Question, Status, ask, follow};

pub(super) const STATUS_HELP: &str = "\
Says what the worker of this machine does: its agent, its session, what runs here and until when,
what it keeps for the control plane, and what went wrong.

Usage: leasehold-worker status [-o table|json] [--state-dir DIR] [--config FILE]

  -o, --output FORMAT  table for people, json for programs

It asks the running agent over a socket in the state directory, and reads the directory itself
where none runs. It changes nothing. Run it as the user that the worker runs as.

Exit codes: 0 an agent runs, 1 none runs or it does not answer, 24 no identity here

Example:
  leasehold-worker status -o json | jq '.attempts[].run'
";

pub(super) const DRAIN_HELP: &str = "\
Drains the worker of this machine: it takes nothing new, what runs goes on, the agent stays.
This is remembered, also over a restart and a reboot, until `leasehold-worker resume`.

Usage: leasehold-worker drain [--wait] [--timeout TIME] [--state-dir DIR] [--config FILE]

  --wait          show what is still open until nothing is
  --timeout TIME  with --wait: stop waiting when nothing has changed for so long, such as 30m

To stop the agent as well, stop its service or send SIGTERM: that drains, too.

Exit codes: 0 drained (with --wait: nothing is open), 1 no agent runs, 23 not within --timeout

Example:
  leasehold-worker drain --wait && reboot
";

pub(super) const RESUME_HELP: &str = "\
Takes work again after `leasehold-worker drain`.

Usage: leasehold-worker resume [--state-dir DIR] [--config FILE]

Example:
  leasehold-worker resume
";

/// What a person wants of the worker of this machine.
#[derive(Debug)]
pub(super) enum Wanted {
    /// To see what it does.
    Status { json: bool },
    /// That it takes nothing new.
    Drain { wait: bool, within: Option<Millis> },
    /// That it takes work.
    Resume,
}

pub(super) fn asked(verb: &str, mut parser: Parser) -> Result<Asked, Usage> {
    let (mut flags, mut json, mut wait, mut within) = (Flags::default(), false, false, None);
    let help = match verb {
        "status" => STATUS_HELP,
        "drain" => DRAIN_HELP,
        _ => RESUME_HELP,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("output") | Arg::Short('o') if verb == "status" => {
                json = match parser.value()?.string()?.as_str() {
                    "json" => true,
                    "table" => false,
                    other => return Err(Usage(format!("--output: got `{other}`, expected table or json"))),
                }
            }
            Arg::Long("wait") if verb == "drain" => wait = true,
            Arg::Long("timeout") if verb == "drain" => {
                let text = parser.value()?.string()?;
                within = Some(text.parse().map_err(|error| Usage(format!("--timeout: {error}")))?);
            }
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(help)),
            other => return Err(other.unexpected().into()),
        }
    }
    if within.is_some() && !wait {
        return Err(Usage("--timeout says how long --wait may take: add --wait".to_owned()));
    }
    let wanted = match verb {
        "status" => Wanted::Status { json },
        "drain" => Wanted::Drain { wait, within },
        _ => Wanted::Resume,
    };
    Ok(Asked::Worker { wanted, config: Box::new(configured(&flags)?) })
}

pub(super) fn execute(wanted: &Wanted, config: &Config) -> ExitCode {
    let (dir, identity) = match opened(config) {
        Ok(opened) => opened,
        Err(error) => return fail(&error, error.code()),
    };
    match wanted {
        Wanted::Status { json } => show(&dir, &identity, *json),
        Wanted::Drain { wait, within } => drain(&dir, *wait, *within),
        Wanted::Resume => match ask(&dir, Question::Resume) {
            Ok(_) => print("it takes work again\n"),
            Err(error) => fail(&error, 1),
        },
    }
}

/// The state directory and the identity in it.
pub(super) fn opened(config: &Config) -> Result<(Dir, Identity), RunError> {
    let none = || RunError::NoIdentity(config.state_dir.display().to_string());
    if !identity::exists(&config.state_dir) {
        return Err(none());
    }
    let path = std::fs::canonicalize(&config.state_dir)?;
    let dir = Dir::open(&path)?;
    let mut identity = Identity::read(&dir)?.ok_or_else(none)?;
    if let Some(server) = &config.server {
        identity.address.clone_from(server);
    }
    Ok((dir, identity))
}

/// What it is known to do: by its own word, and by its directory.
pub(super) fn status(dir: &Dir, identity: &Identity) -> Result<(Status, Option<AskError>), RunError> {
    let mut status = survey(dir, identity)?.status;
    match ask(dir, Question::Status) {
        Ok(agent) => {
            status.attempts.clone_from(&agent.attempts);
            status.inbox.clone_from(&agent.inbox);
            status.drained_here = agent.drained_here;
            status.agent = Some(agent);
            Ok((status, None))
        }
        Err(error) => {
            status.unheard = (!matches!(error, AskError::NoAgent(_))).then(|| error.to_string());
            Ok((status, Some(error)))
        }
    }
}

fn show(dir: &Dir, identity: &Identity, json: bool) -> ExitCode {
    let (status, silent) = match status(dir, identity) {
        Ok(status) => status,
        Err(error) => return fail(&error, error.code()),
    };
    let text =
        if json { serde_json::to_string_pretty(&status).map(|text| text + "\n") } else { Ok(status.to_string()) };
    match text {
        Ok(text) => _ = print(&text),
        Err(error) => return fail(&error, 1),
    }
    match silent {
        None => ExitCode::SUCCESS,
        Some(AskError::NoAgent(_)) => ExitCode::from(1),
        Some(error) => fail(&error, 1),
    }
}

fn drain(dir: &Dir, wait: bool, within: Option<Millis>) -> ExitCode {
    let agent = match ask(dir, Question::Drain) {
        Ok(agent) => agent,
        Err(error) => return fail(&error, 1),
    };
    say(&agent);
    if !wait {
        return ExitCode::SUCCESS;
    }
    let mut last = agent.open;
    let followed = follow(dir, within.map(|within| Duration::from_millis(within.get())), |agent| {
        if agent.open != last {
            last = agent.open;
            say(agent);
        }
    });
    match followed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail(&"not everything ended: it was resumed, it left, or --timeout is over", 23),
        Err(error) => fail(&error, 1),
    }
}

fn say(agent: &Agent) {
    let text = match agent.open {
        0 => "drained: nothing is open".to_owned(),
        1 => "draining: 1 attempt is open".to_owned(),
        open => format!("draining: {open} attempts are open"),
    };
    // A reader that closed the pipe has seen enough.
    let _ = writeln!(std::io::stdout(), "{text}");
}
