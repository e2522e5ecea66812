//! From offer to running: the seven steps, each begun only after what it rests on is durable.
//!
//! `accepted` → `starting` → `starting_acknowledged` → token and directory → `launching` → the launcher → `started` →
//! `running` → `running_acknowledged`. Anything but a whole answer of the launcher is *unknown*: the barrier is asked, and
//! no start failure is reported. (Worker design, *From offer to running*; ADR-0111 §2 and §3.)

use leasehold_core::attempt::{AttemptState, Callback, RejectReason, Starting, StartingAnswer};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::CallbackSequence;
use leasehold_core::crypto::CompletionToken;
use leasehold_core::fault::FaultKind;
use leasehold_core::id::OfferId;
use leasehold_core::inbox::{ClosedReason, RecoveryReason, Stage};
use leasehold_core::limits::BACKOFF_MAX;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::{BootInstant, Millis};

use super::held::{Doing, Held, Known};
use super::port::{Answer, Call, Effect, Launch, LaunchAnswer, Level, Outcome};
use super::{CALL_TIMEOUT, Engine, Owner};

/// How often a directory that cannot be removed is tried.
const REMOVALS: u32 = 5;

impl Engine {
    /// Begins the next step of one record, if it can be begun now.
    pub(super) fn advance_record(&mut self, offer: OfferId) {
        let now = self.now.boot;
        if self.exited {
            return;
        }
        let Some(held) = self.records.get(&offer) else { return };
        if held.overdue_at().is_some_and(|at| at <= now) && !held.is_busy() {
            return self.stop_overdue(offer);
        }
        self.pass_on_stop(offer);
        let Some(held) = self.records.get(&offer) else { return };
        if held.is_busy() || !held.retry.is_due(now) {
            return;
        }
        if !held.published {
            return self.begin(offer, Doing::RemoveRecord);
        }
        if held.record.state().is_settled() {
            return self.clean_up(offer);
        }
        match &held.known {
            Known::Nothing => return self.look(offer),
            Known::Detached => return self.begin(offer, Doing::Attach),
            Known::Orphaned | Known::Damaged => return self.begin(offer, Doing::StopRemains),
            Known::NotStarted { .. } => return self.start_failed(offer),
            Known::Lost(_) => return self.begin(offer, Doing::MeasureLog),
            Known::Ended(_) => return self.submit(offer),
            Known::Here | Known::Attached => {}
        }
        match &held.record.stage {
            Stage::Accepted => self.acknowledge_starting(offer),
            Stage::StartingAcknowledged => self.prepare_launch(offer),
            Stage::Launching { .. } => self.call_launcher(offer),
            Stage::Started { .. } => self.acknowledge_running(offer),
            // Attached: it runs. (A record of these stages that is not attached is never `Here`.)
            _ => {}
        }
    }

    /// Notes the operation and emits its effect.
    pub(super) fn begin(&mut self, offer: OfferId, doing: Doing) {
        let live = self.live.as_ref().map(|live| live.numbers);
        let calls = matches!(doing, Doing::Release(_) | Doing::Starting { .. } | Doing::Running { .. } | Doing::End(_));
        if calls && live.is_none() || !self.records.contains_key(&offer) {
            return;
        }
        let op = self.op(Owner::Record(offer));
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        let lease = held.lease_proof();
        let call = |call| Effect::Call { op, call, timeout: CALL_TIMEOUT };
        let effect = match (&doing, live) {
            (Doing::Write(next), _) => Effect::WriteRecord { op, record: next.clone() },
            (Doing::Publish, _) => Effect::WriteRecord { op, record: Box::new(held.record.clone()) },
            (Doing::CreateDirectory, _) => Effect::CreateDirectory { op, attempt },
            (Doing::RemoveDirectory, _) => Effect::RemoveDirectory { op, attempt },
            (Doing::RemoveRecord, _) => Effect::RemoveRecord { op, offer },
            (Doing::Attach, _) => Effect::Attach { op, offer, attempt },
            (Doing::StopRemains, _) => Effect::StopRemains { op, attempt },
            (Doing::MeasureLog, _) => Effect::MeasureLog { op, attempt },
            (Doing::Observe, _) => Effect::Observe { op, attempt, tombstone: held.may_bury(&self.config.boot) },
            (Doing::Launch, _) => match held.prepared.take() {
                Some(launch) => Effect::Launch { op, launch },
                None => return,
            },
            (Doing::Release(reason), Some(session)) => call(Call::Release { session, lease, reason: *reason }),
            (Doing::Starting { .. }, Some(session)) => call(Call::Starting { session, lease }),
            (Doing::Running { .. }, Some(session)) => match held.record.running() {
                Some(running) => call(Call::Running { session, lease, running }),
                None => return,
            },
            (Doing::End(end), Some(session)) => call(Call::End { session, lease, end: end.clone() }),
            (Doing::Release(_) | Doing::Starting { .. } | Doing::Running { .. } | Doing::End(_), None) => return,
        };
        held.doing = Some((op, doing));
        self.effects.push(effect);
    }

