//! Limits of runs at once: enforced by the claim, counted by `core::occupancy`, explained with what holds the places.

use leasehold_core::attempt::EvidenceKind;
use leasehold_core::canonical::Value;
use leasehold_core::claim::NotClaimed;
use leasehold_core::end::Ending;
use leasehold_core::id::{ProjectName, RunId, TaskName};
use leasehold_core::occupancy::{Hold, LimitFact, LimitOf, Places, hold};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::session::SessionFence;

use super::Harness;
use super::fixture::{Expect, Taken, World, admin, exited, plain, revision_with, seconds};
use super::race::both;
use crate::call::{AdmitRun, RunFilter, SetProject};
use crate::port::ClaimRefused;

/// `true`, at most `concurrency` at once, with or without `mutex`.
pub(super) fn limited(concurrency: i64, mutex: bool) -> Revision {
    let limits = [("concurrency", Value::Int(concurrency)), ("mutex", Value::Bool(mutex))];
    revision_with([("limits", Value::map(limits))])
}

/// `true`, of which a lost run keeps its places.
pub(super) fn mutex() -> Revision {
    revision_with([("limits", Value::map([("mutex", Value::Bool(true))]))])
}

impl World<'_> {
    /// A pending run of a task.
    pub(super) async fn run_of(&self, task: &str, revision: Revision) -> RunId {
        let call = AdmitRun { task: Some(task.parse().unwrap()), ..self.submission(revision) };
        self.store.admit_run(call).await.applied().run.id
    }

    /// Limits a project, which a run may not have brought yet.
    pub(super) async fn limit_project(&self, project: &str, concurrency: Option<u32>) {
        let name: ProjectName = project.parse().unwrap();
        if self.store.project(&name).await.unwrap().is_none() {
            let call = crate::call::CreateProject {
                actor: admin(),
                name: name.clone(),
                concurrency: None,
                idempotency_key: None,
            };
            self.store.create_project(call).await.applied();
        }
        self.store
            .set_project(SetProject { actor: admin(), name, concurrency, seen: None })
            .await
            .unwrap()
            .into_result()
            .unwrap();
    }

    /// What a waiting run hears about its limits.
    pub(super) async fn limits(&self, run: RunId) -> Vec<LimitFact> {
        self.store.run_facts(run, None, 1).await.unwrap().unwrap().limits
    }

    async fn full(&self, session: &SessionFence, run: RunId, limit: LimitOf) {
        let refused = self.unchanged(self.try_take(session, run)).await.unwrap_err();
        assert_eq!(refused, ClaimRefused::NotClaimed(NotClaimed::Limit(limit)));
    }

    /// Lets the lease of an attempt that runs end, and declares it lost.
    async fn lost(&self, taken: &Taken) {
        self.expire(taken).await;
        assert_eq!(self.state(taken.run).await, RunState::Lost);
    }
}

/// No more runs of a task are held than its revision says; the count is the store's own, and what ends frees its place.
pub async fn a_task_never_has_more_runs_than_its_limit(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(world.run_of("report", limited(2, false)).await);
    }
    let (other, free) = (world.run_of("photos", limited(1, false)).await, world.run(limited(1, false)).await);
    let first = world.take(&session, runs[0]).await;
    world.take(&session, runs[1]).await;
    world.full(&session, runs[2], LimitOf::Task).await;
    world.take(&session, other).await;
    world.start(&first).await;
    world.full(&session, runs[2], LimitOf::Task).await;
    world.end(&first, exited(0)).await.applied();
    world.take(&session, runs[2]).await;
    assert_eq!(world.limits(free).await, [], "a run without a task has no task's limit");
}

/// A limit is of one task of one project: the same name elsewhere has its own, and every run of the task counts, also one
/// whose own revision has no limit.
pub async fn a_limit_is_of_one_task_of_one_project(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let elsewhere =
        AdmitRun { project: "lab".parse().unwrap(), task: Some(report()), ..world.submission(limited(1, false)) };
    let elsewhere = world.store.admit_run(elsewhere).await.applied().run.id;
    let unlimited = world.run_of("report", plain()).await;
    let waiting = world.run_of("report", limited(1, false)).await;
    world.take(&session, elsewhere).await;
    world.take(&session, unlimited).await;
    world.full(&session, waiting, LimitOf::Task).await;
    world.take(&session, world.run_of("report", plain()).await).await;
}

