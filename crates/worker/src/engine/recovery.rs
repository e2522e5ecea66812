//! From what is on disk about an attempt to a verdict, and from the verdict to the next step.
//!
//! The verdict is [`leasehold_core::verdict::judge`], in this life as after a crash: a launch whose outcome is unclear is
//! found out the same way as one that an earlier life began. (Worker design, *The decidable spawn barrier*.)

use leasehold_core::attempt::{EvidenceKind, LogPin, StopReason};
use leasehold_core::end::Ending;
use leasehold_core::fault::FaultKind;
use leasehold_core::id::{BootId, OfferId};
use leasehold_core::inbox::{RecoveryReason, Stage};
use leasehold_core::revision::OnLeaseLoss;
use leasehold_core::time::{BootInstant, Millis};
use leasehold_core::verdict::{BarrierFact, Observed, Progress, ReceiptFact, Verdict, judge};

use super::Engine;
use super::held::{Doing, Held, Known};
use super::port::{Effect, End, Found, Level, Receipt};

/// Between two looks at an attempt that cannot be looked at, or is slow to be decided.
const AGAIN: Millis = Millis::new(200);
/// Between the first two looks at an attempt that is just being decided or is just ending; doubles up to [`AGAIN`].
const SOON: Millis = Millis::new(4);
/// After so many looks a started attempt without a barrier will never be decided: about two seconds.
const LOOKS: u32 = 14;
/// How long a launcher that should have ended may take to show it.
const OVERDUE: Millis = Millis::from_secs(1);

impl Held {
    /// Looks at the attempt again, soon at first: most of what is undecided is decided within milliseconds.
    fn look_again(&mut self, now: BootInstant) {
        let wait = SOON.times(1 << self.undecided.min(16)).min(AGAIN);
        self.undecided = self.undecided.saturating_add(1);
        self.retry.wait_until(now.plus(wait));
    }

    /// How far the record had come, for the verdict.
    fn progress(&self) -> Progress {
        match &self.record.stage {
            Stage::Accepted => Progress::Accepted,
            Stage::StartingAcknowledged | Stage::RecoveryRequired { callback: None, .. } => Progress::BeforeLaunch,
            _ => Progress::Launched,
        }
    }

    /// Whether recovery may link its tombstone: only in the boot that wrote `launching`, and only where nobody has
    /// seen a child of this launch. A tombstone won after `started` would prove a damaged directory, nothing else.
    pub(super) fn may_bury(&self, boot: &BootId) -> bool {
        let undecided =
            matches!(self.record.stage, Stage::Launching { .. } | Stage::RecoveryRequired { callback: Some(_), .. });
        undecided && self.record.boot == *boot
    }

    /// The receipt, if it is this launch's word.
    fn authentic(&self, receipt: Option<&Receipt>) -> Option<Receipt> {
        let known = self.record.stage.callback()?;
        let receipt = receipt?;
        let same = receipt.callback.sequence == known.sequence && receipt.token.digest() == known.token;
        same.then(|| receipt.clone())
    }

    fn end_of(&self, receipt: Receipt, handle: Option<leasehold_core::attempt::Handle>) -> End {
        let running = self.record.running().or_else(|| {
            Some(leasehold_core::attempt::RunningCall {
                handle: handle?,
                callback: self.record.stage.callback()?,
                started_at: self.record.launched_at.unwrap_or(self.record.updated_at),
            })
        });
        End {
            ending: receipt.ending,
            callback: Some((receipt.callback, receipt.token)),
            running,
            log: receipt.log,
            usage: receipt.usage,
            left: receipt.left,
        }
    }
}

