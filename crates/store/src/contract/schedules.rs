//! Schedules: one run for one nominal time, whoever looks and however often; what is due gets its line in the ledger.

use std::collections::BTreeSet;

use leasehold_core::canonical::Value;
use leasehold_core::id::{ProjectName, RunId, TaskName};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::schedule::{Gap, GapReason, Happened, InTheWay, Line};
use leasehold_core::time::{Clock as _, UtcMillis};
use leasehold_core::trigger::{Kind, Scheduled};

use super::Harness;
use super::fixture::{Expect, World, admin, exited, revision_with, seconds};
use super::race::both;
use crate::call::{ApplyTasks, DeleteTask, LedgerPage, TriggersAfter};
use crate::view::{Fired, LedgerEntry, LedgerKey, TriggerView};

/// The clock of a case stands at this minute of 2027 at first.
const START: i64 = 1_800_000_000_000;

pub(super) const fn minute(n: i64) -> UtcMillis {
    UtcMillis::new(START + n * 60_000)
}

pub(super) fn project() -> ProjectName {
    "lab".parse().unwrap()
}

pub(super) fn task(name: &str) -> TaskName {
    name.parse().unwrap()
}

/// A revision of `report` with one trigger of these entries.
pub(super) fn report(entries: &[(&'static str, &str)]) -> Revision {
    let trigger = Value::map(entries.iter().map(|(key, value)| {
        let value = if *key == "catchup_max" { Value::Int(value.parse().unwrap()) } else { Value::text(*value) };
        (*key, value)
    }));
    revision_with([("name", Value::text("report")), ("trigger", Value::List(vec![trigger]))])
}

pub(super) fn minutely(overlap: &str) -> Revision {
    report(&[("cron", "* * * * *"), ("overlap", overlap)])
}

impl World<'_> {
    pub(super) async fn schedule(&self, revision: Revision) {
        let tasks = [(task("report"), revision)].into();
        let call = ApplyTasks { actor: admin(), project: project(), tasks, prune: false, cascade: false, plan: None };
        self.store.apply_tasks(call).await.applied();
    }

    async fn fire(&self) -> Fired {
        self.store.fire_triggers(64).await.unwrap()
    }

    /// Fires until nothing is due any more.
    pub(super) async fn settle(&self) -> Vec<RunId> {
        let mut runs = Vec::new();
        loop {
            let fired = self.fire().await;
            runs.extend(fired.runs);
            if !fired.more {
                return runs;
            }
        }
    }

    /// The lines of the ledger, the oldest first.
    async fn lines(&self) -> Vec<LedgerEntry> {
        let page = LedgerPage { project: project(), task: task("report"), trigger: None, before: None };
        let mut lines = self.store.ledger(page, 10_000).await.unwrap();
        lines.reverse();
        lines
    }

    pub(super) async fn told(&self) -> Vec<Line> {
        self.lines().await.into_iter().map(|entry| entry.line).collect()
    }

    async fn triggers(&self) -> Vec<TriggerView> {
        let page = TriggersAfter { project: project(), task: None, after: None };
        self.store.triggers(page, 64).await.unwrap()
    }

    pub(super) async fn only(&self) -> TriggerView {
        self.triggers().await.pop().unwrap()
    }
}

pub(super) fn fired(n: i64) -> Line {
    Line::At(minute(n), Happened::Fired)
}

/// What is due fires, once; the run knows its trigger and its nominal time, and the trigger has moved on.
pub async fn what_is_due_gets_one_run_with_its_nominal_time(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("skip")).await;
    let kept = world.only().await;
    assert_eq!((kept.kept.kind, kept.kept.progress.next), (Kind::Cron, Some(minute(1))));
    let early = world.unchanged(world.fire()).await;
    assert_eq!((early.runs, early.more, early.next), (vec![], false, Some(seconds(60))));
    world.pass(seconds(61));
    let at = world.fire().await;
    assert_eq!((at.runs.len(), at.next), (1, Some(seconds(59))));
    let view = world.view(at.runs[0]).await;
    assert_eq!((view.run.project.clone(), view.run.task.clone()), (project(), Some(task("report"))));
    let trigger = "cron".parse().unwrap();
    assert_eq!(view.run.scheduled, Some(Scheduled { trigger, at: minute(1) }));
    assert_eq!(view.run.created_at, minute(1).plus(seconds(1)));
    assert_eq!(world.unchanged(world.fire()).await.runs, []);
    let lines = world.lines().await;
    assert_eq!((lines[0].line, lines[0].run, lines.len()), (fired(1), Some(at.runs[0]), 1));
    assert_eq!(world.only().await.kept.progress.next, Some(minute(2)));
}

