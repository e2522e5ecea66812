//! The launcher while its job runs: pump the output, keep the deadlines, hear the agent, reap, stop what is left,
//! write the receipt.
//!
//! One thread, one `poll`. It wakes for output, a message, the end of the child or a deadline; only the reaping of
//! orphans (a subreaper's duty, and no descriptor announces them) is asked for by a tick that slows down to ten
//! seconds. (Worker design, *Launcher*.)

mod killing;

use std::io;
use std::os::fd::OwnedFd;

use leasehold_core::attempt::{ExitStatus, Left, LimitsKept, StopReason};
use leasehold_core::counter::CallbackSequence;
use leasehold_core::crypto::CompletionToken;
use leasehold_core::frame::Stream;
use leasehold_core::id::AttemptId;
use leasehold_core::time::{BootInstant, Clock, Millis};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{PidfdFlags, WaitOptions, WaitStatus, pidfd_open, wait};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::connections::{Connections, Received};
use super::control::{LauncherState, Message};
use super::delivery::deliver;
use super::log::Log;
use super::mask::{Mask, Masked};
use super::process::{Lock, ReservedReceipt};
use super::receipt::{Conclusion, Ending, Moment, Receipt};
use super::remainder::see_off;
use super::schedule::{Due, Schedule};
use super::socket;
use super::usage::usage;
use crate::attempt_dir::AttemptDir;
use crate::cgroup::JobGroup;
use crate::fault::around;
use crate::fault::steps::CGROUP_REMOVE;
use crate::process_identity::{ProcessIdentity, ProcessStat};

/// How long a pipe that outlived all its known writers may hold up the end.
const DRAIN: Millis = Millis::from_secs(1);
/// How long descendants are killed again before the receipt names them as left.
const KILL_PATIENCE: Millis = Millis::from_secs(10);
/// The first tick of a phase; each next one is twice as long.
const TICK_FIRST: Millis = Millis::new(10);
/// The slowest tick while something is being stopped.
const TICK_STOPPING: Millis = Millis::new(100);
/// The slowest tick while the job simply runs.
const TICK_RUNNING: Millis = Millis::from_secs(10);
/// Bytes of one read of a pipe.
const READ: usize = 64 * 1024;

/// A started job and everything its launcher holds.
pub(super) struct Running {
    pub(super) attempt: AttemptId,
    pub(super) callback_sequence: CallbackSequence,
    pub(super) completion_token: CompletionToken,
    pub(super) keep_descendants: bool,
    pub(super) limits: LimitsKept,
    pub(super) group: Option<JobGroup>,
    pub(super) mask: Mask,
    pub(super) _lock: Lock,
    pub(super) dir: AttemptDir,
    pub(super) receipt: ReservedReceipt,
    pub(super) log: Log,
    pub(super) listener: OwnedFd,
    pub(super) outputs: Vec<Output>,
    pub(super) schedule: Schedule,
    pub(super) identity: ProcessIdentity,
    pub(super) started: Moment,
    pub(super) clock: &'static dyn Clock,
}

/// One pipe from the job.
pub(super) struct Output {
    stream: Stream,
    pipe: OwnedFd,
    masked: Masked,
    open: bool,
}

impl Output {
    pub(super) fn new(stream: Stream, pipe: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { stream, pipe, masked: Masked::default(), open: true })
    }
}

/// Sees the job through to its receipt.
pub(super) fn supervise(running: Running) {
    Supervisor::new(running).run();
}

struct Supervisor {
    running: Running,
    /// Readable when the direct child has ended. Without one (no descriptor was free) the tick finds it.
    child: Option<OwnedFd>,
    timer: Option<OwnedFd>,
    connections: Connections,
    buffer: Vec<u8>,
    /// Set when the first signal was sent, before the direct child was reaped.
    signalled: Option<StopReason>,
    ended: Option<(ExitStatus, Moment)>,
    /// No child is left, the direct one and every orphan reaped.
    childless: bool,
    killing_since: Option<BootInstant>,
    left: Vec<ProcessStat>,
    /// What of that the agent was told.
    said_left: Option<Left>,
    gave_up: bool,
    drain_until: Option<BootInstant>,
    tick: Millis,
    tick_at: BootInstant,
}

enum Ready {
    Output(usize),
    Listener,
    Connection(usize),
}

