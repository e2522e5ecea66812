//! The log, shipped by offset while the job runs and after it ended; never waited for.
//!
//! The control plane acknowledges what is durable, a resend is a no-op, so nothing is remembered across lives: the first
//! piece from offset 0 is answered with how much is there already. (Worker design, *Logs and artifacts*.)

use leasehold_core::id::OfferId;
use leasehold_core::inbox::Stage;
use leasehold_core::limits::{BACKOFF_MAX, KIB, LOG_CHUNK};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::time::{BootInstant, Millis};

use super::backoff::Retry;
use super::port::{Answer, Call, Effect, Level, Outcome};
use super::{CALL_TIMEOUT, Engine, Owner};

/// The smallest piece: a whole frame always fits.
const LEAST: usize = 32 * KIB;
/// Pieces under way at once.
const AT_ONCE: usize = 4;
/// A settled record does not keep its place for a log that nobody takes.
const PATIENCE: Millis = Millis::from_secs(24 * 60 * 60);

/// How far a log has come.
#[derive(Debug)]
pub(super) struct Shipping {
    /// Durable at the control plane, as far as this life knows.
    durable: u64,
    /// In the file, as far as this life knows.
    available: Option<u64>,
    pinned: Option<u64>,
    /// No whole frame follows `durable` while the file is this long.
    stuck_at: Option<u64>,
    busy: bool,
    most: usize,
    /// It was shipped from the beginning once more; once is enough.
    began_anew: bool,
    given_up: bool,
    settled_at: Option<BootInstant>,
    pub(super) retry: Retry,
}

impl Default for Shipping {
    fn default() -> Self {
        Self {
            durable: 0,
            available: None,
            pinned: None,
            stuck_at: None,
            busy: false,
            most: LOG_CHUNK,
            began_anew: false,
            given_up: false,
            settled_at: None,
            retry: Retry::default(),
        }
    }
}

impl Shipping {
    pub(super) fn grew(&mut self, length: u64) {
        if self.available.is_none_or(|known| known < length) {
            self.available = Some(length);
        }
    }

    pub(super) fn pinned(&mut self, length: Option<u64>) {
        self.pinned = length;
        if let Some(length) = length {
            self.grew(length);
        }
    }

    pub(super) fn settled(&mut self, now: BootInstant) {
        if self.settled_at.is_none() {
            self.settled_at = Some(now);
            self.retry.reset();
        }
    }

    pub(super) fn wants_a_look(&self) -> bool {
        self.available.is_none()
    }

    /// Nothing may be missing any more, or nobody takes it.
    pub(super) fn is_over(&self, now: BootInstant) -> bool {
        let end = self.pinned.or(self.available).unwrap_or(0);
        let complete = self.durable >= end || self.stuck_at.is_some_and(|at| at >= end);
        let out_of_patience = self.settled_at.is_some_and(|at| now.since(at) > PATIENCE);
        !self.busy && (complete || self.given_up || out_of_patience)
    }

    /// Whether a leaving worker may leave it to its next start.
    pub(super) fn is_failing(&self) -> bool {
        !self.busy && self.retry.failures >= 3
    }

    pub(super) fn forget_call(&mut self) {
        self.busy = false;
    }

    fn wants(&self) -> bool {
        // What stands behind the pinned end is no part of the log.
        let end = self.available.map(|available| self.pinned.map_or(available, |pinned| available.min(pinned)));
        let more = end.is_some_and(|end| end > self.durable) && self.stuck_at != self.available;
        more && !self.busy && !self.given_up
    }
}

impl Engine {
    pub(super) fn advance_log(&mut self, offer: OfferId) {
        if self.exited || !self.can_call() {
            return;
        }
        let under_way = self.records.values().filter(|held| held.log.busy).count();
        let Some(held) = self.records.get(&offer) else { return };
        // Before `running` the control plane has no attempt that could have written anything.
        let early = matches!(
            held.record.stage,
            Stage::Accepted | Stage::StartingAcknowledged | Stage::Launching { .. } | Stage::Started { .. }
        );
        if early || !held.log.wants() || !held.log.retry.is_due(self.now.boot) || under_way >= AT_ONCE {
            return;
        }
        let (lease, offset, most) = (held.lease_proof(), held.log.durable, held.log.most);
        let Some(session) = self.live.as_ref().map(|live| live.numbers) else { return };
        let op = self.op(Owner::Log(offer));
        if let Some(held) = self.records.get_mut(&offer) {
            held.log.busy = true;
        }
        self.emit(Effect::Call { op, call: Call::Log { session, lease, offset, most }, timeout: CALL_TIMEOUT });
    }

    pub(super) fn log_answered(&mut self, offer: OfferId, outcome: Outcome) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        held.log.busy = false;
        match outcome {
            Outcome::Answered(Answer::Log { durable }) => {
                held.log.retry.reset();
                // Grown again step by step: whoever refused a large piece refuses the next one, too.
                held.log.most = (held.log.most + LEAST).min(LOG_CHUNK);
                held.log.stuck_at = (durable <= held.log.durable).then_some(held.log.available).flatten();
                held.log.durable = durable.max(held.log.durable);
            }
            Outcome::Refused(refusal) => match refusal.code {
                RefusalCode::LimitExceeded if held.log.most > LEAST => held.log.most = (held.log.most / 2).max(LEAST),
                // Fewer bytes are durable than was said, as after a backup was put back: asked from the beginning.
                RefusalCode::InvalidRequest if held.log.durable > 0 && !held.log.began_anew => {
                    held.log.began_anew = true;
                    held.log.durable = 0;
                    held.log.retry.failed(now, Millis::from_secs(1), BACKOFF_MAX, &*self.entropy);
                }
                RefusalCode::LimitExceeded
                | RefusalCode::Overloaded
                | RefusalCode::RateLimited
                | RefusalCode::Unauthenticated => {
                    let least = refusal.retry_after.unwrap_or(Millis::ZERO);
                    // Sooner than other calls: a log that waits costs nobody but its reader.
                    held.log.retry.failed(now, least, BACKOFF_MAX.part(4), &*self.entropy);
                }
                code => {
                    if self.refused_session(code, &refusal.message) {
                        return;
                    }
                    let Some(held) = self.records.get_mut(&offer) else { return };
                    if held.log.settled_at.is_none() {
                        // The end, once it is answered, pins the log and opens it again.
                        held.log.retry.failed(now, Millis::from_secs(2), BACKOFF_MAX, &*self.entropy);
                        return;
                    }
                    held.log.given_up = true;
                    self.report(Level::Warning, Some(attempt), format!("its log is given up: {refusal}"));
                }
            },
            _ => held.log.retry.failed(now, Millis::ZERO, BACKOFF_MAX.part(12), &*self.entropy),
        }
    }
}