/// Two callers at one due instant: one of them admits the run, and no other is ever admitted.
pub async fn two_who_fire_at_the_same_instant_admit_one_run(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("allow-all")).await;
    for round in 1..=8 {
        world.pass(seconds(60));
        let (one, other) = (world.store.clone(), world.store.clone());
        let firing = async move { one.fire_triggers(64).await.unwrap().runs };
        let too = async move { other.fire_triggers(64).await.unwrap().runs };
        let (one, other) = both(firing, too).await;
        assert_eq!(one.len() + other.len(), 1, "round {round}");
        assert_eq!(world.settle().await, []);
    }
    let runs: BTreeSet<_> = world.lines().await.into_iter().map(|entry| entry.run.unwrap()).collect();
    assert_eq!(runs.len(), 8);
}

/// A run that waits, runs or may retry stands in the way; what is skipped names it.
pub async fn skip_names_what_stood_in_the_way(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("skip")).await;
    world.pass(seconds(60));
    let first = world.settle().await.remove(0);
    world.pass(seconds(60));
    assert_eq!(world.settle().await, []);
    let (_, session) = world.agent("nas").await;
    let taken = world.take(&session, first).await;
    world.start(&taken).await;
    world.end(&taken, exited(0)).await.applied();
    world.pass(seconds(60));
    assert_eq!(world.settle().await.len(), 1, "nothing is in the way any more");
    let skipped = Line::At(minute(2), Happened::Skipped(InTheWay::Run(first)));
    assert_eq!(world.told().await, [fired(1), skipped, fired(3)]);
}

/// One instant waits until the run before it has ended, without a new time being due.
pub async fn buffer_one_waits_for_its_turn(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("buffer-one")).await;
    world.pass(seconds(60));
    let first = world.settle().await.remove(0);
    world.pass(seconds(60));
    assert_eq!(world.settle().await, []);
    assert_eq!(world.told().await, [fired(1), Line::At(minute(2), Happened::Waits)]);
    assert!(world.fire().await.next <= Some(seconds(1)), "what waits for its turn is looked after");
    world.pass(seconds(60));
    assert_eq!(world.settle().await, []);
    let (_, session) = world.agent("nas").await;
    let taken = world.take(&session, first).await;
    world.start(&taken).await;
    world.end(&taken, exited(0)).await.applied();
    let second = world.settle().await;
    assert_eq!(second.len(), 1);
    assert_eq!(world.view(second[0]).await.run.scheduled.unwrap().at, minute(2));
    let skipped = Line::At(minute(3), Happened::Skipped(InTheWay::Run(first)));
    assert_eq!(world.told().await, [fired(1), fired(2), skipped]);
}

/// What stands in the way is cancelled, and the new run waits until nothing of it occupies.
pub async fn cancel_other_takes_the_place_of_what_runs(harness: &dyn Harness) {
    let world = World::new(harness);
    let at = |n: i64| UtcMillis::new(START + n * 1000);
    let fired = |n| Line::At(at(n), Happened::Fired);
    world.schedule(report(&[("cron", "*/20 * * * * *"), ("overlap", "cancel-other")])).await;
    world.pass(seconds(20));
    let running = world.settle().await.remove(0);
    let (_, session) = world.agent("nas").await;
    let taken = world.take(&session, running).await;
    world.start(&taken).await;
    world.pass(seconds(20));
    let told = world.fire().await;
    assert_eq!((told.runs, told.workers.len()), (vec![running], 1), "it is told to stop");
    assert!(world.view(running).await.run.intent.is_some());
    assert_eq!(world.told().await, [fired(20), Line::At(at(40), Happened::Waits)]);
    assert_eq!(world.settle().await, [], "it runs still");
    world.end(&taken, exited(0)).await.applied();
    let next = world.settle().await;
    assert_eq!(next.len(), 1);
    world.pass(seconds(20));
    // A run that has not started is cancelled at once.
    let mut both = world.settle().await;
    both.extend(world.settle().await);
    assert_eq!(world.state(next[0]).await, RunState::Cancelled);
    assert_eq!(world.told().await, [fired(20), fired(40), fired(60)]);
    assert_eq!(both.len(), 2, "the one that is cancelled, and the one that takes its place");
}

