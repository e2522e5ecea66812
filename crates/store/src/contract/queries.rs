//! Pages and views: order, cursors, filters.

use leasehold_core::id::WorkerId;
use leasehold_core::run::RunState;
use leasehold_core::time::Clock;

use super::Harness;
use super::fixture::{Expect, World, exited, plain, revision_with, seconds};
use crate::call::{AdmitRun, EventsAfter, RunFilter};
use crate::view::{Statistics, WorkerCounts};

/// Runs come newest first, in pages by cursor.
pub async fn runs_are_paged_newest_first(harness: &dyn Harness) {
    let world = World::new(harness);
    let mut all = Vec::new();
    for _ in 0..5 {
        all.insert(0, world.run(plain()).await);
        world.pass(seconds(1));
    }
    let mut filter = RunFilter::default();
    for (page, limit) in [(&all[..2], 2), (&all[2..4], 2), (&all[4..], 2), (&[], 2)] {
        let runs = world.store.runs(filter.clone(), limit).await.unwrap();
        assert_eq!(runs.iter().map(|summary| summary.run.id).collect::<Vec<_>>(), page);
        filter.before = page.last().copied().or(filter.before);
    }
}

/// Each part of the filter counts, and they count together.
pub async fn runs_are_filtered(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let submit = async |project: &str, task: Option<&str>| {
        let call = AdmitRun {
            project: project.parse().unwrap(),
            task: task.map(|task| task.parse().unwrap()),
            ..world.submission(plain())
        };
        world.store.admit_run(call).await.applied().run.id
    };
    let first = submit("home", Some("backup")).await;
    world.pass(seconds(30));
    let since = world.clock().utc();
    let second = submit("home", None).await;
    let third = submit("lab", Some("backup")).await;
    world.take(&session, third).await;
    for (filter, expected) in [
        (RunFilter::default(), vec![third, second, first]),
        (RunFilter { project: Some("home".parse().unwrap()), ..RunFilter::default() }, vec![second, first]),
        (RunFilter { task: Some("backup".parse().unwrap()), ..RunFilter::default() }, vec![third, first]),
        (RunFilter { states: vec![RunState::Pending], ..RunFilter::default() }, vec![second, first]),
        (RunFilter { states: vec![RunState::Dispatching, RunState::Failed], ..RunFilter::default() }, vec![third]),
        (RunFilter { since: Some(since), ..RunFilter::default() }, vec![third, second]),
        (
            RunFilter {
                project: Some("home".parse().unwrap()),
                states: vec![RunState::Pending],
                task: Some("backup".parse().unwrap()),
                since: Some(since),
                before: None,
            },
            vec![],
        ),
    ] {
        let runs = world.store.runs(filter.clone(), 10).await.unwrap();
        assert_eq!(runs.iter().map(|summary| summary.run.id).collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

/// A summary names the run by its revision or its command, and says who has it.
pub async fn a_summary_names_run_and_worker(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let unnamed = world.run(plain()).await;
    let named = world.run(revision_with([("name", leasehold_core::canonical::Value::text("backup"))])).await;
    world.take(&session, named).await;
    let runs = world.store.runs(RunFilter::default(), 10).await.unwrap();
    let shown: Vec<_> = runs.iter().map(|summary| (summary.run.id, summary.name.as_str(), &summary.worker)).collect();
    assert_eq!(shown, [(named, "backup", &Some(machine.id)), (unnamed, "true", &None)]);
}

/// A prefix finds at most two runs: enough to tell unique from ambiguous.
pub async fn a_prefix_tells_unique_from_ambiguous(harness: &dyn Harness) {
    let world = World::new(harness);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(world.run(plain()).await);
    }
    let text = runs[1].to_string();
    let find = async |prefix: &str| world.store.runs_by_prefix(prefix).await.unwrap();
    assert_eq!(find(&text).await, [runs[1]]);
    assert_eq!(find(&text[..35]).await.len(), 2, "they differ in the last digit only");
    assert_eq!(find(&text[..9]).await.len(), 2, "with the hyphen");
    assert_eq!(find("ffff").await, []);
    for pattern in ["%", "_", "*", "0%"] {
        assert_eq!(find(pattern).await, [], "a prefix is text, not a pattern: {pattern}");
    }
}

/// Events come in order, in pages by sequence.
pub async fn events_are_paged_in_order(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let taken = world.running(&session, plain()).await;
    world.end(&taken, exited(0)).await.applied();
    let whole = world.story(taken.run).await;
    let (mut after, mut paged) = (None, Vec::new());
    loop {
        let page = world.store.events(EventsAfter { run: taken.run, after }, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.sequence);
        paged.extend(page.iter().map(|event| event.kind));
    }
    assert_eq!(paged, whole);
    let all = world.store.events(EventsAfter { run: taken.run, after: None }, 100).await.unwrap();
    assert_eq!(all[0].actor, "local:1000");
    assert!(all[1..5].iter().all(|event| event.actor == "worker:nas"), "{all:#?}");
    assert_eq!(all[1].facts.get("fence").map(String::as_str), Some("1"));
    assert_eq!(world.store.events(EventsAfter { run: world.run_id(), after: None }, 2).await.unwrap(), []);
}

/// Workers come in the order of their names, in pages, with what they hold.
pub async fn workers_are_paged_by_name(harness: &dyn Harness) {
    let world = World::new(harness);
    for name in ["delta", "alpha", "charlie", "bravo"] {
        world.machine(name).await;
    }
    let names = async |after: Option<&str>, limit| {
        let after = after.map(|name| name.parse::<WorkerId>().unwrap());
        let page = world.store.workers(after, limit).await.unwrap();
        page.into_iter().map(|view| view.worker.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 3).await, ["alpha", "bravo", "charlie"]);
    assert_eq!(names(Some("charlie"), 3).await, ["delta"]);
    assert_eq!(names(Some("bx"), 1).await, ["charlie"], "the cursor need not exist");
    assert_eq!(names(Some("delta"), 3).await, Vec::<String>::new());
    assert_eq!(world.store.worker(&"echo".parse().unwrap()).await.unwrap(), None);
}

/// What an explanation needs comes in one answer: the run, and a page of the workers.
pub async fn the_facts_of_a_run_come_with_a_page_of_workers(harness: &dyn Harness) {
    let world = World::new(harness);
    for name in ["alpha", "bravo", "charlie"] {
        world.agent(name).await;
    }
    let run = world.run(plain()).await;
    let facts = world.store.run_facts(run, None, 2).await.unwrap().unwrap();
    assert_eq!(facts.view, world.view(run).await);
    assert_eq!(facts.workers.iter().map(|view| view.worker.id.as_str()).collect::<Vec<_>>(), ["alpha", "bravo"]);
    assert!(facts.workers.iter().all(|view| view.session.is_some()));
    assert_eq!(facts.refused, []);
    let rest = world.store.run_facts(run, Some(facts.workers[1].worker.id.clone()), 2).await.unwrap().unwrap();
    assert_eq!(rest.workers.iter().map(|view| view.worker.id.as_str()).collect::<Vec<_>>(), ["charlie"]);
    assert_eq!(world.store.run_facts(world.run_id(), None, 2).await.unwrap(), None);
    assert_eq!(world.store.run(world.run_id()).await.unwrap(), None);
}

/// Runs that are not over by state, workers by what can be expected of them, and how late the latest one is.
pub async fn what_there_is_is_counted(harness: &dyn Harness) {
    let world = World::new(harness);
    let nothing = world.store.statistics().await.unwrap();
    assert_eq!(
        (nothing.oldest_pending, nothing.workers, nothing.heartbeat_lag),
        (None, WorkerCounts::default(), seconds(0))
    );
    assert!(
        nothing.runs.values().all(|count| *count == 0) && nothing.runs.len() == Statistics::counted_states().count()
    );

    world.machine("new").await;
    let (_, leaving) = world.agent("leaving").await;
    world.offline(&leaving).await.applied();
    let (_, drained) = world.agent("drained").await;
    world.drain(&drained).await.applied();
    let (_, session) = world.agent("nas").await;
    let oldest = world.clock().utc();
    world.run(plain()).await;
    world.pass(seconds(3));
    world.run(plain()).await;
    let ended = world.running(&session, plain()).await;
    world.end(&ended, exited(0)).await.applied();
    let running = world.running(&session, plain()).await;
    world.beat(&session, &[&running]).await.applied();
    world.pass(seconds(20));
    let counted = world.store.statistics().await.unwrap();
    let runs = |state| counted.runs[&state];
    assert_eq!((runs(RunState::Pending), runs(RunState::Running), runs(RunState::Lost)), (2, 1, 0));
    assert_eq!(counted.oldest_pending, Some(oldest));
    let workers = WorkerCounts { online: 1, draining: 1, offline: 1, enrolled: 1, revoked: 0 };
    assert_eq!(counted.workers, workers);
    // Who drains speaks too, and has been silent for 23 s at an interval of 15 s.
    assert_eq!(counted.heartbeat_lag, seconds(8));

    world.pass(seconds(3600));
    world.store.expire_leases(64).await.unwrap();
    let later = world.store.statistics().await.unwrap();
    assert_eq!((later.runs[&RunState::Running], later.runs[&RunState::Lost]), (0, 1));
    assert_eq!((later.workers.offline, later.heartbeat_lag), (3, seconds(0)), "who is offline is not late");
}
