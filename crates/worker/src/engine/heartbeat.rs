//! The one timer of a session: its beats with the renewal of every held lease, and the drain and offline calls, which
//! name the same version and so never overlap with a beat.
//!
//! A lost answer is known by its number: a conflict by exactly one, while this process has an unanswered call of that
//! version (or one that was answered `overloaded`), is its own; anything else is a doubled or rolled-back process, which stops as
//! fenced. (Protocol, *heartbeat*; worker design, *Leases*.)

use leasehold_core::counter::SessionVersion;
use leasehold_core::deadline::heartbeat_interval;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::limits::{HEARTBEAT_LEFT, HEARTBEAT_RENEWALS, HEARTBEAT_RETRY};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::{Said, SessionProjection};
use leasehold_core::time::{BootInstant, Millis};

use super::backoff::{Retry, spread};
use super::port::{Answer, Call, Effect, Exit, Level, Moment, Outcome, Renewal};
use super::{Engine, Owner};
use crate::session_file::Stopped;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heartbeat,
    Drain,
    Offline,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    kind: Kind,
    version: SessionVersion,
    sent: BootInstant,
    /// Whether it says that a person's drain is obeyed.
    obeys_drain: bool,
}

/// The calls that name the session's version: one at a time.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, not a state")]
pub(super) struct Beat {
    in_flight: Option<InFlight>,
    next: Option<BootInstant>,
    retry: Retry,
    /// When the control plane answered last.
    pub(super) last_contact: Option<Moment>,
    /// A call of this version was sent and never answered.
    unanswered: Option<SessionVersion>,
    /// The held leases are rebound; other calls may be made.
    pub(super) first_done: bool,
    pub(super) drained: bool,
    offline_unanswered: bool,
    /// An offline was refused for leases that run out by themselves: the session is kept alive meanwhile.
    beats_first: bool,
    /// Something was learnt since the beat under way was sent that people wait for.
    news: bool,
    stopped: bool,
}

impl Beat {
    pub(super) fn now(&mut self) {
        self.next = None;
    }

