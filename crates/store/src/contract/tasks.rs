//! Tasks: what was applied last is what runs next, whole or not at all; a task goes with its runs or not at all.

use leasehold_core::attempt::AttemptState;
use leasehold_core::canonical::Value;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::event::EventKind;
use leasehold_core::id::{ProjectName, RunId, TaskName};
use leasehold_core::limits;
use leasehold_core::project;
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::task::{Plan, PlanMoved, Step, Undeletable};

use super::Harness;
use super::fixture::{Expect, World, admin, exited, plain, revision_with, seconds};
use super::race::both;
use crate::call::{AdmitRun, ApplyTasks, DeleteProject, DeleteTask};
use crate::outcome::Outcome;
use crate::port::Unmet;
use crate::view::{PlanView, TaskView};

fn lab() -> ProjectName {
    "lab".parse().unwrap()
}

fn name(name: &str) -> TaskName {
    name.parse().unwrap()
}

/// A revision of the task `of`, told apart from its others by `priority`.
fn revision(of: &str, priority: i64) -> Revision {
    revision_with([("name", Value::text(of)), ("priority", Value::Int(priority))])
}

/// These tasks, each with a revision of this priority.
fn apply<'a>(tasks: impl IntoIterator<Item = (&'a str, i64)>) -> ApplyTasks {
    let tasks = tasks.into_iter().map(|(of, priority)| (name(of), revision(of, priority))).collect();
    ApplyTasks { actor: admin(), project: lab(), tasks, prune: false, cascade: false, plan: None }
}

fn pruning(call: ApplyTasks, cascade: bool) -> ApplyTasks {
    ApplyTasks { prune: true, cascade, ..call }
}

fn delete(of: &str, cascade: bool) -> DeleteTask {
    DeleteTask { actor: admin(), project: lab(), name: name(of), cascade, seen: None }
}

impl World<'_> {
    async fn task(&self, of: &str) -> Option<TaskView> {
        self.store.task(&lab(), &name(of)).await.unwrap()
    }

    /// What applying would do.
    async fn plan(&self, call: &ApplyTasks) -> PlanView {
        self.store.plan_tasks(&lab(), call.tasks.clone(), call.prune, call.cascade).await.unwrap().unwrap()
    }

    /// What of it would be refused, as the plan foresees it and as applying says.
    async fn refuses(&self, call: ApplyTasks) -> Undeletable {
        let foreseen: Vec<_> = self.unchanged(self.plan(&call)).await.refused.into_iter().collect();
        let told = self.unchanged(self.store.apply_tasks(call)).await.refused();
        let [(task, why)] = &foreseen[..] else { panic!("{foreseen:?}") };
        assert_eq!(told, Unmet::Task(task.clone(), *why), "what is shown is what is done");
        *why
    }

    async fn steps(&self, call: &ApplyTasks) -> Vec<(String, Step)> {
        self.plan(call).await.plan.0.into_iter().map(|line| (line.name.to_string(), line.step)).collect()
    }

    async fn numbers(&self, of: &str) -> Vec<u64> {
        let history = self.store.task_history(&lab(), &name(of), None, limits::PAGE).await.unwrap();
        history.iter().map(|one| one.number.get()).collect()
    }

    /// A run of the task as it is, made from this revision of it.
    fn of_task(&self, view: &TaskView) -> AdmitRun {
        AdmitRun {
            project: lab(),
            task: Some(view.task.name.clone()),
            of: Some(view.task.number),
            ..self.submission(view.revision.clone())
        }
    }

    async fn submitted(&self, of: &str) -> RunId {
        let call = self.of_task(&self.task(of).await.unwrap());
        self.store.admit_run(call).await.applied().run.id
    }
}

