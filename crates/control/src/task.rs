//! What a person says of tasks: planned, applied whole, run, deleted. Decided by [`leasehold_core::task`].

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits;
use leasehold_core::revision::Revision;
use leasehold_core::task::{Plan, Planned, Step};
use leasehold_core::time::UtcMillis;
use leasehold_store::call::{ApplyTasks, DeleteTask, RunFilter};
use leasehold_store::view::{KeyedRun, PlanView, TaskRevision, TaskView};

use crate::admit::{Admitted, Submit, built};
use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::schedule;

/// How often a run is made anew from a task that changes meanwhile.
const AGAIN: usize = 3;

/// Tasks as a person wants them.
#[derive(Debug, Clone)]
pub struct Apply {
    /// Whose namespace.
    pub project: ProjectName,
    /// The revision of each; each has its name.
    pub tasks: BTreeMap<TaskName, Revision>,
    /// Whether what is not named goes.
    pub prune: bool,
    /// Whether what goes takes its runs with it.
    pub cascade: bool,
    /// The digest of the plan that the person was shown: no other is carried out.
    pub plan: Option<Digest>,
}

/// A run of a task, as it is asked for.
#[derive(Debug, Clone)]
pub struct RunTask {
    /// Whose namespace.
    pub project: ProjectName,
    /// Which task.
    pub name: TaskName,
    /// What its parameters say this time.
    pub parameters: BTreeMap<String, String>,
    /// The caller's key: the same key with the same request gives the same run.
    pub idempotency_key: Option<String>,
}

impl RunTask {
    /// What tells this request from every other, whatever the task is by then.
    fn digest(&self) -> Digest {
        let parameters = Value::map(self.parameters.iter().map(|(name, text)| (name, Value::text(text))));
        let asked = Value::map([("parameters", parameters), ("run_task", Value::text(self.name.as_str()))]);
        Digest::of(Domain::Request, &asked.to_bytes())
    }
}

impl ControlPlane {
    /// What applying these tasks would do, where everything they ask for can be done; and which of those that would go may
    /// not, as things are.
    pub async fn plan_tasks(&self, apply: Apply) -> OperatorResult<PlanView> {
        let Apply { project, tasks, prune, cascade, plan: _ } = apply;
        check(&project, &tasks, self.utc()).map_err(ServiceError::Refused)?;
        let planned = self.store().plan_tasks(&project, tasks, prune, cascade).await?;
        planned.map_err(|broken| ServiceError::Refused(broken.into()))
    }