fn report() -> TaskName {
    "report".parse().unwrap()
}

/// A project's limit holds for all its runs, whatever their tasks; it can be raised, lowered and lifted, and takes nothing
/// away from those that hold a place.
pub async fn a_project_never_has_more_runs_than_its_limit(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    world.limit_project("default", Some(2)).await;
    let first = world.claimed(&session, plain()).await;
    world.take(&session, world.run_of("report", plain()).await).await;
    let waiting = world.run(plain()).await;
    world.full(&session, waiting, LimitOf::Project).await;
    let places = Places { limit: 2, occupied: 2 };
    let facts = world.limits(waiting).await;
    assert_eq!(
        facts.iter().map(|fact| (fact.of, fact.name.as_str(), fact.places)).collect::<Vec<_>>(),
        [(LimitOf::Project, "default", places)]
    );
    assert_eq!(world.store.project(&ProjectName::default()).await.unwrap().unwrap().occupied, 2);

    world.limit_project("default", Some(1)).await;
    world.start(&first).await;
    world.end(&first, exited(0)).await.applied();
    world.full(&session, waiting, LimitOf::Project).await;
    world.limit_project("default", None).await;
    world.take(&session, waiting).await;
}

/// A claim that is given back, or runs out unstarted, or whose attempt waits for another try, holds no place.
pub async fn what_waits_holds_no_place(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let retry = Value::map([("max_attempts", Value::Int(3))]);
    let limits = Value::map([("concurrency", Value::Int(1))]);
    let retried = || revision_with([("limits", limits.clone()), ("retry", retry.clone())]);
    let (one, two) = (world.run_of("report", retried()).await, world.run_of("report", retried()).await);
    let given_back = world.take(&session, one).await;
    let step = given_back.step.clone();
    let release = crate::call::Release { step, reason: leasehold_core::claim::ReleaseReason::DiskLow };
    world.store.release(release).await.applied();
    let run_out = world.take(&session, two).await;
    world.full(&session, one, LimitOf::Task).await;
    world.pass(seconds(23));
    world.store.expire_leases(64).await.unwrap();
    assert_eq!(world.state(run_out.run).await, RunState::Pending);
    let failing = world.take(&session, one).await;
    world.start(&failing).await;
    world.end(&failing, exited(1)).await.applied();
    assert_eq!(world.state(one).await, RunState::RetryWait);
    let second = world.take(&session, two).await;
    world.next_attempt(one).await;
    let session = world.session(&machine, "boot-a").await;
    world.store.expire_leases(64).await.unwrap();
    assert_eq!(world.state(second.run).await, RunState::Pending, "its claim ran out meanwhile");
    world.take(&session, one).await;
    world.full(&session, two, LimitOf::Task).await;
}

/// A lost run frees its place, unless its task says `mutex`: then it keeps it until its question is closed, and who waits
/// is told which run it waits for.
pub async fn a_lost_run_keeps_its_place_only_with_mutex(harness: &dyn Harness) {
    let world = World::new(harness);
    world.limit_project("default", Some(1)).await;
    for (name, revision, keeps) in [("nas", plain(), false), ("box", mutex(), true)] {
        let (machine, session) = world.agent(name).await;
        let taken = world.running(&session, revision).await;
        let waiting = world.run(plain()).await;
        world.full(&session, waiting, LimitOf::Project).await;
        assert_eq!(world.limits(waiting).await[0].holders[0].hold, Hold::Live);
        world.lost(&taken).await;
        let session = world.session(&machine, "boot-a").await;
        let facts = world.limits(waiting).await;
        if keeps {
            world.full(&session, waiting, LimitOf::Project).await;
            let holder = &facts[0].holders[0];
            assert_eq!((holder.run, holder.hold, holder.attempt.get()), (taken.run, Hold::InQuestion, 1));
            assert_eq!(holder.worker.as_ref(), Some(&machine.id));
            assert_eq!(Some(holder.since), world.view(taken.run).await.attempts[0].claimed_at);
            let word = world.resolve_call(taken.run, Verb::MarkFailed);
            world.store.resolve_run(word).await.applied();
        }
        assert_eq!(world.limits(waiting).await[0].places.occupied, 0);
        let next = world.take(&session, waiting).await;
        world.start(&next).await;
        world.end(&next, exited(0)).await.applied();
    }
}

