//! `leasehold-worker join`: makes this machine a worker, once.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser, ValueExt};

use super::{Asked, Usage, configured, fail, log, text_variable};
use crate::config::{Config, Flags};
use crate::join::join;

pub(super) const HELP: &str = "\
Makes this machine a worker, once. The private key is made here and never leaves.

Usage: leasehold-worker join URL --token TOKEN [--state-dir DIR] [--allow-root]

  URL                https://HOST:7443, as `leasehold worker enroll` prints it
  --token TOKEN      the join token it prints (or LEASEHOLD_WORKER_TOKEN); good for one machine
  --state-dir DIR    where the identity is kept (or LEASEHOLD_WORKER_STATE_DIR)
  --allow-root       jobs of this worker may run as root

Example:
  leasehold-worker join https://control.example:7443 --token lhj1_…
";

pub(super) fn asked(mut parser: Parser) -> Result<Asked, Usage> {
    let (mut url, mut token, mut flags) = (None, None, Flags::default());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("token") => token = Some(parser.value()?.string()?),
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("allow-root") => flags.allow_root = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(HELP)),
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

pub(super) fn execute(url: &str, token: &str, config: &Config) -> ExitCode {
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
