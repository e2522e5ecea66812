//! May this piece of a log be stored: under the lease, and after the end up to the length that the end pinned; and
//! whether what is stored is the whole log.
//!
//! A log only grows, byte by byte in order: a piece that is there already changes nothing, a gap and other bytes in
//! the same place are refused. The end pins length and digest and never waits for bytes, so a log may be completed
//! later, also after `lost`. (Protocol, *Attempts*, `logs`; worker design, *Logs and artifacts*; control design, *Logs*.)

use crate::attempt::{Attempt, Held};
use crate::claim::nothing_ran;
use crate::frame::CutReason;
use crate::lease::{LeaseFence, check_active, check_holder};
use crate::limits;
use crate::refusal::{Refusal, RefusalCode};
use crate::time::Now;

names! {
    /// Whether a log is whole.
    pub enum LogState as "state of a log" {
        /// The attempt has not ended: more may come.
        Open = "open",
        /// All that the process wrote is here, or the place is marked where the quota cut it.
        Complete = "complete",
        /// Bytes that the end pinned are still at the worker; they may come later.
        Partial = "partial",
        /// Something that the process wrote will never be here.
        Incomplete = "incomplete",
    }
}

names! {
    /// Why a log will never be whole.
    pub enum IncompleteReason as "reason of an incomplete log" {
        /// The worker's disk was full.
        DiskFull = "disk_full",
        /// The worker's disk refused a write.
        WriteFailed = "write_failed",
        /// Its launcher died: what it had not written yet is gone.
        LauncherDied = "launcher_died",
        /// Nobody said how long it is.
        EndUnknown = "end_unknown",
    }
}

/// The state of the log of `attempt`, of which `received` framed bytes are stored; with the reason when it is
/// incomplete.
pub fn completeness(attempt: &Attempt, received: u64) -> (LogState, Option<IncompleteReason>) {
    let incomplete = |reason| (LogState::Incomplete, Some(reason));
    if !attempt.state.is_terminal() {
        return (LogState::Open, None);
    }
    let Some(pin) = attempt.log else {
        // Nothing ran, so there was nothing to write.
        let nothing = attempt.outcome.as_ref().is_some_and(nothing_ran);
        return if nothing { (LogState::Complete, None) } else { incomplete(IncompleteReason::EndUnknown) };
    };
    if received < pin.length {
        return (LogState::Partial, None);
    }
    match pin.cut.map(|cut| cut.reason) {
        Some(CutReason::DiskFull) => incomplete(IncompleteReason::DiskFull),
        Some(CutReason::WriteFailed) => incomplete(IncompleteReason::WriteFailed),
        _ if !pin.finished => incomplete(IncompleteReason::LauncherDied),
        Some(CutReason::Quota) | None => (LogState::Complete, None),
    }
}

/// How a piece lies over what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// How many of its first bytes are stored already; they must be the same (else [`other_bytes`]).
    pub known: usize,
    /// How many of its last bytes are new.
    pub fresh: usize,
}

/// Decides an append of `length` framed bytes at `offset` to a log of which `received` bytes are stored.
pub fn append(
    held: Held<'_>,
    fence: &LeaseFence,
    offset: u64,
    length: usize,
    received: u64,
    now: Now,
) -> Result<Fit, Refusal> {
    let Held { session, attempt, lease, .. } = held;
    let lease = check_holder(lease, fence, &session.worker)?;
    if length > limits::LOG_CHUNK {
        let message = format!("{length} bytes of log in one call, at most {} are allowed", limits::LOG_CHUNK);
        return Err(Refusal::new(RefusalCode::LimitExceeded, message));
    }
    let end = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    match attempt.log.filter(|_| attempt.state.is_terminal()) {
        Some(pin) if end > pin.length => {
            let message = format!("the attempt's end said that its log has {} bytes, not {end}", pin.length);
            return Err(Refusal::new(RefusalCode::ConflictReplay, message));
        }
        Some(_) => {}
        None => {
            check_active(lease, attempt, now.lease)?;
            if !attempt.state.is_started() {
                return Err(Refusal::new(
                    RefusalCode::LeaseFenced,
                    "the attempt has not been acknowledged as starting",
                )
                .showing_lease(lease.projection(attempt, now.lease)));
            }
        }
    }
    if offset > received {
        let message = format!("the log has {received} bytes: a piece at {offset} would leave a gap");
        return Err(Refusal::new(RefusalCode::InvalidRequest, message));
    }
    let known = usize::try_from(received - offset).unwrap_or(usize::MAX).min(length);
    Ok(Fit { known, fresh: length - known })
}

