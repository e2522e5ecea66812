//! Asks, the long poll, what is granted, and what is given back.
//!
//! An ask is durable before the first request that names it; `none` keeps it, `gone` drops it, and it leaves the file
//! once its offer is in the inbox, so an idle worker writes nothing. Never more asks than free slots. A claim that is
//! refused here is released; its ask stays until that was answered. (Protocol, *Asks and offers*; worker design,
//! *Inbox*.)

use std::collections::BTreeSet;

use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::LeaseGeneration;
use leasehold_core::crypto::LeaseToken;
use leasehold_core::deadline::lease_deadline;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::limits::{BACKOFF_MAX, PULL_ASKS, PULL_WAIT};
use leasehold_core::offer::Offer;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::time::{BootInstant, Millis};

use super::backoff::Retry;
use super::held::{Doing, Held};
use super::port::{Answer, Ask, AskAnswer, Call, Effect, HeldLease, Level, OpId, Outcome};
use super::{CALL_TIMEOUT, Engine, Owner};
use crate::inbox::record::Record;

/// An answer without work that comes sooner than this is not asked again at once.
const PACE: Millis = Millis::from_secs(1);
/// Between a write that failed and the next offer.
const DISK_PAUSE: Millis = Millis::from_secs(5);
/// A claim is not begun with less than this left of it.
const SHORT: Millis = Millis::from_secs(2);

/// `pending-claims.json`, and what is about to change in it.
#[derive(Debug)]
pub(super) struct Asks {
    durable: Vec<Ask>,
    /// Asks that are done with and still in the file.
    leaving: BTreeSet<OfferId>,
    writing: Option<Vec<Ask>>,
    pub(super) retry: Retry,
}

impl Asks {
    pub(super) fn new(durable: Vec<Ask>, leaving: BTreeSet<OfferId>) -> Self {
        Self { durable, leaving, writing: None, retry: Retry::default() }
    }

    /// Asks that must stay in the file: nothing was granted to them, or it is not durable yet.
    fn kept(&self) -> impl Iterator<Item = &Ask> {
        self.durable.iter().filter(|ask| !self.leaving.contains(&ask.offer))
    }

    /// The offer of this ask is in the inbox.
    pub(super) fn granted(&mut self, offer: OfferId) {
        self.leaving.insert(offer);
    }

    /// Whether the file may still name this offer: its record must not go first, or a restart would ask again.
    pub(super) fn names(&self, offer: OfferId) -> bool {
        self.durable.iter().any(|ask| ask.offer == offer)
    }
}

#[derive(Debug, Clone)]
struct Sent {
    op: OpId,
    at: BootInstant,
    asks: usize,
    /// It settles the asks of a worker that takes nothing new.
    last: bool,
    /// Sent after the control plane had accepted this process's own drain.
    leaving: bool,
}

/// The pull under way.
#[derive(Debug, Default)]
pub(super) struct Pull {
    sent: Option<Sent>,
    pub(super) retry: Retry,
    /// The pull that settles the asks of a draining worker was answered.
    pub(super) settled: bool,
}

/// A claim that this worker gives back without having accepted it.
#[derive(Debug)]
pub(super) struct Releasing {
    lease: HeldLease,
    reason: ReleaseReason,
    busy: bool,
    pub(super) retry: Retry,
}

impl Releasing {
    pub(super) fn forget_call(&mut self) {
        self.busy = false;
    }
}

impl Engine {
    pub(super) fn advance_pull(&mut self) {
        if self.exited || !self.can_call() {
            return;
        }
        let draining = self.takes_nothing_new();
        // A person's drain stands at the control plane before it is heard of here; the agent's own has to be told first.
        let leaving = self.shutdown.is_draining();
        let may_settle = !leaving || self.beat.drained;
        let settled = if leaving { self.pull.settled } else { self.ordered.settled };
        let free = self.free_slots().min(PULL_ASKS);
        self.write_asks(draining, free);
        if let Some(sent) = &self.pull.sent {
            // The answer of a cancelled pull is not lost: the same asks are asked again.
            let idle_slots = sent.asks == 0 && free > 0;
            let settles = sent.last && sent.leaving == leaving;
            let must_settle = draining && !settled && !settles && may_settle;
            if idle_slots || must_settle {
                let op = sent.op;
                self.owners.remove(&op);
                self.pull.sent = None;
                self.pull.retry.reset();
                self.emit(Effect::CancelCall { op });
            } else {
                return;
            }
        }
        if self.asks.writing.is_some() || !self.pull.retry.is_due(self.now.boot) {
            return;
        }
        let last = draining && !settled;
        if last && !may_settle {
            return;
        }
        let most = if last { PULL_ASKS } else { free };
        let asks: Vec<_> = self.open_asks().take(most).cloned().collect();
        let wait = if last { Millis::ZERO } else { PULL_WAIT };
        let Some(session) = self.live.as_ref().map(|live| live.numbers) else { return };
        let op = self.op(Owner::Pull);
        self.pull.sent = Some(Sent { op, at: self.now.boot, asks: asks.len(), last, leaving });
        self.emit(Effect::Call { op, call: Call::Pull { session, asks, wait }, timeout: wait.plus(CALL_TIMEOUT) });
    }

