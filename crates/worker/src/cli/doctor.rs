//! `leasehold-worker doctor`: what may be wrong with this machine as a worker, and what to do. It changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_core::id::SessionId;
use leasehold_core::time::Clock;
use lexopt::{Arg, Parser, ValueExt};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::status::opened;
use super::{Asked, Usage, configured, fail, print};
use crate::client;
use crate::config::{Config, ConfigError, Flags};
use crate::doctor::machine::{self, Users};
use crate::doctor::{Finding, has_problem, network, text};
use crate::durable::Dir;
use crate::identity::{Identity, MovedError, is_in_place, machine_id};
use crate::machine::{MachineClock, MachineEntropy};
use crate::process_identity::boot_id;
use crate::run::{RunError, users};
use crate::status::survey::survey;
use crate::status::{Question, ask};

pub(super) const HELP: &str = "\
Looks for what may be wrong with this machine as a worker: configuration, identity and its expiry,
state directory, disk, the running agent, control groups, the way to the control plane step by
step (DNS, TCP, TLS, SAN, HTTP), and the clocks. It changes nothing.

Usage: leasehold-worker doctor [-o table|json] [--state-dir DIR] [--config FILE]

Each line is ok, a warning or a problem, with what to do. Run it as the user that the worker runs as.

Exit codes: 0 no problem, 1 a problem

Example:
  sudo leasehold-worker doctor
";

/// What is to be looked at, and how it is shown.
#[derive(Debug)]
pub(super) struct Wanted {
    config: Result<Box<Config>, ConfigError>,
    json: bool,
}

pub(super) fn asked(mut parser: Parser) -> Result<Asked, Usage> {
    let (mut flags, mut json) = (Flags::default(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => flags.config = Some(PathBuf::from(parser.value()?)),
            Arg::Long("state-dir") => flags.state_dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("output") | Arg::Short('o') => {
                json = match parser.value()?.string()?.as_str() {
                    "json" => true,
                    "table" => false,
                    other => return Err(Usage(format!("--output: got `{other}`, expected table or json"))),
                }
            }
            Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help(HELP)),
            other => return Err(other.unexpected().into()),
        }
    }
    // A configuration that cannot be read is a finding, not a mistake on the command line.
    Ok(Asked::Doctor(Wanted { config: configured(&flags).map(Box::new), json }))
}

pub(super) fn execute(wanted: &Wanted) -> ExitCode {
    let findings = findings(wanted);
    let shown =
        if wanted.json { serde_json::to_string_pretty(&findings).map(|text| text + "\n") } else { Ok(text(&findings)) };
    match shown {
        Ok(shown) => _ = print(&shown),
        Err(error) => return fail(&error, 1),
    }
    ExitCode::from(u8::from(has_problem(&findings)))
}

fn findings(wanted: &Wanted) -> Vec<Finding> {
    let config = match &wanted.config {
        Ok(config) => config,
        Err(error) => {
            let advice = "correct it; `leasehold-worker config default` shows every key";
            return vec![Finding::problem("configuration", error.to_string(), advice)];
        }
    };
    let mut findings = vec![Finding::ok("configuration", "can be read; `leasehold-worker config show` shows it")];
    let (dir, identity) = match opened(config) {
        Ok(opened) => opened,
        Err(error @ RunError::NoIdentity(_)) => {
            let advice = "join this machine, or name the state directory of the worker with --state-dir";
            findings.push(Finding::problem("identity", error.to_string(), advice));
            return findings;
        }
        Err(error) => {
            let advice =
                "the directory and what is in it belong to the worker's user alone; run the doctor as that user";
            findings.push(Finding::problem("state", error.to_string(), advice));
            return findings;
        }
    };
    findings.push(users_of(config, &identity));
    of_directory(&dir, &identity, &mut findings);
    findings.extend(machine::agent(ask(&dir, Question::Status).as_ref()));
    of_network(&identity, &mut findings);
    findings
}

fn users_of(config: &Config, identity: &Identity) -> Finding {
    let missing = |name: &&String| !users::exists(name).unwrap_or(false);
    machine::users(&Users {
        root: rustix::process::geteuid().is_root(),
        allow_root: config.allow_root || identity.allow_root,
        run_as: &config.run_as,
        missing: &config.run_as.iter().filter(missing).cloned().collect::<Vec<_>>(),
    })
}

fn of_directory(dir: &Dir, identity: &Identity, findings: &mut Vec<Finding>) {
    let name = identity.worker.to_string();
    findings.push(machine::certificate(&name, crate::status::survey::validity(identity), MachineClock.utc()));
    let place = boot_id().map_err(|error| error.to_string()).and_then(|boot| {
        is_in_place(dir, identity, machine_id().as_deref(), &boot).map_err(|error: MovedError| error.to_string())
    });
    if let Err(why) = place {
        findings.push(Finding::problem("place", why, "see `leasehold-worker join --help`"));
    }
    match survey(dir, identity) {
        Ok(survey) => findings.extend(machine::state(&survey)),
        Err(error) => {
            let advice = "a file of the state directory is damaged or not this user's: restore it, or enroll anew";
            findings.push(Finding::problem("state", error.to_string(), advice));
        }
    }
    match statvfs(dir.path()) {
        Ok(volume) => {
            let free = volume.f_bavail.saturating_mul(volume.f_frsize) / (1024 * 1024);
            let inodes = (volume.f_files > 0).then_some(volume.f_favail);
            findings.push(machine::disk(free, inodes, volume.f_flag.contains(StatVfsMountFlags::RDONLY)));
        }
        Err(error) => findings.push(Finding::problem("disk", error.to_string(), "see `dmesg` for why")),
    }
}

fn of_network(identity: &Identity, findings: &mut Vec<Finding>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            findings.push(Finding::problem("control plane", error.to_string(), "see `ulimit -n`"));
            return;
        }
    };
    let nobody = SessionId::new(MachineClock.utc(), &MachineEntropy);
    let visits = match runtime.block_on(client::visit(identity, nobody)) {
        Ok(visits) => visits,
        Err(failed) => return findings.push(network::address(&identity.address, None, Some(&failed))),
    };
    let now = MachineClock.utc();
    for visit in &visits {
        findings.push(network::address(&identity.address, Some(visit.address), visit.heard.as_ref().err()));
    }
    if let Some((outcome, date)) = visits.iter().find_map(|visit| visit.heard.as_ref().ok()) {
        findings.push(network::admission(outcome));
        findings.extend(date.map(|there| network::clock(now, there)));
    }
}