impl Supervisor {
    fn new(running: Running) -> Self {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let tick_at = running.clock.boot().plus(TICK_FIRST);
        Self {
            child: pidfd_open(running.identity.pid, PidfdFlags::empty()).ok(),
            timer: timerfd_create(TimerfdClockId::Boottime, flags).ok(),
            connections: Connections::default(),
            buffer: vec![0; READ],
            signalled: None,
            ended: None,
            childless: false,
            killing_since: None,
            left: Vec::new(),
            said_left: None,
            gave_up: false,
            drain_until: None,
            tick: TICK_FIRST,
            tick_at,
            running,
        }
    }

    fn run(mut self) {
        loop {
            self.reap();
            let now = self.running.clock.boot();
            self.act(now);
            if let Some((status, ended)) = self.over(now) {
                return self.conclude(status, ended);
            }
            let wake = self.next_wake(now);
            for ready in self.wait(wake) {
                match ready {
                    Ready::Output(index) => self.pump(index),
                    Ready::Listener => self.accept(),
                    Ready::Connection(index) => self.hear(index),
                }
            }
            self.running.outputs.retain(|output| output.open);
            self.connections.forget_closed();
        }
    }

    /// Reaps whoever has ended: the direct child and orphans that came to this subreaper.
    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.running.identity.pid => {
                    let now = Moment { utc: self.running.clock.utc(), boot: self.running.clock.boot() };
                    self.ended = Some((exit_status(status), now));
                    self.child = None;
                    self.quicken(now.boot);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return,
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    /// Does what is due at `now`.
    fn act(&mut self, now: BootInstant) {
        if self.ended.is_none() {
            match self.running.schedule.due(now) {
                Due::Nothing => {}
                Due::Terminate(reason) => self.terminate(reason, now, None),
                Due::Kill => self.kill_from(now),
            }
        } else if !self.all_gone() {
            let in_grace = self.running.schedule.stopping().is_some() && self.running.schedule.due(now) != Due::Kill;
            // Left alone only after a natural end: what runs without authority is stopped whole.
            if !in_grace && (self.running.schedule.stopping().is_some() || !self.running.keep_descendants) {
                self.kill_from(now);
            }
        }
        let overdue = self.killing_since.is_some_and(|since| now.since(since) >= KILL_PATIENCE);
        if self.killing_since.is_some() && !self.gave_up && !self.all_gone() {
            self.kill_round();
            if overdue && !self.all_gone() {
                // What this very round killed may be gone by now.
                self.look_again();
                // The direct child itself is never given up: without its end there is nothing to say but that.
                self.gave_up = self.ended.is_some();
                if !self.gave_up {
                    self.say_left();
                }
            }
        }
        if now >= self.tick_at {
            let slowest = if self.is_stopping() && !overdue { TICK_STOPPING } else { TICK_RUNNING };
            self.tick = self.tick.times(2).min(slowest);
            self.tick_at = now.plus(self.tick);
        }
    }

    fn is_stopping(&self) -> bool {
        self.ended.is_some() || self.signalled.is_some()
    }

    fn quicken(&mut self, now: BootInstant) {
        self.tick = TICK_FIRST;
        self.tick_at = now.plus(TICK_FIRST);
    }

    /// The end, once the direct child has ended, nothing of it is left that should not be, and its output is read.
    fn over(&mut self, now: BootInstant) -> Option<(ExitStatus, Moment)> {
        let kept = self.running.keep_descendants && self.running.schedule.stopping().is_none();
        let ended = self.ended?;
        if !(kept || self.gave_up || self.all_gone()) {
            return None;
        }
        let until = *self.drain_until.get_or_insert(now.plus(DRAIN));
        (self.running.outputs.is_empty() || now >= until).then_some(ended)
    }

    fn next_wake(&self, now: BootInstant) -> BootInstant {
        let deadline =
            if self.ended.is_none() && self.killing_since.is_none() { self.running.schedule.next() } else { None };
        [deadline, self.drain_until].into_iter().flatten().fold(self.tick_at, BootInstant::min).max(now)
    }

    fn wait(&self, wake: BootInstant) -> Vec<Ready> {
        let mut sources = Vec::new();
        let mut fds = Vec::new();
        for (index, output) in self.running.outputs.iter().enumerate() {
            sources.push(Some(Ready::Output(index)));
            fds.push(PollFd::new(&output.pipe, PollFlags::IN));
        }
        for (index, connection) in self.connections.iter() {
            sources.push(Some(Ready::Connection(index)));
            fds.push(PollFd::new(connection, PollFlags::IN));
        }
        sources.push(Some(Ready::Listener));
        fds.push(PollFd::new(&self.running.listener, PollFlags::IN));
        for fd in self.child.iter().chain(&self.timer) {
            sources.push(None);
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        let timeout = self.arm(wake);
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Vec::new();
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        sources.into_iter().zip(ready).filter_map(|(source, ready)| source.filter(|_| ready)).collect()
    }

    /// Arms the boot-time timer, which counts suspend. Where the kernel gave none, a short timeout asks the clock.
    fn arm(&self, wake: BootInstant) -> Option<Timespec> {
        let at = Timespec { tv_sec: wake.get().max(1) / 1000, tv_nsec: wake.get().max(1) % 1000 * 1_000_000 };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: at };
        match self.timer.as_ref().map(|timer| timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting)) {
            Some(Ok(_)) => None,
            _ => Some(socket::timespec(TICK_STOPPING)),
        }
    }