    /// Makes the tasks of a project what was said, all of it or nothing. Answers whether that changed anything.
    pub async fn apply_tasks(&self, caller: &Caller, apply: Apply) -> OperatorResult<bool> {
        check(&apply.project, &apply.tasks, self.utc()).map_err(ServiceError::Refused)?;
        let Apply { project, tasks, prune, cascade, plan } = apply;
        let count = tasks.len();
        let call = ApplyTasks { actor: caller.actor.clone(), project: project.clone(), tasks, prune, cascade, plan };
        let outcome = self.store().apply_tasks(call).await?;
        let changed = outcome.is_applied();
        outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &project)))?;
        tracing::info!(%project, tasks = count, prune, actor = %caller.actor, origin = %caller.origin, changed, "tasks applied");
        self.hints().dispatch();
        self.hints().schedule();
        // What waits may be enough for a task that follows fewer others now.
        self.hints().chains();
        Ok(changed)
    }

    /// Makes one task what was said, if it has the revision `seen`; none: if it is not there. Answers the task as it is then,
    /// and whether that changed anything.
    pub async fn put_task(
        &self,
        caller: &Caller,
        project: ProjectName,
        name: TaskName,
        revision: Revision,
        seen: Option<Digest>,
    ) -> OperatorResult<(TaskView, bool)> {
        let after = Some(revision.digest());
        let step = match seen {
            None => Step::Create,
            seen if seen == after => Step::Keep,
            Some(_) => Step::Update,
        };
        let plan = Plan(vec![Planned { name: name.clone(), step, before: seen, after }]).digest();
        let tasks = [(name.clone(), revision)].into();
        let apply = Apply { project: project.clone(), tasks, prune: false, cascade: false, plan: Some(plan) };
        match self.apply_tasks(caller, apply).await {
            Err(ServiceError::Refused(Denied::PlanMoved(_))) => {
                Err(ServiceError::Refused(Denied::Moved { what: "task", name: name.to_string() }))
            }
            Err(other) => Err(other),
            Ok(changed) => Ok((self.task(&project, &name).await?, changed)),
        }
    }

    /// Deletes a task; with `cascade`, what waits of it is cancelled and what runs is told to stop. Answers whether that
    /// changed anything. With `seen`, a task that has another revision by now is not deleted.
    pub async fn delete_task(
        &self,
        caller: &Caller,
        project: ProjectName,
        name: TaskName,
        cascade: bool,
        seen: Option<Digest>,
    ) -> OperatorResult<bool> {
        let call =
            DeleteTask { actor: caller.actor.clone(), project: project.clone(), name: name.clone(), cascade, seen };
        let outcome = self.store().delete_task(call).await?;
        let changed = outcome.is_applied();
        outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &name)))?;
        tracing::info!(%project, task = %name, cascade, actor = %caller.actor, origin = %caller.origin, changed, "task deleted");
        if changed && cascade {
            self.tell_of_runs(project, name).await;
        }
        Ok(changed)
    }

    /// Wakes who waits for runs of a task that ended or are to stop; a hint that is not given costs one scan.
    async fn tell_of_runs(&self, project: ProjectName, name: TaskName) {
        let filter = RunFilter { project: Some(project), task: Some(name), ..RunFilter::default() };
        for found in self.store().runs(filter, limits::PAGE).await.unwrap_or_default() {
            self.hints().changed(&Topic::Run(found.run.id));
            if let Some(worker) = found.worker {
                self.hints().changed(&Topic::Worker(worker));
            }
        }
        self.hints().dispatch();
    }

    /// Submits a run of a task as it is now, with these parameters.
    pub async fn run_task(&self, caller: &Caller, ask: RunTask) -> OperatorResult<Admitted> {
        let asked = ask.digest();
        let RunTask { project, name, parameters, idempotency_key } = ask;
        // The task may have been edited or deleted since the first request with this key: its run is found all the same.
        if let Some(key) = &idempotency_key
            && let Some(KeyedRun { run, asked: Some(before) }) = self.store().keyed_run(&project, key).await?
        {
            if before != asked {
                return Err(ServiceError::Refused(Denied::KeyReused));
            }
            return Ok(Admitted { run: self.run_view(run).await?, replayed: true });
        }
        let mut tries = 0;
        loop {
            let view = self.task(&project, &name).await?;
            let submit = Submit {
                project: project.clone(),
                task: Some(name.clone()),
                revision: view.revision,
                parameters: parameters.clone(),
                idempotency_key: idempotency_key.clone(),
            };
            tries += 1;
            match self.admit_of(caller, submit, Some(view.task.number), Some(asked)).await {
                Err(ServiceError::Refused(Denied::TaskMoved(_))) if tries < AGAIN => {}
                admitted => return admitted,
            }
        }
    }

    /// One task.
    pub async fn task(&self, project: &ProjectName, name: &TaskName) -> OperatorResult<TaskView> {
        self.store().task(project, name).await?.ok_or_else(|| ServiceError::Refused(Denied::not_found("task", name)))
    }

    /// A page of a project's tasks in the order of their names; at most [`limits::PAGE`] whatever `limit` says. The last
    /// one's name is the next page's `after`. That there are none is told of a project that is there only.
    pub async fn tasks(
        &self,
        project: &ProjectName,
        after: Option<TaskName>,
        limit: usize,
    ) -> OperatorResult<Vec<TaskView>> {
        let is_first = after.is_none();
        let page = self.store().tasks(project, after, limit.clamp(1, limits::PAGE)).await?;
        if page.is_empty() && is_first {
            self.project(project).await?;
        }
        Ok(page)
    }

    /// A page of the revisions that a task had, the newest first. The last one's number is the next page's `before`.
    pub async fn task_history(
        &self,
        project: &ProjectName,
        name: &TaskName,
        before: Option<RevisionNumber>,
        limit: usize,
    ) -> OperatorResult<Vec<TaskRevision>> {
        let page = self.store().task_history(project, name, before, limit.clamp(1, limits::PAGE)).await?;
        if page.is_empty() && before.is_none() {
            return Err(ServiceError::Refused(Denied::not_found("task", name)));
        }
        Ok(page)
    }

    /// One of the revisions that a task had.
    pub async fn task_revision(
        &self,
        project: &ProjectName,
        name: &TaskName,
        number: RevisionNumber,
    ) -> OperatorResult<(TaskRevision, Revision)> {
        let found = self.store().task_revision(project, name, number).await?;
        found.ok_or_else(|| {
            let (part, of) = (format_args!("revision {number}"), format_args!("task `{name}`"));
            ServiceError::Refused(Denied::no_part(part, of))
        })
    }
}

