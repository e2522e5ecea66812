//! After a launcher was killed: stop what its job's identity names, and say honestly whether that is everything.
//!
//! The direct child died with its launcher. A control group of the job's own is killed whole, and emptied it proves
//! that nothing of it is left: no process leaves one by accident.
//!
//! What else lives is no longer below the launcher in the process tree, so it is recognised by what a process cannot
//! take on by accident either: the job's process group in the launcher's session, or the job's own variables in its
//! environment, and in each case a start after the job's. Each is signalled by pidfd after its identity was compared,
//! in rounds until none is found.
//!
//! Without a control group, a process that changed its session, its group *and* its environment is not recognised. So
//! `AllGone` is said only where no stranger remains who could be one: an orphan of our user that started after the
//! job. The question may be asked again later. (Worker design, *The decidable spawn barrier*, row *launcher died*.)

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use leasehold_core::id::BootId;
use leasehold_core::time::{Clock, Millis};
use rustix::event::poll;
use rustix::process::{Pid, Signal, getpid};

use super::barrier::JobIdentity;
use super::environment::{ATTEMPT_VARIABLE, RUN_VARIABLE};
use super::socket::{timespec, wait_readable};
use crate::cgroup::JobGroup;
use crate::process_identity::{ProcessStat, open_verified, signal_verified, table};

/// How long rounds go on.
const PATIENCE: Millis = Millis::from_secs(10);
/// The longest wait for one killed process to be gone.
const ROUND: Millis = Millis::new(100);
/// Between two questions to a control group that is dying.
const TICK: Millis = Millis::new(10);

/// What is left of a job whose launcher died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// Proven: nothing.
    AllGone,
    /// Something may live: it could not be killed, or a process exists that may have been the job's.
    MayLive,
}

