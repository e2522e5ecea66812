//! Chains: a success is never lost to who follows it, and never makes two runs.

use std::collections::BTreeSet;

use leasehold_core::canonical::Value;
use leasehold_core::chain::Broken;
use leasehold_core::event::EventKind;
use leasehold_core::id::{ProjectName, RunId, TaskName};
use leasehold_core::limits;
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{Expect, Taken, World, admin, exited, revision_with, seconds};
use super::race::both;
use crate::call::{AdmitRun, ApplyTasks, DeleteTask, EventsAfter, PauseTriggers};
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::Chained;

fn lab() -> ProjectName {
    "lab".parse().unwrap()
}

fn name(name: &str) -> TaskName {
    name.parse().unwrap()
}

fn revision(of: &str, after: &[&str]) -> Revision {
    revision_with([("name", Value::text(of)), ("after", Value::texts(after.iter().copied()))])
}

/// These tasks, each with those that it runs after.
fn apply(tasks: &[(&str, &[&str])]) -> ApplyTasks {
    let tasks = tasks.iter().map(|(of, after)| (name(of), revision(of, after))).collect();
    ApplyTasks { actor: admin(), project: lab(), tasks, prune: false, cascade: false, plan: None }
}

fn delete(of: &str) -> DeleteTask {
    DeleteTask { actor: admin(), project: lab(), name: name(of), cascade: true, seen: None }
}

impl World<'_> {
    async fn chained(&self, tasks: &[(&str, &[&str])]) {
        self.store.apply_tasks(apply(tasks)).await.applied();
    }

    /// A run of the task that ended so.
    async fn ran(&self, session: &SessionFence, of: &str, code: u8) -> RunId {
        let taken = self.runs_of(session, of).await;
        self.end(&taken, exited(code)).await.applied();
        // The next one succeeds later.
        self.pass(seconds(1));
        taken.run
    }

    async fn runs_of(&self, session: &SessionFence, of: &str) -> Taken {
        let submission = self.submission(revision(of, &[]));
        let call = AdmitRun { project: lab(), task: Some(name(of)), ..submission };
        let run = self.store.admit_run(call).await.applied().run.id;
        let taken = self.take(session, run).await;
        self.start(&taken).await;
        taken
    }

    async fn settle_all(&self) -> Vec<RunId> {
        let mut runs = Vec::new();
        loop {
            let Chained { runs: some, more, .. } = self.store.settle_chains(limits::PAGE).await.unwrap();
            runs.extend(some);
            if !more {
                return runs;
            }
        }
    }

    /// What each of the runs follows, in their order.
    async fn follow(&self, runs: &[RunId]) -> Vec<String> {
        let mut told = Vec::new();
        for run in runs {
            let run = self.view(*run).await.run;
            let after = run.after.map(|after| after.to_string()).unwrap_or_default();
            told.push(format!("{} after {after}", run.task.unwrap()));
        }
        told
    }
}

/// Of every success one run, with what it follows; of anything else none.
pub async fn every_success_makes_one_run_of_its_follower(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let (_, session) = world.agent("nas").await;
    let before = world.settle_all().await;
    world.ran(&session, "a", 3).await;
    let first = world.ran(&session, "a", 0).await;
    let second = world.ran(&session, "a", 0).await;
    assert_eq!((before, world.follow(&[first]).await), (vec![], vec!["a after ".to_owned()]));
    let runs = world.settle_all().await;
    assert_eq!(world.follow(&runs).await, [format!("b after a={first}"), format!("b after a={second}")]);
    assert!(runs.is_sorted(), "they wait in the order of what they follow");
    assert_eq!(world.unchanged(world.settle_all()).await, []);
    let view = world.view(runs[0]).await;
    assert_eq!((view.run.state, view.revision), (RunState::Pending, revision("b", &["a"])));
    let page = EventsAfter { run: runs[0], after: None };
    let story = world.store.events(page, 9).await.unwrap();
    assert_eq!((story.len(), story[0].kind, story[0].actor.as_str()), (1, EventKind::RunAdmitted, "system"));
    assert_eq!(story[0].facts["after"], format!("a={first}"));
    let ended = world.take(&session, runs[0]).await;
    world.start(&ended).await;
    world.end(&ended, exited(0)).await.applied();
    assert_eq!(world.settle_all().await, [], "nobody follows b");
}

