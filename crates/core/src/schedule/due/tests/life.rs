//! A trigger's random life, with every wish of a person in it: no instant is lost, and none is told twice.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::schedule::{Change, edit, pause, resume};

/// What happens in a life.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    RunsEnd,
    Pause,
    Resume,
    Edit(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u64..50).prop_map(Step::Pass),
        1 => (50_u64..20_000).prop_map(Step::Pass),
        4 => Just(Step::RunsEnd),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => any::<bool>().prop_map(Step::Edit),
    ];
    proptest::collection::vec(step, 1..80)
}

/// One trigger's life: what the store would keep of it.
struct Life {
    timetable: Timetable<Utc>,
    rules: Rules,
    progress: Progress,
    now: UtcMillis,
    /// Instants before this are settled, or stand in `progress`; how many there were under earlier schedules.
    since: UtcMillis,
    earlier: u64,
    ledger: BTreeMap<UtcMillis, Happened>,
    missed: u64,
    running: Option<RunId>,
    runs: u8,
}

impl Life {
    fn blocking(&self) -> Vec<Blocking> {
        self.running.iter().map(|run| Blocking { run: *run, stopping: false }).collect()
    }

    fn store(&mut self, settled: &Settled) {
        self.progress = settled.progress;
        for line in &settled.lines {
            match line {
                Line::Gap(gap) => {
                    assert!(gap.first <= gap.last && gap.instants > 0, "{gap:?}");
                    self.missed += gap.instants;
                    self.ledger.retain(|nominal, happened| {
                        // What waited and was given up.
                        *happened != Happened::Waits || !(gap.first..=gap.last).contains(nominal)
                    });
                }
                Line::At(nominal, happened) => {
                    let before = self.ledger.insert(*nominal, *happened);
                    assert!(
                        matches!(before, None | Some(Happened::Waits)),
                        "{nominal:?} twice: {before:?}, {happened:?}"
                    );
                    assert!(*nominal <= self.now, "before its time");
                    let skips = matches!(happened, Happened::Skipped(_) | Happened::Waits);
                    assert!(!skips || self.rules.overlap != Overlap::AllowAll, "{happened:?} under allow-all");
                    if happened.admits() {
                        let alone = self.running.is_none() || self.rules.overlap == Overlap::AllowAll;
                        assert!(alone, "a second run beside {:?}", self.running);
                        self.runs = self.runs.wrapping_add(1);
                        self.running = Some(run(self.runs));
                    }
                }
            }
        }
        for run in &settled.cancel {
            assert_eq!(self.rules.overlap, Overlap::CancelOther);
            assert_eq!(self.running.take(), Some(*run));
        }
    }

    fn change(&mut self, mut wish: impl FnMut(&Self) -> Change) {
        for _ in 0..2000 {
            match wish(self) {
                Change::Done(settled) => return self.store(&settled),
                Change::After(settled) => self.store(&settled),
            }
        }
        panic!("it never ends");
    }

    fn settle(&mut self) {
        for _ in 0..2000 {
            let settled = settle(&self.timetable, &self.rules, self.progress, &self.blocking(), self.now);
            self.store(&settled);
            assert!(settled.lines.len() <= PAGE + 2);
            if !settled.more {
                return;
            }
            // Between two evaluations the runs of the first have ended.
            self.running = None;
        }
        panic!("it never ends");
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Pass(seconds) => self.now = self.now.plus(Millis::from_secs(*seconds)),
            Step::RunsEnd => self.running = None,
            Step::Pause => {
                self.change(|life| pause(&life.timetable, &life.rules, life.progress, &life.blocking(), life.now));
            }
            Step::Resume => {
                let (progress, gap) = resume(&self.timetable, self.progress, self.now);
                if self.progress.paused {
                    self.store(&Settled {
                        progress,
                        lines: gap.map(Line::Gap).into_iter().collect(),
                        cancel: vec![],
                        more: false,
                    });
                }
            }
            Step::Edit(often) => {
                let new = timetable(if *often { "*/5 * * * * *" } else { "*/2 * * * *" });
                self.change(|life| {
                    edit(&life.timetable, Some(&new), &life.rules, life.progress, &life.blocking(), life.now)
                });
                self.earlier += self.timetable.fires(self.since, self.now);
                self.since = self.now.plus(Millis::new(1));
                self.timetable = new;
            }
        }
        self.settle();
        self.nothing_is_lost();
    }

    fn nothing_is_lost(&self) {
        let Progress { next, backlog, waiting, .. } = self.progress;
        let owed = backlog.map_or(0, |owed| self.timetable.fires(owed.next, owed.last));
        let waits = self.ledger.values().filter(|happened| **happened == Happened::Waits).count();
        assert_eq!(waits, usize::from(waiting.is_some()), "what waits has its line: {waiting:?}");
        let settled = u64::try_from(self.ledger.len()).unwrap() + self.missed + owed;
        let until = next.unwrap().minus(Millis::new(1));
        assert_eq!(settled, self.earlier + self.timetable.fires(self.since, until), "{:?}", self.progress);
        assert!(self.progress.paused || next > Some(self.now.minus(self.rules.delay)), "{next:?} was left");
    }
}

proptest! {
    #[test]
    fn every_instant_of_a_life_ends_in_one_line(
        steps in steps(),
        catchup in prop_oneof![Just(0_u32), Just(1), Just(10), Just(200)],
        overlap in proptest::sample::select(Overlap::ALL),
        delay in prop_oneof![Just(0_u64), 0_u64..90],
    ) {
        let timetable = timetable("*/10 * * * * *");
        let now = second(1_000_000);
        let catchup = if overlap == Overlap::CancelOther { catchup.min(1) } else { catchup };
        let rules = Rules { delay: Millis::from_secs(delay), ..rules(catchup, overlap) };
        let progress = Progress::begin(&timetable, now);
        let mut life = Life {
            timetable, rules, progress, now,
            since: now.plus(Millis::new(1)),
            earlier: 0, ledger: BTreeMap::new(), missed: 0, running: None, runs: 0,
        };
        for step in &steps {
            life.step(step);
        }
    }
}
