//! The faults of a chaos run, drawn from one seed before anything starts: a list that can be printed and replayed.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::{Fault, Part, Way};
use crate::seed::Seed;

/// One fault of the plan, in milliseconds from the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// When it begins, if there is something that it can hit.
    pub(crate) at: u64,
    /// Until when it waits for that.
    pub(crate) by: u64,
    /// How long it lasts once it began.
    pub(crate) lasts: u64,
    pub(crate) fault: Fault,
}

impl Planned {
    /// When it is over, whenever it began.
    pub(crate) const fn until(&self) -> u64 {
        self.by + self.lasts
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = |millis: u64| format!("{}.{:03} s", millis / 1000, millis % 1000);
        write!(f, "{} {}", second(self.at), self.fault)?;
        if self.by > self.at {
            write!(f, ", at the latest at {}", second(self.by))?;
        }
        if self.lasts > 0 { write!(f, ", for {}", second(self.lasts)) } else { Ok(()) }
    }
}

/// After a restart or a mended wire, its next fault leaves this much time for something to happen, in milliseconds.
const BREATH: u64 = 300;
/// A person leaves a worker in peace for this long, in milliseconds: while one is drained, little happens to jobs.
const PEACE: u64 = 30_000;

const fn rest(part: Part) -> u64 {
    if matches!(part, Part::Person(_)) { PEACE } else { BREATH }
}

/// Draws `faults` faults of `workers` workers over `millis` milliseconds, in the order they begin.
pub(crate) fn drawn(seed: u64, faults: u32, workers: usize, millis: u64) -> Vec<Planned> {
    let mut seed = Seed::of(seed);
    let mut taken: BTreeMap<Part, u64> = BTreeMap::new();
    let mut plan: Vec<Planned> = Vec::new();
    let step = millis / u64::from(faults.max(1));
    for number in 0..u64::from(faults) {
        let mut at = number * step + seed.below(step.max(1));
        let planned = loop {
            let (fault, lasts) = fault(&mut seed, number, u64::from(faults), workers);
            // The last long faults end with the run.
            let planned = Planned { at, by: at + fault.aims_for(), lasts: lasts.min(millis.saturating_sub(at)), fault };
            let parts = fault.parts();
            if parts.iter().all(|part| taken.get(part).is_none_or(|free| *free <= at)) {
                for part in parts {
                    taken.insert(part, planned.until() + rest(part));
                }
                break planned;
            }
            // Everything may be taken: time goes on.
            at += 1 + step / 16;
        };
        plan.push(planned);
    }
    plan.sort_by_key(|planned| planned.at);
    plan
}

fn fault(seed: &mut Seed, number: u64, faults: u64, workers: usize) -> (Fault, u64) {
    let worker = usize::try_from(seed.below(workers as u64)).unwrap_or(0);
    match number {
        // Before any worker holds a job that lives long.
        0 => return (Fault::Retire(worker), retirement(seed)),
        _ if number == faults / 8 => return (Fault::Drain(worker), 2_000 + seed.below(8_000)),
        // When leases have been lost.
        _ if number == faults * 3 / 4 => return (Fault::Destroy(worker), 500 + seed.below(3_000)),
        _ => {}
    }
    // After a quarter, when there are jobs that live long, leases are lost: nothing else tries what a launcher does alone.
    match number.checked_sub(faults / 4) {
        Some(0) => return (Fault::FreezeAgent(worker), long(seed)),
        Some(4) => return (Fault::Cut(worker, Way::Both), long(seed)),
        Some(8) => return (Fault::KillAgent(worker), long(seed)),
        _ => {}
    }
    let way = match seed.below(3) {
        0 => Way::Out,
        1 => Way::In,
        _ => Way::Both,
    };
    match seed.below(104) {
        0..18 => (Fault::KillAgent(worker), outage(seed)),
        18..28 => (Fault::FreezeAgent(worker), outage(seed)),
        28..31 => (Fault::DrainAgent(worker), 500 + seed.below(6_000)),
        31..37 => (Fault::LeaveRunning(worker), 0),
        37..43 => (Fault::HangUp(worker), 0),
        // What kills jobs is rare, or there is nothing left that could outlive a lease.
        43..47 => (Fault::KillLauncher(worker), 0),
        47..51 => (Fault::FreezeLauncher(worker), outage(seed)),
        51..54 => (Fault::Boot(worker), 300 + seed.below(3_000)),
        54..69 => (Fault::Cut(worker, way), outage(seed)),
        69..74 => (Fault::Narrow(worker), outage(seed)),
        74..79 => (Fault::Clock(worker, jump(seed)), 0),
        79..87 => (Fault::KillControl, short_outage(seed)),
        87..92 => (Fault::FreezeControl, short_outage(seed)),
        92..95 => (Fault::RestartControl, 0),
        95..100 => (Fault::ControlClock(jump(seed)), 0),
        100 | 101 => (Fault::Drain(worker), 500 + seed.below(8_000)),
        102 => (Fault::Retire(worker), retirement(seed)),
        _ => (Fault::Destroy(worker), 500 + seed.below(6_000)),
    }
}

