//! The agent as a pure step function: what happened goes in, what is to be done comes out.
//!
//! No clock, no file, no socket, no process, no thread: the driver ([`crate::run`]) and the simulation carry effects out
//! and answer with what became of them. Every decision is derived again from the durable inbox record and the facts
//! known in this life, so a crash between any two effects is the same as a slow answer. An effect that depends on a
//! durable state is emitted only after the write that made it durable was answered.
//!
//! | file | concept |
//! | --- | --- |
//! | `life` | one session: registration intent, ticket, start over, stop for good |
//! | `heartbeat` | the one timer of the session: beats, renewals, drain and offline calls, the version rule |
//! | `pull` | asks, the long poll, offers and refused claims |
//! | `processor` | from offer to running |
//! | `recovery` | from observed facts to a verdict, and what follows |
//! | `report` | the end, settling, cleaning up |
//! | `shipping` | the log, by offset |
//! | `faults` | what a person should look at, told with a beat |
//! | `drain` | nothing new because a person said so, and its end |
//! | `shutdown` | the agent's own drain, offline, exit |
//! | `status` | what it does now, for people |
//!
//! (Worker design, all of it.)

mod backoff;
mod drain;
mod faults;
mod heartbeat;
mod held;
mod life;
pub mod port;
mod processor;
mod pull;
mod recovery;
mod remainder;
mod report;
mod shipping;
mod shutdown;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::attempt::StopReason;
use leasehold_core::cancel::StopDirective;
use leasehold_core::capability::Capabilities;
use leasehold_core::crypto::Ticket;
use leasehold_core::directive::Directive;
use leasehold_core::fault::FaultKind;
use leasehold_core::id::{AttemptId, BootId, OfferId, SessionId, WorkerId};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::StopIntentReason;
use leasehold_core::time::{BootInstant, Entropy, Millis};

use crate::inbox::record::Record;
use crate::session_file::SessionFile;
use drain::Ordered;
use faults::Faults;
use heartbeat::Beat;
use held::Held;
use life::{Life, Live};
use port::{Ask, Effect, Exit, Input, Level, Moment, OpId, Outcome, Report, Signal};
use pull::{Asks, Pull, Releasing};
use shutdown::Shutdown;

/// How long a call may take that has no bound of its own.
const CALL_TIMEOUT: Millis = Millis::from_secs(10);

/// What a registration says; spelled by [`Config::spell`], so that the engine knows no wire format.
#[derive(Debug)]
pub struct RegistrationFacts<'a> {
    /// The new session.
    pub session: SessionId,
    /// The ticket it spends.
    pub ticket: &'a Ticket,
    /// What the machine can do.
    pub capabilities: &'a Capabilities,
    /// How many runs it takes at most.
    pub max_runs: u16,
    /// The boot of the machine.
    pub boot: &'a BootId,
    /// The worker's software version.
    pub software: &'a str,
}

/// What does not change in the life of one agent.
pub struct Config {
    /// The worker, as its certificate says.
    pub worker: WorkerId,
    /// The boot of the machine.
    pub boot: BootId,
    /// What the machine can do.
    pub capabilities: Capabilities,
    /// How many runs it takes at most: 1 to 256.
    pub max_runs: u16,
    /// How many records the inbox holds at most.
    pub inbox_records: usize,
    /// How long a drain may take.
    pub drain_timeout: Millis,
    /// Users that a revision may name in `run_as`.
    pub run_as: BTreeSet<String>,
    /// The worker's software version.
    pub software: String,
    /// Spells the exact body of a registration.
    pub spell: fn(&RegistrationFacts<'_>) -> String,
}

/// What an earlier life left on disk.
#[derive(Debug)]
pub struct Recovered {
    /// `session.json`.
    pub session: SessionFile,
    /// `pending-claims.json`.
    pub asks: Vec<Ask>,
    /// The inbox.
    pub records: Vec<Record>,
    /// Whether a person at this machine drained it.
    pub drained_here: bool,
    /// What is wrong with the state directory.
    pub faults: Vec<(FaultKind, String)>,
}

/// Who waits for the outcome of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Life,
    Beat,
    Pull,
    Asks,
    Release(OfferId),
    Record(OfferId),
    Log(OfferId),
}

/// Why the control plane does not talk to this worker at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Barred {
    Unauthenticated,
    Revoked,
}

