//! Schedules: what is due fires, on every replica, and is looked at no later than a bounded time from now; and what a person
//! sees and says of them.
//!
//! One loop, owned by [`ControlPlane::run`]. What fires is decided inside the store's transaction, by its clock: whoever looks,
//! and however often, one run is admitted for one nominal time. A hint only makes a look earlier. (Control design, *Triggers*.)

use std::time::Duration;

use leasehold_core::id::{ProjectName, TaskName, TriggerName};
use leasehold_core::limits;
use leasehold_core::revision::{Revision, Source};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_core::trigger::{Kind, NotTimed, Timed, TriggerKey};
use leasehold_store::call::{BackfillTrigger, LedgerPage, PauseTriggers, TriggersAfter};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::Unmet;
use leasehold_store::view::{Backfilled, LedgerEntry, TriggerView};

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;
use crate::rounds::Pace;

/// The shortest between two rounds, so that a store which calls the same thing due again and again is not asked without end.
const ROUND_MIN: Millis = Millis::new(20);
/// Pages in one round; the rest is the next round's, and who drains is heard between them.
const ROUND_PAGES: usize = 16;
/// After a round that the store did not answer, or while its disk has no room for new work.
const ROUND_RETRY: Millis = Millis::from_secs(1);

impl ControlPlane {
    /// Runs rounds until the control plane drains.
    pub(crate) async fn schedule_loop(&self) {
        let pace = Pace { gathered: None, retry: ROUND_RETRY };
        let failed =
            |error: &StoreError| tracing::warn!(error = %error, "schedules could not be looked at; they are again");
        self.rounds(pace, || self.schedule_round(), || self.hints().schedule_hinted(), failed).await;
    }

    /// Fires what is due; answers how long until the next look.
    pub(crate) async fn schedule_round(&self) -> Result<Duration, StoreError> {
        if !self.room().takes_work() {
            // A run that is due is new work, and what is missed meanwhile is caught up as its policy says.
            return Ok(ROUND_RETRY.to_std());
        }
        let settings = self.settings();
        let mut next = Some(Millis::ZERO);
        for _ in 0..ROUND_PAGES {
            let fired = self.store().fire_triggers(limits::PAGE).await?;
            for run in &fired.runs {
                tracing::debug!(run.id = %run, "a schedule admitted or cancelled a run");
                self.hints().changed(&Topic::Run(*run));
            }
            for worker in &fired.workers {
                self.hints().changed(&Topic::Worker(worker.clone()));
            }
            if !fired.runs.is_empty() {
                self.hints().dispatch();
            }
            if !fired.more {
                next = fired.next;
                break;
            }
        }
        // Another replica may be told of an earlier time, and be gone before that comes.
        let wait = match next {
            Some(next) => next.max(ROUND_MIN).min(settings.recovery_scan),
            None => settings.recovery_idle,
        };
        Ok(wait.to_std())
    }
}

/// What a person asks for of one trigger, or of a task.
#[derive(Debug, Clone)]
pub struct PauseAsk {
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task.
    pub task: TaskName,
    /// Which trigger; none: the task.
    pub trigger: Option<TriggerName>,
    /// The person's words.
    pub why: Option<String>,
}

/// Fire times that have passed and are to be run.
#[derive(Debug, Clone)]
pub struct BackfillAsk {
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task.
    pub task: TaskName,
    /// Of which trigger; none: the task's only schedule.
    pub trigger: Option<TriggerName>,
    /// From here on.
    pub first: UtcMillis,
    /// Up to here.
    pub last: UtcMillis,
}

/// A fire time that will come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FireTime {
    /// The nominal time.
    pub at: UtcMillis,
    /// Of which trigger.
    pub trigger: TriggerName,
    /// The zone that its expression is read in.
    pub time_zone: String,
}

/// Fire times that are shown at most.
pub const FIRE_TIMES: usize = 1000;

impl ControlPlane {
    /// A page of triggers, in the order of their tasks and names. That there are none is told of a task or project that is
    /// there only.
    pub async fn schedules(&self, page: TriggersAfter, limit: usize) -> OperatorResult<Vec<TriggerView>> {
        let TriggersAfter { project, task, after } = page.clone();
        let views = self.store().triggers(page, limit.clamp(1, limits::PAGE)).await?;
        match (task, after) {
            (Some(task), None) if views.is_empty() => self.task(&project, &task).await.map(drop)?,
            (None, None) if views.is_empty() => self.project(&project).await.map(drop)?,
            _ => {}
        }
        Ok(views)
    }

