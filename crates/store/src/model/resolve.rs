//! A person's word on a lost run.

use leasehold_core::resolve::{self, Resolve};

use super::Transaction;
use crate::call::ResolveRun;
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::RunView;

pub(super) fn resolve(tx: &mut Transaction<'_>, call: &ResolveRun) -> Stored<(Resolve, RunView), Unmet> {
    let Some(run) = tx.state.runs.get(&call.run) else {
        return Ok(Outcome::Refused(Unmet::NotFound("run")));
    };
    let number = call.attempt.unwrap_or(run.latest);
    let named = tx.state.attempts_of.get(&(run.id, number)).and_then(|id| tx.state.attempts.get(id));
    let Some(named) = named else {
        return Ok(Outcome::Refused(Unmet::NotFound("attempt")));
    };
    let (answer, change) = match resolve::resolve(run, named, &call.actor, call.verb, call.why.as_deref(), tx.now) {
        Ok(decided) => decided,
        Err(refused) => return Ok(Outcome::Refused(refused.into())),
    };
    if !tx.apply(change)? {
        return Ok(Outcome::Replayed((answer, tx.written(call.run)?)));
    }
    let facts = [("verb", call.verb.to_string()), ("attempt", number.to_string())];
    let why = call.why.clone().map(|why| ("why", why));
    tx.record(&call.actor, "resolve_run", format_args!("run/{}", call.run), facts.into_iter().chain(why));
    Ok(Outcome::Applied((answer, tx.written(call.run)?)))
}
