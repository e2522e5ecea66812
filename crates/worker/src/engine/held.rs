//! One inbox record being worked on: what is durable, what this life knows, and the one operation under way.

use leasehold_core::attempt::{EvidenceKind, Left, RejectReason, StopReason};
use leasehold_core::counter::LeaseVersion;
use leasehold_core::crypto::CompletionToken;
use leasehold_core::deadline::{kill_margin, lease_deadline, stop_plan};
use leasehold_core::id::BootId;
use leasehold_core::inbox::{ClosedReason, InboxState, Stage};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::revision::OnLeaseLoss;
use leasehold_core::time::{BootInstant, Millis};

use super::backoff::Retry;
use super::port::{End, HeldLease, Launch, OpId};
use super::remainder::Remainder;
use super::shipping::Shipping;
use crate::inbox::record::Record;

/// How long after its grace a launcher that was told to stop may take to stop the rest, write its receipt and go.
const LAST_WORD: Millis = Millis::from_secs(10);

/// What is known of the attempt in this life, beyond its durable record.
#[derive(Debug)]
pub(super) enum Known {
    /// Nothing: it has to be observed.
    Nothing,
    /// This life brought it to its stage and did nothing since.
    Here,
    /// It runs, or is about to; its launcher's control connection has to be made.
    Detached,
    /// It runs, and the control connection is there.
    Attached,
    /// Its launcher died: what is left has to be stopped and verified.
    Orphaned,
    /// It ran, or may run, and its record or its directory cannot be trusted: the same, before it is called lost.
    Damaged,
    /// Proven: nothing of the user's ran.
    NotStarted {
        /// The launcher's reason; none means never spawned.
        reason: Option<RejectReason>,
        /// In the launcher's words.
        detail: String,
    },
    /// Nobody saw its end; what it left of its log is to be measured, then that is reported.
    Lost(EvidenceKind),
    /// How it ended; to be reported until it is answered.
    Ended(Box<End>),
}

/// The one operation under way for a record.
#[derive(Debug)]
pub(super) enum Doing {
    /// Writing the next version; the record in [`Held::record`] is the durable one.
    Write(Box<Record>),
    /// The first publication.
    Publish,
    Release(leasehold_core::claim::ReleaseReason),
    Starting {
        sent: BootInstant,
    },
    CreateDirectory,
    Launch,
    Observe,
    Attach,
    StopRemains,
    MeasureLog,
    Running {
        sent: BootInstant,
    },
    End(Box<End>),
    RemoveDirectory,
    RemoveRecord,
}

/// The lease as this life knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseClock {
    /// When it may end; none until this life heard of it.
    pub(super) deadline: Option<BootInstant>,
    /// How long a renewal makes it last.
    pub(super) length: Millis,
    pub(super) version: LeaseVersion,
    /// The control plane said that it is no longer ours.
    pub(super) lost: bool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, not a state")]
pub(super) struct Held {
    pub(super) record: Record,
    /// The record is durable; one whose publication failed only waits to be removed.
    pub(super) published: bool,
    pub(super) doing: Option<(OpId, Doing)>,
    pub(super) retry: Retry,
    pub(super) known: Known,
    pub(super) lease: LeaseClock,
    /// Nothing is known yet of what an earlier life left.
    first_look: bool,
    /// Why it is to be stopped.
    pub(super) stop: Option<StopReason>,
    /// The launcher was told, over the connection that is there.
    pub(super) stop_sent: Option<StopReason>,
    /// Since when its launcher should know that, and lives.
    pub(super) stop_from: Option<BootInstant>,
    /// A `starting` was sent: it may be known as starting, so it can no longer be released.
    pub(super) starting_sent: bool,
    /// Its claim cannot be released any more, and it must not start either.
    pub(super) must_not_start: Option<&'static str>,
    pub(super) timeout_at: Option<BootInstant>,
    pub(super) directory_made: bool,
    /// Ready to be launched as soon as `launching` is durable.
    pub(super) prepared: Option<Box<Launch>>,
    /// The token of this life's own launch.
    pub(super) token: Option<CompletionToken>,
    pub(super) log: Shipping,
    pub(super) directory_removed: bool,
    /// A launcher that outlived its deadline was stopped; once is enough.
    pub(super) overdue_stopped: bool,
    /// When that is done, once it was noticed.
    pub(super) overdue_from: Option<BootInstant>,
    /// How often an observation decided nothing.
    pub(super) undecided: u32,
    /// What its launcher cannot kill, while it lives and says so.
    pub(super) left: Option<Left>,
    pub(super) remainder: Remainder,
}

impl Held {
    fn of(record: Record, known: Known, first_look: bool) -> Self {
        let lease =
            LeaseClock { deadline: None, length: record.offer.lease, version: record.lease_version(), lost: false };
        Self {
            record,
            published: first_look,
            doing: None,
            retry: Retry::default(),
            known,
            lease,
            first_look,
            stop: None,
            stop_sent: None,
            stop_from: None,
            starting_sent: first_look,
            must_not_start: None,
            timeout_at: None,
            directory_made: false,
            prepared: None,
            token: None,
            log: Shipping::default(),
            directory_removed: false,
            overdue_stopped: false,
            overdue_from: None,
            undecided: 0,
            left: None,
            remainder: Remainder::default(),
        }
    }