    /// Asks that nothing was granted to yet.
    fn open_asks(&self) -> impl Iterator<Item = &Ask> {
        let granted = |offer| self.records.contains_key(offer) || self.releases.contains_key(offer);
        self.asks.kept().filter(move |ask| !granted(&ask.offer))
    }

    /// Writes the asks where that is due.
    fn write_asks(&mut self, draining: bool, free: usize) {
        // Until the disk takes it, what is durable may still be asked with.
        if self.asks.writing.is_some() || !self.asks.retry.is_due(self.now.boot) {
            return;
        }
        let room = PULL_ASKS.saturating_sub(self.asks.kept().count());
        let new = if draining { 0 } else { free.saturating_sub(self.open_asks().count()).min(room) };
        // What is only leaving waits for the next new ask, or for the record it belongs to.
        let leaves = self.asks.leaving.iter().any(|offer| {
            self.asks.names(*offer) && self.records.get(offer).is_none_or(|held| held.record.state().is_settled())
        });
        if new == 0 && !leaves {
            return;
        }
        let mut asks: Vec<_> = self.asks.kept().cloned().collect();
        for _ in 0..new {
            let offer = OfferId::new(self.now.utc, &*self.entropy);
            asks.push(Ask { offer, token: LeaseToken::new(&*self.entropy) });
        }
        self.asks.writing = Some(asks.clone());
        let op = self.op(Owner::Asks);
        self.emit(Effect::WriteAsks { op, asks });
    }

    pub(super) fn asks_written(&mut self, done: bool) {
        let Some(asks) = self.asks.writing.take() else { return };
        if done {
            self.asks.retry.reset();
            self.asks.leaving.retain(|offer| asks.iter().any(|ask| ask.offer == *offer));
            self.asks.durable = asks;
        } else {
            self.asks.retry.failed(self.now.boot, Millis::from_secs(1), BACKOFF_MAX, &*self.entropy);
        }
    }

    pub(super) fn pull_answered(&mut self, outcome: Outcome) {
        let Some(sent) = self.pull.sent.take() else { return };
        let now = self.now.boot;
        match outcome {
            Outcome::Answered(Answer::Pulled { held, asks }) => {
                self.pull.retry.reset();
                let mut granted = false;
                for (offer, answer) in asks {
                    match answer {
                        AskAnswer::Granted(granting) => {
                            granted = true;
                            self.granted(offer, *granting, lease_base(&sent, held));
                        }
                        AskAnswer::None => {}
                        AskAnswer::Gone => self.asks.granted(offer),
                        AskAnswer::Drifted { attempt, generation, why } => {
                            granted = true;
                            self.report(Level::Fault, Some(attempt), why);
                            self.give_back(offer, attempt, generation, ReleaseReason::RevisionDrift);
                        }
                    }
                }
                self.pull.settled |= sent.last && sent.leaving;
                self.ordered.settled |= sent.last && !sent.leaving && self.takes_nothing_new();
                if !granted && now.since(sent.at) < PACE {
                    self.pull.retry.wait_until(sent.at.plus(PACE));
                }
            }
            Outcome::Refused(refusal) => {
                if refusal.code == RefusalCode::SessionFenced && self.shutdown.is_draining() {
                    // The offline call is what decides how this ends.
                    self.pull.settled = true;
                    return;
                }
                if !self.refused_session(refusal.code, &refusal.message) {
                    let least = refusal.retry_after.unwrap_or(Millis::new(500));
                    self.pull.retry.failed(now, least, BACKOFF_MAX, &*self.entropy);
                    self.report(Level::Warning, None, format!("the pull was refused: {refusal}"));
                }
            }
            _ => self.pull.retry.failed(now, Millis::ZERO, BACKOFF_MAX.part(12), &*self.entropy),
        }
    }

    fn granted(&mut self, asked: OfferId, offer: Offer, base: BootInstant) {
        if self.records.contains_key(&asked) || self.releases.contains_key(&asked) {
            return;
        }
        let ask = self.asks.durable.iter().find(|ask| ask.offer == asked).cloned();
        let Some(ask) = ask.filter(|ask| ask.offer == offer.offer) else {
            let text = format!("an offer {} was granted that nobody here asked for", offer.offer);
            return self.report(Level::Fault, Some(offer.attempt), text);
        };
        let Some(live) = self.live.as_ref().map(|live| live.numbers) else { return };
        let deadline = base.plus(offer.remaining);
        if let Err(reason) = self.check(&offer, deadline) {
            let text = format!("an offer of run {} is given back: {reason}", offer.run);
            self.report(Level::Info, Some(offer.attempt), text);
            self.give_back(asked, offer.attempt, offer.lease_generation, reason);
            return;
        }
        let boot = self.config.boot.clone();
        let record = Record::accepted(offer, ask.token, live.session, live.generation, boot, self.now.utc);
        self.records.insert(asked, Held::delivered(record, deadline));
        self.begin(asked, Doing::Publish);
    }

