//! A person's wish that a run stop.

use leasehold_core::cancel::{self, Cancel};

use super::Transaction;
use crate::call::CancelRun;
use crate::outcome::{Outcome, Stored};
use crate::port::Unmet;
use crate::view::RunView;

pub(super) fn cancel(tx: &mut Transaction<'_>, call: &CancelRun) -> Stored<(Cancel, RunView), Unmet> {
    let Some(run) = tx.state.runs.get(&call.run) else {
        return Ok(Outcome::Refused(Unmet::NotFound("run")));
    };
    let (answer, change) = match cancel::cancel(run, tx.latest(run)?, &call.actor, call.why.as_deref(), tx.now) {
        Ok(decided) => decided,
        Err(refused) => return Ok(Outcome::Refused(refused.into())),
    };
    if !tx.apply(change)? {
        return Ok(Outcome::Replayed((answer, tx.written(call.run)?)));
    }
    let why = call.why.clone().map(|why| ("why", why));
    tx.record(&call.actor, "cancel_run", format_args!("run/{}", call.run), why);
    Ok(Outcome::Applied((answer, tx.written(call.run)?)))
}