/// Kills everything that can be recognised as the job's, the launcher first, and verifies. Blocking, at most about
/// ten seconds. Call it only when the attempt's lock is free, or for a launcher that is itself frozen: while a
/// launcher works, it alone signals its job.
pub fn stop_named(identity: &JobIdentity, this_boot: &BootId, clock: &dyn Clock) -> io::Result<Remains> {
    if identity.process.boot != *this_boot {
        // No process survives its boot.
        return Ok(Remains::AllGone);
    }
    let until = clock.boot().plus(PATIENCE);
    let us = getpid();
    let launcher = &identity.launcher;
    if let Some(pidfd) = open_verified(launcher.pid, launcher.start)? {
        // The direct child dies with it. A zombie that its parent has not reaped yet counts as gone.
        signal_verified(launcher.pid, launcher.start, Signal::KILL)?;
        wait_readable(pidfd.as_fd(), Some(PATIENCE))?;
    }
    let control_group = identity.cgroup.as_ref().map(|directory| JobGroup::at(directory.into()));
    loop {
        let populated = control_group.as_ref().map(|group| {
            // An error says that it is gone, or cannot be killed this way: what it holds is asked next.
            let _ = group.kill();
            group.is_populated()
        });
        let table = table()?;
        let found: Vec<_> = table
            .iter()
            .filter(|process| process.pid != us && is_named(identity, process, carries_variables))
            .copied()
            .collect();
        let gone = match populated {
            Some(Some(populated)) => !populated,
            Some(None) | None => found.is_empty() && !has_stranger(identity, &table, us, is_of_our_user),
        };
        if found.is_empty() && gone {
            if let Some(group) = &control_group {
                group.remove();
            }
            return Ok(Remains::AllGone);
        }
        if found.is_empty() && populated != Some(Some(true)) {
            return Ok(Remains::MayLive);
        }
        if clock.boot() >= until {
            return Ok(Remains::MayLive);
        }
        for process in &found {
            // One that may not be signalled is found again, until the patience is over.
            let _ = signal_verified(process.pid, process.start, Signal::KILL);
        }
        if found.is_empty() {
            // The kernel is not done with what is left of the group, and no descriptor tells when.
            let _ = poll(&mut [], Some(&timespec(TICK)));
        }
        for process in &found {
            if let Ok(Some(pidfd)) = open_verified(process.pid, process.start) {
                wait_readable(pidfd.as_fd(), Some(ROUND))?;
            }
        }
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// Whether a live process is certainly the job's.
fn is_named(identity: &JobIdentity, process: &ProcessStat, carries: impl Fn(&JobIdentity, Pid) -> bool) -> bool {
    let in_session = process.session == number(identity.launcher.pid) && process.group == number(identity.process.pid);
    !process.is_zombie() && process.start >= identity.process.start && (in_session || carries(identity, process.pid))
}

fn carries_variables(identity: &JobIdentity, pid: Pid) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{}/environ", number(pid))) else { return false };
    let wanted =
        [format!("{RUN_VARIABLE}={}", identity.run), format!("{ATTEMPT_VARIABLE}={}", identity.attempt_number)];
    wanted.iter().all(|wanted| environment.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// Whether a process exists that may be the job's in disguise: it started after the job, it or the oldest above it
/// that did, too, is the child of a reaper of orphans (process 1, or an ancestor of ours), and it is our user's.
fn has_stranger(identity: &JobIdentity, table: &[ProcessStat], us: Pid, is_ours: impl Fn(Pid) -> bool) -> bool {
    let by_pid: HashMap<i32, &ProcessStat> = table.iter().map(|process| (number(process.pid), process)).collect();
    let mut reapers = vec![1];
    let mut above = number(us);
    while let Some(process) = by_pid.get(&above).filter(|process| !reapers.contains(&process.parent)) {
        above = process.parent;
        reapers.push(above);
    }
    table.iter().any(|process| {
        if process.is_zombie() || process.start < identity.process.start {
            return false;
        }
        let (mut top, mut below_us) = (process, process.pid == us);
        while let Some(parent) = by_pid.get(&top.parent).filter(|parent| parent.start >= identity.process.start) {
            top = parent;
            below_us |= top.pid == us;
        }
        !below_us && reapers.contains(&top.parent) && is_ours(process.pid)
    })
}

fn is_of_our_user(pid: Pid) -> bool {
    use std::os::unix::fs::MetadataExt;
    let us = rustix::process::geteuid().as_raw();
    match std::fs::metadata(format!("/proc/{}", pid.as_raw_nonzero())) {
        // A process that made itself undumpable shows as root's.
        Ok(metadata) => metadata.uid() == us || metadata.uid() == 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_identity::ProcessIdentity;

    const JOB: i32 = 500;
    const LAUNCHER: i32 = 499;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn identity() -> JobIdentity {
        let process = |number, start| ProcessIdentity { boot: "boot".parse().unwrap(), pid: pid(number), start };
        JobIdentity {
            process: process(JOB, 1000),
            launcher: process(LAUNCHER, 990),
            run: "01900000-0000-7000-8000-000000000002".parse().unwrap(),
            attempt_number: leasehold_core::counter::AttemptNumber::FIRST,
            cgroup: None,
        }
    }

    fn process(number: i32, parent: i32, (group, session): (i32, i32), start: u64) -> ProcessStat {
        ProcessStat { pid: pid(number), state: b'S', parent, group, session, start }
    }

    #[test]
    fn only_what_is_certainly_the_jobs_is_named() {
        let named = |process: ProcessStat, carries: bool| is_named(&identity(), &process, |_, _| carries);
        assert!(named(process(600, 1, (JOB, LAUNCHER), 1001), false));
        assert!(named(process(600, 1, (600, 600), 1001), true), "it left group and session, not its environment");
        assert!(!named(process(600, 1, (JOB, 7), 1001), false), "a group of that number in another session");
        assert!(!named(process(600, 1, (600, LAUNCHER), 1001), false), "another group of that session");
        assert!(!named(process(600, 1, (JOB, LAUNCHER), 999), true), "older than the job");
        let zombie = ProcessStat { state: b'Z', ..process(600, 1, (JOB, LAUNCHER), 1001) };
        assert!(!named(zombie, true));
    }

    #[test]
    fn a_young_orphan_of_our_user_may_be_the_jobs() {
        let us = pid(40);
        let stranger = |extra: ProcessStat, ours: bool| {
            let table = [process(1, 0, (1, 1), 1), process(30, 1, (30, 30), 10), process(40, 30, (30, 30), 20), extra];
            has_stranger(&identity(), &table, us, |_| ours)
        };
        assert!(stranger(process(700, 1, (700, 700), 1001), true));
        assert!(stranger(process(700, 30, (700, 700), 1001), true), "an ancestor of ours may reap orphans, too");
        assert!(!stranger(process(700, 1, (700, 700), 1001), false), "another user's");
        assert!(!stranger(process(700, 1, (700, 700), 999), true), "older than the job");
        assert!(!stranger(process(700, 88, (700, 700), 1001), true), "below somebody older who reaps no orphans");
    }

    #[test]
    fn what_a_young_agent_started_is_no_stranger() {
        // The agent itself started after the job: neither it nor its other launchers are the job's.
        let us = pid(800);
        let table = [process(1, 0, (1, 1), 1), process(800, 1, (800, 800), 2000), process(801, 800, (801, 801), 2001)];
        assert!(!has_stranger(&identity(), &table, us, |_| true));
    }
}