    pub(super) fn give_back(
        &mut self,
        asked: OfferId,
        attempt: AttemptId,
        generation: LeaseGeneration,
        reason: ReleaseReason,
    ) {
        let Some(ask) = self.asks.durable.iter().find(|ask| ask.offer == asked) else { return };
        let lease = HeldLease { attempt, offer: asked, generation, token: ask.token.clone() };
        let releasing = Releasing { lease, reason, busy: false, retry: Retry::default() };
        self.releases.entry(asked).or_insert(releasing);
    }

    /// The disk did not take a fresh offer: the claim goes back, what may have reached the disk is removed, and nothing
    /// new is asked for a while.
    pub(super) fn unpublished(&mut self, offer: OfferId) {
        let Some(held) = self.records.get(&offer) else { return };
        let (attempt, generation) = (held.record.attempt(), held.record.lease_generation());
        self.give_back(offer, attempt, generation, ReleaseReason::DiskLow);
        self.pull.retry.wait_until(self.now.boot.plus(DISK_PAUSE));
        self.begin(offer, Doing::RemoveRecord);
    }

    /// The machine's own word on an offer, before anything is accepted.
    fn check(&self, offer: &Offer, deadline: BootInstant) -> Result<(), ReleaseReason> {
        if offer.revision.digest() != offer.digest {
            return Err(ReleaseReason::RevisionDrift);
        }
        if self.takes_nothing_new() {
            return Err(ReleaseReason::Draining);
        }
        if self.disk_low {
            return Err(ReleaseReason::DiskLow);
        }
        if self.records.len() >= self.config.inbox_records {
            return Err(ReleaseReason::InboxFull);
        }
        let user = offer.revision.command().run_as.as_ref();
        let foreign_user = user.is_some_and(|user| !self.config.run_as.contains(user));
        // Devices are this job's alone, or it must not start.
        let foreign_devices = !offer.has_its_devices(&self.config.capabilities);
        // This worker fetches no materials and collects no artifacts: a job that relies on them must not start.
        if foreign_user || foreign_devices || offer.revision.needs_materials() || !offer.revision.artifacts().is_empty()
        {
            return Err(ReleaseReason::PolicyRefused);
        }
        if deadline.since(self.now.boot) < SHORT {
            return Err(ReleaseReason::LeaseShort);
        }
        Ok(())
    }

    pub(super) fn advance_releases(&mut self) {
        // A release queues behind a renewal in flight.
        if self.exited || !self.can_call() || self.beat.is_renewing() {
            return;
        }
        let now = self.now.boot;
        let due: Vec<_> = self
            .releases
            .iter()
            .filter(|(_, releasing)| !releasing.busy && releasing.retry.is_due(now))
            .map(|(offer, releasing)| (*offer, releasing.lease.clone(), releasing.reason))
            .collect();
        let Some(session) = self.live.as_ref().map(|live| live.numbers) else { return };
        for (offer, lease, reason) in due {
            let op = self.op(Owner::Release(offer));
            if let Some(releasing) = self.releases.get_mut(&offer) {
                releasing.busy = true;
            }
            self.emit(Effect::Call { op, call: Call::Release { session, lease, reason }, timeout: CALL_TIMEOUT });
        }
    }

    pub(super) fn claim_released(&mut self, offer: OfferId, outcome: Outcome) {
        let now = self.now.boot;
        let Some(releasing) = self.releases.get_mut(&offer) else { return };
        releasing.busy = false;
        let done = match &outcome {
            Outcome::Answered(_) => true,
            Outcome::Refused(refusal) => {
                matches!(refusal.code, RefusalCode::LeaseFenced | RefusalCode::LeaseExpired)
            }
            _ => false,
        };
        if done {
            self.releases.remove(&offer);
            self.asks.granted(offer);
            return;
        }
        releasing.retry.failed(now, Millis::ZERO, BACKOFF_MAX.part(12), &*self.entropy);
        if let Outcome::Refused(refusal) = outcome {
            self.refused_session(refusal.code, &refusal.message);
        }
    }
}

/// The instant that `remaining` is counted from.
fn lease_base(sent: &Sent, held: Millis) -> BootInstant {
    lease_deadline(sent.at, held, Millis::ZERO)
}
