//! Projects: made by a person or by their first run, limited, deleted once nothing of them is open.

use leasehold_core::id::ProjectName;
use leasehold_core::project::{Exists, Settings, Undeletable};

use super::Harness;
use super::fixture::{Expect, World, admin, plain};
use super::race::both;
use crate::call::{AdmitRun, CreateProject, DeleteProject, SetProject};
use crate::port::Unmet;

fn lab() -> ProjectName {
    "lab".parse().unwrap()
}

fn create(concurrency: Option<u32>) -> CreateProject {
    CreateProject { actor: admin(), name: lab(), concurrency, idempotency_key: None }
}

fn set(concurrency: Option<u32>) -> SetProject {
    SetProject { actor: admin(), name: lab(), concurrency, seen: None }
}

fn delete() -> DeleteProject {
    DeleteProject { actor: admin(), name: lab(), seen: None }
}

fn in_lab(world: &World<'_>) -> AdmitRun {
    AdmitRun { project: lab(), ..world.submission(plain()) }
}

async fn names(world: &World<'_>) -> Vec<String> {
    let page = world.store.projects(None, 64).await.unwrap();
    page.iter().map(|view| view.project.name.to_string()).collect()
}

/// A project is made once; the same again is a repeat, another limit under its name is refused.
pub async fn a_project_is_made_once(harness: &dyn Harness) {
    let world = World::new(harness);
    let made = world.store.create_project(create(Some(3))).await.applied();
    assert_eq!((made.project.concurrency, made.occupied), (Some(3), 0));
    assert_eq!(made.project.created_at, leasehold_core::time::Clock::utc(world.clock()));
    assert_eq!(world.unchanged(world.store.create_project(create(Some(3)))).await.replayed(), made);
    let refused = world.unchanged(world.store.create_project(create(None))).await.refused();
    assert_eq!(refused, Unmet::ProjectExists(Exists));
    assert_eq!(world.store.project(&lab()).await.unwrap(), Some(made));
    let rows = world.audit().await;
    let told: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.subject.as_str())).collect();
    assert_eq!(told, [("create_project", "project/lab")]);
    assert_eq!(rows[0].facts["concurrency"], "3");
}

/// A run brings its project, without a limit; a project that is there stays as it is.
pub async fn a_run_brings_its_project(harness: &dyn Harness) {
    let world = World::new(harness);
    assert_eq!(world.store.project(&lab()).await.unwrap(), None);
    world.store.admit_run(in_lab(&world)).await.applied();
    assert_eq!(world.store.project(&lab()).await.unwrap().unwrap().project.concurrency, None);
    world.store.set_project(set(Some(2))).await.applied();
    world.store.admit_run(in_lab(&world)).await.applied();
    assert_eq!(world.store.project(&lab()).await.unwrap().unwrap().project.concurrency, Some(2));
}

/// A limit is set and lifted, each told once with what was before.
pub async fn a_limit_is_set_and_lifted(harness: &dyn Harness) {
    let world = World::new(harness);
    assert_eq!(world.unchanged(world.store.set_project(set(Some(2)))).await.refused(), Unmet::NotFound("project"));
    world.store.create_project(create(None)).await.applied();
    assert_eq!(world.store.set_project(set(Some(2))).await.applied().project.concurrency, Some(2));
    world.unchanged(world.store.set_project(set(Some(2)))).await.replayed();
    assert_eq!(world.store.set_project(set(None)).await.applied().project.concurrency, None);
    let rows: Vec<_> = world.audit().await.into_iter().filter(|row| row.action == "set_project").collect();
    let told: Vec<_> =
        rows.iter().map(|row| (row.facts["before"].as_str(), row.facts["concurrency"].as_str())).collect();
    assert_eq!(told, [("none", "2"), ("2", "none")]);
}

/// An edit says what it saw: settings that somebody else made meanwhile stay; what is so already is a repeat.
pub async fn settings_that_nobody_saw_are_not_overwritten(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.create_project(create(Some(3))).await.applied();
    let seeing = |seen: Option<u32>, next: Option<u32>| {
        let seen = Some(Settings { concurrency: seen });
        SetProject { seen, ..set(next) }
    };
    for stale in [None, Some(4)] {
        let refused = world.unchanged(world.store.set_project(seeing(stale, Some(5)))).await.refused();
        assert_eq!(refused, Unmet::Moved("project"));
    }
    assert_eq!(world.store.set_project(seeing(Some(3), Some(5))).await.applied().project.concurrency, Some(5));
    world.unchanged(world.store.set_project(seeing(Some(3), Some(5)))).await.replayed();
    assert_eq!(world.store.set_project(seeing(Some(5), None)).await.applied().project.concurrency, None);
    assert_eq!(world.store.set_project(seeing(None, Some(1))).await.applied().project.concurrency, Some(1));
}