/// The agent.
pub struct Engine {
    config: Config,
    entropy: Box<dyn Entropy>,
    now: Moment,
    next_op: u64,
    owners: BTreeMap<OpId, Owner>,
    effects: Vec<Effect>,
    timer: Option<BootInstant>,
    life: Life,
    live: Option<Live>,
    beat: Beat,
    asks: Asks,
    pull: Pull,
    releases: BTreeMap<OfferId, Releasing>,
    records: BTreeMap<OfferId, Held>,
    ordered: Ordered,
    faults: Faults,
    /// What a start found to be wrong, said with its first step.
    found: Vec<(FaultKind, String)>,
    shutdown: Shutdown,
    barred: Option<Barred>,
    /// The state directory's disk is too low for new work.
    disk_low: bool,
    exited: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("worker", &self.config.worker)
            .field("live", &self.live)
            .field("records", &self.records)
            .field("exited", &self.exited)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An agent that carries on from what is on disk. It acts from its first [`Input::Start`] on.
    pub fn new(config: Config, entropy: Box<dyn Entropy>, recovered: Recovered) -> Self {
        let Recovered { session, asks, records, drained_here, faults } = recovered;
        let records: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.id(), Held::recovered(record))).collect();
        // An ask whose offer is in the inbox was granted; only its removal from the file was not reached.
        let granted = asks.iter().map(|ask| ask.offer).filter(|offer| records.contains_key(offer)).collect();
        Self {
            config,
            entropy,
            now: Moment { boot: BootInstant::new(0), utc: leasehold_core::time::UtcMillis::new(0) },
            next_op: 0,
            owners: BTreeMap::new(),
            effects: Vec::new(),
            timer: None,
            life: Life::new(session),
            live: None,
            beat: Beat::default(),
            asks: Asks::new(asks, granted),
            pull: Pull::default(),
            releases: BTreeMap::new(),
            records,
            ordered: Ordered::recovered(drained_here),
            faults: Faults::default(),
            found: faults,
            shutdown: Shutdown::default(),
            barred: None,
            disk_low: false,
            exited: false,
        }
    }

    /// One step: `input` happened at `now`. Effects are to be carried out in order.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        // The boot-time clock never goes back; a driver that reads it in two threads might.
        self.now = Moment { boot: now.boot.max(self.now.boot), utc: now.utc };
        if self.exited {
            return Vec::new();
        }
        self.take(input);
        self.advance();
        std::mem::take(&mut self.effects)
    }

    /// Attempts whose launcher this engine believes to run, for people.
    pub fn running(&self) -> impl Iterator<Item = AttemptId> + '_ {
        self.records.values().filter(|held| held.is_attached()).map(|held| held.record.attempt())
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Start => {
                for (kind, detail) in std::mem::take(&mut self.found) {
                    self.fault(kind, None, detail);
                }
            }
            Input::Timer => self.timer = None,
            Input::Answer { op, outcome, directives } => {
                // Directives are worth having even where the answer is stale.
                for directive in directives {
                    self.directive(&directive);
                }
                match self.owners.remove(&op) {
                    Some(Owner::Life) => self.registration_answered(outcome),
                    Some(Owner::Beat) => self.session_call_answered(outcome),
                    Some(Owner::Pull) => self.pull_answered(outcome),
                    Some(Owner::Release(offer)) => self.claim_released(offer, outcome),
                    Some(Owner::Record(offer)) => self.record_answered(offer, outcome),
                    Some(Owner::Log(offer)) => self.log_answered(offer, outcome),
                    Some(Owner::Asks) | None => {}
                }
            }
            Input::Done { op, result } => {
                match &result {
                    Ok(()) => self.fault_over(FaultKind::StateUnwritable, None),
                    Err(why) => {
                        let text = format!("the state directory cannot be written: {why}");
                        self.fault(FaultKind::StateUnwritable, None, text);
                    }
                }
                match self.owners.remove(&op) {
                    Some(Owner::Life) => self.session_written(result.is_ok()),
                    Some(Owner::Asks) => self.asks_written(result.is_ok()),
                    Some(Owner::Record(offer)) => self.record_done(offer, result),
                    _ => {}
                }
            }
            Input::Launched { op, answer } => {
                if let Some(offer) = self.record_of(op) {
                    self.launched(offer, answer);
                }
            }
            Input::Observed { op, found } => {
                if let Some(offer) = self.record_of(op) {
                    self.observed(offer, found);
                }
            }
            Input::Attached { op, attached } => {
                if let Some(offer) = self.record_of(op) {
                    self.attached(offer, attached);
                }
            }
            Input::LogMeasured { op, log } => {
                if let Some(offer) = self.record_of(op) {
                    self.log_measured(offer, log);
                }
            }
            Input::Remains { op, evidence } => {
                if let Some(offer) = self.record_of(op) {
                    self.remains_stopped(offer, evidence);
                }
            }
            Input::Disk { low } => self.disk(low),
            Input::HungUp { offer } => self.hung_up(offer),
            Input::Said { offer, receipt } => self.said(offer, &receipt),
            Input::Left { offer, left } => self.left(offer, left),
            Input::LogGrew { offer, length } => {
                if let Some(held) = self.records.get_mut(&offer) {
                    held.log.grew(length);
                }
            }
            Input::DrainedHere(drain) => self.told_here(drain),
            Input::Signal(signal) => self.signal(signal),
        }
    }

    /// Everything that can be done now is begun. Idempotent: what is under way is never begun twice.
    fn advance(&mut self) {
        self.advance_life();
        self.advance_beat();
        self.advance_pull();
        self.advance_releases();
        let offers: Vec<_> = self.records.keys().copied().collect();
        for offer in offers {
            self.advance_record(offer);
            self.advance_log(offer);
        }
        // The first look at the last record may just have been the one that a registration waited for.
        self.advance_life();
        self.advance_shutdown();
        self.set_timer();
    }

    fn record_of(&mut self, op: OpId) -> Option<OfferId> {
        match self.owners.remove(&op) {
            Some(Owner::Record(offer)) => Some(offer),
            _ => None,
        }
    }

    fn op(&mut self, owner: Owner) -> OpId {
        self.next_op += 1;
        let op = OpId(self.next_op);
        self.owners.insert(op, owner);
        op
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn report(&mut self, level: Level, attempt: Option<AttemptId>, text: impl Into<String>) {
        self.emit(Effect::Report(Report { level, attempt, text: text.into() }));
    }

    fn exit(&mut self, exit: Exit) {
        if !self.exited {
            self.exited = true;
            self.emit(Effect::Exit(exit));
        }
    }

    /// What every refused call may say about the session or the worker; whether that settles the matter.
    fn refused_session(&mut self, code: RefusalCode, message: &str) -> bool {
        match code {
            RefusalCode::SessionExpired => {
                self.report(Level::Warning, None, "the session's lease has ended: starting over");
                self.start_over();
            }
            RefusalCode::SessionFenced => self.stop_for_good(crate::session_file::Stopped::Fenced, message),
            RefusalCode::UnsupportedProtocol => {
                self.report(Level::Fault, None, message.to_owned());
                self.exit(Exit::ProtocolRefused);
            }
            RefusalCode::Revoked => self.bar(Barred::Revoked, message),
            RefusalCode::Unauthenticated => {
                self.bar(Barred::Unauthenticated, message);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// A new session. A draining agent takes it in this very process: a new one would not know that it is to leave.
    fn start_over(&mut self) {
        if !self.shutdown.is_draining() {
            return self.exit(Exit::Expired);
        }
        let calls = |owner: &Owner| matches!(owner, Owner::Beat | Owner::Pull | Owner::Release(_) | Owner::Log(_));
        self.owners.retain(|_, owner| !calls(owner));
        for held in self.records.values_mut() {
            held.forget_call();
        }
        let doing = |op: &OpId, offer: &OfferId, records: &BTreeMap<OfferId, Held>| {
            records.get(offer).and_then(|held| held.doing.as_ref()).is_some_and(|(known, _)| known == op)
        };
        let records = &self.records;
        self.owners.retain(|op, owner| match owner {
            Owner::Record(offer) => doing(op, offer, records),
            _ => true,
        });
        for releasing in self.releases.values_mut() {
            releasing.forget_call();
        }
        self.live = None;
        self.beat = Beat::default();
        self.pull = Pull::default();
    }

    fn bar(&mut self, barred: Barred, message: &str) {
        if self.barred == Some(barred) {
            return;
        }
        self.barred = Some(barred);
        let fix = match barred {
            Barred::Revoked => "this worker's identity was revoked: enroll the machine again if that was a mistake",
            Barred::Unauthenticated => {
                "the control plane does not accept this worker's certificate: if it has expired, enroll the machine again"
            }
        };
        self.report(Level::Fault, None, format!("{message} ({fix})"));
    }

    /// Whether fenced calls make sense: registered, the held leases rebound by the first beat, not barred.
    fn can_call(&self) -> bool {
        self.live.is_some() && self.beat.first_done && self.barred.is_none()
    }

    /// Records that hold a slot.
    fn occupied(&self) -> usize {
        self.records.values().filter(|held| !held.record.state().is_settled()).count() + self.releases.len()
    }

    fn free_slots(&self) -> usize {
        if self.takes_nothing_new() || self.barred.is_some() || self.disk_low {
            return 0;
        }
        let room = self.config.inbox_records.saturating_sub(self.records.len() + self.releases.len());
        usize::from(self.config.max_runs).saturating_sub(self.occupied()).min(room)
    }

    /// What runs is not touched: its receipt has room of its own, and its log says what it could not keep.
    fn disk(&mut self, low: bool) {
        if std::mem::replace(&mut self.disk_low, low) == low {
            return;
        }
        if low {
            let text = "the state directory's disk is low: no new work is accepted until there is room again";
            self.fault(FaultKind::DiskLow, None, text);
        } else {
            self.fault_over(FaultKind::DiskLow, None);
            self.report(Level::Info, None, "the state directory's disk has room again");
        }
    }

    /// The back-off of calls that matter to a held lease is short.
    fn patience(&self) -> Millis {
        if self.occupied() > 0 { leasehold_core::limits::HEARTBEAT_RETRY } else { leasehold_core::limits::BACKOFF_MAX }
    }

    fn directive(&mut self, directive: &Directive) {
        match directive {
            Directive::Stop(stop) => self.told_to_stop(stop),
            Directive::Drain => self.told_to_drain(),
            Directive::Resume => self.told_to_resume(),
        }
    }

    fn told_to_stop(&mut self, directive: &StopDirective) {
        let attempt = directive.attempt;
        let reason = match directive.reason {
            StopIntentReason::Cancel => StopReason::Cancel,
            StopIntentReason::Timeout => StopReason::Timeout,
        };
        let mut news = false;
        for held in self.records.values_mut().filter(|held| held.record.attempt() == attempt) {
            news |= held.stop.is_none() && !held.record.state().is_settled();
            held.stop.get_or_insert(reason);
        }
        if news {
            let text = format!("the control plane asks to stop this attempt ({reason})");
            self.report(Level::Info, Some(attempt), text);
        }
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Terminate => self.terminate(),
            Signal::LeaveRunning => {
                let left = self.records.values().filter(|held| !held.record.state().is_settled()).count();
                let text = format!("leaving at once; {left} attempts stay with their launchers for the next start");
                self.report(Level::Info, None, text);
                self.exit(Exit::Done);
            }
            Signal::StartOver if self.shutdown.is_draining() => {
                self.report(Level::Warning, None, "not started over: this worker is leaving");
            }
            Signal::StartOver => self.exit(Exit::StartOver),
        }
    }

    fn set_timer(&mut self) {
        let now = self.now.boot;
        let mut next: Option<BootInstant> = None;
        let mut at = |instant: Option<BootInstant>| {
            if let Some(instant) = instant.filter(|instant| *instant > now) {
                next = Some(next.map_or(instant, |next| next.min(instant)));
            }
        };
        at(self.life.retry.at);
        at(self.beat.wakes_at());
        at(self.pull.retry.at);
        at(self.asks.retry.at);
        at(self.shutdown.deadline());
        for releasing in self.releases.values() {
            at(releasing.retry.at);
        }
        for held in self.records.values() {
            at(held.retry.at);
            at(held.log.retry.at);
            at(held.wakes_at());
            // A revoked worker goes when the last of them has ended.
            at(held.lease.deadline.filter(|_| self.barred == Some(Barred::Revoked)));
        }
        if let Some(next) = next
            && self.timer != Some(next)
        {
            self.timer = Some(next);
            self.emit(Effect::SetTimer(next));
        }
    }

    fn outcome_failed(outcome: &Outcome) -> &str {
        match outcome {
            Outcome::NotDone(why) | Outcome::Unknown(why) => why,
            Outcome::Refused(refusal) => &refusal.message,
            Outcome::Answered(_) => "an answer to another call",
        }
    }
}
