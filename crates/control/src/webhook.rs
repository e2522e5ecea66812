//! Webhooks: an operator makes the token of one, and whoever holds that token calls it.
//!
//! The token opens its webhook and nothing else, and no other token opens it. Whether a call starts a run is decided inside
//! the store's transaction; whoever may not call is told the same, whatever there is. (Control design, *Triggers* and
//! *Security*.)

use std::collections::BTreeMap;

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::canonical::Value;
use leasehold_core::crypto::{Digest, Domain, WebhookToken};
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::trigger::TriggerKey;
use leasehold_core::trigger::webhook::{NotCalled, TokenMade, authenticate};
use leasehold_store::call::Keyed;
use leasehold_store::outcome::Outcome;
use leasehold_store::view::KeyedRun;
use leasehold_store::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

use crate::admit::{built, check_key};
use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;

/// How often a run is made anew from a task that changes meanwhile.
const AGAIN: usize = 3;

/// Whoever called a webhook with its token: the first argument of the one service that they may use.
///
/// Only [`ControlPlane::webhook_caller`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookCaller {
    trigger: TriggerKey,
    token: Digest,
    origin: Origin,
}

/// A token that is shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeToken {
    /// It.
    pub token: WebhookToken,
    /// Who made it, and when.
    pub made: TokenMade,
}

/// A call, as it is asked for.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// What its run's parameters say this time.
    pub parameters: BTreeMap<String, String>,
    /// The caller's key: the same key with the same call gives the same run. It belongs to the webhook.
    pub idempotency_key: Option<String>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// It has a run.
    Admitted {
        /// Which.
        run: RunId,
        /// Whether an earlier call with the same key had started it.
        replayed: bool,
    },
    /// This run stands in its way; nothing was started, and its key stays free.
    Skipped(RunId),
}

impl ControlPlane {
    /// Makes the token of a webhook; one that it had stops at once.
    pub async fn make_webhook_token(&self, caller: &Caller, trigger: TriggerKey) -> OperatorResult<MadeToken> {
        let token = WebhookToken::new(self.entropy());
        let call = MakeWebhookToken { actor: caller.actor.clone(), trigger: trigger.clone(), token: token.digest() };
        let TriggerKey { project, task, name } = &trigger;
        let made = self.store().make_webhook_token(call).await?.into_result();
        let made = made.map_err(|unmet| ServiceError::Refused(Denied::of_trigger(&unmet, task, Some(name))))?;
        tracing::info!(%project, %task, trigger = %name, actor = %caller.actor, origin = %caller.origin, "webhook token made");
        Ok(MadeToken { token, made })
    }

    /// The caller that `token` makes of a call of `trigger`; none if there is no such webhook, or this is not its token.
    pub async fn webhook_caller(
        &self,
        trigger: TriggerKey,
        token: &WebhookToken,
        origin: Origin,
    ) -> OperatorResult<Option<WebhookCaller>> {
        let kept = self.store().webhook_token(&trigger).await?;
        let token = token.digest();
        Ok(authenticate(kept, token).is_ok().then_some(WebhookCaller { trigger, token, origin }))
    }

