//! Lanes: what is blocked or served alike costs one row; heads by priority, then first come first served.

use leasehold_core::canonical::Value;
use leasehold_core::id::RunId;
use leasehold_core::occupancy::Places;
use leasehold_core::revision::Revision;

use super::Harness;
use super::fixture::{Expect, World, plain, revision_with, seconds};
use crate::call::{AdmitRun, LaneAfter};
use crate::view::Lane;

fn priority(priority: i64) -> Revision {
    revision_with([("priority", Value::Int(priority))])
}

fn on_arch(arch: &str) -> Revision {
    let require = Value::map([("arch", Value::List(vec![Value::text(arch)]))]);
    revision_with([("placement", Value::map([("require", require)]))])
}

fn heads(lane: &Lane) -> Vec<RunId> {
    lane.heads.iter().map(|head| head.run).collect()
}

async fn in_project(world: &World<'_>, project: &str, task: Option<&str>, revision: Revision) -> RunId {
    let call = AdmitRun {
        project: project.parse().unwrap(),
        task: task.map(|task| task.parse().unwrap()),
        ..world.submission(revision)
    };
    world.store.admit_run(call).await.applied().run.id
}

/// The heads of a lane go by priority, then by age; no more of them than asked.
pub async fn heads_go_by_priority_then_age(harness: &dyn Harness) {
    let world = World::new(harness);
    let (low, first) = (world.run(priority(-5)).await, world.run(priority(0)).await);
    let (high, second) = (world.run(priority(9)).await, world.run(priority(0)).await);
    let lanes = world.store.lanes(None, 8, 8).await.unwrap();
    assert_eq!(lanes.len(), 1, "priority makes no lane");
    assert_eq!(heads(&lanes[0]), [high, first, second, low]);
    assert_eq!(lanes[0].heads.iter().map(|head| head.priority).collect::<Vec<_>>(), [9, 0, 0, -5]);
    assert_eq!(lanes[0].placement, *plain().placement());
    assert_eq!(lanes[0].key.placement, plain().placement().digest().to_string());
    assert_eq!(heads(&world.store.lanes(None, 8, 2).await.unwrap()[0]), [high, first]);
}

