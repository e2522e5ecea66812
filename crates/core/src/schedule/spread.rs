//! What a trigger's identity decides: the values of `H` and the jitter. A digest, so every replica, every restart and every
//! edit finds the same ones, and the triggers of a thousand tasks do not fire together. (Control design, *Triggers*.)

use super::Unit;
use crate::crypto::{Digest, Domain};
use crate::id::{ProjectName, TaskName, TriggerName};
use crate::time::Millis;

/// The digest of project, task and trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread(Digest);

impl Spread {
    /// Of one trigger.
    pub fn of(project: &ProjectName, task: &TaskName, trigger: &TriggerName) -> Self {
        // Names hold no slash, so no two identities have one text.
        Self(Digest::of(Domain::Trigger, format!("{project}/{task}/{trigger}").as_bytes()))
    }

    /// How much later than its nominal times it fires: one span for all of them, so that they keep their order.
    pub fn jitter(&self, at_most: Millis) -> Millis {
        let mut last = [0; 8];
        last.copy_from_slice(&self.0.as_bytes()[24..]);
        Millis::new(u64::from_be_bytes(last) % at_most.get().saturating_add(1))
    }

    /// A number below `count`, for one field.
    pub(super) fn below(&self, count: u8, unit: Unit) -> u8 {
        let at = 4 * match unit {
            Unit::Second => 0,
            Unit::Minute => 1,
            Unit::Hour => 2,
            Unit::Day => 3,
            Unit::Month => 4,
            Unit::Weekday => 5,
        };
        let mut four = [0; 4];
        four.copy_from_slice(&self.0.as_bytes()[at..at + 4]);
        u8::try_from(u32::from_be_bytes(four) % u32::from(count.max(1))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(task: &str, trigger: &str) -> Spread {
        Spread::of(&ProjectName::default(), &task.parse().unwrap(), &trigger.parse().unwrap())
    }

    #[test]
    fn an_identity_always_decides_the_same() {
        // printf 'leasehold/trigger/v1\0default/report/cron' | sha256sum. A change would move every schedule that says `H`.
        let known = spread("report", "cron");
        assert_eq!(Unit::ALL.iter().map(|unit| known.below(60, *unit)).collect::<Vec<_>>(), [15, 7, 59, 29, 22, 13]);
        assert_eq!(known.jitter(Millis::from_secs(30)), Millis::new(14528));
        assert_eq!(known.jitter(Millis::ZERO), Millis::ZERO);
        assert!(known.jitter(Millis::new(u64::MAX)).get() > 0);
    }

    #[test]
    fn identities_spread_over_the_hour() {
        let mut minutes = [0; 60];
        for task in 0..6000 {
            minutes[usize::from(spread(&format!("task-{task}"), "cron").below(60, Unit::Minute))] += 1;
        }
        assert!(minutes.iter().all(|count| (50..150).contains(count)), "{minutes:?}");
        assert_ne!(spread("a", "b-c"), spread("a-b", "c"));
    }
}