    /// A page of a task's schedule ledger, the newest nominal time first; also of a task that is deleted. That there is
    /// nothing in it is told of a task and a trigger that are there, or were, only.
    pub async fn ledger(&self, page: LedgerPage, limit: usize) -> OperatorResult<Vec<LedgerEntry>> {
        let LedgerPage { project, task, trigger, before } = page.clone();
        let lines = self.store().ledger(page, limit.clamp(1, limits::PAGE)).await?;
        if !lines.is_empty() || before.is_some() {
            return Ok(lines);
        }
        // Of a task that was never there; its history tells of one that is deleted.
        self.task_history(&project, &task, None, 1).await?;
        if let Some(name) = trigger {
            let page = TriggersAfter { project, task: Some(task.clone()), after: None };
            let kept = self.store().triggers(page, limits::TRIGGERS).await?;
            if !kept.iter().any(|view| view.kept.key.name == name) {
                return Err(ServiceError::Refused(no_trigger(&task, &name)));
            }
        }
        Ok(lines)
    }

    /// The next `count` fire times of a task, or of one of its triggers, the earliest first, pause or not; and whether one of
    /// these is paused.
    pub async fn fire_times(
        &self,
        project: &ProjectName,
        task: &TaskName,
        trigger: Option<&TriggerName>,
        count: usize,
    ) -> OperatorResult<(Vec<FireTime>, bool)> {
        let kept = self.schedules_of(project, task).await?;
        let of: Vec<_> = kept.iter().filter(|view| trigger.is_none_or(|name| *name == view.kept.key.name)).collect();
        if let (Some(name), true) = (trigger, of.is_empty()) {
            return Err(ServiceError::Refused(no_trigger(task, name)));
        }
        let now = self.store().now().await?.utc;
        let mut times = Vec::new();
        for view in &of {
            // What is kept was read before: only a later build could find no times in it.
            let Ok(Some(timed)) = Timed::of(&view.kept.key, &view.trigger) else { continue };
            let Source::Cron(schedule) = &view.trigger.source else { continue };
            let mut at = now;
            for _ in 0..count.min(FIRE_TIMES) {
                let Some(next) = timed.next(at) else { break };
                let (trigger, time_zone) = (view.kept.key.name.clone(), schedule.time_zone.clone());
                times.push(FireTime { at: next, trigger, time_zone });
                at = next;
            }
        }
        times.sort();
        times.truncate(count.min(FIRE_TIMES));
        let paused = of.iter().any(|view| view.kept.progress.paused);
        Ok((times, paused))
    }

    async fn schedules_of(&self, project: &ProjectName, task: &TaskName) -> OperatorResult<Vec<TriggerView>> {
        self.task(project, task).await?;
        let page = TriggersAfter { project: project.clone(), task: Some(task.clone()), after: None };
        Ok(self.store().triggers(page, limits::TRIGGERS).await?)
    }

    /// A task or a trigger starts nothing by itself. Answers whether that changed anything.
    pub async fn pause_schedule(&self, caller: &Caller, ask: PauseAsk) -> OperatorResult<bool> {
        let call = pause_call(caller, ask);
        let outcome = self.store().pause_triggers(call.clone()).await?;
        self.paused(caller, &call, outcome, "schedule paused")
    }

    /// That pause is over. Answers whether that changed anything.
    pub async fn resume_schedule(&self, caller: &Caller, ask: PauseAsk) -> OperatorResult<bool> {
        let call = pause_call(caller, ask);
        let outcome = self.store().resume_triggers(call.clone()).await?;
        let changed = self.paused(caller, &call, outcome, "schedule resumed");
        // What came meanwhile may be enough for a task that runs after others.
        self.hints().chains();
        changed
    }

    fn paused(
        &self,
        caller: &Caller,
        call: &PauseTriggers,
        outcome: Outcome<(), Unmet>,
        done: &str,
    ) -> OperatorResult<bool> {
        let changed = outcome.is_applied();
        let of = call.trigger.as_ref().map_or_else(|| call.task.to_string(), ToString::to_string);
        let denied = |unmet| ServiceError::Refused(Denied::of_trigger(&unmet, &call.task, call.trigger.as_ref()));
        outcome.into_result().map_err(denied)?;
        tracing::info!(project = %call.project, task = %call.task, of, actor = %caller.actor, origin = %caller.origin, changed, "{done}");
        self.hints().dispatch();
        self.hints().schedule();
        Ok(changed)
    }