/// What was applied is there, with its number and its author; the same again changes nothing.
pub async fn tasks_are_what_was_applied_last(harness: &dyn Harness) {
    let world = World::new(harness);
    let first = apply([("report", 1), ("backup", 1)]);
    let created = [("backup".to_owned(), Step::Create), ("report".to_owned(), Step::Create)];
    assert_eq!(world.unchanged(world.steps(&first)).await, created);
    world.store.apply_tasks(first.clone()).await.applied();
    world.unchanged(world.store.apply_tasks(first.clone())).await.replayed();
    let made = world.task("report").await.unwrap();
    assert_eq!((made.task.number, made.revision.priority()), (RevisionNumber::FIRST, 1));
    assert_eq!(made.task.created_at, made.task.changed_at);

    world.pass(seconds(60));
    world.store.apply_tasks(apply([("report", 2)])).await.applied();
    let edited = world.task("report").await.unwrap();
    assert_eq!((edited.task.number.get(), edited.revision.priority()), (2, 2));
    assert_eq!(
        (edited.task.created_at, edited.task.changed_at),
        (made.task.created_at, made.task.created_at.plus(seconds(60)))
    );
    let history = world.store.task_history(&lab(), &name("report"), None, limits::PAGE).await.unwrap();
    let told: Vec<_> = history.iter().map(|one| (one.number.get(), one.revision, one.by.as_str())).collect();
    assert_eq!(
        told,
        [(2, revision("report", 2).digest(), "local:1000"), (1, revision("report", 1).digest(), "local:1000")]
    );
    let (one, earlier) =
        world.store.task_revision(&lab(), &name("report"), RevisionNumber::FIRST).await.unwrap().unwrap();
    assert_eq!((&one, earlier.priority()), (&history[1], 1));
    let third = RevisionNumber::FIRST.next().next();
    assert_eq!(world.store.task_revision(&lab(), &name("report"), third).await.unwrap(), None);

    let rows: Vec<_> = world.audit().await.into_iter().filter(|row| row.action == "apply_task").collect();
    let mut told: Vec<_> = rows.iter().map(|row| (row.subject.as_str(), row.facts["before"].as_str())).collect();
    told.sort_unstable();
    let before = revision("report", 1).digest().to_string();
    let mut expected = [("task/lab/backup", "none"), ("task/lab/report", "none"), ("task/lab/report", before.as_str())];
    expected.sort_unstable();
    assert_eq!(told, expected);
    assert!(world.store.project(&lab()).await.unwrap().is_some(), "its project comes with it");
}

/// Only what was named changes; what nobody names goes with `prune` alone.
pub async fn what_is_not_named_stays_unless_it_is_pruned(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("a", 1), ("b", 1), ("c", 1)])).await.applied();
    let call = apply([("b", 2), ("d", 1)]);
    let said = [("b".to_owned(), Step::Update), ("d".to_owned(), Step::Create)];
    assert_eq!(world.steps(&call).await, said);
    let call = pruning(call, false);
    let steps: Vec<_> = world.steps(&call).await.into_iter().map(|(of, step)| format!("{of} {step}")).collect();
    assert_eq!(steps, ["a remove", "b update", "c remove", "d create"]);
    world.store.apply_tasks(call.clone()).await.applied();
    world.unchanged(world.store.apply_tasks(call)).await.replayed();
    let there = world.store.tasks(&lab(), None, limits::PAGE).await.unwrap();
    assert_eq!(there.iter().map(|view| view.task.name.as_str()).collect::<Vec<_>>(), ["b", "d"]);
    assert_eq!(world.audited("delete_task").await, 2);
    let other = world.store.tasks(&ProjectName::default(), None, limits::PAGE).await.unwrap();
    assert_eq!(other, [], "of this project alone");
}

