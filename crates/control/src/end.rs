//! An attempt ends: the worker's word, under its lease or after it. Decided by [`leasehold_core::end::end`].

use leasehold_core::attempt::{Callback, Left, LogPin, RunningCall, Usage};
use leasehold_core::crypto::Digest;
use leasehold_core::end::{EndCall, Ended, Ending};
use leasehold_core::lease::LeaseFence;

use crate::error::{WorkerResult, settle};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::{SessionRef, WorkerPrincipal};

/// An `end` as it arrived, the session and the worker aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The proof of having held the lease.
    pub lease: LeaseFence,
    /// What it says.
    pub ending: Ending,
    /// Which launch says it.
    pub callback: Option<Callback>,
    /// What `running` would have carried, when it was never acknowledged.
    pub running: Option<RunningCall>,
    /// The log's length and digest.
    pub log: Option<LogPin>,
    /// What it used up.
    pub usage: Option<Usage>,
    /// What the kernel would not let go when the launcher stopped it.
    pub left: Option<Left>,
    /// Digest of the body, to tell repeats apart.
    pub body: Digest,
}

impl ControlPlane {
    /// The attempt ended. The answer settles the worker's record, whether or not this call changed anything.
    pub async fn end(&self, worker: &WorkerPrincipal, session: SessionRef, end: End) -> WorkerResult<Ended> {
        let End { lease, ending, callback, running, log, usage, left, body } = end;
        let attempt = lease.attempt;
        let call = EndCall { session: worker.fence(session), lease, ending, callback, running, log, usage, left, body };
        let ended = settle(self.store().end(call).await)?;
        self.hints().changed(&Topic::Attempt(attempt));
        self.slot_is_free(worker);
        // It may wait for a retry now, which comes due.
        self.hints().recovery();
        // It may have succeeded, and be followed.
        self.hints().chains();
        Ok(ended)
    }
}
