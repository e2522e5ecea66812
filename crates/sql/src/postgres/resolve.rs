//! A person's word on a lost run.

use leasehold_core::resolve::{self, Resolve};
use leasehold_store::call::ResolveRun;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::RunView;

use super::apply::{Loaded, apply};
use super::lock::Locks;
use super::transaction::{Decided, Unlocked};
use super::{audit, load, queries};

/// Notes the word, or closes the question by it.
pub(super) async fn resolve(db: Unlocked, call: &ResolveRun) -> Decided<(Resolve, RunView), Unmet> {
    let tx = &db.lock(Locks::run(call.run)).await?;
    let Some(run) = load::run(tx, call.run).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("run")));
    };
    let number = call.attempt.unwrap_or(run.latest);
    let Some(named) = load::attempt_numbered(tx, run.id, number).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("attempt")));
    };
    let (verdict, change) = match resolve::resolve(&run, &named, &call.actor, call.verb, call.why.as_deref(), tx.now) {
        Ok(decided) => decided,
        Err(refused) => return Ok(Outcome::Refused(refused.into())),
    };
    apply(tx, &Loaded::of(&run, &[&named]), &change).await?;
    if change.is_empty() {
        return Ok(Outcome::Replayed((verdict, queries::view(tx, run.id).await?)));
    }
    let mut facts: Vec<(&str, &(dyn std::fmt::Display + Sync))> = vec![("verb", &call.verb), ("attempt", &number)];
    if let Some(why) = &call.why {
        facts.push(("why", why));
    }
    audit::write(tx, &call.actor, "resolve_run", format!("run/{}", run.id), &facts).await?;
    Ok(Outcome::Applied((verdict, queries::view(tx, run.id).await?)))
}