    /// The next beat comes at once, or as soon as the one under way is answered.
    pub(super) fn tell(&mut self) {
        self.news = true;
        if self.retry.failures == 0 {
            self.next = None;
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn wakes_at(&self) -> Option<BootInstant> {
        if self.in_flight.is_some() || self.stopped { None } else { self.next }
    }

    /// Whether a renewal of leases is under way: a release queues behind it.
    pub(super) fn is_renewing(&self) -> bool {
        self.in_flight.is_some_and(|call| call.kind == Kind::Heartbeat)
    }
}

impl Engine {
    pub(super) fn advance_beat(&mut self) {
        let now = self.now.boot;
        if self.exited
            || self.beat.stopped
            || self.beat.in_flight.is_some()
            || self.barred == Some(super::Barred::Revoked)
        {
            return;
        }
        let Some(live) = self.live.clone() else { return };
        let failing = self.beat.retry.failures > 0;
        let due = self.beat.next.is_none_or(|next| next <= now);
        let kind = if self.beat.first_done && self.shutdown.is_draining() && !self.beat.drained && (due || !failing) {
            Kind::Drain
        } else if self.is_ready_for_offline() && !self.beat.beats_first && (due || !failing) {
            Kind::Offline
        } else if due {
            Kind::Heartbeat
        } else {
            return;
        };
        let (session, version) = (live.numbers, live.version);
        let call = match kind {
            Kind::Drain => Call::Drain { session, version },
            Kind::Offline => Call::Offline { session, version },
            Kind::Heartbeat => {
                self.beat.news = false;
                let slots = u16::try_from(self.free_slots()).unwrap_or(u16::MAX);
                let said = Said { slots, obeys_drain: self.ordered.is_draining() };
                Call::Heartbeat { session, version, said, faults: self.faults.tell(), renewals: self.renewals() }
            }
        };
        let timeout = self.interval().part(3);
        self.beat.beats_first = false;
        let op = self.op(Owner::Beat);
        self.beat.in_flight = Some(InFlight { kind, version, sent: now, obeys_drain: self.ordered.is_draining() });
        self.emit(Effect::Call { op, call, timeout });
    }

    /// Leases of this boot that may still be held. A started lease never crosses a boot, so others are not named; nor
    /// is an earlier claim of an attempt that was claimed again.
    fn renewals(&self) -> Vec<Renewal> {
        let held = self.records.values().filter(|held| held.renews(&self.config.boot));
        let held = held.filter(|held| self.latest_claim(held.record.attempt()) == Some(held.record.id()));
        let mut room = HEARTBEAT_LEFT;
        held.take(HEARTBEAT_RENEWALS)
            .map(|held| {
                let left = held.left.clone().filter(|_| room > 0);
                room -= usize::from(left.is_some());
                Renewal { lease: held.lease_proof(), version: held.lease.version, left }
            })
            .collect()
    }

    /// The record of the latest claim of an attempt. An unstarted claim that ran out leaves a record of its own, which
    /// may still be open when this very worker claims the attempt again.
    fn latest_claim(&self, attempt: AttemptId) -> Option<OfferId> {
        let claims = self.records.values().filter(|held| held.record.attempt() == attempt);
        claims.max_by_key(|held| held.record.lease_generation()).map(|held| held.record.id())
    }

    fn shortest_lease(&self) -> Option<Millis> {
        self.records.values().filter(|held| held.renews(&self.config.boot)).map(|held| held.lease.length).min()
    }

    fn interval(&self) -> Millis {
        let asked = self.live.as_ref().map_or(leasehold_core::limits::HEARTBEAT_INTERVAL, |live| live.interval);
        heartbeat_interval(asked, self.shortest_lease())
    }

    /// A lease was taken on: the next beat may have to come sooner.
    pub(super) fn quicken(&mut self) {
        let by = self.now.boot.plus(self.interval());
        if let Some(next) = self.beat.next.filter(|next| *next > by) {
            self.beat.next = Some(next.min(by));
        }
    }

    pub(super) fn session_call_answered(&mut self, outcome: Outcome) {
        let Some(call) = self.beat.in_flight.take() else { return };
        match outcome {
            Outcome::Answered(Answer::Beaten { session, renewals, now }) if call.kind == Kind::Heartbeat => {
                self.spoke(&session);
                self.faults.told();
                self.compare_clocks(now);
                let first = !std::mem::replace(&mut self.beat.first_done, true);
                for (attempt, verdict) in renewals {
                    self.renewed(attempt, verdict, call.sent);
                }
                if first {
                    self.report(Level::Info, None, "ready");
                }
                if call.obeys_drain != self.ordered.is_draining() || self.beat.news {
                    // Told or learnt meanwhile: said at once.
                    self.beat.now();
                }
            }
            Outcome::Answered(Answer::Drained(session)) if call.kind == Kind::Drain => {
                self.spoke(&session);
                self.beat.drained = true;
                self.report(Level::Info, None, "draining: no new work is taken");
            }
            Outcome::Answered(Answer::Offline) if call.kind == Kind::Offline => self.exit(Exit::Done),
            Outcome::Refused(refusal) => self.session_call_refused(call, &refusal),
            other => {
                if !matches!(other, Outcome::NotDone(_)) {
                    self.left_open(call);
                }
                if self.beat.retry.failures == 0 {
                    let text = format!("the control plane does not answer: {}", Self::outcome_failed(&other));
                    self.report(Level::Warning, None, text);
                }
                self.beat_later(Millis::ZERO);
            }
        }
    }

    fn spoke(&mut self, session: &SessionProjection) {
        if self.beat.retry.failures > 0 {
            self.report(Level::Info, None, "the control plane answers again");
        }
        self.barred = None;
        self.beat.last_contact = Some(self.now);
        self.beat.retry.reset();
        self.beat.unanswered = None;
        if let Some(live) = &mut self.live {
            live.version = session.version;
            live.interval = session.interval;
        }
        let wait = spread(self.interval(), &*self.entropy);
        self.beat.next = Some(self.now.boot.plus(wait));
    }

    /// It may have been done.
    fn left_open(&mut self, call: InFlight) {
        self.beat.unanswered = Some(call.version);
        self.beat.offline_unanswered |= call.kind == Kind::Offline;
    }

    fn session_call_refused(&mut self, call: InFlight, refusal: &Refusal) {
        if refusal.code == RefusalCode::Overloaded {
            // The control plane may not know itself whether it was committed.
            self.left_open(call);
        }
        if call.kind == Kind::Offline && refusal.code == RefusalCode::SessionFenced && self.beat.offline_unanswered {
            // Most likely our own offline, whose answer was lost; that is no proof, so it is not called done.
            self.report(Level::Fault, None, "the control plane did not confirm that this worker is offline");
            return self.exit(Exit::DrainTimedOut);
        }
        if refusal.code == RefusalCode::VersionConflict {
            return self.version_conflict(call, refusal);
        }
        if !self.refused_session(refusal.code, &refusal.message) {
            if refusal.code != RefusalCode::Unauthenticated {
                self.report(Level::Warning, None, format!("the heartbeat was refused: {refusal}"));
            }
            self.beat_later(refusal.retry_after.unwrap_or(Millis::ZERO));
        }
    }

    fn version_conflict(&mut self, call: InFlight, refusal: &Refusal) {
        let Some(session) = &refusal.session else {
            return self.beat_later(Millis::ZERO);
        };
        if call.kind == Kind::Offline && session.version == call.version {
            // Not the version: leases are active that nobody here holds any more; they run out.
            self.beat.beats_first = true;
            return self.beat_later(Millis::from_secs(1));
        }
        if session.version == call.version.next() && self.beat.unanswered == Some(call.version) {
            self.beat.unanswered = None;
            if let Some(live) = &mut self.live {
                live.version = session.version;
            }
            self.beat.now();
            return;
        }
        self.stop_for_good(Stopped::Fenced, "another process speaks for this session");
    }

    /// Tried again: at most two seconds apart while a lease is held.
    fn beat_later(&mut self, least: Millis) {
        let holds = self.records.values().any(|held| held.renews(&self.config.boot));
        let most = if holds { HEARTBEAT_RETRY } else { self.interval() };
        let least = if holds { least.min(HEARTBEAT_RETRY) } else { least };
        self.beat.retry.failed(self.now.boot, least, most, &*self.entropy);
        self.beat.next = self.beat.retry.at;
    }

    fn renewed(&mut self, attempt: AttemptId, verdict: Result<LeaseProjection, Refusal>, sent: BootInstant) {
        let Some(offer) = self.latest_claim(attempt) else { return };
        let Some(held) = self.records.get_mut(&offer) else { return };
        match verdict {
            Ok(lease) => {
                if let Some(deadline) = held.lease_extended(sent, Millis::ZERO, &lease) {
                    self.emit(Effect::SendDeadline { attempt, deadline });
                }
            }
            Err(refusal) => self.lease_refused(offer, &refusal),
        }
    }

    /// The lease-loss path: what runs is stopped, what did not start never will.
    pub(super) fn lease_refused(&mut self, offer: OfferId, refusal: &Refusal) {
        if !matches!(refusal.code, RefusalCode::LeaseFenced | RefusalCode::LeaseExpired) {
            return;
        }
        let Some(held) = self.records.get_mut(&offer) else { return };
        // An end that is under way, or was just accepted, makes the same answer.
        if held.lease.lost || held.has_end() || held.record.state().is_settled() {
            return;
        }
        held.lease.lost = true;
        let attempt = held.record.attempt();
        let text = format!("the lease is lost: {}", refusal.message);
        self.report(Level::Warning, Some(attempt), text);
    }
}