    /// The runs of a page of fire times that have passed.
    pub async fn backfill(&self, caller: &Caller, ask: BackfillAsk) -> OperatorResult<Backfilled> {
        let BackfillAsk { project, task, trigger, first, last } = ask;
        if !self.room().takes_work() {
            return Err(ServiceError::Refused(Denied::DiskFull));
        }
        let name = match trigger {
            Some(name) => name,
            None => only_schedule(&task, &self.schedules_of(&project, &task).await?).map_err(ServiceError::Refused)?,
        };
        let key = TriggerKey { project, task, name };
        let call = BackfillTrigger { actor: caller.actor.clone(), trigger: key.clone(), first, last };
        let outcome = self.store().backfill_trigger(call).await?;
        let denied = |unmet| ServiceError::Refused(Denied::of_trigger(&unmet, &key.task, Some(&key.name)));
        let backfilled = outcome.into_result().map_err(denied)?;
        tracing::info!(project = %key.project, task = %key.task, trigger = %key.name, runs = backfilled.runs.len(),
            actor = %caller.actor, origin = %caller.origin, "schedule backfilled");
        self.hints().dispatch();
        Ok(backfilled)
    }
}

fn no_trigger(task: &TaskName, name: &TriggerName) -> Denied {
    Denied::no_part(format_args!("trigger `{name}`"), format_args!("task `{task}`"))
}

fn pause_call(caller: &Caller, ask: PauseAsk) -> PauseTriggers {
    let PauseAsk { project, task, trigger, why } = ask;
    PauseTriggers { actor: caller.actor.clone(), project, task, trigger, why }
}

fn only_schedule(task: &TaskName, kept: &[TriggerView]) -> Result<TriggerName, Denied> {
    let mut names = kept.iter().filter(|view| view.kept.kind == Kind::Cron).map(|view| &view.kept.key.name);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name.clone()),
        (None, _) => Err(Denied::no_part("schedule", format_args!("task `{task}`"))),
        (Some(one), Some(other)) => Err(Denied::Invalid {
            field: "trigger".to_owned(),
            got: format!("none, of a task with several schedules ({one}, {other}, …)"),
            allowed: "the name of one of them".to_owned(),
        }),
    }
}