/// All of them have to come; until then the newest of each counts.
pub async fn a_follower_of_several_waits_for_all_of_them(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &[]), ("both", &["a", "b"]), ("other", &["b"])]).await;
    let (_, session) = world.agent("nas").await;
    world.ran(&session, "a", 0).await;
    assert_eq!(world.settle_all().await, []);
    world.unchanged(world.settle_all()).await;
    let newer = world.ran(&session, "a", 0).await;
    let b = world.ran(&session, "b", 0).await;
    let told: BTreeSet<_> = world.follow(&world.settle_all().await).await.into_iter().collect();
    assert_eq!(told, [format!("both after a={newer} b={b}"), format!("other after b={b}")].into());
    let again = world.ran(&session, "b", 0).await;
    assert_eq!(world.follow(&world.settle_all().await).await, [format!("other after b={again}")]);
}

/// What a person says is a success as any other; what evidence says later, too.
pub async fn whatever_makes_a_run_succeed_its_followers_have_it(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let (machine, session) = world.agent("nas").await;
    let lost = world.runs_of(&session, "a").await;
    let late = world.runs_of(&session, "a").await;
    world.expire(&lost).await;
    assert_eq!((world.state(late.run).await, world.settle_all().await), (RunState::Lost, vec![]));
    world.store.resolve_run(world.resolve_call(lost.run, Verb::MarkSucceeded)).await.applied();
    assert_eq!(world.follow(&world.settle_all().await).await, [format!("b after a={}", lost.run)]);
    let late = late.held_by(&world.session(&machine, "boot-a").await);
    world.end(&late, exited(0)).await.applied();
    assert_eq!(world.follow(&world.settle_all().await).await, [format!("b after a={}", late.run)]);
}

/// An edge is of one project, and of a task that was applied.
pub async fn only_tasks_of_the_same_project_follow(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let elsewhere = ApplyTasks { project: ProjectName::default(), ..apply(&[("a", &[])]) };
    world.store.apply_tasks(elsewhere).await.applied();
    let (_, session) = world.agent("nas").await;
    let call = AdmitRun { task: Some(name("a")), ..world.submission(revision("a", &[])) };
    let run = world.store.admit_run(call).await.applied().run.id;
    let taken = world.take(&session, run).await;
    world.start(&taken).await;
    world.end(&taken, exited(0)).await.applied();
    assert_eq!(world.settle_all().await, []);
}

/// What cannot follow is refused with the names, planned or applied, and nothing of it is applied.
pub async fn what_cannot_follow_is_refused_with_the_names(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let refused = |call: ApplyTasks| async {
        let planned =
            world.store.plan_tasks(&call.project, call.tasks.clone(), call.prune, call.cascade).await.unwrap();
        let told = world.unchanged(world.store.apply_tasks(call)).await.refused();
        assert_eq!(planned.map_err(Unmet::Chain), Err(told.clone()), "what is shown is what is done");
        told
    };
    let missing = Broken::Missing { task: name("c"), missing: name("x") };
    assert_eq!(refused(apply(&[("c", &["a", "x"])])).await, Unmet::Chain(missing));
    let circle = Broken::Cycle(vec![name("a"), name("b")]);
    assert_eq!(refused(apply(&[("a", &["b"])])).await, Unmet::Chain(circle));
    let followed = Broken::Followed { task: name("a"), followers: vec![name("b")] };
    let pruning = ApplyTasks { prune: true, ..apply(&[("b", &["a"])]) };
    assert_eq!(refused(pruning).await, Unmet::Chain(followed.clone()));
    let deleted = world.unchanged(world.store.delete_task(delete("a"))).await.refused();
    assert_eq!(deleted, Unmet::Chain(followed));
    world.store.delete_task(delete("b")).await.applied();
    world.store.delete_task(delete("a")).await.applied();
    world.unchanged(world.store.delete_task(delete("a"))).await.replayed();
}

/// A deleted follower's successes go with it; one that comes back begins anew. What it does not follow any more goes, too, and
/// what is left may be enough.
pub async fn an_edit_settles_what_waits(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &["a", "b"])]).await;
    let (_, session) = world.agent("nas").await;
    let a = world.ran(&session, "a", 0).await;
    world.store.delete_task(delete("c")).await.applied();
    world.chained(&[("c", &["a"])]).await;
    assert_eq!(world.settle_all().await, []);
    world.chained(&[("d", &["a"])]).await;
    let runs = world.settle_all().await;
    assert_eq!(world.follow(&runs).await, [format!("d after a={a}")]);
    assert_eq!(world.view(runs[0]).await.revision, revision("d", &["a"]), "as the task is now");
    world.ran(&session, "a", 0).await;
    world.chained(&[("d", &["b"]), ("c", &["b"])]).await;
    assert_eq!(world.unchanged(world.settle_all()).await, []);
}