/// That something of an attempt may live keeps its run's place, whatever became of the run, until it is refuted; another
/// attempt of the same run needs no second place.
pub async fn what_may_still_live_keeps_its_runs_place(harness: &dyn Harness) {
    let world = World::new(harness);
    let (machine, session) = world.agent("nas").await;
    let taken = world.take(&session, world.run_of("report", limited(1, false)).await).await;
    world.start(&taken).await;
    world.acknowledge_running(&taken).await.applied();
    world.end(&taken, Ending::Lost { evidence: EvidenceKind::LauncherKilledMayLive }).await.applied();
    let waiting = world.run_of("report", limited(1, false)).await;
    world.full(&session, waiting, LimitOf::Task).await;
    assert_eq!(world.limits(waiting).await[0].holders[0].hold, Hold::MayLive);

    // A person wants it tried again although something may live: it holds the place already.
    world.store.resolve_run(world.resolve_call(taken.run, Verb::Retry)).await.applied();
    let scanned = world.store.begin_retries(vec![world.attempt_id()]).await.unwrap();
    assert_eq!(scanned.runs, [taken.run]);
    let lanes = world.store.lanes(None, 8, 8).await.unwrap();
    assert_eq!(lanes[0].task_occupied, 1);
    let heads: Vec<_> = lanes[0].heads.iter().map(|head| (head.run, head.concurrency, head.holds)).collect();
    assert_eq!(heads, [(taken.run, Some(1), true), (waiting, Some(1), false)]);
    world.full(&session, waiting, LimitOf::Task).await;
    assert_eq!(
        world.limits(taken.run).await[0].places,
        Places { limit: 1, occupied: 0 },
        "its own is none of another's"
    );
    // Also behind what is more urgent and waits for its place it stands first.
    let urgent = [("priority", Value::Int(9)), ("limits", Value::map([("concurrency", Value::Int(1))]))];
    let urgent = world.run_of("report", revision_with(urgent)).await;
    for heads in [1, 8] {
        let lanes = world.store.lanes(None, 8, heads).await.unwrap();
        let order: Vec<_> = lanes[0].heads.iter().map(|head| head.run).collect();
        assert_eq!(order, [taken.run, urgent, waiting][..heads.min(3)]);
    }
    world.full(&session, urgent, LimitOf::Task).await;
    let again = world.take(&session, taken.run).await;
    world.start(&again).await;
    world.end(&again, exited(0)).await.applied();
    let facts = world.limits(waiting).await;
    assert_eq!((facts[0].holders[0].hold, facts[0].holders[0].attempt.get()), (Hold::MayLive, 1));
    world.full(&session, waiting, LimitOf::Task).await;

    // The machine starts anew: nothing of it lives.
    world.pass(seconds(46));
    let session = world.session(&machine, "boot-b").await;
    let gone = taken.held_by(&session);
    world.end(&gone, Ending::Lost { evidence: EvidenceKind::MachineRebooted }).await.applied();
    world.take(&session, waiting).await;
}

/// Two callers at a task's last place, and at a project's: one has it.
pub async fn the_last_place_is_taken_once(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let limit = if round % 2 == 0 { LimitOf::Task } else { LimitOf::Project };
        let (project, task) = (format!("project-{round}"), format!("task-{round}"));
        let mut runs = Vec::new();
        for _ in 0..3 {
            let revision = if limit == LimitOf::Task { limited(2, false) } else { plain() };
            let (project, task) = (project.parse().unwrap(), Some(task.parse().unwrap()));
            let call = AdmitRun { project, task, ..world.submission(revision) };
            runs.push(world.store.admit_run(call).await.applied().run.id);
        }
        if limit == LimitOf::Project {
            world.limit_project(&project, Some(2)).await;
        }
        let (_, nas) = world.agent(&format!("nas-{round}")).await;
        let (_, other) = world.agent(&format!("box-{round}")).await;
        world.take(&nas, runs[0]).await;
        let claim = |session: &SessionFence, run| {
            let (store, call) = (world.store.clone(), world.claim_call(session, &world.ask(), run));
            async move { store.claim(call).await.unwrap() }
        };
        let (one, two) = both(claim(&nas, runs[1]), claim(&other, runs[2])).await;
        assert_eq!(u8::from(one.is_applied()) + u8::from(two.is_applied()), 1, "{one:?} {two:?}");
        let lost = if one.is_applied() { two } else { one };
        let refused = ClaimRefused::NotClaimed(NotClaimed::Limit(limit));
        assert_eq!(lost, crate::outcome::Outcome::Refused(refused), "round {round}");
    }
}