    /// Writes the record's next stage; it becomes the known one once it is durable.
    pub(super) fn write(&mut self, offer: OfferId, stage: Stage) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        match held.record.moved(stage, self.now.utc) {
            Ok(next) => self.begin(offer, Doing::Write(Box::new(next))),
            Err(error) => {
                let attempt = held.record.attempt();
                held.retry.wait_until(self.now.boot.plus(BACKOFF_MAX));
                self.report(Level::Fault, Some(attempt), error.to_string());
            }
        }
    }

    fn acknowledge_starting(&mut self, offer: OfferId) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        if held.lease.lost {
            return self.write(offer, closed(ClosedReason::LeaseLost));
        }
        if !self.can_call() {
            return;
        }
        let draining = self.takes_nothing_new();
        let Some(held) = self.records.get_mut(&offer) else { return };
        // The record would prove nothing in this boot; the claim goes back, or has run out.
        let foreign = held.record.boot != self.config.boot;
        // A draining worker takes on what it may have begun, an earlier life's claim included, and nothing else.
        let stopped = draining && !held.starting_sent;
        if (foreign || stopped) && held.must_not_start.is_none() {
            if self.beat.is_renewing() {
                return;
            }
            let reason = if foreign { ReleaseReason::LeaseShort } else { ReleaseReason::Draining };
            return self.begin(offer, Doing::Release(reason));
        }
        held.starting_sent = true;
        self.begin(offer, Doing::Starting { sent: self.now.boot });
    }

    fn prepare_launch(&mut self, offer: OfferId) {
        let now = self.now;
        let Some(held) = self.records.get_mut(&offer) else { return };
        if let Some(why) = held.must_not_start {
            held.known = Known::NotStarted { reason: Some(RejectReason::Request), detail: why.to_owned() };
            return self.start_failed(offer);
        }
        if held.stop.is_some() || held.lease_is_over(now.boot) {
            held.known = Known::NotStarted { reason: None, detail: String::new() };
            return self.start_failed(offer);
        }
        if !held.directory_made {
            return self.begin(offer, Doing::CreateDirectory);
        }
        let token = CompletionToken::new(&*self.entropy);
        let callback = Callback { sequence: CallbackSequence::FIRST, token: token.digest() };
        let Some(deadline) = held.lease.deadline else { return };
        held.token = Some(token.clone());
        held.prepared = Some(Box::new(Launch {
            offer: held.record.offer.clone(),
            lease_deadline: deadline,
            lease: held.lease.length,
            timeout_at: held.timeout_at,
            callback,
            token,
        }));
        self.write(offer, Stage::Launching { callback });
    }

    fn call_launcher(&mut self, offer: OfferId) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        if held.prepared.is_none() {
            held.known = Known::Nothing;
            return self.look(offer);
        }
        if held.stop.is_some() || held.lease_is_over(now) {
            // Proven by this very life: the launcher was not called and never will be.
            held.prepared = None;
            held.known = Known::NotStarted { reason: None, detail: String::new() };
            return self.start_failed(offer);
        }
        if let (Some(launch), Some(deadline)) = (held.prepared.as_mut(), held.lease.deadline) {
            // The write may have waited for the disk while the lease was renewed.
            launch.lease_deadline = deadline;
            launch.lease = held.lease.length;
        }
        self.begin(offer, Doing::Launch);
    }

    fn acknowledge_running(&mut self, offer: OfferId) {
        if self.can_call() {
            self.begin(offer, Doing::Running { sent: self.now.boot });
        }
    }

    pub(super) fn start_failed(&mut self, offer: OfferId) {
        let Some(held) = self.records.get(&offer) else { return };
        let Known::NotStarted { reason, detail } = &held.known else { return };
        if matches!(held.record.stage, Stage::StartFailed { .. }) {
            return self.submit(offer);
        }
        let detail: String = detail.chars().take(512).collect();
        let stage = Stage::StartFailed { reason: *reason, detail, callback: held.record.stage.callback() };
        self.write(offer, stage);
    }

    pub(super) fn launched(&mut self, offer: OfferId, answer: LaunchAnswer) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        held.doing = None;
        match answer {
            LaunchAnswer::Started(handle) => {
                let Some(callback) = held.record.stage.callback() else { return };
                held.known = Known::Detached;
                self.write(offer, Stage::Started { callback, handle });
            }
            LaunchAnswer::Rejected { reason, detail } => {
                held.known = Known::NotStarted { reason: Some(reason), detail };
                self.start_failed(offer);
            }
            LaunchAnswer::Unknown(why) => {
                let text = format!("the launch has no certain outcome ({why}): asking the spawn barrier");
                held.known = Known::Nothing;
                let callback = held.record.stage.callback();
                self.report(Level::Warning, Some(attempt), text);
                self.write(offer, Stage::RecoveryRequired { reason: RecoveryReason::LaunchOutcomeUnknown, callback });
            }
        }
    }

    pub(super) fn record_done(&mut self, offer: OfferId, result: Result<(), String>) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        let Some((_, doing)) = held.doing.take() else { return };
        if result.is_err() {
            held.retry.failed(now, Millis::new(200), BACKOFF_MAX.part(12), &*self.entropy);
            match doing {
                Doing::Publish => {
                    held.published = false;
                    self.unpublished(offer);
                }
                Doing::CreateDirectory => {
                    let detail = result.err().unwrap_or_default();
                    held.retry.reset();
                    held.known = Known::NotStarted { reason: Some(RejectReason::Storage), detail };
                }
                // Whether the handle is durable or not, the process runs and this life knows it.
                Doing::Write(next) => held.keep_unwritten(&next),
                // In the end left over, and said aloud: a job's files may belong to another user.
                Doing::RemoveDirectory => held.directory_removed = held.retry.failures >= REMOVALS,
                _ => {}
            }
            return;
        }
        held.retry.reset();
        match doing {
            Doing::Write(next) => {
                held.record = *next;
                if held.record.state().is_settled() {
                    let (attempt, state) = (held.record.attempt(), held.record.state());
                    held.log.settled(now);
                    self.report(Level::Info, Some(attempt), format!("settled: {state}"));
                }
            }
            Doing::Publish => {
                let attempt = held.record.attempt();
                let run = held.record.offer.run;
                held.published = true;
                self.asks.granted(offer);
                self.report(Level::Info, Some(attempt), format!("accepted an offer of run {run}"));
                self.quicken();
            }
            Doing::CreateDirectory => held.directory_made = true,
            Doing::RemoveDirectory => held.directory_removed = true,
            Doing::RemoveRecord => {
                if let Some(held) = self.records.remove(&offer) {
                    self.faults_over(held.record.attempt());
                }
            }
            _ => {}
        }
    }

    /// The outcome of a call about one record.
    pub(super) fn record_answered(&mut self, offer: OfferId, outcome: Outcome) {
        let now = self.now.boot;
        let Some(held) = self.records.get_mut(&offer) else { return };
        let Some((_, doing)) = held.doing.take() else { return };
        match (doing, outcome) {
            (Doing::Starting { sent }, Outcome::Answered(Answer::Starting(answer))) => {
                self.starting_answered(offer, sent, answer);
            }
            (Doing::Running { sent }, Outcome::Answered(Answer::Running(lease))) => {
                held.retry.reset();
                if let Some(deadline) = held.lease_extended(sent, Millis::ZERO, &lease) {
                    let attempt = held.record.attempt();
                    self.effects.push(Effect::SendDeadline { attempt, deadline });
                }
                self.running_acknowledged(offer);
            }
            (Doing::Release(reason), Outcome::Answered(Answer::Released)) => {
                let stage = Stage::Closed { reason: ClosedReason::Released, released: Some(reason), evidence: None };
                self.write(offer, stage);
            }
            (Doing::End(end), Outcome::Answered(Answer::Ended(_))) => self.ended(offer, *end),
            (Doing::End(end), Outcome::Refused(refusal)) => self.end_refused(offer, *end, &refusal),
            (Doing::Starting { .. }, Outcome::Refused(refusal)) => self.starting_refused(offer, &refusal),
            (Doing::Release(_), Outcome::Refused(refusal)) => self.release_refused(offer, &refusal),
            (Doing::Running { .. }, Outcome::Refused(refusal)) => self.running_refused(offer, &refusal),
            (doing, outcome) => {
                let text = format!("not answered, trying again: {}", Self::outcome_failed(&outcome));
                let attempt = held.record.attempt();
                if let Doing::End(end) = doing {
                    held.known = Known::Ended(end);
                }
                let first = held.retry.failures == 0;
                held.retry.failed(now, Millis::ZERO, leasehold_core::limits::HEARTBEAT_RETRY, &*self.entropy);
                if first {
                    self.report(Level::Warning, Some(attempt), text);
                }
            }
        }
    }

    fn starting_answered(&mut self, offer: OfferId, sent: BootInstant, answer: Starting) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        held.retry.reset();
        match answer {
            Starting::Accepted(answer) | Starting::AlreadyStarting(answer) => {
                held.may_start(sent, &answer);
                self.write(offer, Stage::StartingAcknowledged);
            }
            Starting::AlreadyRunning(answer) => {
                held.may_start(sent, &answer);
                // This record never launched, and yet it runs: an older record of a newer life. It never starts.
                held.must_not_start = Some("known as running by the control plane");
                held.known = Known::Nothing;
                self.write(offer, Stage::StartingAcknowledged);
            }
            Starting::Stopped(_) => self.write(offer, closed(ClosedReason::Cancelled)),
        }
    }

    fn starting_refused(&mut self, offer: OfferId, refusal: &Refusal) {
        match refusal.code {
            RefusalCode::LeaseFenced | RefusalCode::LeaseExpired => {
                self.report_lease_loss(offer, refusal);
                self.write(offer, closed(ClosedReason::LeaseLost));
            }
            _ => self.record_refused(offer, refusal),
        }
    }

    fn release_refused(&mut self, offer: OfferId, refusal: &Refusal) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        let started = refusal.lease.as_ref().is_some_and(|lease| lease.attempt_state == AttemptState::Starting);
        match refusal.code {
            // An earlier `starting` of ours was accepted after all: it is ended as what it is, never started.
            RefusalCode::LeaseFenced if started && held.record.boot == self.config.boot => {
                held.must_not_start = Some("the worker was stopped before it started this");
            }
            RefusalCode::LeaseFenced | RefusalCode::LeaseExpired => self.write(offer, closed(ClosedReason::LeaseLost)),
            _ => self.record_refused(offer, refusal),
        }
    }

    fn running_refused(&mut self, offer: OfferId, refusal: &Refusal) {
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        match refusal.code {
            RefusalCode::LeaseFenced | RefusalCode::LeaseExpired => {
                self.lease_refused(offer, refusal);
                // Its end is what matters now; `running` is carried by it.
                if let Some(held) = self.records.get_mut(&offer) {
                    held.retry.failed(self.now.boot, Millis::from_secs(2), BACKOFF_MAX, &*self.entropy);
                }
            }
            RefusalCode::ConflictReplay => {
                held.lease.lost = true;
                held.retry.wait_until(self.now.boot.plus(BACKOFF_MAX));
                let text = format!("reported running with another handle before: {}", refusal.message);
                self.fault(FaultKind::Refused, Some(attempt), text);
            }
            _ => self.record_refused(offer, refusal),
        }
    }

    /// A refusal that says nothing about this record: later again.
    pub(super) fn record_refused(&mut self, offer: OfferId, refusal: &Refusal) {
        if self.refused_session(refusal.code, &refusal.message) {
            return;
        }
        let Some(held) = self.records.get_mut(&offer) else { return };
        let attempt = held.record.attempt();
        let busy = matches!(refusal.code, RefusalCode::Overloaded | RefusalCode::RateLimited);
        let least = refusal.retry_after.unwrap_or(if busy { Millis::ZERO } else { Millis::from_secs(5) });
        held.retry.failed(self.now.boot, least, BACKOFF_MAX, &*self.entropy);
        let text = format!("refused: {refusal}");
        match refusal.code {
            _ if busy => self.report(Level::Warning, Some(attempt), text),
            RefusalCode::LimitExceeded => self.fault(FaultKind::TooLarge, Some(attempt), text),
            _ => self.fault(FaultKind::Refused, Some(attempt), text),
        }
    }

    fn report_lease_loss(&mut self, offer: OfferId, refusal: &Refusal) {
        let attempt = self.records.get(&offer).map(|held| held.record.attempt());
        self.report(Level::Warning, attempt, format!("the lease is lost before anything started: {}", refusal.message));
    }

    fn running_acknowledged(&mut self, offer: OfferId) {
        let Some(held) = self.records.get(&offer) else { return };
        if let Stage::Started { callback, handle } = held.record.stage.clone() {
            self.write(offer, Stage::RunningAcknowledged { callback, handle });
        }
    }
}

impl Held {
    fn may_start(&mut self, sent: BootInstant, answer: &StartingAnswer) {
        self.lease_extended(sent, Millis::ZERO, &answer.lease);
        self.timeout_at = answer.timeout.map(|timeout| sent.plus(timeout));
    }

    /// A write failed or is unsure. What was about to be written is not assumed; the facts are kept.
    fn keep_unwritten(&mut self, next: &crate::inbox::record::Record) {
        if let Stage::Launching { .. } = next.stage {
            // Not launched: the next try makes a token of its own.
            self.prepared = None;
            self.token = None;
        }
        if let Stage::Started { .. } = next.stage {
            // Asked again from what the barrier says.
            self.known = Known::Nothing;
        }
    }
}

pub(super) fn closed(reason: ClosedReason) -> Stage {
    Stage::Closed { reason, released: None, evidence: None }
}
