//! The end: reported until it is answered, then settled, then cleaned up.
//!
//! Every answer settles the record. A refusal that the lease's own end will turn into an answer is waited out; one that
//! says the lease never was ours closes the record. Then: log shipped or given up, directory, record. (Protocol,
//! *`end`*; worker design, *Inbox*; model findings, *Easy to build wrong*.)

use leasehold_core::attempt::AttemptState;
use leasehold_core::end::Ending;
use leasehold_core::id::OfferId;
use leasehold_core::inbox::{ClosedReason, Stage};
use leasehold_core::limits::LOST_GRACE;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Millis;

use super::Engine;
use super::held::{Doing, Known};
use super::port::{End, Level};
use super::processor::closed;

impl Engine {
    /// Reports how it ended.
    pub(super) fn submit(&mut self, offer: OfferId) {
        if !self.can_call() {
            return;
        }
        let Some(held) = self.records.get_mut(&offer) else { return };
        let end = match &held.known {
            Known::Ended(end) => end.clone(),
            Known::NotStarted { reason, detail } => {
                let ending = match reason {
                    Some(reason) => Ending::Rejected { reason: *reason, detail: detail.clone() },
                    None => Ending::NeverSpawned,
                };
                let callback = held.record.stage.callback().zip(held.token.clone());
                // Only the launcher's own word carries the token.
                let callback = callback.filter(|_| reason.is_some());
                Box::new(End { ending, callback, running: None, log: None, usage: None, left: None })
            }
            _ => return,
        };
        self.begin(offer, Doing::End(end));
    }

    /// The end was accepted, or had been.
    pub(super) fn ended(&mut self, offer: OfferId, end: End) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.retry.reset();
        if held.record.state().is_settled() {
            return held.remainder.reported();
        }
        let stage = match (&held.record.stage, &end.ending) {
            (Stage::StartFailed { .. }, _) => Stage::StartFailureAcknowledged,
            (_, Ending::Lost { evidence }) => {
                Stage::Closed { reason: ClosedReason::Lost, released: None, evidence: Some(*evidence) }
            }
            _ => Stage::CompletionAcknowledged,
        };
        // Kept until the settled stage is durable: a write that fails is simply answered again.
        held.known = Known::Ended(Box::new(end));
        self.write(offer, stage);
    }

    pub(super) fn end_refused(&mut self, offer: OfferId, end: End, refusal: &Refusal) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        if held.record.state().is_settled() {
            // Nobody wants to know any more.
            return held.remainder.reported();
        }
        held.known = Known::Ended(Box::new(end));
        match (refusal.code, &refusal.lease) {
            (RefusalCode::LeaseFenced | RefusalCode::LeaseExpired, None) => {
                let text = format!("the control plane does not know this lease: {}", refusal.message);
                self.report(Level::Fault, Some(attempt), text);
                self.write(offer, closed(ClosedReason::Gone));
            }
            (RefusalCode::LeaseFenced | RefusalCode::LeaseExpired, Some(lease)) => {
                let started = matches!(lease.attempt_state, AttemptState::Starting | AttemptState::Running);
                if lease.remaining == Millis::ZERO && !started && !lease.attempt_state.is_terminal() {
                    // Claimed anew by somebody, or waiting to be: this lease is over and nothing of it counts.
                    return self.write(offer, closed(ClosedReason::LeaseLost));
                }
                // Kept as evidence. When the lease has run out the same end is answered.
                let wait = lease.remaining.plus(LOST_GRACE);
                let text = format!("the end is asked again in {}s: {}", wait.get() / 1000, refusal.message);
                held.lease.lost = true;
                held.retry.wait_until(now.plus(wait));
                self.report(Level::Warning, Some(attempt), text);
            }
            _ => self.record_refused(offer, refusal),
        }
    }

    /// A settled record goes: log, directory, record.
    pub(super) fn clean_up(&mut self, offer: OfferId) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.looked();
        held.log.settled(now);
        if held.log.wants_a_look() {
            // Settled by an earlier life: how long its log is stands on disk.
            return self.begin(offer, Doing::Observe);
        }
        if !held.log.is_over(now) || self.sees_off(offer) {
            return;
        }
        let Some(held) = self.records.get_mut(&offer) else { return };
        if !held.directory_removed && held.may_have_directory() {
            return self.begin(offer, Doing::RemoveDirectory);
        }
        if !self.asks.names(offer) {
            self.begin(offer, Doing::RemoveRecord);
        }
    }
}
