//! A cron trigger with its times and rules read: what a store asks inside the transaction that moves the trigger on.

use super::{KeptTrigger, Kind, TriggerKey};
use crate::id::RunId;
use crate::limits::OWING_LOOK;
use crate::revision::{Overlap, Source, Trigger};
use crate::schedule::{
    Backfill, BackfillError, Blocking, Change, Expression, ExpressionError, Gap, Line, Progress, Rules, Settled,
    Spread, Timetable, UnknownZone, Zone, backfill, edit, end, leave, pause, resume, settle,
};
use crate::time::UtcMillis;

/// The times of a trigger in its zone, and what it says about those that are due.
#[derive(Debug, Clone)]
pub struct Timed {
    timetable: Timetable<Zone>,
    rules: Rules,
    /// Whether it cancels what stands in its way.
    cancels: bool,
}

/// Why a trigger cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTimed {
    /// Its expression is none.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// Its zone is none that this build knows.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
}

/// What a person does to a trigger that has come some way.
#[derive(Debug, Clone)]
pub enum Wish {
    /// It gets other rules, and other times if `moved`.
    Edit {
        /// As it is from now on.
        new: Timed,
        /// Whether its times are others.
        moved: bool,
    },
    /// It goes, and its task stays.
    Leave,
    /// It starts nothing by itself any more.
    Pause,
}

/// What one evaluation made of a trigger; all of it is one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The trigger as it is now.
    pub kept: KeptTrigger,
    /// New lines of its ledger, the oldest first. Those that say so admit a run.
    pub lines: Vec<Line>,
    /// Runs to cancel.
    pub cancel: Vec<RunId>,
    /// Whether another evaluation is due at once; of a wish, that it comes again.
    pub again: bool,
}

impl Moved {
    /// Whether anything is to be written, where the trigger was `before`.
    pub fn changes(&self, before: &KeptTrigger) -> bool {
        self.kept != *before || !self.lines.is_empty() || !self.cancel.is_empty()
    }
}

impl Timed {
    /// Of a trigger; none waits for calls, not for times.
    pub fn of(key: &TriggerKey, trigger: &Trigger) -> Result<Option<Self>, NotTimed> {
        let Source::Cron(schedule) = &trigger.source else { return Ok(None) };
        let spread = Spread::of(&key.project, &key.task, &key.name);
        let times = schedule.expression.parse::<Expression>()?.times(&spread);
        Ok(Some(Self {
            timetable: Timetable::new(times, Zone::named(&schedule.time_zone)?),
            rules: Rules::of(schedule, trigger.overlap, &spread),
            cancels: trigger.overlap == Overlap::CancelOther,
        }))
    }

    /// The first time after `after`; none: never again.
    pub fn next(&self, after: UtcMillis) -> Option<UtcMillis> {
        self.timetable.next_fire(after)
    }

    /// The trigger, kept from now on.
    pub fn begin(&self, key: TriggerKey, paused: bool, now: UtcMillis) -> KeptTrigger {
        let progress = Progress { paused, ..Progress::begin(&self.timetable, now) };
        let look_at = self.look_at(&progress, false, now);
        KeptTrigger { key, kind: Kind::Cron, progress, look_at, pause: None }
    }

    /// Whether anything of it can be settled at `now`: what stands in its way need not be asked otherwise.
    pub fn asks(&self, progress: &Progress, now: UtcMillis) -> bool {
        !progress.paused && (progress.owes() || progress.next.is_some_and(|next| next <= now))
    }

    /// Settles what is due.
    pub fn settle(&self, kept: &KeptTrigger, blocking: &[Blocking], now: UtcMillis) -> Moved {
        let settled = settle(&self.timetable, &self.rules, kept.progress, blocking, now);
        let again = settled.more;
        self.moved(kept, settled, again, now)
    }

    /// Does what a person wishes.
    pub fn carry_out(&self, wish: &Wish, kept: &KeptTrigger, blocking: &[Blocking], now: UtcMillis) -> Moved {
        let (timetable, rules, progress) = (&self.timetable, &self.rules, kept.progress);
        let (change, after) = match wish {
            Wish::Edit { new, moved } => {
                let times = moved.then_some(&new.timetable);
                (edit(timetable, times, rules, progress, blocking, now), new)
            }
            Wish::Leave => (leave(timetable, rules, progress, blocking, now), self),
            Wish::Pause => (pause(timetable, rules, progress, blocking, now), self),
        };
        match change {
            Change::After(settled) => self.moved(kept, settled, true, now),
            Change::Done(settled) => after.moved(kept, settled, false, now),
        }
    }

    /// It goes on after a pause.
    pub fn resume(&self, kept: &KeptTrigger, now: UtcMillis) -> Moved {
        let (progress, gap) = resume(&self.timetable, kept.progress, now);
        let lines = gap.map(Line::Gap).into_iter().collect();
        self.moved(kept, Settled { progress, lines, cancel: Vec::new(), more: false }, false, now)
    }

    /// What it owes and what is due when it goes with its task.
    pub fn end(&self, progress: Progress, now: UtcMillis) -> Option<Gap> {
        end(&self.timetable, progress, now)
    }

    /// The first page of its instants from `first` to `last`, to be run afterwards.
    pub fn backfill(&self, first: UtcMillis, last: UtcMillis, now: UtcMillis) -> Result<Backfill, BackfillError> {
        backfill(&self.timetable, first, last, now)
    }

    fn moved(&self, kept: &KeptTrigger, settled: Settled, again: bool, now: UtcMillis) -> Moved {
        let Settled { progress, lines, cancel, .. } = settled;
        let look_at = self.look_at(&progress, again, now);
        Moved { kept: KeptTrigger { progress, look_at, ..kept.clone() }, lines, cancel, again }
    }

    /// When it is to be looked at, as time passes. What only waits for its turn is found by the runs in its way.
    fn look_at(&self, progress: &Progress, again: bool, now: UtcMillis) -> Option<UtcMillis> {
        if again {
            return Some(now);
        }
        let due = progress.due(&self.rules);
        // Something may have come into its way since it looked, and is to be cancelled too.
        let cancelling = (self.cancels && progress.owes() && !progress.paused).then(|| now.plus(OWING_LOOK));
        due.into_iter().chain(cancelling).min()
    }
}
