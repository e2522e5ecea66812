//! When a worker must have stopped: one rule for deadlines, counted from the request, on the boot-time clock.
//!
//! `Deadline = boot-time clock when the request was sent + held + remaining`. The launcher kills at the deadline
//! less a margin, and asks politely before that. (Worker design, *Leases*.)

use crate::time::{BootInstant, Millis};

/// The instant at which a lease may end at the control plane, on this machine's boot-time clock.
pub fn lease_deadline(sent: BootInstant, held: Millis, remaining: Millis) -> BootInstant {
    sent.plus(held).plus(remaining)
}

/// How long before a lease's deadline the launcher has killed the job: 10 % of the lease, at least 2 s.
pub fn kill_margin(lease: Millis) -> Millis {
    lease.part(10).max(Millis::from_secs(2))
}

/// What the launcher does when about a lease that nobody renews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPlan {
    /// SIGTERM.
    pub terminate_at: BootInstant,
    /// SIGKILL of everything that is left.
    pub kill_at: BootInstant,
}

/// When the launcher stops a job whose lease of length `lease` ends at `deadline`:
/// SIGKILL a margin before it, SIGTERM `min(grace, lease / 4)` before that.
pub fn stop_plan(deadline: BootInstant, lease: Millis, grace: Millis) -> StopPlan {
    let kill_at = deadline.minus(kill_margin(lease));
    StopPlan { terminate_at: kill_at.minus(grace.min(lease.part(4))), kill_at }
}

/// How often a worker must beat: what the server asks, at most a fifth of the shortest lease it holds.
pub fn heartbeat_interval(asked: Millis, shortest_lease: Option<Millis>) -> Millis {
    shortest_lease.map_or(asked, |lease| asked.min(lease.part(5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_dead_before_its_lease_ends() {
        let deadline = BootInstant::new(1_000_000);
        for lease in [25, 60, 600, 86_400].map(Millis::from_secs) {
            for grace in [0, 10, 3600].map(Millis::from_secs) {
                let plan = stop_plan(deadline, lease, grace);
                assert!(plan.terminate_at <= plan.kill_at);
                assert!(plan.kill_at.plus(Millis::from_secs(2)) <= deadline);
            }
        }
    }

    #[test]
    fn a_short_lease_quickens_the_heartbeat() {
        let asked = Millis::from_secs(15);
        assert_eq!(heartbeat_interval(asked, None), asked);
        assert_eq!(heartbeat_interval(asked, Some(Millis::from_secs(600))), asked);
        assert_eq!(heartbeat_interval(asked, Some(Millis::from_secs(30))), Millis::from_secs(6));
    }
}