    /// What an earlier life left. It may have sent a `starting` already.
    pub(super) fn recovered(record: Record) -> Self {
        Self::of(record, Known::Nothing, true)
    }

    /// A fresh offer, to be published.
    pub(super) fn delivered(record: Record, deadline: BootInstant) -> Self {
        let mut held = Self::of(record, Known::Here, false);
        held.lease.deadline = Some(deadline);
        held
    }

    pub(super) fn is_first_look(&self) -> bool {
        self.first_look
    }

    pub(super) fn looked(&mut self) {
        self.first_look = false;
    }

    pub(super) fn is_busy(&self) -> bool {
        self.doing.is_some()
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.known, Known::Attached)
    }

    /// Whether a leaving worker may leave this settled record to its next start.
    pub(super) fn may_be_left(&self) -> bool {
        self.log.is_failing() || self.remainder.is_awaited()
    }

    pub(super) fn has_end(&self) -> bool {
        matches!(self.known, Known::Lost(_) | Known::Ended(_)) || matches!(self.doing, Some((_, Doing::End(_))))
    }

    /// Whether the attempt's directory may be this claim's. A claim that never started has none, and the directory that
    /// stands there then is that of a later claim of the same attempt.
    pub(super) fn may_have_directory(&self) -> bool {
        let unstarted = matches!(
            self.record.stage,
            Stage::Closed {
                reason: ClosedReason::Released | ClosedReason::Cancelled | ClosedReason::LeaseLost | ClosedReason::Gone,
                ..
            }
        );
        !unstarted || self.directory_made || self.record.launched_at.is_some()
    }

    /// Whether heartbeats renew its lease: open, published, of this boot, not lost.
    pub(super) fn renews(&self, boot: &BootId) -> bool {
        self.published && !self.record.state().is_settled() && !self.lease.lost && self.record.boot == *boot
    }

    /// A call under way belongs to a session that is over; its answer, should it come, says nothing about the next.
    pub(super) fn forget_call(&mut self) {
        match self.doing.take() {
            Some((_, Doing::Release(_) | Doing::Starting { .. } | Doing::Running { .. })) => {}
            Some((_, Doing::End(end))) => self.known = Known::Ended(end),
            other => self.doing = other,
        }
        self.log.forget_call();
    }

    pub(super) fn lease_proof(&self) -> HeldLease {
        HeldLease {
            attempt: self.record.attempt(),
            offer: self.record.id(),
            generation: self.record.lease_generation(),
            token: self.record.token.clone(),
        }
    }

    /// An answer named the lease: deadline = sent + held + remaining. Answers the deadline if it grew.
    pub(super) fn lease_extended(
        &mut self,
        sent: BootInstant,
        held: Millis,
        lease: &LeaseProjection,
    ) -> Option<BootInstant> {
        self.lease.version = self.lease.version.max(lease.version);
        self.lease.length = lease.length;
        let deadline = lease_deadline(sent, held, lease.remaining);
        // A late answer of an earlier call must not shorten what a later one promised.
        if self.lease.deadline.is_some_and(|known| known >= deadline) {
            return None;
        }
        self.lease.deadline = Some(deadline);
        Some(deadline)
    }

    /// Whether a job started now would be killed at once.
    pub(super) fn lease_is_over(&self, now: BootInstant) -> bool {
        let grace = self.record.offer.revision.limits().grace;
        let over = |deadline| now >= stop_plan(deadline, self.lease.length, grace).terminate_at;
        self.lease.lost || self.lease.deadline.is_none_or(over)
    }

    /// When a launcher that still lives is frozen: halfway through the margin it has outlived its own deadline, or, told
    /// to stop its job, the grace and what follows it. Without the latter a job that freezes its launcher could neither
    /// be cancelled nor time out while its lease is renewed.
    pub(super) fn overdue_at(&self) -> Option<BootInstant> {
        let limits = self.record.offer.revision.limits();
        // One that says what it cannot kill is not frozen; killed, nobody would be left to see that go.
        if !self.is_alive() || self.overdue_stopped || self.left.is_some() {
            return None;
        }
        let lease = self.lease.deadline.filter(|_| limits.on_lease_loss == OnLeaseLoss::Stop);
        let lease = lease.map(|deadline| deadline.minus(kill_margin(self.lease.length).part(2)));
        let stop = self.stop_from.map(|from| from.plus(limits.grace).plus(LAST_WORD));
        [lease, stop].into_iter().flatten().min()
    }

    /// Whether its launcher lives, by the last look.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.known, Known::Attached | Known::Detached)
    }

    pub(super) fn wakes_at(&self) -> Option<BootInstant> {
        let waits = self.record.state() == InboxState::Launching && self.prepared.is_some();
        if waits { None } else { self.overdue_at() }
    }
}
