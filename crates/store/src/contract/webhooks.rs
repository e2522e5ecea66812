//! Webhooks: one token opens one of them, a call starts one run, and whatever stands in its way changes nothing.

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::canonical::Value;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::event::EventKind;
use leasehold_core::id::RunId;
use leasehold_core::revision::Revision;
use leasehold_core::trigger::TriggerKey;
use leasehold_core::trigger::webhook::NotCalled;

use super::Harness;
use super::fixture::{Expect, World, admin, exited, revision_with, seconds};
use super::race::both;
use super::schedules::{minute, minutely, project, task};
use crate::call::{AdmitRun, DeleteTask, EventsAfter, Keyed, PauseTriggers};
use crate::outcome::Outcome;
use crate::port::Unmet;
use crate::view::RunView;
use crate::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

/// The trigger `name` of the task.
fn key(name: &str) -> TriggerKey {
    TriggerKey { project: project(), task: task("report"), name: name.parse().unwrap() }
}

fn token(secret: &str) -> Digest {
    Digest::of(Domain::WebhookToken, secret.as_bytes())
}

/// `report` with a webhook `push` of this overlap, and more.
fn with(overlap: &str, more: &[(&'static str, Value)]) -> Revision {
    let push = [("webhook", Value::Bool(true)), ("name", Value::text("push")), ("overlap", Value::text(overlap))];
    let entries = [("name", Value::text("report")), ("trigger", Value::List(vec![Value::map(push)]))];
    revision_with(entries.into_iter().chain(more.iter().cloned()))
}

fn pushed(overlap: &str) -> Revision {
    with(overlap, &[])
}

fn caller() -> Actor {
    let origin = Origin::Address("192.0.2.7".parse().unwrap());
    Actor::Webhook { task: task("report"), trigger: "push".parse().unwrap(), origin }
}

impl World<'_> {
    async fn make_token(&self, secret: &str) {
        let call = MakeWebhookToken { actor: admin(), trigger: key("push"), token: token(secret) };
        self.store.make_webhook_token(call).await.applied();
    }

    /// A webhook with the token `secret`.
    async fn webhook(&self, overlap: &str) {
        self.schedule(pushed(overlap)).await;
        self.make_token("secret").await;
    }

    /// A call that was made from the task as it is.
    async fn webhook_call(&self, secret: &str, asked_with: Option<&str>) -> CallWebhook {
        let view = self.store.task(&project(), &task("report")).await.unwrap().unwrap();
        let keyed = |asked_with: &str| Keyed { key: key("push").keyed(asked_with), asked: token("what is asked") };
        CallWebhook {
            actor: caller(),
            trigger: key("push"),
            token: token(secret),
            run: self.run_id(),
            attempt: self.attempt_id(),
            of: view.task.number,
            revision: view.revision,
            idempotency_key: asked_with.map(keyed),
        }
    }

    async fn called(&self, asked_with: Option<&str>) -> RunView {
        self.store.call_webhook(self.webhook_call("secret", asked_with).await).await.applied()
    }

    async fn not_called(&self, secret: &str, asked_with: Option<&str>) -> CallRefused {
        let call = self.webhook_call(secret, asked_with).await;
        self.unchanged(self.store.call_webhook(call)).await.refused()
    }

    /// Takes a run to its end.
    async fn finish(&self, worker: &str, run: RunId) {
        let (_, session) = self.agent(worker).await;
        let taken = self.take(&session, run).await;
        self.start(&taken).await;
        self.end(&taken, exited(0)).await.applied();
    }
}

const NOBODY: CallRefused = CallRefused::NotCalled(NotCalled::Unauthenticated);

/// The run says which webhook was called, its story and the audit say by whom, and from where.
pub async fn a_call_starts_a_run_that_says_who_called(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("skip").await;
    assert_eq!(world.only().await.token.map(|made| (made.by, made.at)), Some((admin().to_string(), minute(0))));
    let view = world.called(None).await;
    assert_eq!((view.run.task.clone(), view.run.webhook.clone()), (Some(task("report")), Some(key("push").name)));
    assert_eq!((view.run.scheduled.clone(), view.attempts.len()), (None, 1));
    assert_eq!(world.view(view.run.id).await, view);
    let events = world.store.events(EventsAfter { run: view.run.id, after: None }, 9).await.unwrap();
    assert_eq!((events.len(), events[0].kind, &events[0].actor), (1, EventKind::RunAdmitted, &caller().to_string()));
    let audit = world.audit().await;
    let row = audit.iter().find(|row| row.action == "call_webhook").unwrap();
    assert_eq!((row.actor.as_str(), row.origin.as_deref()), ("webhook:report/push", Some("192.0.2.7")));
    assert_eq!(row.subject, format!("run/{}", view.run.id));
}

/// Who has no token, or another one, learns nothing, whatever there is.
pub async fn only_its_own_token_opens_a_webhook(harness: &dyn Harness) {
    let world = World::new(harness);
    world.schedule(pushed("skip")).await;
    assert_eq!(world.not_called("secret", None).await, NOBODY, "no token was made");
    assert_eq!(world.store.webhook_token(&key("push")).await.unwrap(), None);
    world.make_token("secret").await;
    assert_eq!(world.store.webhook_token(&key("push")).await.unwrap(), Some(token("secret")));
    assert_eq!(world.not_called("another", None).await, NOBODY);
    let known = world.webhook_call("secret", None).await;
    let elsewhere = [
        key("pull"),
        TriggerKey { task: task("other"), ..key("push") },
        TriggerKey { project: "other".parse().unwrap(), ..key("push") },
    ];
    for trigger in elsewhere {
        let call = CallWebhook { trigger, ..known.clone() };
        assert_eq!(world.unchanged(world.store.call_webhook(call)).await.refused(), NOBODY);
    }
}

/// A token is made for what waits for calls; another one takes its place at once, and each is audited.
pub async fn another_token_stops_the_one_before(harness: &dyn Harness) {
    let world = World::new(harness);
    let make = |trigger, secret| {
        let call = MakeWebhookToken { actor: admin(), trigger, token: token(secret) };
        world.store.make_webhook_token(call)
    };
    assert_eq!(world.unchanged(make(key("push"), "first")).await.refused(), Unmet::NotFound("task"));
    world.schedule(minutely("skip")).await;
    assert_eq!(world.unchanged(make(key("cron"), "first")).await.refused(), Unmet::NotFound("webhook"));
    world.schedule(pushed("allow-all")).await;
    assert_eq!(world.unchanged(make(key("pull"), "first")).await.refused(), Unmet::NotFound("webhook"));
    let first = make(key("push"), "first").await.applied();
    world.pass(seconds(60));
    assert_eq!(world.unchanged(make(key("push"), "first")).await.replayed(), first);
    let second = make(key("push"), "second").await.applied();
    assert_eq!((first.at, second.at), (minute(0), minute(1)));
    assert_eq!(world.not_called("first", None).await, NOBODY);
    let call = world.webhook_call("second", None).await;
    world.store.call_webhook(call).await.applied();
    let rows: Vec<_> = world.audit().await.into_iter().filter(|row| row.action == "make_webhook_token").collect();
    let told: Vec<_> = rows.iter().map(|row| (row.subject.as_str(), row.facts["replaced"].as_str())).collect();
    assert_eq!(told, [("trigger/lab/report/push", "false"), ("trigger/lab/report/push", "true")]);
}

/// An edit that keeps the webhook keeps its token; what goes takes it along, and what comes back has none.
pub async fn a_token_goes_with_its_webhook(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("skip").await;
    world.schedule(with("allow-all", &[("priority", Value::Int(3))])).await;
    assert!(world.only().await.token.is_some());
    world.called(None).await;
    let pause = PauseTriggers { actor: admin(), project: project(), task: task("report"), trigger: None, why: None };
    world.store.pause_triggers(pause.clone()).await.applied();
    world.store.resume_triggers(pause).await.applied();
    world.called(None).await;
    let cron = Value::map([("cron", Value::text("@daily")), ("name", Value::text("push"))]);
    let timed = revision_with([("name", Value::text("report")), ("trigger", Value::List(vec![cron]))]);
    for other in [revision_with([("name", Value::text("report"))]), timed] {
        world.schedule(other).await;
        assert_eq!(world.store.webhook_token(&key("push")).await.unwrap(), None);
        world.schedule(pushed("skip")).await;
        assert_eq!(world.not_called("secret", None).await, NOBODY);
        world.make_token("secret").await;
    }
    let delete = DeleteTask { actor: admin(), project: project(), name: task("report"), cascade: true, seen: None };
    let call = world.webhook_call("secret", None).await;
    world.store.delete_task(delete).await.applied();
    assert_eq!(world.unchanged(world.store.call_webhook(call.clone())).await.refused(), NOBODY);
    world.schedule(pushed("skip")).await;
    assert_eq!(world.unchanged(world.store.call_webhook(call)).await.refused(), NOBODY);
}

/// Neither its own pause nor its task's starts anything, each until its own end.
pub async fn a_paused_webhook_starts_nothing(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("allow-all").await;
    let first = world.called(Some("first")).await;
    for trigger in [None, Some(key("push").name)] {
        let pause = PauseTriggers { actor: admin(), project: project(), task: task("report"), trigger, why: None };
        world.store.pause_triggers(pause.clone()).await.applied();
        assert_eq!(world.not_called("secret", None).await, NotCalled::Paused.into());
        assert_eq!(world.not_called("another", None).await, NOBODY, "only its caller is told");
        let again = world.webhook_call("secret", Some("first")).await;
        assert_eq!(world.unchanged(world.store.call_webhook(again)).await.replayed().run.id, first.run.id);
        world.store.resume_triggers(pause).await.applied();
    }
    world.called(None).await;
}

/// Under `skip` whatever run of the task stands in the way is named, and the key of a call that was skipped stays free.
pub async fn a_call_that_something_stands_in_the_way_of_is_skipped(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("skip").await;
    let view = world.store.task(&project(), &task("report")).await.unwrap().unwrap();
    let by_hand = AdmitRun {
        project: project(),
        task: Some(task("report")),
        of: Some(view.task.number),
        ..world.submission(view.revision)
    };
    let by_hand = world.store.admit_run(by_hand).await.applied().run.id;
    assert_eq!(world.not_called("secret", Some("k")).await, NotCalled::InTheWay(by_hand).into());
    world.finish("nas", by_hand).await;
    let first = world.called(Some("k")).await.run.id;
    assert_eq!(world.not_called("secret", Some("other")).await, NotCalled::InTheWay(first).into());
    let again = world.webhook_call("secret", Some("k")).await;
    assert_eq!(world.unchanged(world.store.call_webhook(again)).await.replayed().run.id, first, "its own run is not");
    world.schedule(pushed("allow-all")).await;
    world.called(None).await;
}

/// The same key finds its run, also after an edit; asked for something else it is refused, and an operator's is another.
pub async fn a_key_of_a_call_belongs_to_its_webhook(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("allow-all").await;
    let first = world.called(Some("k")).await.run.id;
    let again = world.webhook_call("secret", Some("k")).await;
    assert_eq!(world.unchanged(world.store.call_webhook(again)).await.replayed().run.id, first);
    world.schedule(with("allow-all", &[("priority", Value::Int(3))])).await;
    let edited = world.webhook_call("secret", Some("k")).await;
    assert_eq!(world.unchanged(world.store.call_webhook(edited.clone())).await.replayed().run.id, first);
    let keyed = edited.idempotency_key.clone().map(|keyed| Keyed { asked: token("something else"), ..keyed });
    let other = CallWebhook { idempotency_key: keyed, ..edited.clone() };
    assert_eq!(world.unchanged(world.store.call_webhook(other)).await.refused(), CallRefused::KeyReused);
    let found = world.store.keyed_run(&project(), &key("push").keyed("k")).await.unwrap();
    assert_eq!(found.map(|found| found.run), Some(first));
    assert_eq!(world.store.keyed_run(&project(), "k").await.unwrap(), None);
    let keyed = Some(Keyed { key: "k".to_owned(), asked: token("what is asked") });
    let theirs = AdmitRun { project: project(), idempotency_key: keyed, ..world.submission(pushed("allow-all")) };
    assert_ne!(world.store.admit_run(theirs).await.applied().run.id, first);
}

/// What was made of an earlier revision is made again by whoever calls, not started.
pub async fn a_call_starts_what_its_task_is_now(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("allow-all").await;
    let old = world.webhook_call("secret", None).await;
    world.schedule(with("allow-all", &[("priority", Value::Int(3))])).await;
    assert_eq!(world.unchanged(world.store.call_webhook(old)).await.refused(), CallRefused::TaskMoved);
    let run = world.called(None).await;
    assert_eq!(run.run.priority, 3);
}

/// Two calls at the same instant under `skip`: one run, and the other call is told of it.
pub async fn two_calls_at_the_same_instant_start_one_run(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("skip").await;
    for round in 0..8 {
        let calls = [world.webhook_call("secret", None).await, world.webhook_call("secret", None).await];
        let [one, other] = calls.map(|call| {
            let store = world.store.clone();
            async move { store.call_webhook(call).await.unwrap() }
        });
        let (admitted, in_the_way) = match both(one, other).await {
            (Outcome::Applied(view), Outcome::Refused(refused))
            | (Outcome::Refused(refused), Outcome::Applied(view)) => (view.run.id, refused),
            (one, other) => panic!("round {round}: {one:?} {other:?}"),
        };
        assert_eq!(in_the_way, NotCalled::InTheWay(admitted).into());
        world.finish(&format!("nas-{round}"), admitted).await;
    }
    assert_eq!(world.audited("call_webhook").await, 8);
}

/// One key at the same instant is one run: the other call is its replay, and nothing else stands in its way.
pub async fn one_key_of_two_calls_is_one_run(harness: &dyn Harness) {
    let world = World::new(harness);
    world.webhook("skip").await;
    for round in 0..8 {
        let asked_with = format!("key-{round}");
        let calls = [
            world.webhook_call("secret", Some(&asked_with)).await,
            world.webhook_call("secret", Some(&asked_with)).await,
        ];
        let [one, other] = calls.map(|call| {
            let store = world.store.clone();
            async move { store.call_webhook(call).await.unwrap() }
        });
        let (one, other) = both(one, other).await;
        assert_eq!(u8::from(one.is_applied()) + u8::from(other.is_applied()), 1, "round {round}");
        let (one, other) = (one.into_result().unwrap().run.id, other.into_result().unwrap().run.id);
        assert_eq!(one, other);
        world.finish(&format!("nas-{round}"), one).await;
    }
}

/// A fire time and a call at the same instant under `skip` are one run.
pub async fn a_call_and_a_fire_time_at_the_same_instant_are_one_run(harness: &dyn Harness) {
    let world = World::new(harness);
    let triggers = [
        Value::map([("webhook", Value::Bool(true)), ("name", Value::text("push"))]),
        Value::map([("cron", Value::text("* * * * *"))]),
    ];
    let entries = [("name", Value::text("report")), ("trigger", Value::List(triggers.to_vec()))];
    world.schedule(revision_with(entries)).await;
    world.make_token("secret").await;
    for round in 0..8 {
        world.pass(seconds(60));
        let call = world.webhook_call("secret", None).await;
        let (one, other) = (world.store.clone(), world.store.clone());
        let firing = async move { one.fire_triggers(64).await.unwrap().runs };
        let calling = async move { other.call_webhook(call).await.unwrap() };
        let (fired, called) = both(firing, calling).await;
        let fired: Vec<_> = fired.into_iter().chain(world.settle().await).collect();
        let run = match (&fired[..], called) {
            ([], Outcome::Applied(view)) => view.run.id,
            ([run], Outcome::Refused(refused)) => {
                assert_eq!(refused, NotCalled::InTheWay(*run).into());
                *run
            }
            (fired, called) => panic!("round {round}: {fired:?} {called:?}"),
        };
        world.finish(&format!("nas-{round}"), run).await;
    }
}
