//! One session: from the durable registration intent to the live session, or to the end of this state directory.
//!
//! An unanswered registration of an earlier life is repeated exactly as it was, to learn its ticket; then this life
//! registers a session of its own. One ticket is one registration. (Worker design, *One start path*; protocol,
//! *Sessions*.)

use leasehold_core::counter::SessionVersion;
use leasehold_core::crypto::Ticket;
use leasehold_core::id::SessionId;
use leasehold_core::limits::BACKOFF_MAX;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::SessionProjection;
use leasehold_core::time::Millis;

use super::backoff::Retry;
use super::port::{Answer, Call, Effect, Exit, Level, Outcome, SessionNumbers};
use super::{Barred, CALL_TIMEOUT, Engine, Owner, RegistrationFacts};
use crate::session_file::{Intent, SessionFile, Stopped};

/// How this life becomes a session.
#[derive(Debug)]
pub(super) struct Life {
    /// What is durable.
    file: SessionFile,
    /// What is being written, and who it makes us once it is durable.
    writing: Option<(SessionFile, Option<Live>)>,
    /// The session that this very process began.
    own: Option<SessionId>,
    busy: bool,
    pub(super) retry: Retry,
}

/// The live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) numbers: SessionNumbers,
    pub(super) version: SessionVersion,
    /// How often the server asks to be heard.
    pub(super) interval: Millis,
}

impl Life {
    pub(super) fn new(file: SessionFile) -> Self {
        Self { file, writing: None, own: None, busy: false, retry: Retry::default() }
    }
}

impl Engine {
    pub(super) fn advance_life(&mut self) {
        if self.exited || self.live.is_some() || self.life.busy {
            return;
        }
        match self.life.file.stopped {
            Some(Stopped::Fenced) => {
                let text = "this worker was fenced: another session took its place. It does not register again by \
                            itself: enroll the machine again with a new state directory; or, if this is the right \
                            machine, let an administrator `grant-takeover` and start it with --take-over";
                self.report(Level::Fault, None, text);
                return self.exit(Exit::Fenced);
            }
            Some(Stopped::TicketSpent) => {
                let text = "another process spent this worker's registration ticket: this state is a copy. Remove \
                            this state directory and enroll the machine again under a name of its own; or, if this is \
                            the right machine, let an administrator `grant-takeover` and start it with --take-over";
                self.report(Level::Fault, None, text);
                return self.exit(Exit::TicketSpent);
            }
            None => {}
        }
        // Inbox pages and verdicts come first; what cannot be read yet does not hold the session back for ever.
        let looking = self.records.values().any(super::held::Held::is_first_look);
        if looking || !self.life.retry.is_due(self.now.boot) {
            return;
        }
        if let Some((file, _)) = &self.life.writing {
            // The disk refused it; nothing else may happen before it takes it.
            let file = file.clone();
            return self.put_session(file);
        }
        match self.life.file.intent.clone() {
            Some(Intent { session, body }) => {
                self.life.busy = true;
                let op = self.op(Owner::Life);
                self.emit(Effect::Call { op, call: Call::Register { session, body }, timeout: CALL_TIMEOUT });
            }
            None => self.begin_registration(),
        }
    }

    fn begin_registration(&mut self) {
        let session = SessionId::new(self.now.utc, &*self.entropy);
        let body = (self.config.spell)(&RegistrationFacts {
            session,
            ticket: &self.life.file.ticket,
            capabilities: &self.config.capabilities,
            max_runs: self.config.max_runs,
            boot: &self.config.boot,
            software: &self.config.software,
        });
        self.life.own = Some(session);
        let file = SessionFile { intent: Some(Intent { session, body }), ..self.life.file.clone() };
        self.write_session(file, None);
    }

    fn write_session(&mut self, file: SessionFile, then: Option<Live>) {
        self.life.writing = Some((file.clone(), then));
        self.put_session(file);
    }

    fn put_session(&mut self, file: SessionFile) {
        self.life.busy = true;
        let op = self.op(Owner::Life);
        self.emit(Effect::WriteSession { op, file: Box::new(file) });
    }

    pub(super) fn session_written(&mut self, done: bool) {
        self.life.busy = false;
        if !done {
            self.life.retry.failed(self.now.boot, Millis::from_secs(1), BACKOFF_MAX, &*self.entropy);
            return;
        }
        self.life.retry.reset();
        if let Some((file, live)) = self.life.writing.take() {
            let stopped = file.stopped;
            self.life.file = file;
            if let Some(live) = live {
                self.begin_session(live);
            }
            match stopped {
                Some(Stopped::Fenced) => self.exit(Exit::Fenced),
                Some(Stopped::TicketSpent) => self.exit(Exit::TicketSpent),
                None => {}
            }
        }
    }

