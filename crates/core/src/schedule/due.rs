//! What becomes of the instants that are due: which get a run now, which wait, which are skipped or missed.
//!
//! - What is settled within a minute is in time. Where the oldest instant is later, nothing could fire: all that is due is a
//!   gap, and the catch-up policy says which of it is owed (the newest, within window and maximum). The rest is one line.
//! - Overlap asks what stands in the way ([`super::stands_in_the_way`]). What is owed after a gap is not skipped for it: it
//!   takes turns, or `all` would mean one under the default. Under `cancel-other` only the newest instant counts: it would
//!   have cancelled the others.
//!
//! One evaluation settles a page; `more` says that another is due at once. (Control design, *Triggers*.)

use super::{Backlog, Gap, GapReason, Happened, InTheWay, Line, Offsets, Progress, Spread, Timetable};
use crate::id::RunId;
use crate::limits::{FIRE_IN_TIME, PAGE};
use crate::revision::{CatchUp, Overlap, Schedule};
use crate::time::{Millis, UtcMillis};

/// What a trigger says about instants that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How many instants of a gap are owed.
    pub catchup: u32,
    /// How old they may be.
    pub window: Millis,
    /// What happens when something stands in the way.
    pub overlap: Overlap,
    /// How much later than its nominal time each instant is due: the trigger's jitter.
    pub delay: Millis,
}

impl Rules {
    /// Of a trigger with this schedule.
    pub fn of(schedule: &Schedule, overlap: Overlap, spread: &Spread) -> Self {
        let catchup = match schedule.catchup {
            CatchUp::None => 0,
            CatchUp::All if overlap != Overlap::CancelOther => schedule.catchup_max,
            CatchUp::Latest | CatchUp::All => 1,
        };
        Self { catchup, window: schedule.catchup_window, overlap, delay: spread.jitter(schedule.jitter) }
    }
}

/// A run of the task that stands in the way of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking {
    /// Which run.
    pub run: RunId,
    /// Whether it is to stop already.
    pub stopping: bool,
}

/// What one evaluation decided; all of it is one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// How far the trigger has come.
    pub progress: Progress,
    /// New lines of the ledger, the oldest first. Those that say so admit a run.
    pub lines: Vec<Line>,
    /// Runs to cancel, for `cancel-other`.
    pub cancel: Vec<RunId>,
    /// Whether another evaluation is due at once.
    pub more: bool,
}

/// Settles what is due at `now`. `blocking`: the runs of the task that stand in the way, the oldest first; some are enough.
pub fn settle<Z: Offsets>(
    timetable: &Timetable<Z>,
    rules: &Rules,
    progress: Progress,
    blocking: &[Blocking],
    now: UtcMillis,
) -> Settled {
    // `allow-all`: nothing ever does.
    let in_the_way = blocking.first().filter(|_| rules.overlap != Overlap::AllowAll);
    let mut evaluation = Evaluation {
        timetable,
        rules,
        progress,
        in_the_way: in_the_way.map(|blocking| InTheWay::Run(blocking.run)),
        lines: Vec::new(),
        due: now.minus(rules.delay),
    };
    let mut cancel = Vec::new();
    if !progress.paused {
        evaluation.gap();
        if rules.overlap == Overlap::CancelOther {
            evaluation.newest_only();
            if evaluation.progress.owes() {
                cancel.extend(blocking.iter().filter(|blocking| !blocking.stopping).map(|blocking| blocking.run));
            }
        } else {
            evaluation.owed();
            evaluation.in_time();
        }
    }
    let more = evaluation.more();
    Settled { progress: evaluation.progress, lines: evaluation.lines, cancel, more }
}

struct Evaluation<'a, Z> {
    timetable: &'a Timetable<Z>,
    rules: &'a Rules,
    progress: Progress,
    in_the_way: Option<InTheWay>,
    lines: Vec<Line>,
    /// Nominal times up to here are due.
    due: UtcMillis,
}

