//! The launchers of the machine, and the jobs that they run.

use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RejectReason, StopReason};
use leasehold_core::crypto::{CompletionToken, Digest, Domain};
use leasehold_core::deadline::stop_plan;
use leasehold_core::end::Ending;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::time::{BootInstant, Millis, UtcMillis};

use super::disk::Barrier;
use super::{Event, World};
use crate::engine::port::{Input, Launch, LaunchAnswer, OpId, Receipt};

/// A launcher on its way.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    offer: OfferId,
    callback: Callback,
    token: CompletionToken,
    grace: Millis,
    lease: Millis,
    pub(super) deadline: BootInstant,
    /// When the job ends by itself.
    ends: Option<BootInstant>,
    pub(super) stop: Option<(StopReason, BootInstant)>,
}

impl World {
    pub(super) fn launch(&mut self, op: OpId, launch: Launch) {
        let attempt = launch.offer.attempt;
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            return self.answer(1, Input::Launched { op, answer: LaunchAnswer::Unknown("no directory".to_owned()) });
        };
        directory.locked = true;
        let limits = launch.offer.revision.limits();
        let launcher = Launcher {
            offer: launch.offer.offer,
            callback: launch.callback,
            token: launch.token,
            grace: limits.grace,
            lease: launch.lease,
            deadline: launch.lease_deadline,
            ends: None,
            stop: None,
        };
        self.launchers.insert(attempt, launcher);
        let unclear = self.dice.percent(self.weather.unclear_launches);
        // An unclear launch may still be on its way long after the agent gave up on it, or crashed.
        let spawn = self.dice.below(if unclear { 3_000 } else { 5 });
        self.at(spawn, Event::Spawn { attempt });
        if unclear {
            let after = self.dice.below(3_000);
            self.answer(after, Input::Launched { op, answer: LaunchAnswer::Unknown("no answer".to_owned()) });
        } else {
            self.answers_when_spawned(op, attempt, spawn);
        }
    }

    fn answers_when_spawned(&mut self, op: OpId, attempt: AttemptId, spawn: u64) {
        // The answer follows the child; a rejection is written as a receipt before.
        if self.dice.percent(8) {
            self.queue.retain(|_, event| !matches!(event, Event::Spawn { attempt: of } if *of == attempt));
            let Some(launcher) = self.launchers.remove(&attempt) else { return };
            let reason = RejectReason::Exec;
            let ending = Ending::Rejected { reason, detail: "not found".to_owned() };
            self.finish(attempt, &launcher, ending);
            let answer = LaunchAnswer::Rejected { reason, detail: "not found".to_owned() };
            return self.answer(spawn + 1, Input::Launched { op, answer });
        }
        let handle = self.handle(attempt);
        self.answer(spawn + 2, Input::Launched { op, answer: LaunchAnswer::Started(handle) });
    }

    fn handle(&self, attempt: AttemptId) -> Handle {
        let pid = 1000 + u32::from(attempt.as_bytes()[15]);
        Handle { boot: self.boot_name().parse().unwrap(), pid, start_time: 7 }
    }

    /// The child at the barrier: links its name, or finds another's and executes nothing.
    pub(super) fn spawn(&mut self, attempt: AttemptId) {
        let handle = self.handle(attempt);
        let Some(launcher) = self.launchers.get(&attempt).cloned() else { return };
        let late =
            BootInstant::new(self.now) >= stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            self.launchers.remove(&attempt);
            return;
        };
        if !matches!(directory.barrier, Barrier::Absent) || late {
            let reason = if late { RejectReason::Deadline } else { RejectReason::Tombstone };
            self.launchers.remove(&attempt);
            self.finish(attempt, &launcher, Ending::Rejected { reason, detail: String::new() });
            return self.hang_up(&launcher);
        }
        directory.barrier = Barrier::Child(handle);
        *self.spawns.entry(attempt).or_default() += 1;
        self.trace.push(format!("{} spawn {attempt}", self.now));
        let span = Millis::new(self.dice.below(self.longest_job) + 20);
        if let Some(launcher) = self.launchers.get_mut(&attempt) {
            launcher.ends = Some(BootInstant::new(self.now).plus(span));
        }
        if self.dice.percent(self.weather.killed_launchers) {
            // The child dies with its launcher; nobody writes a receipt.
            self.disk.directory(attempt).locked = false;
            self.launchers.remove(&attempt);
            return self.hang_up(&launcher);
        }
        self.plan(attempt);
    }

    pub(super) fn plan(&mut self, attempt: AttemptId) {
        let Some(launcher) = self.launchers.get(&attempt) else { return };
        let stops = stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let mut next = stops;
        for at in [launcher.ends, launcher.stop.map(|(_, at)| at)].into_iter().flatten() {
            next = next.min(at);
        }
        let after = u64::try_from(next.get() - self.now).unwrap_or(0);
        self.at(after, Event::Launcher { attempt });
    }

    /// A launcher's timer: the job ended, was told to, or its lease is about to.
    pub(super) fn launcher(&mut self, attempt: AttemptId) {
        let now = BootInstant::new(self.now);
        if self.frozen || !self.spawned(attempt) {
            return;
        }
        let Some(launcher) = self.launchers.get(&attempt).cloned() else { return };
        let stops = stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let at = UtcMillis::new(1_800_000_000_000 + self.now);
        let ending = if launcher.ends.is_some_and(|ends| ends <= now) {
            let code = u8::from(attempt.as_bytes()[15].is_multiple_of(4));
            Ending::Exited { status: ExitStatus::Code(code), at }
        } else if let Some((reason, _)) = launcher.stop.filter(|(_, at)| *at <= now) {
            Ending::Stopped { reason, status: ExitStatus::Signal(15), at }
        } else if stops <= now {
            Ending::Stopped { reason: StopReason::Lease, status: ExitStatus::Signal(15), at }
        } else {
            return;
        };
        self.launchers.remove(&attempt);
        let log = self.dice.below(600_000);
        self.disk.directory(attempt).log = log;
        self.finish(attempt, &launcher, ending);
        self.hang_up(&launcher);
    }

    fn finish(&mut self, attempt: AttemptId, launcher: &Launcher, ending: Ending) {
        let Some(directory) = self.disk.directories.get_mut(&attempt) else { return };
        let ran = !matches!(ending, Ending::Rejected { .. });
        directory.locked = false;
        directory.receipt = Some(Receipt {
            ending,
            callback: launcher.callback,
            token: launcher.token.clone(),
            log: ran.then_some(LogPin {
                length: directory.log,
                digest: Digest::of(Domain::Log, b""),
                cut: None,
                finished: true,
            }),
            usage: None,
            left: None,
            left_gone: false,
        });
    }

    fn hang_up(&mut self, launcher: &Launcher) {
        let offer = launcher.offer;
        self.answer(1, Input::HungUp { offer });
    }

    pub(super) fn spawned(&self, attempt: AttemptId) -> bool {
        self.disk.directories.get(&attempt).is_some_and(|directory| matches!(directory.barrier, Barrier::Child(_)))
    }

    /// Whether no process of the attempt lives any more.
    pub(crate) fn is_stopped(&self, attempt: AttemptId) -> bool {
        !self.launchers.contains_key(&attempt)
    }

    /// Whether a process of the attempt runs.
    pub(crate) fn is_running(&self, attempt: AttemptId) -> bool {
        self.launchers.contains_key(&attempt) && self.spawned(attempt)
    }
}