/// The same request again finds what it made, whatever became of its settings; the same key with another is refused, and what
/// was deleted since does not come back by a repeat.
pub async fn a_key_makes_one_project(harness: &dyn Harness) {
    let world = World::new(harness);
    let keyed = |limit, key: &str| CreateProject { idempotency_key: Some(key.to_owned()), ..create(limit) };
    let ask = |limit, key: &str| world.store.create_project(keyed(limit, key));
    ask(Some(3), "key").await.applied();
    world.store.set_project(set(Some(5))).await.applied();
    let again = world.unchanged(ask(Some(3), "key")).await.replayed();
    assert_eq!(again.project.concurrency, Some(5), "as it is by now");
    for limit in [Some(5), None] {
        assert_eq!(world.unchanged(ask(limit, "key")).await.refused(), Unmet::KeyReused);
    }
    assert_eq!(world.unchanged(ask(Some(3), "other")).await.refused(), Unmet::ProjectExists(Exists));
    world.unchanged(ask(Some(5), "other")).await.replayed();
    world.store.delete_project(delete()).await.applied();
    assert_eq!(world.unchanged(ask(Some(3), "key")).await.refused(), Unmet::NotFound("project"));
    ask(Some(3), "other").await.applied();
    world.unchanged(ask(Some(3), "other")).await.replayed();
}

/// A deletion says what it saw, too.
pub async fn a_project_that_nobody_saw_is_not_deleted(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.create_project(create(Some(3))).await.applied();
    let seeing = |concurrency| DeleteProject { seen: Some(Settings { concurrency }), ..delete() };
    for stale in [None, Some(4)] {
        let refused = world.unchanged(world.store.delete_project(seeing(stale))).await.refused();
        assert_eq!(refused, Unmet::Moved("project"));
    }
    world.store.delete_project(seeing(Some(3))).await.applied();
    world.unchanged(world.store.delete_project(seeing(Some(3)))).await.replayed();
}

/// A project with an open run is not deleted, nor the one that everybody uses; a deleted one is gone for whoever looks, and
/// its next run brings it back without its limit.
pub async fn a_project_is_deleted_once_nothing_is_open(harness: &dyn Harness) {
    let world = World::new(harness);
    assert_eq!(world.unchanged(world.store.delete_project(delete())).await.refused(), Unmet::NotFound("project"));
    world.store.create_project(create(Some(1))).await.applied();
    let (_, session) = world.agent("nas").await;
    let run = world.store.admit_run(in_lab(&world)).await.applied().run.id;
    let in_use = || Unmet::Project(Undeletable::InUse { open: 1 });
    assert_eq!(world.unchanged(world.store.delete_project(delete())).await.refused(), in_use());
    let taken = world.take(&session, run).await;
    assert_eq!(world.unchanged(world.store.delete_project(delete())).await.refused(), in_use());
    world.start(&taken).await;
    world.expire(&taken).await;
    assert_eq!(world.unchanged(world.store.delete_project(delete())).await.refused(), in_use(), "lost is open");
    let word = world.resolve_call(run, leasehold_core::resolve::Verb::MarkFailed);
    world.store.resolve_run(word).await.applied();
    world.store.delete_project(delete()).await.applied();
    world.unchanged(world.store.delete_project(delete())).await.replayed();
    assert_eq!((world.store.project(&lab()).await.unwrap(), names(&world).await), (None, vec![]));
    assert_eq!(world.unchanged(world.store.set_project(set(Some(2)))).await.refused(), Unmet::NotFound("project"));
    assert_eq!(world.audited("delete_project").await, 1);
    assert_eq!(world.view(run).await.run.project, lab(), "what ended stays");
    world.store.admit_run(in_lab(&world)).await.applied();
    assert_eq!(world.store.project(&lab()).await.unwrap().unwrap().project.concurrency, None);

    world.run(plain()).await;
    let default = DeleteProject { name: ProjectName::default(), ..delete() };
    let refused = world.unchanged(world.store.delete_project(default)).await.refused();
    assert_eq!(refused, Unmet::Project(Undeletable::Default));
}

/// Projects are paged by their names.
pub async fn projects_are_paged_by_name(harness: &dyn Harness) {
    let world = World::new(harness);
    for name in ["delta", "alpha", "charlie", "bravo"] {
        let call = CreateProject { name: name.parse().unwrap(), ..create(None) };
        world.store.create_project(call).await.applied();
    }
    let first = world.store.projects(None, 3).await.unwrap();
    let last = first.last().unwrap().project.name.clone();
    let rest = world.store.projects(Some(last), 3).await.unwrap();
    let named: Vec<_> = first.iter().chain(&rest).map(|view| view.project.name.as_str()).collect();
    assert_eq!(named, ["alpha", "bravo", "charlie", "delta"]);
}

/// A deletion and a submission at the same instant: the run waits in a project that is there.
pub async fn a_deletion_and_a_submission_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let name: ProjectName = format!("lab-{round}").parse().unwrap();
        let call = CreateProject { name: name.clone(), ..create(None) };
        world.store.create_project(call).await.applied();
        let (store, call) = (world.store.clone(), DeleteProject { actor: admin(), name: name.clone(), seen: None });
        let deleting = async move { store.delete_project(call).await.unwrap() };
        let (store, call) = (world.store.clone(), AdmitRun { project: name.clone(), ..world.submission(plain()) });
        let admitting = async move { store.admit_run(call).await.unwrap() };
        let (deleted, admitted) = both(deleting, admitting).await;
        assert!(admitted.is_applied(), "{admitted:?}");
        let there = world.store.project(&name).await.unwrap();
        assert!(there.is_some(), "{deleted:?}: a run waits in it");
    }
}
