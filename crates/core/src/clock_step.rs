//! Whether the clock that judges leases stepped, and what becomes of the ends that were fixed before it did.
//!
//! On PostgreSQL the database's wall clock judges, and a wall clock can be set. A replica compares each reading with its own
//! boot-time clock, which counts suspend. Both run within [`DRIFT`] of each other; more than that, and more than
//! [`limits::CLOCK_STEP`] beyond it, is a step. What was fixed before it moves with it, so that the same time is left as
//! before. (Control design, *Two times, two types*.)
//!
//! **Never too early.** Between two readings the boot-time clock proves how much time can have passed at most; what the judging
//! clock gained beyond it is how far it may have stepped, and an end moves that far, not less. A job's launcher counts its
//! deadline on its own machine's boot-time clock from before the grant, so a lease that ends at its moved end or later
//! ends when the job is over. Steps too small to be told add up: the first reading stays the measure until drift explains
//! the difference. Unseen, the judging clock never gains more than [`limits::CLOCK_STEP`] and [`DRIFT`] since it is watched:
//! that is what the launcher's margin and [`limits::LOST_GRACE`] are there for.
//!
//! **Never later than one lease.** An end moves to one length of its lease behind the moment at which the step was seen, at
//! most. Nothing longer can be left of any lease; so a replica that is wrong (its machine was stopped together with its
//! clocks) or that speaks twice delays a loss by one lease, and grants nobody more than a renewal would have.

use crate::limits;
use crate::refusal::{Refusal, RefusalCode};
use crate::time::{BootInstant, LeaseInstant, Millis};

/// Clocks that count suspend run within one part in this many of each other.
const DRIFT: u64 = 100;

/// What the judging clock said, and the boot-time clock before it was asked and after it had answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Before it was asked.
    pub asked: BootInstant,
    /// What it said, at some moment between.
    pub said: LeaseInstant,
    /// After it had answered: a late answer says little, and never looks like a step.
    pub answered: BootInstant,
}

/// What is known of the judging clock: how far ahead of the boot-time clock it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    least: i64,
    most: i64,
    at: BootInstant,
    since: BootInstant,
}

/// A step of the judging clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Forward, by this much at most.
    Forward(Millis),
    /// Back, by this much at least.
    Back(Millis),
}

/// What a reading shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The clock runs on.
    Steady(Watched),
    /// It stepped since it was watched last.
    Stepped(Step),
}

impl Watched {
    /// A clock that is watched from `reading` on.
    pub fn from(reading: Reading) -> Self {
        let Reading { asked, said, answered } = reading;
        Self {
            least: said.get().saturating_sub(answered.get()),
            most: said.get().saturating_sub(asked.get()),
            at: answered,
            since: answered,
        }
    }

    /// The same watch after a step: what is known of the clock begins anew with `reading`.
    #[must_use]
    pub fn after_a_step(self, reading: Reading) -> Self {
        Self { since: self.since, ..Self::from(reading) }
    }

    /// How long it has to be watched still, at `now`, before anybody can be called late.
    pub fn doubts_for(&self, now: BootInstant) -> Millis {
        limits::CLOCK_WATCH.minus(now.since(self.since))
    }

    /// The same knowledge at another moment: in between the clocks may have drifted apart.
    fn at(self, moment: BootInstant) -> Self {
        let span = moment.since(self.at).max(self.at.since(moment));
        let drift = i64::try_from(span.part(DRIFT).get()).unwrap_or(i64::MAX);
        Self { least: self.least.saturating_sub(drift), most: self.most.saturating_add(drift), at: moment, ..self }
    }
}

/// Compares a reading with what was known.
pub fn compare(known: Watched, reading: Reading) -> Seen {
    let moment = known.at.max(reading.answered);
    let (before, now) = (known.at(moment), Watched::from(reading).at(moment));
    if now.least.saturating_sub(before.most) > millis(limits::CLOCK_STEP) {
        return Seen::Stepped(Step::Forward(span(now.most.saturating_sub(before.least))));
    }
    if before.least.saturating_sub(now.most) > millis(limits::CLOCK_STEP) {
        return Seen::Stepped(Step::Back(span(before.least.saturating_sub(now.most))));
    }
    let (least, most) = (before.least.max(now.least), before.most.min(now.most));
    if least > most {
        // Less than a step, but more than drift: what was known stays the measure, so that many of them are seen.
        return Seen::Steady(known);
    }
    Seen::Steady(Watched { least, most, at: moment, since: known.since })
}

fn millis(span: Millis) -> i64 {
    i64::try_from(span.get()).unwrap_or(i64::MAX)
}

fn span(millis: i64) -> Millis {
    Millis::new(u64::try_from(millis).unwrap_or(0))
}

impl Step {
    /// The step as a number: forward is positive.
    pub fn signed(self) -> i64 {
        match self {
            Self::Forward(by) => millis(by),
            Self::Back(by) => -millis(by),
        }
    }

    /// The step of this many milliseconds, if it is one.
    pub fn of(by: i64) -> Option<Self> {
        let step = if by > 0 { Self::Forward(span(by)) } else { Self::Back(span(by.saturating_neg())) };
        (by.unsigned_abs() > limits::CLOCK_STEP.get()).then_some(step)
    }

    /// What is left to do about this step when the ends were moved by `moved` since it was watched last: replicas see the
    /// same step, and the first one moves them.
    pub fn beyond(self, moved: i64) -> Option<Self> {
        let left = Self::of(self.signed().saturating_sub(moved))?;
        (left.signed().signum() == self.signed().signum()).then_some(left)
    }

    /// When a lease (of a run, of a session) ends that lasts `length` after a renewal, now that the step was seen at `seen`.
    pub fn lease_end(self, end: LeaseInstant, length: Millis, seen: LeaseInstant) -> LeaseInstant {
        let renewed = seen.plus(length);
        match self {
            Self::Forward(by) => end.max(end.plus(by).min(renewed)),
            Self::Back(_) => end.min(renewed),
        }
    }

    /// When time is up that was fixed before the step: a start window, the backstop of a timeout.
    #[must_use]
    pub fn time_up(self, fixed: LeaseInstant) -> LeaseInstant {
        match self {
            Self::Forward(by) => fixed.plus(by),
            Self::Back(by) => fixed.minus(by),
        }
    }

    /// When a wait is over that began before the step. Forward it stays: to begin a retry early does no harm, to let one
    /// wait for a replica that was wrong would.
    #[must_use]
    pub fn wait_over(self, due: LeaseInstant) -> LeaseInstant {
        match self {
            Self::Forward(_) => due,
            Self::Back(by) => due.minus(by),
        }
    }

    /// When somebody spoke who spoke before the step.
    #[must_use]
    pub fn spoken(self, spoke: LeaseInstant, seen: LeaseInstant) -> LeaseInstant {
        match self {
            Self::Forward(by) => spoke.max(spoke.plus(by).min(seen)),
            Self::Back(_) => spoke.min(seen),
        }
    }
}

/// What is answered instead of `refusal` by a replica that has not watched the clock for [`limits::CLOCK_WATCH`]: that
/// somebody is late is the one thing that it cannot know yet, if the clock stepped just before it came.
pub fn in_doubt(refusal: Refusal) -> Refusal {
    match refusal.code {
        RefusalCode::SessionExpired | RefusalCode::LeaseExpired => Refusal::new(
            RefusalCode::Overloaded,
            "this control plane has just started and does not know yet whether the lease's end has passed: ask again",
        ),
        _ => refusal,
    }
}

#[cfg(test)]
mod tests;