/// Nothing stands in the way.
pub async fn allow_all_fires_beside_what_runs(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("allow-all")).await;
    for _ in 0..3 {
        world.pass(seconds(60));
        assert_eq!(world.settle().await.len(), 1);
    }
    assert_eq!(world.told().await, [fired(1), fired(2), fired(3)]);
}

/// With `mutex`, a lost run stands in the way until a person has resolved it; without, it does not.
pub async fn a_lost_run_stands_in_the_way_while_it_may_live(harness: &dyn Harness) {
    let world = World::new(harness);
    let limits = Value::map([("mutex", Value::Bool(true))]);
    let trigger = Value::List(vec![Value::map([("cron", Value::text("* * * * *"))])]);
    world.schedule(revision_with([("name", Value::text("report")), ("limits", limits), ("trigger", trigger)])).await;
    world.pass(seconds(60));
    let first = world.settle().await.remove(0);
    let (_, session) = world.agent("nas").await;
    let taken = world.take(&session, first).await;
    world.start(&taken).await;
    world.expire(&taken).await;
    assert_eq!(world.state(first).await, RunState::Lost);
    world.settle().await;
    world.pass(seconds(60));
    assert_eq!(world.settle().await, []);
    let told = world.told().await;
    assert!(!told[1..].iter().any(|line| matches!(line, Line::At(_, happened) if happened.admits())), "{told:?}");
    let last = told.last().unwrap();
    assert!(matches!(last, Line::At(_, Happened::Skipped(InTheWay::Run(run))) if *run == first), "{told:?}");
    world.store.resolve_run(world.resolve_call(first, Verb::MarkFailed)).await.applied();
    world.pass(seconds(60));
    assert_eq!(world.settle().await.len(), 1);
}

/// Twenty-five hours down, every minute: as many runs as the policy says, each with its own time, and one line for the rest.
pub async fn what_was_missed_is_caught_up_as_far_as_its_policy_says(harness: &dyn Harness) {
    for (catchup, runs) in [("none", 0), ("latest", 1), ("all", 10)] {
        let world = World::new(harness);
        let begun = world.clock().utc();
        let revision = report(&[
            ("cron", "* * * * *"),
            ("catchup", catchup),
            ("catchup_max", "10"),
            ("catchup_window", "24h"),
            ("overlap", "allow-all"),
        ]);
        let of = task(catchup);
        let tasks = [(of.clone(), revision)].into();
        let call = ApplyTasks { actor: admin(), project: project(), tasks, prune: false, cascade: false, plan: None };
        world.store.apply_tasks(call).await.applied();
        world.pass(seconds(25 * 3600 + 30));
        let admitted = world.settle().await;
        let at = |n: i64| UtcMillis::new(begun.get() + n * 60_000);
        let mut nominal = Vec::new();
        for run in &admitted {
            let run = world.view(*run).await.run;
            nominal.extend(run.scheduled.filter(|_| run.task.as_ref() == Some(&of)).map(|scheduled| scheduled.at));
        }
        assert_eq!(nominal, (1500 - runs + 1..=1500).map(at).collect::<Vec<_>>(), "{catchup}");
        let page = LedgerPage { project: project(), task: of.clone(), trigger: None, before: None };
        let lines = world.store.ledger(page, 64).await.unwrap();
        let gap =
            Gap { first: at(1), last: at(1500 - runs), instants: 1500 - runs.unsigned_abs(), why: GapReason::Down };
        assert_eq!(lines.last().unwrap().line, Line::Gap(gap), "{catchup}");
        assert_eq!(lines.len(), usize::try_from(runs).unwrap() + 1, "{catchup}");
        world.pass(seconds(30));
        let delete = DeleteTask { actor: admin(), project: project(), name: of, cascade: true, seen: None };
        world.store.delete_task(delete).await.applied();
    }
}