/// What can be kept of a task's triggers; every replica finds the same.
pub(crate) fn check(project: &ProjectName, task: &TaskName, revision: &Revision, now: UtcMillis) -> Result<(), Denied> {
    for trigger in revision.triggers() {
        let key = TriggerKey { project: project.clone(), task: task.clone(), name: trigger.name.clone() };
        let refused = |entry: &str, got: String, allowed: String| Denied::Invalid {
            field: format!("trigger.{}.{entry}", trigger.name),
            got,
            allowed,
        };
        let timed = Timed::of(&key, trigger).map_err(|error| match error {
            NotTimed::Expression(error) => refused("cron", error.got(), error.allowed()),
            NotTimed::Zone(error) => {
                let nearest = error.nearest.map_or_else(String::new, |nearest| format!(": did you mean `{nearest}`?"));
                refused("time_zone", format!("`{}`", error.name), format!("an IANA time zone{nearest}"))
            }
        })?;
        if let (Some(timed), Source::Cron(schedule)) = (timed, &trigger.source)
            && timed.next(now).is_none()
        {
            let got = format!("`{}`, which never comes", schedule.expression);
            return Err(refused("cron", got, "times of which there is a next one".to_owned()));
        }
    }
    let unsaid = revision.params().iter().find(|(_, parameter)| parameter.default.is_none());
    // Whoever calls a webhook can say it.
    let fires = revision.triggers().iter().any(|trigger| Kind::of(&trigger.source) == Kind::Cron);
    if let Some((name, _)) = unsaid.filter(|_| fires) {
        return Err(Denied::Invalid {
            field: format!("params.{name}"),
            got: "no default, in a task with a schedule".to_owned(),
            allowed: "a `default`: nobody is there to say it when the schedule fires".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_core::canonical::Value;
    use leasehold_core::offer::RUN_FACTS;
    use leasehold_core::run::RunState;
    use leasehold_core::time::Clock as _;

    use super::*;
    use crate::fixture::{World, caller, granted, revision};
    use crate::task::Apply;
    use crate::view::RunFilter;

    pub(crate) async fn applied(world: &World, cron: &str) {
        let trigger = Value::map([("cron", Value::text(cron))]);
        let report = revision([("name", Value::text("report")), ("trigger", Value::List(vec![trigger]))]);
        let tasks = [("report".parse().unwrap(), report)].into();
        let apply = Apply { project: ProjectName::default(), tasks, prune: false, cascade: false, plan: None };
        assert!(world.plane.apply_tasks(&caller(), apply).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_decides_when_the_next_look_is() {
        let world = World::new().await;
        let settings = world.plane.settings().clone();
        assert_eq!(world.plane.schedule_round().await.unwrap(), settings.recovery_idle.to_std(), "nothing is kept");
        applied(&world, "@daily").await;
        assert_eq!(world.plane.schedule_round().await.unwrap(), settings.recovery_scan.to_std(), "a bounded wait");
        applied(&world, "* * * * * *").await;
        assert_eq!(world.plane.schedule_round().await.unwrap(), Duration::from_secs(1));
        world.clock.advance(Millis::from_secs(1));
        world.plane.schedule_round().await.unwrap();
        let filter = RunFilter { task: Some("report".parse().unwrap()), ..RunFilter::default() };
        let runs = world.plane.runs(filter, 64).await.unwrap();
        assert_eq!((runs.len(), runs[0].run.state), (1, RunState::Pending));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_called_by_its_own_name() {
        let world = World::new().await;
        applied(&world, "@daily").await;
        let ledger = |task: &str, trigger: Option<&str>| {
            let trigger = trigger.map(|name| name.parse().unwrap());
            let page =
                LedgerPage { project: ProjectName::default(), task: task.parse().unwrap(), trigger, before: None };
            let plane = &world.plane;
            async move { plane.ledger(page, 64).await.map(|lines| lines.len()).map_err(|error| error.to_string()) }
        };
        let no_task = || Err("there is no task `gone`".to_owned());
        let no_trigger = || Err("there is no trigger `corn` of task `report`".to_owned());
        assert_eq!(ledger("report", Some("cron")).await, Ok(0));
        assert_eq!(ledger("report", Some("corn")).await, no_trigger());
        assert_eq!(ledger("gone", Some("cron")).await, no_task());
        let pause = |task: &str, trigger: &str| {
            let (task, trigger) = (task.parse().unwrap(), trigger.parse().ok());
            let ask = PauseAsk { project: ProjectName::default(), task, trigger, why: None };
            let plane = &world.plane;
            async move { plane.pause_schedule(&caller(), ask).await.map(usize::from).map_err(|error| error.to_string()) }
        };
        assert_eq!(pause("report", "corn").await, no_trigger());
        assert_eq!(pause("gone", "cron").await, no_task());
        world
            .plane
            .delete_task(&caller(), ProjectName::default(), "report".parse().unwrap(), false, None)
            .await
            .unwrap();
        assert!(ledger("report", None).await.is_ok(), "that of a deleted task stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_cannot_be_filled_is_told_once() {
        let world = World::new().await;
        applied(&world, "@daily").await;
        let now = world.clock.utc();
        let (hour, year) = (Millis::from_secs(3600), Millis::from_secs(366 * 86_400));
        for (first, last, told) in [
            (now, now.minus(hour), "to: got a time before `from`, allowed is `from` or later"),
            (now, now.plus(hour), "to: got a time to come, allowed is one that has passed"),
            (now.minus(Millis::new(1)), now.minus(Millis::new(1)), "from: got a span without a fire time"),
            (now.minus(year.times(3)), now, "from: got a span with 1098 fire times, allowed is at most 1000 of them"),
        ] {
            let (project, task) = (ProjectName::default(), "report".parse().unwrap());
            let ask = BackfillAsk { project, task, trigger: None, first, last };
            let refused = world.plane.backfill(&caller(), ask).await.unwrap_err().to_string();
            assert!(refused.starts_with(told), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_loop_fires_and_the_run_goes_out() {
        let world = World::new().await;
        let agent = world.agent("nas", 1).await;
        let running = world.start();
        applied(&world, "* * * * * *").await;
        let pull = tokio::spawn(agent.pull(vec![world.ask()], limits::PULL_WAIT));
        world.clock.advance(Millis::from_secs(1));
        let pulled = pull.await.unwrap().unwrap();
        assert_eq!(granted(&pulled)[0].task, Some("report".parse().unwrap()));
        running.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_understands_it_is_told_the_fire_time() {
        let world = World::new().await;
        applied(&world, "* * * * * *").await;
        for (name, features, told) in [("old", vec![], false), ("new", vec![RUN_FACTS], true)] {
            let agent = world.agent_with_features(name, features).await;
            world.clock.advance(Millis::from_secs(1));
            world.plane.schedule_round().await.unwrap();
            let taken = agent.take().await;
            assert_eq!(taken.offer.scheduled_at, told.then(|| world.clock.utc()), "{name}");
            agent.starting(&taken).await;
            agent.exited(&taken, 0, b"").await;
        }
    }
}
