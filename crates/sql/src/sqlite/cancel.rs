//! A person's wish that a run stop.

use leasehold_core::cancel::{self, Cancel};
use leasehold_store::call::CancelRun;
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::RunView;

use super::apply::{Loaded, apply};
use super::transaction::{Decided, Tx};
use super::{audit, load, queries};

/// Stores the wish, or ends what has not started.
pub(super) fn cancel(tx: &Tx<'_>, call: &CancelRun) -> Decided<(Cancel, RunView), Unmet> {
    let Some(run) = load::run(tx, call.run)? else {
        return Ok(Outcome::Refused(Unmet::NotFound("run")));
    };
    let attempt = load::latest_attempt(tx, &run)?;
    let (verdict, change) = match cancel::cancel(&run, &attempt, &call.actor, call.why.as_deref(), tx.now) {
        Ok(decided) => decided,
        Err(refused) => return Ok(Outcome::Refused(refused.into())),
    };
    apply(tx, &Loaded::of(&run, &[&attempt]), &change)?;
    let changed = !change.is_empty();
    if changed {
        let state = change.run.as_ref().map_or(run.state, |run| run.state);
        let mut facts: Vec<(&str, &dyn std::fmt::Display)> = vec![("state", &state)];
        if let Some(why) = &call.why {
            facts.push(("why", why));
        }
        audit::write(tx, &call.actor, "cancel_run", format_args!("run/{}", run.id), &facts)?;
    }
    let answer = (verdict, queries::view(tx, run.id)?);
    Ok(if changed { Outcome::Applied(answer) } else { Outcome::Replayed(answer) })
}
