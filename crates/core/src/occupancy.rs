//! Which attempts hold their places: one predicate for limits, overlap, mutex and devices.
//!
//! A place is free again when nothing can be using it. Never counted in a counter that could drift. (Control design,
//! *Placement*.)

use crate::attempt::{Attempt, AttemptState};
use crate::run::{Policy, Run, RunState};

/// Whether `attempt` of `run` holds its places: a worker holds it; or its run's question is open and its task wants no
/// second beside it (`mutex`); or something of it may still live, whatever became of the run.
pub fn occupies(run: &Run, attempt: &Attempt, policy: &Policy) -> bool {
    let in_question =
        run.state == RunState::Lost && attempt.state == AttemptState::Lost && attempt.number == run.latest;
    attempt.state.is_live() || (in_question && policy.mutex) || attempt.may_live
}