/// A pause uses nothing up; after it, the newest of what came meanwhile makes one run.
pub async fn a_paused_follower_waits_and_then_runs_once(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let (_, session) = world.agent("nas").await;
    let pause = PauseTriggers { actor: admin(), project: lab(), task: name("b"), trigger: None, why: None };
    world.store.pause_triggers(pause.clone()).await.applied();
    world.ran(&session, "a", 0).await;
    assert_eq!(world.settle_all().await, []);
    let newest = world.ran(&session, "a", 0).await;
    assert_eq!(world.settle_all().await, []);
    world.store.resume_triggers(pause).await.applied();
    assert_eq!(world.follow(&world.settle_all().await).await, [format!("b after a={newest}")]);
}

/// However many came, a page is bounded, and the rest is the next page's.
pub async fn successes_are_settled_in_pages(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"]), ("c", &["a"])]).await;
    let (_, session) = world.agent("nas").await;
    let mut came = Vec::new();
    for _ in 0..5 {
        came.push(world.ran(&session, "a", 0).await);
    }
    let mut runs = Vec::new();
    loop {
        let chained = world.store.settle_chains(3).await.unwrap();
        assert!(chained.runs.len() <= 3, "{chained:?}");
        runs.extend(chained.runs);
        world.pass(seconds(1));
        if !chained.more {
            break;
        }
    }
    let mut told = world.follow(&runs).await;
    told.sort_by_key(|told| told.chars().next());
    let expected = ["b", "c"].iter().flat_map(|of| came.iter().map(move |run| format!("{of} after a={run}")));
    assert_eq!(told, expected.collect::<Vec<_>>());
}

/// Two who settle at once make one run of it.
pub async fn two_who_settle_make_one_run(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &["a"])]).await;
    let (_, session) = world.agent("nas").await;
    for _ in 0..8 {
        let a = world.ran(&session, "a", 0).await;
        let settle = || {
            let store = world.store.clone();
            async move { store.settle_chains(limits::PAGE).await.unwrap().runs }
        };
        let (one, other) = both(settle(), settle()).await;
        let left = world.settle_all().await;
        let all: Vec<_> = one.into_iter().chain(other).chain(left).collect();
        assert_eq!(world.follow(&all).await, [format!("b after a={a}")]);
    }
}

/// A success that becomes true while somebody settles is in this pass or the next.
pub async fn an_end_and_a_pass_at_the_same_instant_lose_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    world.chained(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])]).await;
    let (_, session) = world.agent("nas").await;
    for _ in 0..8 {
        let a = world.ran(&session, "a", 0).await;
        let b = world.runs_of(&session, "b").await;
        let (store, call) = (world.store.clone(), b.end_call(exited(0)));
        let ending = async move { store.end(call).await.applied() };
        let store = world.store.clone();
        let settling = async move { store.settle_chains(limits::PAGE).await.unwrap().runs };
        let (_, mut runs) = both(ending, settling).await;
        runs.extend(world.settle_all().await);
        assert_eq!(world.follow(&runs).await, [format!("c after a={a} b={}", b.run)]);
        world.pass(seconds(1));
    }
}

/// Whatever comes first, nothing is left of a deleted follower, and nothing of it starts afterwards.
pub async fn a_deletion_an_end_and_a_pass_at_the_same_instant_agree(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    world.chained(&[("a", &[])]).await;
    for round in 0..8 {
        world.chained(&[("b", &["a"])]).await;
        let a = world.runs_of(&session, "a").await;
        if round % 2 == 0 {
            world.ran(&session, "a", 0).await;
        }
        let (store, call) = (world.store.clone(), a.end_call(exited(0)));
        let ending = async move { store.end(call).await.applied() };
        let (store, settler) = (world.store.clone(), world.store.clone());
        let deleting = async move {
            let deleted: Stored<(), Unmet> = store.delete_task(delete("b")).await;
            deleted.unwrap()
        };
        let settling = async move { settler.settle_chains(limits::PAGE).await.unwrap().runs };
        let (_, (deleted, made)) = both(ending, async move { both(deleting, settling).await }).await;
        assert!(matches!(deleted, Outcome::Applied(())), "{deleted:?}");
        for run in made {
            assert_eq!(world.state(run).await, RunState::Cancelled, "round {round}: it went with its task");
        }
        assert_eq!(world.unchanged(world.settle_all()).await, [], "round {round}");
        world.pass(seconds(1));
    }
}
