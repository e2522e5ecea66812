//! May this piece of a log be stored: under the lease, and after the end up to the length that the end pinned.
//!
//! A log only grows, byte by byte in order: a piece that is there already changes nothing, a gap and other bytes in
//! the same place are refused. (Protocol, *Attempts*, `logs`; control design, *Logs*.)

use crate::attempt::Held;
use crate::lease::{LeaseFence, check_active, check_holder};
use crate::limits;
use crate::refusal::{Refusal, RefusalCode};
use crate::time::Now;

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
