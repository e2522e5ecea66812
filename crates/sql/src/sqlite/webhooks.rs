//! Webhooks: their tokens, of which only digests are kept, and the runs that calls start.

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
use super::rows;
use super::transaction::{Decided, Fault, Tx};
use super::{admit, audit, load, queries, tasks, triggers};

/// A webhook has this token from now on, and no other.
pub(super) fn make_token(tx: &Tx<'_>, call: &MakeWebhookToken) -> Decided<TokenMade, Unmet> {
    let key = &call.trigger;
    let Some(task) = tasks::one(tx, &key.project, &key.task)?.and_then(Task::living) else {
        return Ok(Outcome::Refused(Unmet::NotFound("task")));
    };
    if !triggers::of_task(tx, &task)?.iter().any(|kept| kept.key == *key && kept.kind == Kind::Webhook) {
        return Ok(Outcome::Refused(Unmet::NotFound("webhook")));
    }
    let sql = "SELECT token, made_by, made_at FROM webhook_token WHERE project = ?1 AND task = ?2 AND name = ?3";
    let before = tx.first(sql, values![key.project, key.task, key.name], |columns| {
        Ok((columns.next()?, TokenMade { by: columns.next()?, at: columns.next()? }))
    })?;
    let replaced = before.is_some();
    if let Some((_, made)) = before.filter(|(digest, _): &(Digest, _)| *digest == call.token) {
        return Ok(Outcome::Replayed(made));
    }
    let made = TokenMade { by: call.actor.to_string(), at: tx.now.utc };
    tx.execute_one(
        "token of a webhook",
        "INSERT INTO webhook_token (project, task, name, token, made_by, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (project, task, name) DO UPDATE SET token = excluded.token, made_by = excluded.made_by, \
         made_at = excluded.made_at",
        values![key.project, key.task, key.name, call.token, made.by, made.at],
    )?;
    let subject = format!("trigger/{}/{}/{}", key.project, key.task, key.name);
    audit::write(tx, &call.actor, "make_webhook_token", subject, &[("replaced", &replaced)])?;
    Ok(Outcome::Applied(made))
}

/// The digest of a webhook's token.
pub(super) fn token(tx: &Tx<'_>, trigger: &TriggerKey) -> Result<Option<Digest>, Fault> {
    let sql = "SELECT token FROM webhook_token WHERE project = ?1 AND task = ?2 AND name = ?3";
    tx.first(sql, values![trigger.project, trigger.task, trigger.name], rows::column)
}

/// Somebody calls a webhook.
pub(super) fn call(tx: &Tx<'_>, call: &CallWebhook) -> Decided<RunView, CallRefused> {
    let key = &call.trigger;
    if let Err(refused) = webhook::authenticate(token(tx, key)?, call.token) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let submission =
        Submission { project: &key.project, task: Some(&key.task), scheduled: None, revision: &call.revision };
    let before = match &call.idempotency_key {
        Some(keyed) => admit::of_key(tx, &key.project, &keyed.key)?,
        None => None,
    };
    if let Some(run) = load::run(tx, before.map_or(call.run, |before| before.run))? {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(&run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(CallRefused::KeyReused));
        }
        return Ok(Outcome::Replayed(queries::view(tx, run.id)?));
    }
    let Some(task) = tasks::one(tx, &key.project, &key.task)?.and_then(Task::living) else {
        return Ok(Outcome::Refused(NotCalled::Unauthenticated.into()));
    };
    let Some(kept) = triggers::of_task(tx, &task)?.into_iter().find(|kept| kept.key == *key) else {
        return Ok(Outcome::Refused(NotCalled::Unauthenticated.into()));
    };
    let trigger = call.revision.triggers().iter().find(|trigger| trigger.name == key.name);
    let Some(trigger) = trigger.filter(|_| task.number == call.of) else {
        return Ok(Outcome::Refused(CallRefused::TaskMoved));
    };
    if let Err(refused) = webhook::call(&kept, trigger.overlap, &triggers::blocking(tx, key)?) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let change = admission::call(submission, &key.name, call.run, call.attempt, &call.actor, tx.now);
    admit::insert(tx, &change, &call.revision)?;
    if let Some(keyed) = &call.idempotency_key {
        admit::insert_key(tx, &key.project, keyed, call.run)?;
    }
    let facts: [(&str, &dyn std::fmt::Display); 2] = [("project", &key.project), ("revision", &call.revision.digest())];
    audit::write(tx, &call.actor, "call_webhook", format_args!("run/{}", call.run), &facts)?;
    Ok(Outcome::Applied(queries::view(tx, call.run)?))
}