impl Engine {
    /// Looks at the attempt's directory; settled facts of the record need no look.
    pub(super) fn look(&mut self, offer: OfferId) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        if held.must_not_start.is_some() && matches!(held.record.stage, Stage::StartingAcknowledged) {
            let reason = RecoveryReason::KnownAsRunning;
            return self.write(offer, Stage::RecoveryRequired { reason, callback: None });
        }
        if matches!(held.record.stage, Stage::RecoveryRequired { callback: None, .. }) {
            // It never had `launching`: what runs under its name is no longer this record's to carry on. In another
            // boot nothing of it can run.
            held.looked();
            if held.record.boot == self.config.boot {
                held.known = Known::Damaged;
                return self.begin(offer, Doing::StopRemains);
            }
            held.known = Known::Lost(EvidenceKind::RecordDamaged);
            return self.begin(offer, Doing::MeasureLog);
        }
        self.begin(offer, Doing::Observe);
    }

    pub(super) fn observed(&mut self, offer: OfferId, found: Result<Box<Found>, String>) {
        let now = self.now.boot;
        let this_boot = self.config.boot.clone();
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.doing = None;
        held.looked();
        let attempt = held.record.attempt();
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                held.retry.failed(now, AGAIN, Millis::from_secs(30), &*self.entropy);
                let text = format!("the attempt cannot be observed: {why}");
                return self.fault(FaultKind::StateUnreadable, Some(attempt), text);
            }
        };
        held.log.grew(found.log);
        held.remainder.learn(&found);
        let settled = held.record.state().is_settled();
        self.fault_over(FaultKind::StateUnreadable, Some(attempt));
        let Some(held) = self.records.get_mut(&offer).filter(|_| !settled) else { return };
        let receipt = held.authentic(found.receipt.as_ref());
        let foreign = found.receipt.is_some() && receipt.is_none() && held.record.stage.callback().is_some();
        if let Stage::StartFailed { reason, detail, .. } = held.record.stage.clone() {
            // Decided before; a receipt only adds the token that proves it.
            held.known = match receipt {
                Some(receipt) if matches!(receipt.ending, Ending::Rejected { .. }) => {
                    let end = held.end_of(receipt, None);
                    Known::Ended(Box::new(End { running: None, ..end }))
                }
                _ => Known::NotStarted { reason, detail },
            };
            return;
        }
        let facts = Observed {
            progress: held.progress(),
            same_boot: held.record.boot == this_boot,
            directory: found.directory,
            barrier: found.barrier,
            receipt: match receipt.as_ref().map(|receipt| &receipt.ending) {
                None => ReceiptFact::Absent,
                Some(Ending::Rejected { reason, .. }) => ReceiptFact::Rejected(*reason),
                Some(_) => ReceiptFact::Ended,
            },
            lock: found.lock,
        };
        let verdict = judge(facts);
        if foreign {
            self.fault(
                FaultKind::RecordDamaged,
                Some(attempt),
                "a receipt is there that is not this launch's; it is ignored",
            );
        }
        self.conclude(offer, verdict, *found, receipt);
    }

    fn conclude(&mut self, offer: OfferId, verdict: Verdict, found: Found, receipt: Option<Receipt>) {
        let now = self.now.boot;
        let this_boot = self.config.boot.clone();
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        // That it runs is settled only once its launcher is attached to: until then the looks must slow down.
        if !matches!(verdict, Verdict::Undecided | Verdict::Running) {
            held.undecided = 0;
        }
        match verdict {
            Verdict::Resume => held.known = Known::Here,
            Verdict::NotSpawned(reason) => {
                let detail = match receipt.as_ref().map(|receipt| &receipt.ending) {
                    Some(Ending::Rejected { detail, .. }) => detail.clone(),
                    _ => String::new(),
                };
                held.token = receipt.map(|receipt| receipt.token);
                held.known = Known::NotStarted { reason: Some(reason), detail };
            }
            Verdict::NeverSpawned => held.known = Known::NotStarted { reason: None, detail: String::new() },
            Verdict::Ended => {
                if let Some(receipt) = receipt {
                    held.log.pinned(receipt.log.map(|log| log.length));
                    held.known = Known::Ended(Box::new(held.end_of(receipt, found.handle)));
                }
            }
            Verdict::Running => {
                held.known = Known::Detached;
                if let (true, Some(handle), Some(callback)) =
                    (held.may_bury(&self.config.boot), found.handle, held.record.stage.callback())
                {
                    self.write(offer, Stage::Started { callback, handle });
                }
            }
            Verdict::Undecided => {
                // A launcher is at work, or a started record has lost its barrier: then nobody will ever decide.
                if held.may_bury(&self.config.boot) || held.undecided < LOOKS {
                    held.look_again(now);
                } else {
                    held.known = Known::Damaged;
                    let text = "the spawn barrier of a started attempt is gone";
                    self.fault(FaultKind::RecordDamaged, Some(attempt), text);
                }
            }
            Verdict::LauncherDied => {
                held.known = Known::Orphaned;
                self.report(Level::Fault, Some(attempt), "its launcher died; stopping what it left");
            }
            Verdict::Rebooted => {
                held.known = Known::Lost(EvidenceKind::MachineRebooted);
                self.report(Level::Warning, Some(attempt), "the machine started anew while this attempt ran");
            }
            Verdict::Damaged => {
                held.known = if held.record.boot == this_boot {
                    Known::Damaged
                } else {
                    Known::Lost(EvidenceKind::RecordDamaged)
                };
                let text = "the inbox record contradicts what is on disk";
                self.fault(FaultKind::RecordDamaged, Some(attempt), text);
            }
        }
        debug_assert!(verdict != Verdict::Running || found.barrier == BarrierFact::Child);
    }

    /// What is on disk of the log of an attempt that is lost is all that there will be of it: pinned, so that it is shipped
    /// whole, and known to be not finished.
    pub(super) fn log_measured(&mut self, offer: OfferId, log: Option<LogPin>) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.doing = None;
        let Known::Lost(evidence) = held.known else { return };
        held.log.pinned(log.map(|log| log.length));
        let ending = Ending::Lost { evidence };
        held.known =
            Known::Ended(Box::new(End { ending, callback: None, running: None, log, usage: None, left: None }));
    }

    pub(super) fn attached(&mut self, offer: OfferId, attached: bool) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.doing = None;
        held.stop_sent = None;
        if !attached {
            // It ended between the look and the connection, or is about to listen.
            held.known = Known::Nothing;
            held.look_again(now);
            return;
        }
        held.known = Known::Attached;
        held.undecided = 0;
        let attempt = held.record.attempt();
        if let Some(deadline) = held.lease.deadline {
            self.emit(Effect::SendDeadline { attempt, deadline });
        }
    }

    /// Tells a running launcher that it is to stop its job: because somebody asked, or because the lease is lost.
    pub(super) fn pass_on_stop(&mut self, offer: OfferId) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        let stops = held.record.offer.revision.limits().on_lease_loss == OnLeaseLoss::Stop;
        let reason = held.stop.or((held.lease.lost && stops).then_some(StopReason::Lease));
        if reason.is_some() && held.is_alive() {
            held.stop_from.get_or_insert(self.now.boot);
        }
        if let Some(reason) = reason
            && held.is_attached()
            && held.stop_sent.is_none()
        {
            held.stop_sent = Some(reason);
            let attempt = held.record.attempt();
            self.emit(Effect::SendStop { attempt, reason });
        }
    }

    pub(super) fn hung_up(&mut self, offer: OfferId) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        if matches!(held.known, Known::Attached | Known::Detached) {
            held.known = Known::Nothing;
            held.retry.reset();
        }
    }

    /// A launcher that cannot write its receipt said it instead.
    pub(super) fn said(&mut self, offer: OfferId, receipt: &Receipt) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        if held.has_end() || held.record.state().is_settled() {
            return;
        }
        let attempt = held.record.attempt();
        let Some(receipt) = held.authentic(Some(receipt)) else { return };
        held.log.pinned(receipt.log.map(|log| log.length));
        held.known = if let Ending::Rejected { reason, detail } = receipt.ending.clone() {
            held.token = Some(receipt.token);
            Known::NotStarted { reason: Some(reason), detail }
        } else {
            Known::Ended(Box::new(held.end_of(receipt, None)))
        };
        let text = "its launcher cannot write the receipt: the disk fails";
        self.fault(FaultKind::StateUnwritable, Some(attempt), text);
    }

    /// A launcher that lives beyond its own deadline, or beyond the stop that it was told, is frozen; killed, its child
    /// dies with it. Looked at twice: after a suspend its timer and ours are late together.
    pub(super) fn stop_overdue(&mut self, offer: OfferId) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        let after = *held.overdue_from.get_or_insert(now.plus(OVERDUE));
        if now < after {
            return held.retry.wait_until(after);
        }
        held.overdue_stopped = true;
        let attempt = held.record.attempt();
        self.report(
            Level::Fault,
            Some(attempt),
            "its launcher has outlived the lease or a stop, and is stopped by force",
        );
        self.begin(offer, Doing::StopRemains);
    }

    pub(super) fn remains_stopped(&mut self, offer: OfferId, evidence: EvidenceKind) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.doing = None;
        if held.has_end() {
            return;
        }
        // After an overdue launcher was stopped its receipt may be there after all: look once more.
        held.known = match (&held.known, evidence) {
            (Known::Damaged, EvidenceKind::LauncherKilledAllGone) => Known::Lost(EvidenceKind::RecordDamaged),
            (Known::Orphaned | Known::Damaged, evidence) => Known::Lost(evidence),
            _ => Known::Nothing,
        };
    }
}
