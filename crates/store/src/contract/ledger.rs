//! The schedule ledger is kept for a time; what an instant has got is not forgotten with its line.

use leasehold_core::canonical::Value;
use leasehold_core::limits::{LEDGER_AGE, LEDGER_LINES, PAGE};
use leasehold_core::schedule::{Happened, Line};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_core::trigger::TriggerKey;

use super::Harness;
use super::fixture::{Expect, World, admin, revision_with, seconds};
use super::pauses::pause;
use super::race::both;
use super::schedules::{minute, report, task};
use crate::call::BackfillTrigger;
use crate::view::Pruned;

/// Lines that are more than are kept.
const OLD: usize = 80;

/// How long a pause is that is longer than lines are kept.
const PAUSE: Millis = LEDGER_AGE.plus(Millis::from_secs(24 * 3600));

/// A second after the pause that a full ledger begins with.
fn second(n: usize) -> UtcMillis {
    minute(0).plus(PAUSE).plus(seconds(n.try_into().unwrap()))
}

impl World<'_> {
    /// A ledger of so many lines more than are kept, the newest of now: a pause, then one fired, one waits, the others are
    /// skipped.
    async fn full_ledger(&self) -> TriggerKey {
        self.schedule(report(&[("cron", "* * * * * *"), ("overlap", "buffer-one")])).await;
        self.store.pause_triggers(pause(None)).await.applied();
        self.pass(PAUSE);
        self.store.resume_triggers(pause(None)).await.applied();
        for _ in 0..(LEDGER_LINES + OLD) / 60 {
            self.pass(seconds(60));
            self.settle().await;
        }
        assert_eq!(self.told().await.len(), LEDGER_LINES + OLD + 1);
        self.only().await.kept.key
    }

    /// Two who look through all ledgers at the same time: the lines that went in each page.
    async fn prune(&self) -> Vec<usize> {
        let all = |store: std::sync::Arc<dyn crate::port::Store>| async move {
            let (mut pages, mut from) = (Vec::new(), None);
            loop {
                let Pruned { lines, rest } = store.prune_ledgers(from, PAGE).await.unwrap();
                pages.push(lines);
                from = rest;
                if from.is_none() {
                    return pages;
                }
            }
        };
        let (one, other) = both(all(self.store.clone()), all(self.store.clone())).await;
        one.into_iter().chain(other).collect()
    }
}

/// The newest lines stay, what is young stays, what waits stays; the rest goes page by page, whoever looks at the same time.
pub async fn a_ledger_keeps_its_newest_lines_what_is_young_and_what_waits(harness: &dyn Harness) {
    let world = World::new(harness);
    world.full_ledger().await;
    assert_eq!(
        world.unchanged(world.prune()).await.into_iter().sum::<usize>(),
        0,
        "all of it is young: the pause is just over"
    );
    world.pass(LEDGER_AGE.minus(seconds(60 * 18 - 11)));
    assert_eq!(world.prune().await.into_iter().sum::<usize>(), 10, "the pause and ten seconds, but for what waits");
    world.pass(LEDGER_AGE);
    let pages = world.prune().await;
    assert!(pages.iter().all(|lines| *lines <= PAGE), "{pages:?}");
    assert_eq!(pages.into_iter().sum::<usize>(), OLD - 10);
    let told = world.told().await;
    assert_eq!((told.len(), told[0]), (LEDGER_LINES + 1, Line::At(second(2), Happened::Waits)));
    assert!(matches!(told[1], Line::At(at, Happened::Skipped(_)) if at == second(OLD + 1)), "{:?}", told[1]);
    assert_eq!(world.unchanged(world.prune()).await.into_iter().sum::<usize>(), 0, "and all the rest stays");
}

/// Its line is gone, its run is not: nobody runs it again.
pub async fn an_instant_whose_line_is_gone_gets_no_second_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let trigger = world.full_ledger().await;
    world.pass(LEDGER_AGE.times(2));
    world.prune().await;
    let call = BackfillTrigger { actor: admin(), trigger, first: second(1), last: second(4) };
    let filled = world.store.backfill_trigger(call.clone()).await.applied();
    let mut at = Vec::new();
    for run in filled.runs {
        at.push(world.view(run).await.run.scheduled.unwrap().at);
    }
    assert_eq!(at, [2, 3, 4].map(second), "the first second has fired");
    world.prune().await;
    assert!(!world.told().await.contains(&Line::At(second(3), Happened::Backfilled)));
    let again = world.unchanged(world.store.backfill_trigger(call)).await.replayed();
    assert_eq!(again.runs, []);
}

/// One ledger after the other, those of triggers that are gone too.
pub async fn ledgers_are_looked_through_in_pages(harness: &dyn Harness) {
    let world = World::new(harness);
    let named = |name: &str| Value::map([("name", Value::text(name)), ("cron", Value::text("* * * * *"))]);
    let triggers = Value::List(vec![named("a"), named("b"), named("c")]);
    world.schedule(revision_with([("name", Value::text("report")), ("trigger", triggers)])).await;
    world.pass(seconds(60));
    world.settle().await;
    world.schedule(revision_with([("name", Value::text("report"))])).await;
    assert_eq!(world.told().await.len(), 3);
    let mut looked = Vec::new();
    let mut from = None;
    loop {
        let pruned = world.unchanged(world.store.prune_ledgers(from, 1)).await.unwrap();
        assert_eq!(pruned.lines, 0);
        from = pruned.rest;
        let Some(next) = &from else { break };
        assert_eq!(next.task, task("report"));
        looked.push(next.name.to_string());
    }
    assert_eq!(looked, ["b", "c"]);
}