impl<Z: Offsets> Evaluation<'_, Z> {
    fn next_due(&self) -> Option<UtcMillis> {
        self.progress.next.filter(|next| *next <= self.due)
    }

    fn room(&self) -> bool {
        self.lines.len() < PAGE
    }

    fn more(&self) -> bool {
        let owed = self.progress.owes() && self.in_the_way.is_none();
        !self.progress.paused && (owed || self.next_due().is_some())
    }

    fn say(&mut self, nominal: UtcMillis, happened: Happened) {
        self.lines.push(Line::At(nominal, happened));
        if happened.admits() && self.rules.overlap != Overlap::AllowAll {
            self.in_the_way = Some(InTheWay::Instant(nominal));
        }
    }

    /// Nothing could fire: keeps what is owed, and writes the rest down as one line. What an earlier gap still owed is given
    /// up: its turn did not come before the next gap.
    fn gap(&mut self) {
        let late = |next: &UtcMillis| self.due.since(*next) > FIRE_IN_TIME;
        let Some(first) = self.next_due().filter(late) else { return };
        if let Some(given_up) = self.progress.backlog.take() {
            let gap = gap(self.timetable, given_up.next, given_up.last, GapReason::Down);
            self.lines.extend(gap.map(Line::Gap));
        }
        let owed = self.newest_since(first);
        let until = owed.map_or(self.due, |owed| owed.next.minus(Millis::new(1)));
        self.lines.extend(gap(self.timetable, first, until, GapReason::Down).map(Line::Gap));
        self.progress.backlog = owed;
        self.progress.next = self.timetable.next_fire(self.due);
    }

    /// The newest instants from `first` on that are due, as many and as old as may be caught up.
    fn newest_since(&self, first: UtcMillis) -> Option<Backlog> {
        let oldest = self.due.minus(self.rules.window).max(first);
        let mut owed: Option<Backlog> = None;
        let mut before = self.due.plus(Millis::new(1));
        for _ in 0..self.rules.catchup {
            let Some(nominal) = self.timetable.last_fire(before).filter(|nominal| *nominal >= oldest) else { break };
            owed = Some(Backlog { next: nominal, last: owed.map_or(nominal, |owed| owed.last) });
            before = nominal;
        }
        owed
    }

    /// What waits its turn, the oldest first.
    fn owed(&mut self) {
        while self.room() && self.in_the_way.is_none() {
            match (self.progress.waiting, self.progress.backlog) {
                (Some(waiting), backlog) if backlog.is_none_or(|backlog| waiting < backlog.next) => {
                    self.progress.waiting = None;
                    self.say(waiting, Happened::Fired);
                }
                (_, Some(backlog)) => {
                    self.progress.backlog = self.after_first(backlog);
                    self.say(backlog.next, Happened::CaughtUp);
                }
                (_, None) => break,
            }
        }
    }

    fn after_first(&self, backlog: Backlog) -> Option<Backlog> {
        let next = self.timetable.next_fire(backlog.next).filter(|next| *next <= backlog.last)?;
        Some(Backlog { next, ..backlog })
    }

    /// What is due in time, under every policy but `cancel-other`.
    fn in_time(&mut self) {
        while self.room()
            && let Some(nominal) = self.next_due()
        {
            self.progress.next = self.timetable.next_fire(nominal);
            // With room left, whatever is still owed has something in its way too.
            let Some(in_the_way) = self.in_the_way else {
                self.say(nominal, Happened::Fired);
                continue;
            };
            if self.rules.overlap == Overlap::BufferOne && self.progress.waiting.is_none() {
                self.progress.waiting = Some(nominal);
                self.say(nominal, Happened::Waits);
            } else {
                self.say(nominal, Happened::Skipped(in_the_way));
            }
        }
    }

    /// `cancel-other`: each instant takes the place of what waited before it; the newest gets its run, or waits for it.
    fn newest_only(&mut self) {
        let waiting = self.progress.waiting.take().map(|nominal| (nominal, Happened::Fired));
        let owed = self.progress.backlog.take().map(|backlog| (backlog.last, Happened::CaughtUp));
        let (older, mut newest) = match (waiting, owed) {
            (Some(waiting), Some(owed)) if owed.0 < waiting.0 => (Some(owed), Some(waiting)),
            (Some(waiting), Some(owed)) => (Some(waiting), Some(owed)),
            (waiting, owed) => (None, waiting.or(owed)),
        };
        if let (Some((older, _)), Some((newer, _))) = (older, newest) {
            self.say(older, Happened::Skipped(InTheWay::Instant(newer)));
        }
        let mut is_new = false;
        while self.room()
            && let Some(nominal) = self.next_due()
        {
            self.progress.next = self.timetable.next_fire(nominal);
            is_new = true;
            if let Some((older, _)) = newest.replace((nominal, Happened::Fired)) {
                self.say(older, Happened::Skipped(InTheWay::Instant(nominal)));
            }
        }
        match newest {
            Some((nominal, happened)) if self.in_the_way.is_none() && self.next_due().is_none() => {
                self.say(nominal, happened);
            }
            Some((nominal, Happened::CaughtUp)) => {
                self.progress.backlog = Some(Backlog { next: nominal, last: nominal });
            }
            Some((nominal, _)) => {
                self.progress.waiting = Some(nominal);
                if is_new {
                    self.say(nominal, Happened::Waits);
                }
            }
            None => {}
        }
    }
}

/// The instants from `first` (which is one) to `until`, missed for `why`; none: there are none.
pub(super) fn gap<Z: Offsets>(
    timetable: &Timetable<Z>,
    first: UtcMillis,
    until: UtcMillis,
    why: GapReason,
) -> Option<Gap> {
    let one = Millis::new(1);
    let later = timetable.fires(first.plus(one), until);
    let last = timetable.last_fire(until.plus(one)).map_or(first, |last| last.max(first));
    (first <= until).then_some(Gap { first, last, instants: later + 1, why })
}

#[cfg(test)]
mod tests;
