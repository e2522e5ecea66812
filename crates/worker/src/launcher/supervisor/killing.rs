//! The part of supervising that signals: asks, kills whole, and says what does not die.
//!
//! Never here: when that is due, which the schedule decides. (Worker design, *Launcher*, *Stop*.)

use leasehold_core::attempt::{Left, StopReason};
use leasehold_core::limits::LEFT_PIDS;
use leasehold_core::time::{BootInstant, Millis};
use rustix::process::{Signal, getpid, kill_process, kill_process_group, setpriority_process};

use super::Supervisor;
use crate::cgroup::JobGroup;
use crate::launcher::descendants;
use crate::process_identity::table;

/// The nice value of a launcher that kills.
const FIRST_IN_LINE: i32 = -20;
/// How often in a row children are killed as they come: some milliseconds.
const CHASE: u32 = 200;

impl Supervisor {
    /// Asks the job's group to end, unless the job has ended by itself.
    pub(super) fn terminate(&mut self, reason: StopReason, now: BootInstant, grace: Option<Millis>) {
        self.reap();
        if self.ended.is_some() {
            return;
        }
        self.running.schedule.stop(reason, now, grace);
        if self.signalled.is_none() {
            self.signalled = Some(reason);
            // The leader is not reaped, so its number still names this group. A stopped job must run to hear it.
            let child = self.running.identity.pid;
            if kill_process_group(child, Signal::TERM).is_err() {
                // It moved to another group; it is still our unreaped child.
                let _ = kill_process(child, Signal::TERM);
            }
            let _ = kill_process_group(child, Signal::CONT);
            self.quicken(now);
        }
    }

    pub(super) fn kill_from(&mut self, now: BootInstant) {
        if self.killing_since.is_none() {
            self.killing_since = Some(now);
            // Among a thousand processes that fork, one that kills must get its turn. Only root can have that.
            let _ = setpriority_process(None, FIRST_IN_LINE);
            self.quicken(now);
        }
    }

    /// SIGKILL to everything of the job: its control group, its process group, every descendant; then, as long as new
    /// ones keep coming, whatever comes to this subreaper.
    pub(super) fn kill_round(&mut self) {
        if let Some(group) = &self.running.group {
            let _ = group.kill();
        }
        if self.ended.is_none() {
            // Not reaped, so its number still names its group.
            let _ = kill_process_group(self.running.identity.pid, Signal::KILL);
        }
        self.left = descendants::kill_round(getpid()).unwrap_or_default();
        self.reap();
        for _ in 0..CHASE {
            if self.childless || !descendants::kill_children().unwrap_or(false) {
                return;
            }
            self.reap();
        }
    }

    /// What of the job lives, and is not about to be reaped.
    pub(super) fn look_again(&mut self) {
        if let Ok(table) = table() {
            self.left = descendants::of(getpid(), &table);
        }
    }

    /// Tells the agent what does not die, when that has changed.
    pub(super) fn say_left(&mut self) {
        let mut pids: Vec<_> =
            self.left.iter().filter_map(|process| u32::try_from(process.pid.as_raw_nonzero().get()).ok()).collect();
        pids.sort_unstable();
        let count = u64::try_from(pids.len()).unwrap_or(u64::MAX);
        pids.truncate(LEFT_PIDS);
        let left = (count > 0).then_some(Left { count, pids });
        if left != self.said_left {
            self.said_left = left;
            self.connections.tell_all(&self.state().to_bytes());
        }
    }

    /// Whether nothing of the job is left: no child, and nothing in its control group.
    pub(super) fn all_gone(&self) -> bool {
        let populated = |group: &JobGroup| group.is_populated().unwrap_or(false);
        self.childless && !self.running.group.as_ref().is_some_and(populated)
    }
}
