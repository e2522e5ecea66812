//! The launcher's three deadlines (lease, task timeout, grace) as one pure question: what is due now?
//! All instants are of the boot-time clock, which counts suspend. (Worker design, *Launcher* and *Leases*.)

use leasehold_core::attempt::StopReason;
use leasehold_core::deadline::stop_plan;
use leasehold_core::time::{BootInstant, Millis};

use super::request::LeaseDeadline;

/// What a launcher has to do about its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before [`Schedule::next`].
    Nothing,
    /// Ask politely.
    Terminate(StopReason),
    /// Kill what is left.
    Kill,
}

#[derive(Debug, Clone)]
pub(super) struct Schedule {
    lease: Option<LeaseDeadline>,
    timeout_at: Option<BootInstant>,
    grace: Millis,
    stopping: Option<Stopping>,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    reason: StopReason,
    kill_at: BootInstant,
}

impl Schedule {
    pub(super) fn new(lease: Option<LeaseDeadline>, timeout_at: Option<BootInstant>, grace: Millis) -> Self {
        Self { lease, timeout_at, grace, stopping: None }
    }

    /// The instant from which the job would be stopped at once; a job is not started after it.
    pub(super) fn not_after(&self) -> Option<BootInstant> {
        let terminate_at = self.lease.map(|lease| stop_plan(lease.at, lease.length, self.grace).terminate_at);
        [terminate_at, self.timeout_at].into_iter().flatten().min()
    }

    /// Takes a renewed lease; an earlier deadline than the known one changes nothing, and a job whose lease is not
    /// enforced stays so.
    pub(super) fn extend(&mut self, deadline: BootInstant) {
        if let Some(lease) = &mut self.lease {
            lease.at = lease.at.max(deadline);
        }
    }

    /// The job is being stopped from `now` on. The first reason stays; the kill only comes nearer.
    pub(super) fn stop(&mut self, reason: StopReason, now: BootInstant, grace: Option<Millis>) {
        let kill_at = now.plus(grace.map_or(self.grace, |grace| grace.min(self.grace)));
        match &mut self.stopping {
            Some(stopping) => stopping.kill_at = stopping.kill_at.min(kill_at),
            None => self.stopping = Some(Stopping { reason, kill_at }),
        }
    }

    /// Why the job is being stopped, if it is.
    pub(super) fn stopping(&self) -> Option<StopReason> {
        self.stopping.map(|stopping| stopping.reason)
    }

    pub(super) fn due(&self, now: BootInstant) -> Due {
        if self.stopping.is_some() {
            return if self.kill_at().is_some_and(|at| now >= at) { Due::Kill } else { Due::Nothing };
        }
        // Where both are due, the lease's word is the weaker one: a timeout is the task's own outcome.
        if self.timeout_at.is_some_and(|at| now >= at) {
            return Due::Terminate(StopReason::Timeout);
        }
        match self.not_after() {
            Some(at) if now >= at => Due::Terminate(StopReason::Lease),
            _ => Due::Nothing,
        }
    }

    /// The next instant at which something is due.
    pub(super) fn next(&self) -> Option<BootInstant> {
        if self.stopping.is_some() { self.kill_at() } else { self.not_after() }
    }

    /// While stopping, no grace reaches past the end of the lease.
    fn kill_at(&self) -> Option<BootInstant> {
        let lease = self.lease.map(|lease| stop_plan(lease.at, lease.length, self.grace).kill_at);
        [self.stopping.map(|stopping| stopping.kill_at), lease].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> BootInstant {
        BootInstant::new(seconds * 1000)
    }

    fn secs(seconds: u64) -> Millis {
        Millis::from_secs(seconds)
    }

    fn lease(seconds: i64) -> LeaseDeadline {
        LeaseDeadline { at: at(seconds), length: secs(60) }
    }

    #[test]
    fn a_lease_that_nobody_renews_ends_the_job_before_it_ends() {
        // Margin 6 s, grace min(10, 15) s: SIGTERM at 84, SIGKILL at 94.
        let mut schedule = Schedule::new(Some(lease(100)), None, secs(10));
        assert_eq!(schedule.due(at(83)), Due::Nothing);
        assert_eq!(schedule.next(), Some(at(84)));
        assert_eq!(schedule.due(at(84)), Due::Terminate(StopReason::Lease));
        schedule.stop(StopReason::Lease, at(84), None);
        assert_eq!(schedule.due(at(93)), Due::Nothing);
        assert_eq!(schedule.due(at(94)), Due::Kill);
    }

    #[test]
    fn a_deadline_only_grows() {
        let mut schedule = Schedule::new(Some(lease(100)), None, secs(10));
        schedule.extend(at(90));
        assert_eq!(schedule.next(), Some(at(84)));
        schedule.extend(at(160));
        assert_eq!(schedule.next(), Some(at(144)));
    }

    #[test]
    fn a_job_that_may_finish_without_its_lease_gets_no_deadline_later() {
        let mut schedule = Schedule::new(None, None, secs(10));
        schedule.extend(at(100));
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_timeout_is_the_tasks_own_outcome() {
        let schedule = Schedule::new(Some(lease(100)), Some(at(50)), secs(10));
        assert_eq!(schedule.due(at(49)), Due::Nothing);
        assert_eq!(schedule.due(at(50)), Due::Terminate(StopReason::Timeout));
        assert_eq!(schedule.due(at(200)), Due::Terminate(StopReason::Timeout));
    }

    #[test]
    fn the_first_reason_stays_and_the_kill_only_comes_nearer() {
        let mut schedule = Schedule::new(None, None, secs(10));
        schedule.stop(StopReason::Cancel, at(5), None);
        schedule.stop(StopReason::Timeout, at(6), None);
        assert_eq!((schedule.stopping(), schedule.next()), (Some(StopReason::Cancel), Some(at(15))));
        schedule.stop(StopReason::Cancel, at(7), Some(secs(100)));
        assert_eq!(schedule.next(), Some(at(15)));
        schedule.stop(StopReason::Cancel, at(7), Some(Millis::ZERO));
        assert_eq!(schedule.due(at(7)), Due::Kill);
    }

    #[test]
    fn no_grace_reaches_past_the_lease() {
        let mut schedule = Schedule::new(Some(lease(100)), None, secs(3600));
        schedule.stop(StopReason::Cancel, at(70), None);
        assert_eq!(schedule.next(), Some(at(94)));
    }
}