    /// Starts a run of the task as it is, unless a run of it stands in the way.
    pub async fn call_webhook(&self, caller: &WebhookCaller, call: Call) -> OperatorResult<Called> {
        let WebhookCaller { trigger, token, origin } = caller;
        let Call { parameters, idempotency_key } = call;
        if let Some(key) = &idempotency_key {
            check_key(key).map_err(ServiceError::Refused)?;
        }
        let asked = digest(trigger, &parameters);
        let keyed = idempotency_key.map(|key| Keyed { key: trigger.keyed(&key), asked });
        // The task may have been edited since the first call with this key: its run is found all the same.
        if let Some(Keyed { key, .. }) = &keyed
            && let Some(KeyedRun { run, asked: Some(before) }) = self.store().keyed_run(&trigger.project, key).await?
        {
            return if before == asked {
                Ok(Called::Admitted { run, replayed: true })
            } else {
                Err(ServiceError::Refused(Denied::KeyReused))
            };
        }
        if !self.room().takes_work() {
            return Err(ServiceError::Refused(Denied::DiskFull));
        }
        let mut tries = 0;
        loop {
            let Some(view) = self.store().task(&trigger.project, &trigger.task).await? else {
                return Err(ServiceError::Refused(Denied::NotCallable));
            };
            let made = view.revision.with_parameters(&parameters);
            let revision = made.map_err(|errors| ServiceError::Refused(Denied::Mistakes(errors)))?;
            built(&revision).map_err(ServiceError::Refused)?;
            let now = self.utc();
            let run = RunId::new(now, self.entropy());
            let (task, name) = (trigger.task.clone(), trigger.name.clone());
            let call = CallWebhook {
                actor: Actor::Webhook { task, trigger: name, origin: *origin },
                trigger: trigger.clone(),
                token: *token,
                run,
                attempt: AttemptId::new(now, self.entropy()),
                of: view.task.number,
                revision,
                idempotency_key: keyed.clone(),
            };
            tries += 1;
            let (run, replayed) = match self.store().call_webhook(call).await? {
                Outcome::Applied(view) => (view.run.id, false),
                Outcome::Replayed(view) => (view.run.id, true),
                Outcome::Refused(CallRefused::NotCalled(NotCalled::InTheWay(run))) => return Ok(Called::Skipped(run)),
                Outcome::Refused(CallRefused::TaskMoved) if tries < AGAIN => continue,
                Outcome::Refused(refused) => return Err(ServiceError::Refused(denied(&refused, trigger))),
            };
            let TriggerKey { project, task, name } = trigger;
            tracing::info!(run.id = %run, %project, %task, trigger = %name, %origin, replayed, "webhook called");
            self.hints().changed(&Topic::Run(run));
            self.hints().dispatch();
            return Ok(Called::Admitted { run, replayed });
        }
    }
}

fn denied(refused: &CallRefused, trigger: &TriggerKey) -> Denied {
    match refused {
        CallRefused::NotCalled(NotCalled::Paused) => Denied::Paused,
        CallRefused::NotCalled(NotCalled::Unauthenticated | NotCalled::InTheWay(_)) => Denied::NotCallable,
        CallRefused::KeyReused => Denied::KeyReused,
        CallRefused::TaskMoved => Denied::TaskMoved(trigger.task.to_string()),
    }
}

/// What tells a call from every other, whatever its task is by then.
fn digest(trigger: &TriggerKey, parameters: &BTreeMap<String, String>) -> Digest {
    let parameters = Value::map(parameters.iter().map(|(name, text)| (name, Value::text(text))));
    let webhook = Value::texts([trigger.task.as_str(), trigger.name.as_str()]);
    Digest::of(Domain::Request, &Value::map([("call_webhook", webhook), ("parameters", parameters)]).to_bytes())
}

#[cfg(test)]
mod tests {
    use leasehold_core::id::ProjectName;
    use leasehold_core::run::RunState;

    use super::*;
    use crate::fixture::{World, caller, revision};
    use crate::task::Apply;

    fn push() -> TriggerKey {
        TriggerKey {
            project: ProjectName::default(),
            task: "report".parse().unwrap(),
            name: "webhook".parse().unwrap(),
        }
    }