/// A place that is freed and one that is wanted at the same instant: never two more than there are.
pub async fn a_freed_place_is_taken_once(harness: &dyn Harness) {
    let world = World::new(harness);
    for round in 0..16 {
        let (_, session) = world.agent(&format!("nas-{round}")).await;
        let task = format!("task-{round}");
        let first = world.take(&session, world.run_of(&task, limited(1, false)).await).await;
        world.start(&first).await;
        let next = world.run_of(&task, limited(1, false)).await;
        let (store, end) = (world.store.clone(), first.end_call(exited(0)));
        let ending = async move { store.end(end).await.unwrap() };
        let (store, call) = (world.store.clone(), world.claim_call(&session, &world.ask(), next));
        let claiming = async move { store.claim(call).await.unwrap() };
        let (ended, claimed) = both(ending, claiming).await;
        assert!(ended.is_applied(), "{ended:?}");
        if !claimed.is_applied() {
            let full = ClaimRefused::NotClaimed(NotClaimed::Limit(LimitOf::Task));
            assert_eq!(claimed, crate::outcome::Outcome::Refused(full));
            world.take(&session, next).await;
        }
    }
}

/// Those that have held a place longest are named first; the rest is counted.
pub async fn the_longest_holders_are_named_first(harness: &dyn Harness) {
    let world = World::new(harness);
    let mut held = Vec::new();
    for number in 0..3 {
        let (_, session) = world.agent(&format!("nas-{number}")).await;
        for _ in 0..4 {
            world.pass(seconds(1));
            held.push(world.claimed(&session, plain()).await.run);
        }
    }
    world.limit_project("default", Some(12)).await;
    let waiting = world.run(plain()).await;
    let facts = world.limits(waiting).await;
    assert_eq!(facts[0].places, Places { limit: 12, occupied: 12 });
    let named: Vec<_> = facts[0].holders.iter().map(|holder| holder.run).collect();
    assert_eq!(named, held[..leasehold_core::limits::HOLDERS]);
    assert_eq!(facts[0].holders[0].name, "true");
}

/// The count of every store is core's own, whatever state the runs are in: the store's statements against the predicate.
pub(super) async fn agree_with_core(world: &World<'_>) {
    let project = ProjectName::default();
    let mut views = Vec::new();
    for summary in world.store.runs(RunFilter::default(), 1000).await.unwrap() {
        views.push(world.view(summary.run.id).await);
    }
    let mut occupied = 0;
    for view in &views {
        let policy = view.revision.policy();
        occupied += u32::from(view.attempts.iter().any(|attempt| hold(&view.run, attempt, &policy).is_some()));
    }
    let waiting = views.iter().map(|view| &view.run).rfind(|run| run.state == RunState::Pending);
    assert_eq!(world.store.project(&project).await.unwrap().map_or(0, |view| view.occupied), occupied);
    let Some(waiting) = waiting else { return };
    for fact in world.limits(waiting.id).await {
        let mut others = Vec::new();
        for view in views.iter().filter(|view| view.run.id != waiting.id) {
            let policy = view.revision.policy();
            let counts = fact.of == LimitOf::Project || view.run.task == waiting.task;
            let held = view.attempts.iter().find_map(|attempt| Some((attempt, hold(&view.run, attempt, &policy)?)));
            others.extend(
                held.filter(|_| counts)
                    .map(|(attempt, hold)| (attempt.claimed_at.unwrap(), view.run.id, attempt.number, hold)),
            );
        }
        others.sort_by_key(|(since, run, ..)| (*since, *run));
        assert_eq!(fact.places.occupied as usize, others.len(), "{fact:?}");
        others.truncate(leasehold_core::limits::HOLDERS);
        let named: Vec<_> =
            fact.holders.iter().map(|holder| (holder.since, holder.run, holder.attempt, holder.hold)).collect();
        assert_eq!(named, others);
    }
}