    fn begin_session(&mut self, live: Live) {
        let text = format!("session {} registered, generation {}", live.numbers.session, live.numbers.generation);
        self.report(Level::Info, None, text);
        self.live = Some(live);
        self.faults.session_began();
        self.beat.now();
    }

    pub(super) fn registration_answered(&mut self, outcome: Outcome) {
        self.life.busy = false;
        let Some(intent) = self.life.file.intent.clone() else { return };
        let ours = self.life.own == Some(intent.session);
        match outcome {
            Outcome::Answered(Answer::Registered { session, ticket }) => {
                self.life.retry.reset();
                self.barred = None;
                self.registered(&intent, ours, &session, ticket);
            }
            Outcome::Refused(refusal) => self.registration_refused(&refusal, ours),
            other => {
                let text = format!("the registration was not answered: {}", Self::outcome_failed(&other));
                self.report(Level::Warning, None, text);
                let most = self.patience();
                self.life.retry.failed(self.now.boot, Millis::ZERO, most, &*self.entropy);
            }
        }
    }

    fn registered(&mut self, intent: &Intent, ours: bool, session: &SessionProjection, ticket: Ticket) {
        let live = ours.then_some(Live {
            numbers: SessionNumbers { session: intent.session, generation: session.generation },
            version: session.version,
            interval: session.interval,
        });
        // The answer's ticket is durable before anything is done with the session.
        self.write_session(SessionFile { ticket, intent: None, stopped: None }, live);
    }

    fn registration_refused(&mut self, refusal: &Refusal, ours: bool) {
        let now = self.now.boot;
        let after = refusal.retry_after.unwrap_or(Millis::ZERO);
        match refusal.code {
            RefusalCode::TicketSpent => self.stop_for_good(Stopped::TicketSpent, &refusal.message),
            RefusalCode::SessionFenced | RefusalCode::ConflictReplay => {
                self.stop_for_good(Stopped::Fenced, &refusal.message);
            }
            RefusalCode::SessionLive => {
                // Never final: the intent stays, its ticket is unspent.
                self.report(Level::Warning, None, refusal.message.clone());
                self.life.retry.wait_until(now.plus(after.max(Millis::new(500))));
            }
            RefusalCode::UnsupportedProtocol if ours => {
                self.report(Level::Fault, None, refusal.message.clone());
                self.drop_intent();
                self.exit(Exit::ProtocolRefused);
            }
            RefusalCode::UnsupportedProtocol
            | RefusalCode::InvalidRequest
            | RefusalCode::UnknownField
            | RefusalCode::LimitExceeded => {
                // It spent nothing. What an earlier version of this program wrote is simply written anew.
                self.drop_intent();
                if ours {
                    self.report(Level::Fault, None, format!("the registration was refused: {}", refusal.message));
                    self.life.retry.failed(now, BACKOFF_MAX.part(2), BACKOFF_MAX, &*self.entropy);
                }
            }
            RefusalCode::Revoked => {
                self.bar(Barred::Revoked, &refusal.message);
                self.exit(Exit::Revoked);
            }
            RefusalCode::Unauthenticated => {
                self.bar(Barred::Unauthenticated, &refusal.message);
                self.life.retry.failed(now, after.max(Millis::from_secs(5)), BACKOFF_MAX, &*self.entropy);
            }
            _ => {
                self.report(Level::Warning, None, format!("the registration was refused: {refusal}"));
                self.life.retry.failed(now, after, BACKOFF_MAX, &*self.entropy);
            }
        }
    }

    fn drop_intent(&mut self) {
        let file = SessionFile { intent: None, ..self.life.file.clone() };
        self.life.own = None;
        self.write_session(file, None);
    }

    /// This state directory never registers again by itself; durable before the exit.
    pub(super) fn stop_for_good(&mut self, stopped: Stopped, message: &str) {
        if self.life.writing.as_ref().is_some_and(|(file, _)| file.stopped.is_some()) {
            return;
        }
        let text = match stopped {
            Stopped::Fenced => "fenced: the jobs stay with their launchers and their deadlines",
            Stopped::TicketSpent => "the registration ticket is spent: this process stops for good",
        };
        self.report(Level::Fault, None, format!("{message} ({text})"));
        self.live = None;
        self.beat.stop();
        let file = SessionFile { stopped: Some(stopped), ..self.life.file.clone() };
        self.write_session(file, None);
    }
}
