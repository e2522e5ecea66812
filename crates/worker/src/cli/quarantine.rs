//! `leasehold-worker quarantine`: what could not be trusted and was kept, and the person's word that lets it go.
//!
//! Nothing of it is ever deleted by itself. What a person names is: what a start moved to `quarantine/`, or the directory
//! of an attempt that no record speaks for, once no launcher of it runs. (Worker design, *Inbox*; `docs/recovery.md`.)

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use super::status::opened;
use super::{Asked, Usage, configured, fail, print};
use crate::attempt_dir::AttemptDir;
use crate::config::{Config, Flags};
use crate::durable::Dir;
use crate::fault::steps::file;
use crate::identity::Identity;
use crate::run::RunError;
use crate::status::Status;
use crate::status::survey::survey;

pub(super) const HELP: &str = "\
Lists what this worker could not trust and kept: files and directories that were moved away, and
attempts whose record is gone. Nothing of it is deleted unless you say so.

Usage:
  leasehold-worker quarantine                    list it
  leasehold-worker quarantine discard NAME…      delete these; --all: everything that is listed

  --state-dir DIR, --config FILE                 whose

A directory is kept while its launcher runs: that one stops its job when its lease ends. What it
holds (log, receipt, output) is lost with it: look into it first.

Examples:
  leasehold-worker quarantine
  leasehold-worker quarantine discard --all
";

/// What is to be done.
#[derive(Debug)]
pub(super) enum Wanted {
    /// To see it.
    List,
    /// To delete these.
    Discard(Vec<String>),
    /// To delete everything.
    DiscardAll,
}

pub(super) fn asked(mut parser: Parser) -> Result<Asked, Usage> {
    let (mut flags, mut discard, mut all, mut names) = (Flags::default(), false, false, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("all") if discard => all = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(HELP)),
            Arg::Value(value) if !discard && value == "discard" => discard = true,
            Arg::Value(value) if discard => names.push(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let wanted = match (discard, all, names.is_empty()) {
        (false, ..) => Wanted::List,
        (true, true, true) => Wanted::DiscardAll,
        (true, false, false) => Wanted::Discard(names),
        (true, false, true) => return Err(Usage("discard what? Names as they are listed, or --all".to_owned())),
        (true, true, false) => return Err(Usage("names or --all, not both".to_owned())),
    };
    Ok(Asked::Quarantine { wanted, config: Box::new(configured(&flags)?) })
}

pub(super) fn execute(wanted: &Wanted, config: &Config) -> ExitCode {
    let looked = opened(config).and_then(|(dir, identity)| look(&dir, &identity).map(|status| (dir, status)));
    let (dir, status) = match looked {
        Ok(looked) => looked,
        Err(error) => return fail(&error, error.code()),
    };
    match wanted {
        Wanted::List => print(&list(&status)),
        Wanted::Discard(names) => discard(&dir, &status, names),
        Wanted::DiscardAll => {
            let orphans = status.orphans.iter().filter(|orphan| !orphan.running).map(|orphan| &orphan.attempt);
            let names: Vec<String> = status.quarantine.iter().chain(orphans).cloned().collect();
            discard(&dir, &status, &names)
        }
    }
}

fn look(dir: &Dir, identity: &Identity) -> Result<Status, RunError> {
    Ok(survey(dir, identity)?.status)
}

fn list(status: &Status) -> String {
    let files = status.quarantine.iter().map(|name| format!("moved      {name}  quarantine/{name}\n"));
    let orphans = status.orphans.iter().map(|orphan| {
        let state = if orphan.running { "its launcher runs until its lease ends" } else { "nothing of it runs" };
        format!("directory  {}  attempts/{}, {state}\n", orphan.attempt, orphan.attempt)
    });
    let text: String = files.chain(orphans).collect();
    if text.is_empty() { "nothing\n".to_owned() } else { text }
}

fn discard(dir: &Dir, status: &Status, names: &[String]) -> ExitCode {
    // All are checked before the first goes: a mistake deletes nothing.
    for name in names {
        let orphan = status.orphans.iter().find(|orphan| orphan.attempt == *name);
        if orphan.is_some_and(|orphan| orphan.running) {
            return fail(&format!("{name} is kept: its launcher runs, and stops its job when its lease ends"), 1);
        }
        if orphan.is_none() && !status.quarantine.contains(name) {
            return fail(&format!("{name} is not listed: `leasehold-worker quarantine` lists what may go"), 1);
        }
    }
    for name in names {
        if let Err(error) = discard_one(dir, status, name) {
            return fail(&format!("{name} is not deleted: {error}"), 1);
        }
        print(&format!("deleted {name}\n"));
    }
    ExitCode::SUCCESS
}

fn discard_one(dir: &Dir, status: &Status, name: &String) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    if status.quarantine.contains(name) {
        let path = dir.path().join("quarantine");
        if path.join(name).symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return AttemptDir::open(&path.join(name)).map_err(|error| text(&error))?.remove().map_err(|e| text(&e));
        }
        let quarantine = Dir::open(&path).map_err(|error| text(&error))?;
        return quarantine.remove::<file::Quarantined>(name).map_err(|error| text(&error));
    }
    let attempt = AttemptDir::open(&dir.path().join("attempts").join(name)).map_err(|error| text(&error))?;
    attempt.remove().map_err(|error| text(&error))
}