/// Project, placement and a task with a limit each make a lane of their own; a task without a limit does not.
pub async fn project_placement_and_limited_task_make_a_lane(harness: &dyn Harness) {
    let world = World::new(harness);
    let limited = || revision_with([("limits", Value::map([("concurrency", Value::Int(1))]))]);
    let plain_run = in_project(&world, "home", None, plain()).await;
    let unlimited = in_project(&world, "home", Some("index"), plain()).await;
    let lanes = [
        vec![plain_run, unlimited],
        vec![in_project(&world, "home", Some("backup"), limited()).await],
        vec![in_project(&world, "home", Some("photos"), limited()).await],
        vec![in_project(&world, "home", None, on_arch("aarch64")).await],
        vec![in_project(&world, "lab", None, plain()).await],
    ];
    let mut found: Vec<_> = world.store.lanes(None, 64, 8).await.unwrap().iter().map(heads).collect();
    found.sort();
    let mut expected = lanes.to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

/// A page begins after its cursor, in the order of the keys; a full page leaves the rest for the next.
pub async fn lanes_are_paged_by_key(harness: &dyn Harness) {
    let world = World::new(harness);
    for project in ["delta", "alpha", "charlie", "bravo"] {
        in_project(&world, project, None, plain()).await;
        in_project(&world, project, None, on_arch("aarch64")).await;
    }
    let whole = world.store.lanes(None, 64, 1).await.unwrap();
    assert_eq!(whole.len(), 8);
    assert!(whole.windows(2).all(|pair| pair[0].key < pair[1].key), "in the order of the keys");
    let (mut after, mut paged) = (None, Vec::new());
    loop {
        let page = world.store.lanes(after.clone(), 3, 1).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        paged.extend(page);
    }
    assert_eq!(paged, whole);
}

/// A lane lives as long as a run of it waits.
pub async fn a_lane_lives_as_long_as_a_run_of_it_waits(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let (one, two) = (world.run(plain()).await, world.run(plain()).await);
    let taken = world.take(&session, one).await;
    assert_eq!(heads(&world.store.lanes(None, 8, 8).await.unwrap()[0]), [two]);
    world.store.cancel_run(world.cancel_call(two)).await.applied();
    assert_eq!(world.store.lanes(None, 8, 8).await.unwrap(), []);
    let release =
        crate::call::Release { step: taken.step.clone(), reason: leasehold_core::claim::ReleaseReason::PolicyRefused };
    world.store.release(release).await.applied();
    let lanes = world.store.lanes(None, 8, 8).await.unwrap();
    assert_eq!(heads(&lanes[0]), [one]);
    assert_eq!(lanes[0].heads[0].refused.len(), 1, "who gave it back is known to the dispatcher");
    assert_eq!(lanes[0].heads[0].refused[0].0.as_str(), "nas");
}

/// A run that nobody ever claimed says since when it has been due, by the clock of the read; of one that came back nobody knows.
pub async fn a_head_says_since_when_it_is_due_until_it_is_claimed(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let run = world.run(plain()).await;
    let submitted = world.view(run).await.run.created_at;
    world.pass(seconds(3));
    let lane = world.store.lanes(None, 8, 8).await.unwrap().remove(0);
    assert_eq!(lane.heads[0].submitted, Some(submitted));
    assert_eq!(lane.now.utc.since(submitted), seconds(3));
    let behind = world.store.heads(vec![LaneAfter { lane: lane.key, after: None }], 8).await.unwrap();
    assert_eq!(behind[0][0].submitted, Some(submitted));
    let taken = world.take(&session, run).await;
    let reason = leasehold_core::claim::ReleaseReason::PolicyRefused;
    world.store.release(crate::call::Release { step: taken.step.clone(), reason }).await.applied();
    let lane = world.store.lanes(None, 8, 8).await.unwrap().remove(0);
    assert_eq!((lane.heads[0].run, lane.heads[0].submitted), (run, None));
}

/// A lane is read on behind any of its runs, across priorities, each of several lanes by itself.
pub async fn a_lane_is_read_on_behind_any_of_its_runs(harness: &dyn Harness) {
    let world = World::new(harness);
    let mut order = Vec::new();
    for weight in [9, 0, 0, 0, -5, -5] {
        order.push(world.run(priority(weight)).await);
    }
    let other = world.run(on_arch("aarch64")).await;
    let lanes = world.store.lanes(None, 8, 64).await.unwrap();
    let whole = lanes.iter().find(|lane| lane.heads.len() == 6).unwrap();
    let second = lanes.iter().find(|lane| lane.heads.len() == 1).unwrap();
    assert_eq!(heads(whole), order);
    let of = |lane: &Lane, after: Option<usize>| LaneAfter {
        lane: lane.key.clone(),
        after: after.map(|place| lane.heads[place].key()),
    };
    for place in 0..6 {
        let found = world.store.heads(vec![of(second, None), of(whole, Some(place))], 3).await.unwrap();
        let expected: Vec<_> = whole.heads[place + 1..].iter().take(3).cloned().collect();
        assert_eq!(found[1], expected, "behind {place}");
        assert_eq!(found[0][0].run, other);
    }
    assert_eq!(world.store.heads(vec![of(whole, None)], 2).await.unwrap(), [whole.heads[..2].to_vec()]);
    assert_eq!(world.store.heads(vec![of(second, Some(0))], 2).await.unwrap(), [vec![]]);
}

/// A lane says how many places of its task and its project are held; without a limit nothing is counted.
pub async fn a_lane_says_what_is_held_of_its_limits(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let limited = || revision_with([("limits", Value::map([("concurrency", Value::Int(2))]))]);
    let of = async || {
        let lanes = world.store.lanes(None, 64, 1).await.unwrap();
        lanes.into_iter().map(|lane| (lane.key.task.is_some(), lane.task_occupied, lane.project)).collect::<Vec<_>>()
    };
    let held = in_project(&world, "home", Some("backup"), limited()).await;
    in_project(&world, "home", Some("backup"), limited()).await;
    in_project(&world, "home", None, plain()).await;
    assert_eq!(of().await, [(false, 0, None), (true, 0, None)]);
    world.take(&session, held).await;
    assert_eq!(of().await, [(false, 0, None), (true, 1, None)]);
    world.limit_project("home", Some(7)).await;
    let places = Some(Places { limit: 7, occupied: 1 });
    assert_eq!(of().await, [(false, 0, places), (true, 1, places)]);
}