/// A plan is carried out as it was shown, or not at all; what is so already is a repeat whatever was shown.
pub async fn a_plan_that_moved_is_not_carried_out(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let edit = apply([("report", 2)]);
    let shown = Some(world.plan(&edit).await.plan.digest());
    let edit = ApplyTasks { plan: shown, ..edit };
    world.store.apply_tasks(apply([("report", 3)])).await.applied();
    let refused = world.unchanged(world.store.apply_tasks(edit.clone())).await.refused();
    assert_eq!(refused, Unmet::PlanMoved(PlanMoved));
    let edit = ApplyTasks { plan: Some(world.plan(&edit).await.plan.digest()), ..edit };
    world.store.apply_tasks(edit.clone()).await.applied();
    world.unchanged(world.store.apply_tasks(edit.clone())).await.replayed();
    let stale = ApplyTasks { plan: Some(Digest::of(Domain::Plan, b"another")), ..edit };
    world.unchanged(world.store.apply_tasks(stale)).await.replayed();
}

/// One task that cannot go keeps all others as they are.
pub async fn nothing_is_applied_unless_all_of_it_is(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("busy", 1), ("idle", 1)])).await.applied();
    world.submitted("busy").await;
    let call = pruning(apply([("new", 1)]), false);
    let refused = world.unchanged(world.store.apply_tasks(call.clone())).await.refused();
    assert_eq!(refused, Unmet::Task(name("busy"), Undeletable::InUse(1)));
    world.store.apply_tasks(pruning(call, true)).await.applied();
    let there = world.store.tasks(&lab(), None, limits::PAGE).await.unwrap();
    assert_eq!(there.iter().map(|view| view.task.name.as_str()).collect::<Vec<_>>(), ["new"]);
}

/// A run keeps the revision that it was submitted with.
pub async fn an_edit_changes_what_runs_next_and_nothing_that_was_submitted(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let before = world.submitted("report").await;
    world.store.apply_tasks(apply([("report", 2)])).await.applied();
    let after = world.submitted("report").await;
    assert_eq!(world.view(before).await.revision.priority(), 1);
    assert_eq!(world.view(after).await.revision.priority(), 2);
}

/// A run is made from the task as it is: not from an earlier revision, nor of a task that is gone. A repeat is told the run.
pub async fn a_run_is_made_from_the_revision_that_the_task_has(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let read = world.task("report").await.unwrap();
    let first = world.of_task(&read);
    let made = world.store.admit_run(first.clone()).await.applied();
    let late = world.of_task(&read);
    world.store.apply_tasks(apply([("report", 2)])).await.applied();
    assert_eq!(world.unchanged(world.store.admit_run(late.clone())).await.refused(), Unmet::TaskMoved);
    assert_eq!(world.unchanged(world.store.admit_run(first.clone())).await.replayed().run.id, made.run.id);
    world.store.delete_task(delete("report", true)).await.applied();
    assert_eq!(world.unchanged(world.store.admit_run(late)).await.refused(), Unmet::NotFound("task"));
    assert_eq!(world.unchanged(world.store.admit_run(first)).await.replayed().run.id, made.run.id);
}

