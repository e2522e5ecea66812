//! What the kernel did not let go of when a job was stopped: said while it lasts, and once more when it is gone.
//!
//! While the job's own process is among it the attempt goes on, and so does its lease. Once that has ended, the end
//! names what is left, the record settles and holds no slot; it and the attempt's directory stay until the launcher
//! says that nothing is left, or is gone itself. (Worker design, *Launcher*, *Stop*.)

use leasehold_core::attempt::Left;
use leasehold_core::id::OfferId;
use leasehold_core::time::Millis;
use leasehold_core::verdict::LockFact;

use super::Engine;
use super::held::Doing;
use super::port::{End, Found, Level};

/// Between two looks at what is left.
const LOOK: Millis = Millis::from_secs(30);

/// What is known of the processes that outlived their job.
#[derive(Debug, Default)]
pub(super) enum Remainder {
    /// None did, as far as anybody said.
    #[default]
    None,
    /// Their launcher waits for them.
    Awaited,
    /// They are gone; the end is to be sent without them.
    Gone(Box<End>),
    /// That is known where it has to be, or nobody will say it any more.
    Closed,
}

impl Remainder {
    /// From what is on disk. The control plane checks the token; a record that has settled keeps no digest of it.
    pub(super) fn learn(&mut self, found: &Found) {
        if matches!(self, Self::Closed) {
            return;
        }
        *self = match &found.receipt {
            Some(receipt) if receipt.left_gone => Self::Gone(Box::new(End {
                ending: receipt.ending.clone(),
                callback: Some((receipt.callback, receipt.token.clone())),
                running: None,
                log: receipt.log,
                usage: receipt.usage,
                left: None,
            })),
            Some(receipt) if receipt.left.is_some() && found.lock == LockFact::Held => Self::Awaited,
            Some(receipt) if receipt.left.is_some() => Self::Closed,
            _ => Self::None,
        };
    }

    pub(super) fn reported(&mut self) {
        *self = Self::Closed;
    }

    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited)
    }
}

impl Engine {
    /// What a launcher cannot kill has changed.
    pub(super) fn left(&mut self, offer: OfferId, left: Option<Left>) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        if held.left == left {
            return;
        }
        // How many they are goes with the next beat; that there are any, or none any more, at once.
        if held.left.is_some() != left.is_some() && held.renews(&self.config.boot) {
            self.beat.tell();
        }
        held.left.clone_from(&left);
        let attempt = held.record.attempt();
        if let Some(Left { count, pids }) = left {
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            let text = format!("the kernel does not let go of {count} of its processes: {}", pids.join(" "));
            self.report(Level::Fault, Some(attempt), text);
        }
    }

    /// Whether a settled record still waits for what is left of its job, or says that it is gone.
    pub(super) fn sees_off(&mut self, offer: OfferId) -> bool {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return false };
        match &held.remainder {
            Remainder::None | Remainder::Closed => false,
            Remainder::Awaited => {
                held.retry.wait_until(now.plus(LOOK));
                self.begin(offer, Doing::Observe);
                true
            }
            Remainder::Gone(end) => {
                let end = end.clone();
                if self.can_call() {
                    self.begin(offer, Doing::End(end));
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::attempt::{Callback, ExitStatus, StopReason};
    use leasehold_core::counter::CallbackSequence;
    use leasehold_core::crypto::CompletionToken;
    use leasehold_core::end::Ending;
    use leasehold_core::time::UtcMillis;
    use leasehold_core::verdict::BarrierFact;

    use super::*;
    use crate::engine::port::Receipt;

    fn found(lock: LockFact, left: bool, left_gone: bool) -> Found {
        let token = CompletionToken::from_bytes([7; 32]);
        let (reason, status) = (StopReason::Cancel, ExitStatus::Signal(9));
        let receipt = Receipt {
            ending: Ending::Stopped { reason, status, at: UtcMillis::new(1) },
            callback: Callback { sequence: CallbackSequence::FIRST, token: token.digest() },
            token,
            log: None,
            usage: None,
            left: left.then(|| Left { count: 1, pids: vec![7] }),
            left_gone,
        };
        let barrier = BarrierFact::Child;
        Found { directory: true, barrier, handle: None, receipt: Some(receipt), lock, log: 0 }
    }

    #[test]
    fn what_is_left_is_waited_for_as_long_as_somebody_can_say_that_it_went() {
        let mut remainder = Remainder::default();
        remainder.learn(&found(LockFact::Held, false, false));
        assert!(matches!(remainder, Remainder::None), "a launcher that is just about to go has left nothing");
        remainder.learn(&found(LockFact::Held, true, false));
        assert!(remainder.is_awaited());
        remainder.learn(&found(LockFact::Held, false, true));
        let Remainder::Gone(end) = &remainder else { panic!("{remainder:?}") };
        assert!(end.left.is_none() && end.callback.is_some(), "the launcher's word, without what was left");
        remainder.reported();
        remainder.learn(&found(LockFact::Free, false, true));
        assert!(matches!(remainder, Remainder::Closed), "said once");
    }

    #[test]
    fn nobody_says_it_for_a_launcher_that_is_gone() {
        let mut remainder = Remainder::Awaited;
        remainder.learn(&found(LockFact::Free, true, false));
        assert!(matches!(remainder, Remainder::Closed));
    }

    #[test]
    fn a_later_life_finds_what_went_meanwhile() {
        let mut remainder = Remainder::default();
        remainder.learn(&found(LockFact::Free, false, true));
        assert!(matches!(remainder, Remainder::Gone(_)));
    }
}
