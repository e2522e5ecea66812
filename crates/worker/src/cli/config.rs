//! `leasehold-worker config`: the commented default file, and what holds on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use super::{Asked, Usage, configured, print};
use crate::config::{Config, Flags, default_file};

pub(super) const HELP: &str = "\
Shows how this worker is configured, and how it may be.

Usage:
  leasehold-worker config default               every key with its meaning and default, commented out
  leasehold-worker config show [--config FILE]  what holds here, and where each value comes from

Keys stand in /etc/leasehold/worker.toml; LEASEHOLD_WORKER_* variables outweigh the file, and the
flags of `leasehold-worker run` outweigh both. A mistake is told with its line and column.

Example:
  leasehold-worker config default | sudo tee /etc/leasehold/worker.toml
";

/// What is to be shown.
#[derive(Debug)]
pub(super) enum Shown {
    Default,
    Here(Box<Config>),
}

pub(super) fn asked(mut parser: Parser) -> Result<Asked, Usage> {
    let (mut what, mut flags) = (None, Flags::default());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(HELP)),
            Arg::Value(value) if what.is_none() => what = Some(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    match what.as_deref() {
        Some("default") => Ok(Asked::Config(Shown::Default)),
        Some("show") => Ok(Asked::Config(Shown::Here(Box::new(configured(&flags)?)))),
        Some(other) => Err(Usage(format!("`config {other}` does not exist: it is `config default` or `config show`"))),
        None => Err(Usage("what is to be shown? `config default` or `config show`".to_owned())),
    }
}

pub(super) fn execute(shown: &Shown) -> ExitCode {
    match shown {
        Shown::Default => print(&default_file()),
        Shown::Here(config) => print(&config.to_text()),
    }
}