    fn pump(&mut self, index: usize) {
        let Running { outputs, log, mask, clock, .. } = &mut self.running;
        let Some(output) = outputs.get_mut(index) else { return };
        match read(&output.pipe, self.buffer.as_mut_slice()) {
            Ok(length) if length > 0 => {
                let bytes = output.masked.pass(mask, &self.buffer[..length]);
                log.append(clock.utc(), output.stream, &bytes);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                output.open = false;
                log.append(clock.utc(), output.stream, &output.masked.finish(mask));
            }
        }
    }

    fn state(&self) -> LauncherState {
        LauncherState::Running {
            handle: self.running.identity.to_handle(),
            stopping: self.signalled,
            left: self.said_left.clone(),
        }
    }

    fn accept(&mut self) {
        let state = self.state().to_bytes();
        self.connections.accept(&self.running.listener, &state);
    }

    fn hear(&mut self, index: usize) {
        let message = match self.connections.receive(index) {
            Received::Nothing => return,
            Received::Message(message) => message,
        };
        match message {
            Message::Deadline { at_boot_ms } => self.running.schedule.extend(BootInstant::new(at_boot_ms)),
            Message::Stop { reason, grace_ms } => match reason.parse() {
                Ok(reason) => self.terminate(reason, self.running.clock.boot(), grace_ms.map(Millis::new)),
                Err(_) => return self.connections.close(index),
            },
        }
        let state = self.state().to_bytes();
        self.connections.tell(index, &state);
    }

    /// Writes the receipt, then hangs up: whoever hears the hang-up finds it.
    fn conclude(self, status: ExitStatus, ended: Moment) {
        let Running {
            attempt, callback_sequence, completion_token, mask, mut log, outputs, clock, group, limits, ..
        } = self.running;
        // What a kept process still holds open ends here.
        for mut output in outputs {
            log.append(clock.utc(), output.stream, &output.masked.finish(&mask));
        }
        let left = if self.gave_up { self.left } else { Vec::new() };
        let nothing_left = left.is_empty();
        let boot = &self.running.identity.boot;
        let last_word = Receipt {
            attempt,
            callback_sequence,
            completion_token,
            conclusion: Conclusion::Ended(Box::new(Ending {
                status,
                stopped: self.signalled,
                started: self.running.started,
                ended,
                usage: usage(group.as_ref(), limits),
                log: log.finish(clock.utc()),
                left_count: u64::try_from(left.len()).unwrap_or(u64::MAX),
                left: left
                    .iter()
                    .map(|process| ProcessIdentity { boot: boot.clone(), pid: process.pid, start: process.start })
                    .collect(),
                left_gone: false,
            })),
        };
        // Gone before anybody is told; one that a process was left in stays until the attempt's directory goes.
        if let Some(group) = &group {
            let _: io::Result<()> = around(CGROUP_REMOVE, || {
                group.remove();
                Ok(())
            });
        }
        deliver(&self.running.dir, &self.running.receipt, &last_word, &self.running.listener, self.connections);
        if !nothing_left {
            see_off(&self.running.dir, &last_word, group.as_ref(), clock);
        }
    }
}

fn exit_status(status: WaitStatus) -> ExitStatus {
    match status.exit_status().map(u8::try_from) {
        Some(Ok(code)) => ExitStatus::Code(code),
        _ => ExitStatus::Signal(status.terminating_signal().unwrap_or(0)),
    }
}
