//! Webhooks: their tokens, and the runs that calls start.

use leasehold_core::admission::{self, Submission};
use leasehold_core::crypto::Digest;
use leasehold_core::trigger::webhook::{self, KeptToken, NotCalled, TokenMade};
use leasehold_core::trigger::{Kind, TriggerKey};

use super::{Transaction, admit, tasks, triggers};
use crate::call::Keyed;
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::{KeyedRun, RunView};
use crate::webhook::{CallRefused, CallWebhook, MakeWebhookToken};

pub(super) fn make_token(tx: &mut Transaction<'_>, call: &MakeWebhookToken) -> Outcome<TokenMade, Unmet> {
    let key = &call.trigger;
    if tasks::living(tx, &key.project, &key.task).is_none() {
        return Outcome::Refused(Unmet::NotFound("task"));
    }
    if tx.state.triggers.get(key).is_none_or(|kept| kept.kind != Kind::Webhook) {
        return Outcome::Refused(Unmet::NotFound("webhook"));
    }
    let before = tx.state.webhook_tokens.get(key);
    if let Some(before) = before.filter(|before| before.digest == call.token) {
        return Outcome::Replayed(before.made.clone());
    }
    let facts = [("replaced", before.is_some().to_string())];
    let made = TokenMade { by: call.actor.to_string(), at: tx.now.utc };
    tx.state.webhook_tokens.insert(key.clone(), KeptToken { digest: call.token, made: made.clone() });
    let TriggerKey { project, task, name } = key;
    tx.record(&call.actor, "make_webhook_token", format_args!("trigger/{project}/{task}/{name}"), facts);
    Outcome::Applied(made)
}

/// The digest of a webhook's token.
pub(super) fn token(tx: &Transaction<'_>, trigger: &TriggerKey) -> Option<Digest> {
    tx.state.webhook_tokens.get(trigger).map(|kept| kept.digest)
}

pub(super) fn call(tx: &mut Transaction<'_>, call: &CallWebhook) -> Stored<RunView, CallRefused> {
    let key = &call.trigger;
    if let Err(refused) = webhook::authenticate(token(tx, key), call.token) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let submission =
        Submission { project: &key.project, task: Some(&key.task), scheduled: None, revision: &call.revision };
    let before = call.idempotency_key.as_ref().and_then(|keyed| admit::of_key(tx, &key.project, &keyed.key));
    if let Some(run) = tx.state.runs.get(&before.map_or(call.run, |before| before.run)) {
        let asked = call.idempotency_key.as_ref().map(|keyed| keyed.asked);
        if !admission::repeats(run, submission, before.and_then(|before| before.asked), asked) {
            return Ok(Outcome::Refused(CallRefused::KeyReused));
        }
        return tx.written(run.id).map(Outcome::Replayed);
    }
    let (Some(task), Some(kept)) = (tasks::living(tx, &key.project, &key.task), tx.state.triggers.get(key)) else {
        return Ok(Outcome::Refused(NotCalled::Unauthenticated.into()));
    };
    if task.number != call.of {
        return Ok(Outcome::Refused(CallRefused::TaskMoved));
    }
    let Some(trigger) = call.revision.triggers().iter().find(|trigger| trigger.name == key.name) else {
        return Ok(Outcome::Refused(CallRefused::TaskMoved));
    };
    if let Err(refused) = webhook::call(kept, trigger.overlap, &triggers::blocking(tx, key)?) {
        return Ok(Outcome::Refused(refused.into()));
    }
    let change = admission::call(submission, &key.name, call.run, call.attempt, &call.actor, tx.now);
    let digest = call.revision.digest();
    tx.apply(change)?;
    tx.state.revisions.insert(*digest.as_bytes(), call.revision.clone());
    if let Some(Keyed { key: asked_with, asked }) = call.idempotency_key.clone() {
        let made = KeyedRun { run: call.run, asked: Some(asked) };
        tx.state.idempotency_keys.insert((key.project.clone(), asked_with), made);
    }
    let facts = [("project", key.project.to_string()), ("revision", digest.to_string())];
    tx.record(&call.actor, "call_webhook", format_args!("run/{}", call.run), facts);
    tx.written(call.run).map(Outcome::Applied)
}
