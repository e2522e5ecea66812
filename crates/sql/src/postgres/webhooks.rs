//! Webhooks: their tokens, of which only digests are kept, and the runs that calls start.
//!
//! The task's row is the lock of its triggers, for calls as for fire times: of two calls at one instant, on any replicas, the
//! second sees the first one's run in its way.

use std::collections::BTreeMap;

use leasehold_core::admission::{self, Submission};
use leasehold_core::crypto::Digest;
use leasehold_core::task::Task;
use leasehold_core::trigger::webhook::{self, NotCalled, TokenMade};
use leasehold_core::trigger::{Kind, TriggerKey};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::RunView;
use leasehold_store::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

use super::column::values;
use super::lock::{self, Locks};
use super::rows;
use super::transaction::{Decided, Fault, Tx, Unlocked};
use super::{admit, audit, load, queries, tasks, triggers};

/// A webhook has this token from now on, and no other.
pub(super) async fn make_token(db: Unlocked, call: &MakeWebhookToken) -> Decided<TokenMade, Unmet> {
    let key = &call.trigger;
    let tx = &db.lock(Locks::Project(&key.project)).await?;
    let Some(task) = tasks::one(tx, &key.project, &key.task).await?.and_then(Task::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    if !triggers::of_task(tx, &task).await?.iter().any(|kept| kept.key == *key && kept.kind == Kind::Webhook) {
        return Ok(Outcome::Refused(Unmet::NotFound("webhook")));
    }
    let sql = "SELECT token, made_by, made_at FROM webhook_token WHERE project = $1 AND task = $2 AND name = $3";
    let read =
        |columns: &mut rows::Columns<'_>| Ok((columns.next()?, TokenMade { by: columns.next()?, at: columns.next()? }));
    let before: Option<(Digest, TokenMade)> = tx.first(sql, values![key.project, key.task, key.name], read).await?;
    let replaced = before.is_some();
    if let Some((_, made)) = before.filter(|(digest, _)| *digest == call.token) {
        return Ok(Outcome::Replayed(made));
    }
    let made = TokenMade { by: call.actor.to_string(), at: tx.now.utc };
    tx.execute_one(
        "token of a webhook",
        "INSERT INTO webhook_token (project, task, name, token, made_by, made_at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (project, task, name) DO UPDATE SET token = excluded.token, made_by = excluded.made_by, \
         made_at = excluded.made_at",
        values![key.project, key.task, key.name, call.token, made.by, made.at],
    )
    .await?;
    let subject = format!("trigger/{}/{}/{}", key.project, key.task, key.name);
    audit::write(tx, &call.actor, "make_webhook_token", subject, &[("replaced", &replaced)]).await?;
    Ok(Outcome::Applied(made))
}

/// The digest of a webhook's token.
pub(super) async fn token(tx: &Tx, trigger: &TriggerKey) -> Result<Option<Digest>, Fault> {
    let sql = "SELECT token FROM webhook_token WHERE project = $1 AND task = $2 AND name = $3";
    tx.first(sql, values![trigger.project, trigger.task, trigger.name], rows::column).await
}

/// Somebody calls a webhook.
pub(super) async fn call(db: Unlocked, call: &CallWebhook) -> Decided<RunView, CallRefused> {
    let key = &call.trigger;
    let tx = &db.lock(Locks::Call(&key.project, &key.task)).await?;
    if let Err(refused) = webhook::authenticate(token(tx, key).await?, call.token) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let submission =
        Submission { project: &key.project, task: Some(&key.task), scheduled: None, revision: &call.revision };
    // A key is that of this webhook alone, and so nobody else can make a run with it meanwhile.
    let before = match &call.idempotency_key {
        Some(keyed) => admit::of_key(tx, &key.project, &keyed.key).await?,
        None => None,
    };
    let known = before.map_or(call.run, |before| before.run);
    lock::one_run(tx, known).await?;
    if let Some(run) = load::run(tx, known).await? {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(&run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(CallRefused::KeyReused));
        }
        return Ok(Outcome::Replayed(queries::view(tx, run.id).await?));
    }
    let Some(task) = tasks::one(tx, &key.project, &key.task).await?.and_then(Task::living) else {
        return Ok(Outcome::Refused(NotCalled::Unauthenticated.into()));
    };
    let Some(kept) = triggers::of_task(tx, &task).await?.into_iter().find(|kept| kept.key == *key) else {
        return Ok(Outcome::Refused(NotCalled::Unauthenticated.into()));
    };
    let trigger = call.revision.triggers().iter().find(|trigger| trigger.name == key.name);
    let Some(trigger) = trigger.filter(|_| task.number == call.of) else {
        return Ok(Outcome::Refused(CallRefused::TaskMoved));
    };
    if let Err(refused) = webhook::call(&kept, trigger.overlap, &triggers::blocking(tx, key).await?) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let change = admission::call(submission, &key.name, call.run, call.attempt, &call.actor, tx.now);
    let (Some(run), Some(attempt)) = (&change.run, &change.attempt) else {
        return Err(Fault::Damaged(format!("run {} was admitted without an attempt", call.run)));
    };
    admit::insert(tx, &change, &call.revision).await?;
    admit::insert_key(tx, &key.project, call.idempotency_key.as_ref(), call.run).await?;
    let facts: [(&str, &(dyn std::fmt::Display + Sync)); 2] = [("project", &key.project), ("revision", &run.revision)];
    audit::write(tx, &call.actor, "call_webhook", format!("run/{}", call.run), &facts).await?;
    let (run, attempts, revision) = (run.clone(), vec![attempt.clone()], call.revision.clone());
    Ok(Outcome::Applied(RunView { run, attempts, revision, logs: BTreeMap::new() }))
}
