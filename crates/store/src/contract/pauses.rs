//! What a person does to schedules beside editing them: pauses, and what is run afterwards.

use leasehold_core::schedule::{BackfillError, Gap, GapReason, Happened, Line};

use super::Harness;
use super::fixture::{Expect, World, admin, seconds};
use super::schedules::{fired, minute, minutely, project, report, task};
use crate::call::{BackfillTrigger, PauseTriggers};
use crate::port::Unmet;

pub(super) fn pause(trigger: Option<&str>) -> PauseTriggers {
    let trigger = trigger.map(|name| name.parse().unwrap());
    PauseTriggers {
        actor: admin(),
        project: project(),
        task: task("report"),
        trigger,
        why: Some("new disk".to_owned()),
    }
}

/// What is due is settled first; a pause starts nothing, and what passed during it is one line.
pub async fn a_pause_starts_nothing_and_its_end_is_one_line(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("allow-all")).await;
    world.pass(seconds(60));
    world.store.pause_triggers(pause(Some("cron"))).await.applied();
    world.unchanged(world.store.pause_triggers(pause(Some("cron")))).await.replayed();
    assert_eq!(world.told().await, [fired(1)], "what was due");
    let kept = world.only().await.kept;
    assert_eq!((kept.look_at, kept.pause.unwrap().why.as_deref()), (None, Some("new disk")));
    world.pass(seconds(150));
    assert_eq!(world.unchanged(world.settle()).await, []);
    world.store.resume_triggers(pause(Some("cron"))).await.applied();
    world.unchanged(world.store.resume_triggers(pause(Some("cron")))).await.replayed();
    let gap = Gap { first: minute(2), last: minute(3), instants: 2, why: GapReason::Paused };
    assert_eq!(world.told().await, [fired(1), Line::Gap(gap)]);
    world.pass(seconds(30));
    assert_eq!(world.settle().await.len(), 1);
    assert_eq!((world.audited("pause_schedule").await, world.audited("resume_schedule").await), (1, 1));
    let refused = world.unchanged(world.store.pause_triggers(pause(Some("other")))).await.refused();
    assert_eq!(refused, Unmet::NotFound("trigger"));
}

/// Each is ended by its own word; a trigger that comes meanwhile is paused with its task.
pub async fn a_pause_of_the_task_and_one_of_its_trigger_are_two_words(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(minutely("allow-all")).await;
    world.store.pause_triggers(pause(None)).await.applied();
    world.store.pause_triggers(pause(Some("cron"))).await.applied();
    world.store.resume_triggers(pause(None)).await.applied();
    world.pass(seconds(60));
    assert_eq!(world.settle().await, [], "it is paused still");
    world.store.pause_triggers(pause(None)).await.applied();
    world.store.resume_triggers(pause(Some("cron"))).await.applied();
    world.pass(seconds(60));
    assert_eq!(world.settle().await, [], "its task is");
    let view = world.store.task(&project(), &task("report")).await.unwrap().unwrap();
    assert_eq!(view.task.pause.unwrap().by, admin().to_string());
    world.schedule(report(&[("cron", "*/2 * * * *"), ("overlap", "allow-all"), ("name", "other")])).await;
    let other = world.only().await;
    assert!(other.kept.progress.paused && other.task_pause.is_some(), "{other:?}");
    world.store.resume_triggers(pause(None)).await.applied();
    assert_eq!(world.only().await.kept.progress.next, Some(minute(4)));
    world.pass(seconds(120));
    assert_eq!(world.settle().await.len(), 1);
}

/// Page by page, each with its own time; what has a run gets no second, and the same call again nothing at all.
pub async fn a_backfill_runs_what_passed_and_nothing_twice(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(report(&[("cron", "* * * * *"), ("catchup", "none"), ("overlap", "allow-all")])).await;
    world.pass(seconds(60));
    world.settle().await;
    world.pass(seconds(69 * 60));
    world.settle().await;
    let key = world.only().await.kept.key;
    let call = |first, last| BackfillTrigger { actor: admin(), trigger: key.clone(), first, last };
    let refused = world.unchanged(world.store.backfill_trigger(call(minute(2), minute(1)))).await.refused();
    assert_eq!(refused, Unmet::Backfill(BackfillError::Backwards));
    let page = world.store.backfill_trigger(call(minute(1), minute(70))).await.applied();
    assert_eq!((page.runs.len(), page.rest), (63, Some(minute(65))), "minute 1 has its run");
    let again = world.unchanged(world.store.backfill_trigger(call(minute(1), minute(70)))).await.replayed();
    assert_eq!((again.runs.len(), again.rest), (0, Some(minute(65))));
    let last = world.store.backfill_trigger(call(minute(65), minute(70))).await.applied();
    assert_eq!((last.runs.len(), last.rest), (6, None));
    let run = world.view(last.runs[5]).await.run;
    assert_eq!(run.scheduled.unwrap().at, minute(70));
    assert!(world.told().await.contains(&Line::At(minute(70), Happened::Backfilled)));
    assert_eq!(world.audited("backfill_schedule").await, 2);
}