/// In spring, the hour that does not exist: right after the gap, once.
pub async fn a_day_without_its_hour_fires_once(harness: &dyn Harness) {
    let world = World::new(harness);
    // 2027-03-14 00:00 UTC is the evening before, in New York.
    let eve = UtcMillis::new(1_804_982_400_000);
    world.pass(eve.since(world.clock().utc()));
    world.schedule(report(&[("cron", "30 2 * * *"), ("time_zone", "America/New_York")])).await;
    world.pass(seconds(7 * 3600));
    let run = world.settle().await.remove(0);
    assert_eq!(world.view(run).await.run.scheduled.unwrap().at, eve.plus(seconds(7 * 3600)), "07:00 UTC");
    assert_eq!(world.only().await.kept.progress.next, Some(eve.plus(seconds((24 + 6) * 3600 + 1800))));
}

/// What is due by the old times fires with the old revision; times that stay the same keep their next fire.
pub async fn an_edit_settles_first_and_keeps_the_next_fire_of_unchanged_times(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("skip")).await;
    let old = world.store.task(&project(), &task("report")).await.unwrap().unwrap().task.revision;
    world.pass(seconds(30));
    world.schedule(minutely("allow-all")).await;
    assert_eq!(world.only().await.kept.progress.next, Some(minute(1)));
    world.schedule(minutely("skip")).await;
    world.pass(seconds(31));
    world.schedule(report(&[("cron", "0 * * * *")])).await;
    let lines = world.lines().await;
    assert_eq!((lines[0].line, lines.len()), (fired(1), 1));
    assert_eq!(world.view(lines[0].run.unwrap()).await.run.revision, old);
    assert_eq!(world.only().await.kept.progress.next, Some(minute(60)));
    world.pass(seconds(600));
    assert_eq!(world.unchanged(world.settle()).await, []);
}

/// It goes with what it owes; another kind of the same name begins anew, and is never looked at.
pub async fn a_trigger_that_is_not_named_any_more_fires_no_more(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("buffer-one")).await;
    world.pass(seconds(60));
    world.settle().await;
    world.pass(seconds(60));
    world.settle().await;
    let webhook = Value::map([("webhook", Value::Bool(true)), ("name", Value::text("cron"))]);
    let entries = [("name", Value::text("report")), ("trigger", Value::List(vec![webhook]))];
    world.schedule(revision_with(entries)).await;
    let gap = Gap { first: minute(2), last: minute(2), instants: 1, why: GapReason::Edited };
    assert_eq!(world.told().await, [fired(1), Line::Gap(gap)]);
    let kept = world.only().await.kept;
    assert_eq!((kept.kind, kept.look_at), (Kind::Webhook, None));
    world.schedule(revision_with([("name", Value::text("report"))])).await;
    assert_eq!(world.triggers().await, []);
    world.pass(seconds(600));
    assert_eq!(world.unchanged(world.settle()).await, []);
}

/// Its triggers go with it, what they owe is told, and what comes back begins anew.
pub async fn a_deleted_task_fires_no_more(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("skip")).await;
    world.pass(seconds(60));
    let delete = || DeleteTask { actor: admin(), project: project(), name: task("report"), cascade: true, seen: None };
    world.store.delete_task(delete()).await.applied();
    let gap = Gap { first: minute(1), last: minute(1), instants: 1, why: GapReason::Deleted };
    assert_eq!(world.told().await, [Line::Gap(gap)]);
    world.pass(seconds(600));
    assert_eq!(world.unchanged(world.settle()).await, []);
    world.schedule(minutely("skip")).await;
    assert_eq!(world.only().await.kept.progress.next, Some(minute(12)));
    world.pass(seconds(60));
    assert_eq!(world.settle().await.len(), 1);
}

