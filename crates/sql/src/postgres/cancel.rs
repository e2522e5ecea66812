//! A person's wish that a run stop.

use leasehold_core::cancel::{self, Cancel};
use leasehold_store::call::CancelRun;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::RunView;

use super::apply::{Loaded, apply};
use super::lock::Locks;
use super::transaction::{Decided, Unlocked};
use super::{audit, load, queries};

/// Stores the wish, or ends what has not started.
pub(super) async fn cancel(db: Unlocked, call: &CancelRun) -> Decided<(Cancel, RunView), Unmet> {
    let tx = &db.lock(Locks::run(call.run)).await?;
    let Some(run) = load::run(tx, call.run).await? else {
        return Ok(Outcome::Refused(Unmet::NotFound("run")));
    };
    let attempt = load::latest_attempt(tx, &run).await?;
    let (verdict, change) = match cancel::cancel(&run, &attempt, &call.actor, call.why.as_deref(), tx.now) {
        Ok(decided) => decided,
        Err(refused) => return Ok(Outcome::Refused(refused.into())),
    };
    apply(tx, &Loaded::of(&run, &[&attempt]), &change).await?;
    let changed = !change.is_empty();
    if changed {
        let state = change.run.as_ref().map_or(run.state, |run| run.state);
        let mut facts: Vec<(&str, &(dyn std::fmt::Display + Sync))> = vec![("state", &state)];
        if let Some(why) = &call.why {
            facts.push(("why", why));
        }
        audit::write(tx, &call.actor, "cancel_run", format!("run/{}", run.id), &facts).await?;
    }
    let answer = (verdict, queries::view(tx, run.id).await?);
    Ok(if changed { Outcome::Applied(answer) } else { Outcome::Replayed(answer) })
}