fn check(project: &ProjectName, tasks: &BTreeMap<TaskName, Revision>, now: UtcMillis) -> Result<(), Denied> {
    if tasks.len() > limits::APPLY_TASKS {
        return Err(Denied::Invalid {
            field: "tasks".to_owned(),
            got: format!("{} tasks", tasks.len()),
            allowed: format!("at most {} at once", limits::APPLY_TASKS),
        });
    }
    tasks.iter().try_for_each(|(name, revision)| {
        let followed = || needs_nobody(revision);
        built(revision).and_then(|()| schedule::check(project, name, revision, now)).and_then(|()| followed()).map_err(
            |denied| match denied {
                Denied::Invalid { field, got, allowed } => {
                    Denied::Invalid { field: format!("tasks.{name}.{field}"), got, allowed }
                }
                other => other,
            },
        )
    })
}

/// Whoever runs after others is asked for no parameter.
fn needs_nobody(revision: &Revision) -> Result<(), Denied> {
    if revision.after().is_empty() {
        return Ok(());
    }
    match revision.with_parameters(&BTreeMap::new()) {
        Ok(_) => Ok(()),
        Err(errors) => Err(Denied::Invalid {
            field: errors.first().map_or_else(|| "params".to_owned(), |error| error.path.clone()),
            got: "no default".to_owned(),
            allowed: "a default: nobody is asked when this task runs after others".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::run::RunState;
    use leasehold_core::task::Undeletable;

    use super::*;
    use crate::fixture::{World, caller, revision};

    fn name() -> TaskName {
        "report".parse().unwrap()
    }

    fn report(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Apply {
        let revision = revision([("name", Value::text("report"))].into_iter().chain(entries));
        let tasks = [(name(), revision)].into();
        Apply { project: ProjectName::default(), tasks, prune: false, cascade: false, plan: None }
    }

    fn day(description: &[(&str, &str)]) -> [(&'static str, Value); 1] {
        let day = Value::map(description.iter().map(|(key, text)| (*key, Value::text(*text))));
        [("params", Value::map([("DAY", day)]))]
    }

    fn run(parameters: &[(&str, &str)], key: Option<&str>) -> RunTask {
        let parameters = parameters.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let idempotency_key = key.map(str::to_owned);
        RunTask { project: ProjectName::default(), name: name(), parameters, idempotency_key }
    }

    #[tokio::test]
    async fn a_task_is_applied_once_and_run_with_its_parameters() {
        let world = World::new().await;
        let apply = || report(day(&[("description", "which day")]));
        assert_eq!(world.plane.plan_tasks(apply()).await.unwrap().plan.0[0].step, Step::Create);
        assert!(
            world.plane.apply_tasks(&caller(), apply()).await.unwrap(),
            "a parameter without a value is no mistake here"
        );
        assert!(!world.plane.apply_tasks(&caller(), apply()).await.unwrap());
        let refused = world.plane.run_task(&caller(), run(&[], None)).await.unwrap_err();
        assert!(refused.to_string().contains("params.DAY"), "{refused}");
        let refused = world.plane.run_task(&caller(), run(&[("DYA", "today")], None)).await.unwrap_err();
        assert!(refused.to_string().contains("DYA"), "{refused}");
        let first = world.plane.run_task(&caller(), run(&[("DAY", "today")], Some("key"))).await.unwrap();
        assert_eq!(first.run.revision.params()["DAY"].default.as_deref(), Some("today"));
        assert_eq!(first.run.run.task, Some(name()));
        let again = world.plane.run_task(&caller(), run(&[("DAY", "today")], Some("key"))).await.unwrap();
        assert_eq!((again.replayed, again.run.run.id), (true, first.run.run.id));
        let gone = run(&[], None);
        let gone = RunTask { name: "gone".parse().unwrap(), ..gone };
        let refused = world.plane.run_task(&caller(), gone).await.unwrap_err();
        assert!(refused.to_string().contains("there is no task `gone`"), "{refused}");
    }

    #[tokio::test]
    async fn a_key_finds_its_run_whatever_became_of_the_task_since() {
        let world = World::new().await;
        world.plane.apply_tasks(&caller(), report(day(&[("default", "today")]))).await.unwrap();
        let ask = |parameters: &[(&str, &str)]| {
            let ask = run(parameters, Some("key"));
            let world = &world;
            async move { world.plane.run_task(&caller(), ask).await }
        };
        let first = ask(&[("DAY", "monday")]).await.unwrap().run.run.id;
        // The parameter is gone, then the task.
        world.plane.apply_tasks(&caller(), report([("priority", Value::Int(3))])).await.unwrap();
        assert_eq!(ask(&[("DAY", "monday")]).await.map(|again| (again.replayed, again.run.run.id)), Ok((true, first)));
        world.plane.delete_task(&caller(), ProjectName::default(), name(), true, None).await.unwrap();
        assert_eq!(ask(&[("DAY", "monday")]).await.map(|again| again.run.run.id), Ok(first));
        assert_eq!(ask(&[("DAY", "tuesday")]).await, Err(ServiceError::Refused(Denied::KeyReused)));
        assert_eq!(ask(&[]).await, Err(ServiceError::Refused(Denied::KeyReused)));
    }

    #[tokio::test]
    async fn what_cannot_be_carried_out_is_refused_with_the_task_and_the_field() {
        let world = World::new().await;
        let before = world.store.dump();
        let asked = |trigger: Value, more: Vec<(&'static str, Value)>| {
            report([("trigger", Value::List(vec![trigger]))].into_iter().chain(more))
        };
        let cron =
            |entries: &[(&'static str, &str)]| Value::map(entries.iter().map(|(key, text)| (*key, Value::text(*text))));
        let (day, nightly) = (day(&[("description", "which day")]).to_vec(), cron(&[("cron", "0 3 * * *")]));
        for (apply, told) in [
            (
                asked(cron(&[("cron", "@daily"), ("time_zone", "Europe/Berlim")]), vec![]),
                "did you mean `Europe/Berlin`?",
            ),
            (asked(nightly, day), "tasks.report.params.DAY"),
        ] {
            for refused in [
                world.plane.plan_tasks(apply.clone()).await.map(|_| ()).unwrap_err(),
                world.plane.apply_tasks(&caller(), apply).await.map(|_| ()).unwrap_err(),
            ] {
                assert!(refused.to_string().contains(told), "{refused}");
            }
        }
        assert_eq!(world.store.dump(), before);
    }

    #[tokio::test]
    async fn who_runs_after_others_is_asked_for_nothing_and_follows_what_is_there() {
        let world = World::new().await;
        let before = world.store.dump();
        let after = ("after", Value::texts(["load"]));
        let [day] = day(&[("description", "which day")]);
        let refused = world.plane.apply_tasks(&caller(), report([after.clone(), day])).await.unwrap_err();
        assert!(refused.to_string().starts_with("tasks.report.params.DAY: got no default"), "{refused}");
        let refused = world.plane.apply_tasks(&caller(), report([after])).await.unwrap_err();
        assert!(refused.to_string().contains("task report runs after load"), "{refused}");
        assert_eq!(world.store.dump(), before);
    }

    #[tokio::test]
    async fn a_deleted_task_takes_what_waits_with_it_if_that_was_said() {
        let world = World::new().await;
        world.plane.apply_tasks(&caller(), report([])).await.unwrap();
        let waits = world.plane.run_task(&caller(), run(&[], None)).await.unwrap().run.run.id;
        let who = caller();
        let delete = |cascade| world.plane.delete_task(&who, ProjectName::default(), name(), cascade, None);
        let why = Undeletable::InUse(1);
        assert_eq!(delete(false).await, Err(ServiceError::Refused(Denied::Task { name: name(), why })));
        assert_eq!((delete(true).await, delete(true).await), (Ok(true), Ok(false)));
        assert_eq!(world.plane.run_view(waits).await.unwrap().run.state, RunState::Cancelled);
        let refused = world.plane.run_task(&caller(), run(&[], None)).await.unwrap_err();
        assert!(refused.to_string().contains("there is no task `report`"), "{refused}");
        assert_eq!(world.plane.task_history(&ProjectName::default(), &name(), None, 9).await.unwrap().len(), 1);
    }
}