/// The refusal of a piece whose known bytes differ from the stored ones.
pub fn other_bytes() -> Refusal {
    Refusal::new(RefusalCode::ConflictReplay, "other bytes are stored in this place of the log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{AttemptState, EvidenceKind, ExitStatus, LogPin, Outcome};
    use crate::counter::AttemptNumber;
    use crate::crypto::Digest;
    use crate::frame::Cut;
    use crate::time::UtcMillis;

    fn attempt(state: AttemptState, outcome: Outcome, log: Option<LogPin>) -> Attempt {
        let id = "01900000-0000-7000-8000-000000000001";
        let pending = Attempt::pending(id.parse().unwrap(), id.parse().unwrap(), AttemptNumber::FIRST);
        Attempt { state, outcome: Some(outcome), ended_at: Some(UtcMillis::new(1)), log, ..pending }
    }

    fn pin(cut: Option<CutReason>, finished: bool) -> LogPin {
        let cut = cut.map(|reason| Cut { reason, stdout: 7, stderr: 0 });
        LogPin { length: 10, digest: Digest::from_bytes([1; 32]), cut, finished }
    }

    #[test]
    fn a_log_is_what_its_end_its_cut_and_its_bytes_make_it() {
        use AttemptState::{Cancelled, Failed, Lost, Running, Succeeded};
        use LogState::{Complete, Incomplete, Open, Partial};
        let exited = || Outcome::Exited(ExitStatus::Code(0));
        let lost = || Outcome::Lost(EvidenceKind::LauncherKilledAllGone);
        let rows = [
            (Running, exited(), None, 10, Open, None),
            (Succeeded, exited(), Some(pin(None, true)), 10, Complete, None),
            (Succeeded, exited(), Some(pin(None, true)), 9, Partial, None),
            (Succeeded, exited(), Some(pin(Some(CutReason::Quota), true)), 10, Complete, None),
            (Failed, exited(), Some(pin(Some(CutReason::DiskFull), true)), 9, Partial, None),
            (
                Failed,
                exited(),
                Some(pin(Some(CutReason::DiskFull), true)),
                10,
                Incomplete,
                Some(IncompleteReason::DiskFull),
            ),
            (
                Failed,
                exited(),
                Some(pin(Some(CutReason::WriteFailed), true)),
                10,
                Incomplete,
                Some(IncompleteReason::WriteFailed),
            ),
            (Lost, lost(), Some(pin(None, false)), 3, Partial, None),
            (Lost, lost(), Some(pin(None, false)), 10, Incomplete, Some(IncompleteReason::LauncherDied)),
            (Lost, lost(), None, 10, Incomplete, Some(IncompleteReason::EndUnknown)),
            (Lost, lost(), Some(pin(None, true)), 10, Complete, None),
            (Cancelled, Outcome::NeverSpawned, None, 0, Complete, None),
            (Cancelled, Outcome::Superseded, None, 0, Complete, None),
        ];
        for (state, outcome, log, received, expected, reason) in rows {
            let attempt = attempt(state, outcome, log);
            assert_eq!(completeness(&attempt, received), (expected, reason), "{state} {log:?} {received}");
        }
    }
}