/// How long a person waits until a drained worker holds nothing.
fn retirement(seed: &mut Seed) -> u64 {
    12_000 + seed.below(8_000)
}

/// Mostly shorter than a heartbeat, sometimes longer than a lease.
fn outage(seed: &mut Seed) -> u64 {
    match seed.below(24) {
        0..16 => seed.below(1_500),
        16..23 => 1_500 + seed.below(8_000),
        _ => long(seed),
    }
}

/// Longer than a lease and what follows it, also when the control plane is killed meanwhile: then its clock stands still.
fn long(seed: &mut Seed) -> u64 {
    38_000 + seed.below(10_000)
}

/// Of the one control plane that everybody needs.
fn short_outage(seed: &mut Seed) -> u64 {
    match seed.below(40) {
        0..30 => seed.below(1_000),
        30..39 => 1_000 + seed.below(6_000),
        _ => 20_000 + seed.below(10_000),
    }
}

/// By up to three hours, either way.
fn jump(seed: &mut Seed) -> i64 {
    i64::try_from(seed.below(2 * 10_800 + 1)).unwrap_or(0) - 10_800
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_seed_makes_one_plan() {
        assert_eq!(drawn(3, 50, 3, 60_000), drawn(3, 50, 3, 60_000));
        assert_ne!(drawn(3, 50, 3, 60_000), drawn(4, 50, 3, 60_000));
    }

    #[test]
    fn a_long_plan_has_every_kind_and_several_at_once() {
        let plan = drawn(1, 1_000, 3, 800_000);
        assert_eq!(plan.len(), 1_000);
        let kinds: BTreeSet<&str> = plan.iter().map(|planned| planned.fault.name()).collect();
        assert_eq!(kinds.len(), 20, "{kinds:?}");
        let together = plan.windows(2).filter(|pair| pair[1].at < pair[0].until()).count();
        assert!(together > 100, "{together}");
    }

    #[test]
    fn the_plan_of_ci_has_what_a_person_does_and_what_makes_leases_end() {
        let plan = drawn(566, 90, 3, 66_000);
        let has = |is: fn(&Planned) -> bool| plan.iter().any(is);
        assert!(has(|planned| matches!(planned.fault, Fault::Drain(_))));
        assert!(has(|planned| matches!(planned.fault, Fault::Retire(_))));
        assert!(has(|planned| matches!(planned.fault, Fault::Destroy(_))));
        assert!(has(|planned| matches!(planned.fault, Fault::FreezeAgent(_)) && planned.lasts >= 38_000));
    }

    #[test]
    fn nothing_suffers_two_faults_at_once_so_no_agent_is_gone_while_its_launcher_is_frozen() {
        let plan = drawn(9, 1_000, 3, 800_000);
        for (index, one) in plan.iter().enumerate() {
            for other in &plan[index + 1..] {
                let shared = one.fault.parts().iter().any(|part| other.fault.parts().contains(part));
                assert!(!shared || other.at > one.until() || one.at > other.until(), "{one} and {other}");
            }
        }
    }
}