/// Without cascade a task with runs stays; with it, what waits is cancelled and what runs is told to stop, in the same
/// transaction, and nothing of it starts afterwards.
pub async fn a_task_with_runs_goes_with_them_or_not_at_all(harness: &dyn Harness) {
    let world = World::new(harness);
    assert_eq!(
        world.unchanged(world.store.delete_task(delete("report", true))).await.refused(),
        Unmet::NotFound("task")
    );
    world.store.apply_tasks(apply([("report", 1), ("other", 1)])).await.applied();
    let (_, session) = world.agent("nas").await;
    let running = world.take(&session, world.submitted("report").await).await;
    world.start(&running).await;
    let claimed = world.take(&session, world.submitted("report").await).await;
    let pending = world.submitted("report").await;
    let ended = world.take(&session, world.submitted("report").await).await;
    world.start(&ended).await;
    world.end(&ended, exited(0)).await.applied();
    let other = world.submitted("other").await;

    let refused = world.unchanged(world.store.delete_task(delete("report", false))).await.refused();
    assert_eq!(refused, Unmet::Task(name("report"), Undeletable::InUse(3)));
    let without = |cascade| pruning(apply([("other", 1)]), cascade);
    assert_eq!(world.refuses(without(false)).await, Undeletable::InUse(3));
    assert_eq!(world.plan(&without(true)).await.refused, [].into());
    world.store.delete_task(delete("report", true)).await.applied();
    world.unchanged(world.store.delete_task(delete("report", true))).await.replayed();
    assert_eq!(world.task("report").await, None);
    let view = world.view(pending).await;
    assert_eq!((view.run.state, view.attempts[0].state), (RunState::Cancelled, AttemptState::Cancelled));
    assert!(world.story(pending).await.ends_with(&[EventKind::CancelRequested, EventKind::RunEnded]));
    for taken in [&running, &claimed] {
        let intent = world.view(taken.run).await.run.intent.unwrap();
        assert_eq!((intent.reason, intent.why.as_deref()), (StopIntentReason::Cancel, Some("its task is deleted")));
    }
    assert_eq!(world.state(ended.run).await, RunState::Succeeded);
    assert_eq!(world.state(other).await, RunState::Pending);
    let rows: Vec<_> = world.audit().await.into_iter().filter(|row| row.action == "delete_task").collect();
    assert_eq!(rows.iter().map(|row| row.facts["cancelled"].as_str()).collect::<Vec<_>>(), ["3"]);
    world.end(&running, exited(0)).await.applied();
    assert!(world.state(running.run).await.is_terminal());
}

/// A deletion says what it saw: a task that somebody else edited meanwhile stays.
pub async fn a_task_that_nobody_saw_is_not_deleted(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let seen = world.store.task(&lab(), &name("report")).await.unwrap().unwrap().task.revision;
    world.store.apply_tasks(apply([("report", 2)])).await.applied();
    let deletion = DeleteTask { seen: Some(seen), ..delete("report", false) };
    assert_eq!(world.unchanged(world.store.delete_task(deletion.clone())).await.refused(), Unmet::Moved("task"));
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    world.store.delete_task(deletion.clone()).await.applied();
    world.unchanged(world.store.delete_task(deletion)).await.replayed();
}

/// A question stays open: the task stays with it until a person closes it.
pub async fn a_lost_run_keeps_its_task(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let (_, session) = world.agent("nas").await;
    let taken = world.take(&session, world.submitted("report").await).await;
    world.start(&taken).await;
    world.expire(&taken).await;
    let refused = world.unchanged(world.store.delete_task(delete("report", true))).await.refused();
    assert_eq!(refused, Unmet::Task(name("report"), Undeletable::Lost(1)));
    assert_eq!(world.refuses(pruning(apply([("other", 1)]), true)).await, Undeletable::Lost(1));
    let word = world.resolve_call(taken.run, Verb::MarkFailed);
    world.store.resolve_run(word).await.applied();
    world.store.delete_task(delete("report", false)).await.applied();
}

/// Numbers go on where a deleted task comes back, even with the revision that it had.
pub async fn a_deleted_task_comes_back_with_its_history(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    world.store.delete_task(delete("report", false)).await.applied();
    assert_eq!(world.numbers("report").await, [1], "what it was is told");
    assert_eq!(world.steps(&apply([("report", 1)])).await, [("report".to_owned(), Step::Create)]);
    world.pass(seconds(5));
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let back = world.task("report").await.unwrap();
    assert_eq!((back.task.number.get(), back.task.created_at), (2, leasehold_core::time::Clock::utc(world.clock())));
    assert_eq!(world.numbers("report").await, [2, 1]);
}

/// A project goes after its tasks.
pub async fn a_project_with_tasks_is_not_deleted(harness: &dyn Harness) {
    let world = World::new(harness);
    world.store.apply_tasks(apply([("report", 1)])).await.applied();
    let call = || DeleteProject { actor: admin(), name: lab(), seen: None };
    let refused = world.unchanged(world.store.delete_project(call())).await.refused();
    assert_eq!(refused, Unmet::Project(project::Undeletable::HasTasks { tasks: 1 }));
    world.store.delete_task(delete("report", false)).await.applied();
    world.store.delete_project(call()).await.applied();
}