/// Where the wall clock was set back, the same nominal time comes again: its run stays the only one.
pub async fn an_instant_that_has_a_run_gets_no_second(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("allow-all")).await;
    world.pass(seconds(60));
    let first = world.settle().await;
    world.clock().step_utc(-60_000);
    assert_eq!(world.settle().await, []);
    let delete = DeleteTask { actor: admin(), project: project(), name: task("report"), cascade: true, seen: None };
    world.store.delete_task(delete).await.applied();
    world.schedule(minutely("allow-all")).await;
    world.pass(seconds(60));
    assert_eq!(world.settle().await, [], "minute 1 again");
    let lines = world.lines().await;
    assert_eq!((lines[0].run, lines.len()), (Some(first[0]), 1));
    world.pass(seconds(60));
    assert_eq!(world.settle().await.len(), 1, "and goes on");
}

/// A page is bounded, and whoever has more to do says so.
pub async fn many_that_are_due_are_settled_page_by_page(harness: &dyn Harness) {
    let world = World::new(harness);
    let tasks = (0..10).map(|n| {
        let name = format!("task-{n}");
        let trigger = Value::map([("cron", Value::text("* * * * *"))]);
        let entries = [("name", Value::text(name.as_str())), ("trigger", Value::List(vec![trigger]))];
        (task(&name), revision_with(entries))
    });
    let tasks = tasks.collect();
    let call = ApplyTasks { actor: admin(), project: project(), tasks, prune: false, cascade: false, plan: None };
    world.store.apply_tasks(call).await.applied();
    world.pass(seconds(60));
    let mut pages = Vec::new();
    loop {
        let fired = world.store.fire_triggers(4).await.unwrap();
        pages.push(fired.runs.len());
        if !fired.more {
            break;
        }
    }
    assert_eq!(pages, [4, 4, 2]);
}

/// Pages of triggers by task and name, and of lines from the newest.
pub async fn triggers_and_their_ledger_are_paged(harness: &dyn Harness) {
    let world = World::new(harness);
    let named = |name: &str| Value::map([("name", Value::text(name)), ("cron", Value::text("* * * * *"))]);
    let revision = revision_with([
        ("name", Value::text("report")),
        ("trigger", Value::List(vec![named("a"), named("b"), named("c")])),
    ]);
    world.schedule(revision).await;
    for _ in 0..2 {
        world.pass(seconds(60));
        world.settle().await;
    }
    let page = |after| TriggersAfter { project: project(), task: Some(task("report")), after };
    let first = world.store.triggers(page(None), 2).await.unwrap();
    let last = first.last().map(|view| (view.kept.key.task.clone(), view.kept.key.name.clone()));
    let rest = world.store.triggers(page(last), 2).await.unwrap();
    let names: Vec<_> = first.iter().chain(&rest).map(|view| view.kept.key.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let other = TriggersAfter { task: Some(task("other")), ..page(None) };
    assert_eq!(world.store.triggers(other, 2).await.unwrap(), []);

    let mut keys: Vec<LedgerKey> = Vec::new();
    loop {
        let before = keys.last().cloned();
        let page = LedgerPage { project: project(), task: task("report"), trigger: None, before };
        let lines = world.store.ledger(page, 2).await.unwrap();
        keys.extend(lines.iter().map(LedgerEntry::key));
        if lines.is_empty() {
            break;
        }
    }
    let found: Vec<_> = keys.iter().map(|key| (key.at, key.trigger.as_str())).collect();
    let (one, two) = (minute(1), minute(2));
    assert_eq!(found, [(two, "c"), (two, "b"), (two, "a"), (one, "c"), (one, "b"), (one, "a")]);
    let trigger = Some("b".parse().unwrap());
    let page = LedgerPage { project: project(), task: task("report"), trigger, before: None };
    assert_eq!(world.store.ledger(page, 64).await.unwrap().len(), 2);
}