    async fn apply(world: &World, overlap: &str, more: Vec<(&'static str, Value)>) {
        let trigger = Value::map([("webhook", Value::Bool(true)), ("overlap", Value::text(overlap))]);
        let entries = [("name", Value::text("report")), ("trigger", Value::List(vec![trigger]))];
        let tasks = [(push().task, revision(entries.into_iter().chain(more)))].into();
        let apply = Apply { project: ProjectName::default(), tasks, prune: false, cascade: false, plan: None };
        world.plane.apply_tasks(&caller(), apply).await.unwrap();
    }

    fn day(entries: &[(&'static str, &str)]) -> Vec<(&'static str, Value)> {
        let day = Value::map(entries.iter().map(|(key, text)| (*key, Value::text(*text))));
        vec![("params", Value::map([("DAY", day)]))]
    }

    async fn webhook(world: &World, token: &WebhookToken) -> Option<WebhookCaller> {
        world.plane.webhook_caller(push(), token, Origin::AdminSocket).await.unwrap()
    }

    fn call(parameters: &[(&str, &str)], key: Option<&str>) -> Call {
        let parameters = parameters.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Call { parameters, idempotency_key: key.map(str::to_owned) }
    }

    #[tokio::test]
    async fn a_call_says_what_nobody_has_said_yet_and_runs_the_task_as_it_is() {
        let world = World::new().await;
        apply(&world, "skip", day(&[("description", "which day")])).await;
        let made = world.plane.make_webhook_token(&caller(), push()).await.unwrap();
        assert_eq!(made.made.by, caller().actor.to_string());
        let holder = webhook(&world, &made.token).await.unwrap();
        let refused = world.plane.call_webhook(&holder, call(&[], None)).await.unwrap_err();
        assert!(refused.to_string().contains("params.DAY"), "{refused}");
        let Ok(Called::Admitted { run, replayed: false }) =
            world.plane.call_webhook(&holder, call(&[("DAY", "monday")], None)).await
        else {
            panic!("no run was started");
        };
        let view = world.plane.run_view(run).await.unwrap();
        assert_eq!((view.run.state, view.run.webhook), (RunState::Pending, Some(push().name)));
        assert_eq!(view.revision.params()["DAY"].default.as_deref(), Some("monday"));
        let again = world.plane.call_webhook(&holder, call(&[("DAY", "monday")], None)).await;
        assert_eq!(again, Ok(Called::Skipped(run)));
    }

    #[tokio::test]
    async fn a_key_finds_its_run_after_an_edit_and_also_while_it_is_in_the_way() {
        let world = World::new().await;
        apply(&world, "skip", day(&[("default", "today")])).await;
        let made = world.plane.make_webhook_token(&caller(), push()).await.unwrap();
        let holder = webhook(&world, &made.token).await.unwrap();
        let monday = || call(&[("DAY", "monday")], Some("k"));
        let first = world.plane.call_webhook(&holder, monday()).await.unwrap();
        let Called::Admitted { run, .. } = first else { panic!("{first:?}") };
        apply(&world, "skip", vec![]).await;
        assert_eq!(world.plane.call_webhook(&holder, monday()).await, Ok(Called::Admitted { run, replayed: true }));
        let other = world.plane.call_webhook(&holder, call(&[], Some("k"))).await;
        assert_eq!(other, Err(ServiceError::Refused(Denied::KeyReused)));
        let blank = world.plane.call_webhook(&holder, call(&[], Some("two words"))).await.unwrap_err();
        assert!(blank.to_string().starts_with("Idempotency-Key"), "{blank}");
    }

    #[tokio::test]
    async fn who_may_not_call_is_nobody_and_who_may_no_longer_is_told_the_same() {
        let world = World::new().await;
        apply(&world, "allow-all", vec![]).await;
        let unknown = WebhookToken::from_bytes([3; 32]);
        assert_eq!(webhook(&world, &unknown).await, None);
        let first = world.plane.make_webhook_token(&caller(), push()).await.unwrap();
        let holder = webhook(&world, &first.token).await.unwrap();
        let second = world.plane.make_webhook_token(&caller(), push()).await.unwrap();
        assert_eq!(webhook(&world, &first.token).await, None);
        assert!(webhook(&world, &second.token).await.is_some());
        let refused = world.plane.call_webhook(&holder, Call::default()).await;
        assert_eq!(refused, Err(ServiceError::Refused(Denied::NotCallable)));
        let gone = TriggerKey { task: "gone".parse().unwrap(), ..push() };
        let refused = world.plane.make_webhook_token(&caller(), gone).await.unwrap_err();
        assert!(refused.to_string().contains("there is no task `gone`"), "{refused}");
        let other = TriggerKey { name: "other".parse().unwrap(), ..push() };
        let refused = world.plane.make_webhook_token(&caller(), other).await.unwrap_err();
        assert!(refused.to_string().contains("there is no webhook `other` of task `report`"), "{refused}");
    }
}