/// Pages of names, and of numbers from the newest.
pub async fn tasks_and_their_history_are_paged(harness: &dyn Harness) {
    let world = World::new(harness);
    for priority in 1..=5 {
        world.store.apply_tasks(apply([("b", priority), ("a", 1), ("d", 1), ("c", 1)])).await.applied();
    }
    let first = world.store.tasks(&lab(), None, 3).await.unwrap();
    let rest = world.store.tasks(&lab(), Some(first[2].task.name.clone()), 3).await.unwrap();
    let named: Vec<_> = first.iter().chain(&rest).map(|view| view.task.name.as_str()).collect();
    assert_eq!(named, ["a", "b", "c", "d"]);
    let newest = world.store.task_history(&lab(), &name("b"), None, 2).await.unwrap();
    let older = world.store.task_history(&lab(), &name("b"), Some(newest[1].number), 9).await.unwrap();
    let numbers: Vec<_> = newest.iter().chain(&older).map(|one| one.number.get()).collect();
    assert_eq!(numbers, [5, 4, 3, 2, 1]);
}

/// Either the run is there and the task stays, or the task goes and there is no run; with cascade, the run ends with it.
pub async fn a_deletion_and_a_submission_of_one_task_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let of = format!("task-{round}");
        let cascade = round % 2 == 0;
        world.store.apply_tasks(apply([(of.as_str(), 1)])).await.applied();
        let submission = world.of_task(&world.task(&of).await.unwrap());
        let run = submission.run;
        let (store, call) = (world.store.clone(), delete(&of, cascade));
        let deleting = async move { store.delete_task(call).await.unwrap() };
        let store = world.store.clone();
        let admitting = async move { store.admit_run(submission).await.unwrap() };
        let (deleted, admitted) = both(deleting, admitting).await;
        let there = world.task(&of).await.is_some();
        let state = world.store.run(run).await.unwrap().map(|view| view.run.state);
        let seen = (deleted.is_applied(), there, state);
        let allowed = match admitted {
            Outcome::Refused(_) => seen == (true, false, None),
            _ if cascade => seen == (true, false, Some(RunState::Cancelled)),
            _ => seen == (false, true, Some(RunState::Pending)),
        };
        assert!(allowed, "round {round}: {deleted:?}, {admitted:?}: {seen:?}");
    }
}

/// Of two plans that were shown for the same state, one is carried out; and two that share revisions both arrive.
pub async fn two_who_apply_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..8 {
        let one = apply([("a", round), ("b", round)]);
        let other = apply([("b", round), ("c", round)]);
        let shown = |plan: &Plan| Some(plan.digest());
        let one = ApplyTasks { plan: shown(&world.plan(&one).await.plan), ..one };
        let other = ApplyTasks { plan: shown(&world.plan(&other).await.plan), ..other };
        let store = (world.store.clone(), world.store.clone());
        let applying = async move { store.0.apply_tasks(one).await.unwrap() };
        let too = async move { store.1.apply_tasks(other).await.unwrap() };
        let (one, other) = both(applying, too).await;
        let applied = usize::from(one.is_applied()) + usize::from(other.is_applied());
        assert_eq!(applied, 1, "round {round}: {one:?}, {other:?}");
        let elsewhere: ProjectName = format!("else-{round}").parse().unwrap();
        let shared = apply([("a", -1 - round), ("b", -1 - round), ("c", -1 - round)]);
        let there = ApplyTasks { project: elsewhere, ..shared.clone() };
        let store = (world.store.clone(), world.store.clone());
        let here = async move { store.0.apply_tasks(shared).await.unwrap() };
        let there = async move { store.1.apply_tasks(there).await.unwrap() };
        let (here, there) = both(here, there).await;
        assert!(here.is_applied() && there.is_applied(), "round {round}: {here:?}, {there:?}");
    }
    world.run(plain()).await;
}
