//! A control plane of one worker, in memory, over the real decisions of `core`: no store, no dispatcher.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::actor::Actor;
use leasehold_core::admission::{Submission, admit};
use leasehold_core::attempt::{self, Attempt, AttemptState, Held};
use leasehold_core::cancel;
use leasehold_core::change::Change;
use leasehold_core::claim::{self, AskVerdict, Waiting};
use leasehold_core::counter::AttemptNumber;
use leasehold_core::crypto::{Digest, Domain, Ticket};
use leasehold_core::directive::{self, Directive};
use leasehold_core::end::{self, EndCall, EndFacts};
use leasehold_core::expiry;
use leasehold_core::fault::Fault;
use leasehold_core::id::{AttemptId, EnrollmentId, OfferId, ProjectName, RunId, SessionId, WorkerId};
use leasehold_core::lease::{self, Lease, LeaseFence, LeaseState};
use leasehold_core::log;
use leasehold_core::occupancy::Limited;
use leasehold_core::offer::Offer;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::{Cadence, Registration, RegistrationVerdict, register};
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState};
use leasehold_core::session::{self, Session, SessionFence};
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::{Entropy, LeaseInstant, Millis, Now, UtcMillis};
use leasehold_core::worker::{Worker, WorkerState};

use super::super::port::{Answer, AskAnswer, Call, HeldLease, SessionNumbers};
use super::world::decode_registration;

pub(super) struct Control {
    pub(super) worker: Worker,
    sessions: BTreeMap<SessionId, Session>,
    tickets: TicketKey,
    pub(super) runs: BTreeMap<RunId, (Run, Revision)>,
    pub(super) attempts: BTreeMap<AttemptId, Attempt>,
    leases: BTreeMap<OfferId, Lease>,
    pub(super) logs: BTreeMap<AttemptId, u64>,
    pub(super) copies: usize,
    /// Nobody may speak as this worker any more.
    pub(super) revoked: bool,
    /// What the worker said last of its faults.
    pub(super) faults: Vec<Fault>,
    /// How far its wall clock is ahead, in milliseconds.
    pub(super) skew: i64,
    cadence: Cadence,
    now: Now,
}

type Answered = Result<Answer, Refusal>;

impl Control {
    pub(super) fn new(worker: WorkerId, entropy: &dyn Entropy) -> Self {
        let at = UtcMillis::new(1_800_000_000_000);
        Self {
            worker: Worker {
                id: worker,
                enrollment: EnrollmentId::new(at, entropy),
                state: WorkerState::Active,
                labels: BTreeMap::new(),
                current: None,
                generation: None,
                rival: None,
                drain: None,
                takeover: None,
                enrolled_at: at,
                certificate_expires_at: at,
            },
            sessions: BTreeMap::new(),
            tickets: TicketKey::from_bytes([5; 32]),
            runs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            leases: BTreeMap::new(),
            logs: BTreeMap::new(),
            copies: 0,
            revoked: false,
            faults: Vec::new(),
            skew: 0,
            cadence: Cadence::default(),
            now: Now { lease: LeaseInstant::new(0), utc: at },
        }
    }

    pub(super) fn first_ticket(&self) -> Ticket {
        self.tickets.first(&self.worker.id, self.worker.enrollment)
    }

    pub(super) fn at(&mut self, millis: i64, entropy: &dyn Entropy) {
        let start = 1_800_000_000_000;
        self.now = Now { lease: LeaseInstant::new(millis), utc: UtcMillis::new(start + millis) };
        let leases: Vec<_> = self.leases.values().cloned().collect();
        for lease in leases {
            let (run, attempt, revision) = self.facts(lease.attempt);
            if let Some(change) = expiry::expire(&run, &attempt, &lease, &revision.policy(), self.now) {
                self.apply(change);
            }
        }
        let runs: Vec<_> = self.runs.values().map(|(run, _)| run.clone()).collect();
        for run in runs {
            let latest = self.latest(&run);
            let next = AttemptId::new(self.now.utc, entropy);
            if let Some(change) = expiry::retry_due(&run, &latest, next, self.now) {
                self.apply(change);
            }
        }
    }

    pub(super) fn submit(&mut self, revision: Revision, entropy: &dyn Entropy) -> RunId {
        let id = RunId::new(self.now.utc, entropy);
        let attempt = AttemptId::new(self.now.utc, entropy);
        let submission =
            Submission { project: &ProjectName::default(), task: None, revision: &revision, scheduled: None };
        let change = admit(submission, id, attempt, &Actor::System, self.now);
        self.runs.insert(id, (change.run.clone().unwrap(), revision));
        self.apply(change);
        id
    }

    pub(super) fn cancel(&mut self, run: RunId) {
        let run = self.runs[&run].0.clone();
        let latest = self.latest(&run);
        if let Ok((_, change)) = cancel::cancel(&run, &latest, &Actor::System, None, self.now) {
            self.apply(change);
        }
    }

    pub(super) fn state(&self, run: RunId) -> RunState {
        self.runs[&run].0.state
    }

    fn latest(&self, run: &Run) -> Attempt {
        let mut attempts = self.attempts.values().filter(|attempt| attempt.run == run.id);
        attempts.find(|attempt| attempt.number == run.latest).unwrap().clone()
    }

    fn facts(&self, attempt: AttemptId) -> (Run, Attempt, Revision) {
        let attempt = self.attempts[&attempt].clone();
        let (run, revision) = self.runs[&attempt.run].clone();
        (run, attempt, revision)
    }

    fn apply(&mut self, change: Change) {
        if let Some(run) = change.run {
            let id = run.id;
            self.runs.get_mut(&id).unwrap().0 = run;
        }
        for attempt in [change.attempt, change.other_attempt].into_iter().flatten() {
            self.attempts.insert(attempt.id, attempt);
        }
        if let Some(lease) = change.lease {
            self.leases.insert(lease.offer, lease);
        }
    }

    fn current(&self) -> Option<&Session> {
        self.worker.current.as_ref().and_then(|id| self.sessions.get(id))
    }

    fn fence(&self, numbers: SessionNumbers) -> SessionFence {
        SessionFence { worker: self.worker.id.clone(), session: numbers.session, generation: numbers.generation }
    }

    fn live(&self, numbers: SessionNumbers) -> Result<Session, Refusal> {
        session::check_live(self.current(), &self.fence(numbers), self.now.lease).cloned()
    }

    fn lease_of(&self, attempt: AttemptId) -> Option<Lease> {
        let of_attempt = self.leases.values().filter(|lease| lease.attempt == attempt);
        of_attempt.max_by_key(|lease| lease.generation).cloned()
    }

    fn lease_fence(lease: &HeldLease) -> LeaseFence {
        LeaseFence {
            attempt: lease.attempt,
            offer: lease.offer,
            generation: lease.generation,
            token: lease.token.digest(),
        }
    }

    pub(super) fn directives(&self) -> Vec<Directive> {
        let drain = self.current().and_then(|session| directive::of_drain(&self.worker, session));
        let attempts = self.attempts.values();
        let stops = attempts.filter_map(|attempt| cancel::directive(&self.runs[&attempt.run].0, attempt));
        drain.into_iter().chain(stops.map(Directive::Stop)).collect()
    }

    /// A person drains the worker, or ends it.
    pub(super) fn drain(&mut self, drain: bool) {
        let next = if drain { self.worker.drained(&Actor::System, None, self.now) } else { self.worker.resumed() };
        self.worker = next.unwrap_or_else(|| self.worker.clone());
    }

    /// What the live session said last of its slots and of the drain.
    pub(super) fn said(&self) -> (u16, bool) {
        self.current().map_or((0, false), |session| (session.slots, session.obeys_drain))
    }

    /// One call, decided and applied.
    pub(super) fn call(&mut self, call: &Call, log: &dyn Fn(AttemptId) -> u64) -> Answered {
        if self.revoked {
            return Err(Refusal::new(RefusalCode::Revoked, "its identity was revoked"));
        }
        match call {
            Call::Register { session, body } => self.register(*session, body),
            Call::Heartbeat { session, version, said, faults, renewals } => {
                let beaten = session::beat(self.current(), &self.fence(*session), *version, *said, self.now)?;
                self.sessions.insert(beaten.id, beaten.clone());
                if let Some(faults) = faults {
                    self.faults.clone_from(faults);
                }
                let mut verdicts = Vec::new();
                for renewal in renewals {
                    let verdict = self.with(&beaten, &renewal.lease, |held, fence, _, now| {
                        lease::renew(held.lease, held.attempt, fence, held.session, renewal.left.as_ref(), now)
                    });
                    verdicts.push((renewal.lease.attempt, verdict));
                }
                let now = UtcMillis::new(self.now.utc.get() + self.skew);
                Ok(Answer::Beaten { session: beaten.projection(self.now.lease), renewals: verdicts, now })
            }
            Call::Drain { session, version } => {
                let drained = session::drain(self.current(), &self.fence(*session), *version, self.now)?;
                self.sessions.insert(drained.id, drained.clone());
                Ok(Answer::Drained(drained.projection(self.now.lease)))
            }
            Call::Offline { session, version } => {
                let active = self.active();
                let gone = session::offline(self.current(), &self.fence(*session), *version, active, self.now)?;
                self.sessions.insert(gone.id, gone);
                Ok(Answer::Offline)
            }
            Call::Pull { session, asks, .. } => {
                let live = self.live(*session)?;
                let asks = asks.iter().map(|ask| (ask.offer, self.ask(&live, ask.offer, ask.token.digest()))).collect();
                Ok(Answer::Pulled { held: Millis::ZERO, asks })
            }
            Call::Starting { session, lease } => {
                let live = self.live(*session)?;
                self.with(&live, lease, attempt::starting).map(Answer::Starting)
            }
            Call::Running { session, lease, running } => {
                let live = self.live(*session)?;
                self.with(&live, lease, |held, fence, _, now| attempt::running(held, fence, running, now))
                    .map(Answer::Running)
            }
            Call::Release { session, lease, reason } => {
                let live = self.live(*session)?;
                self.with(&live, lease, |held, fence, _, now| claim::release(held, fence, *reason, None, now))
                    .map(|_| Answer::Released)
            }
            Call::End { session, lease, end } => self.end(*session, lease, end),
            Call::Log { session, lease, offset, most } => {
                let live = self.live(*session)?;
                let written = log(lease.attempt);
                let length = usize::try_from(written.saturating_sub(*offset)).unwrap().min(*most);
                let (run, attempt, _) = self.facts(lease.attempt);
                let known = self.lease_of(lease.attempt);
                let held = Held { session: &live, run: &run, attempt: &attempt, lease: known.as_ref() };
                let received = self.logs.entry(lease.attempt).or_default();
                let fence = Self::lease_fence(lease);
                let fit = log::append(held, &fence, *offset, length, *received, self.now)?;
                *received += u64::try_from(fit.fresh).unwrap();
                Ok(Answer::Log { durable: *received })
            }
        }
    }

    fn active(&self) -> usize {
        self.leases.values().filter(|lease| lease.state == LeaseState::Active && lease.expires > self.now.lease).count()
    }

    fn with<T>(
        &mut self,
        session: &Session,
        lease: &HeldLease,
        decide: impl FnOnce(Held<'_>, &LeaseFence, &leasehold_core::run::Policy, Now) -> Result<(T, Change), Refusal>,
    ) -> Result<T, Refusal> {
        if !self.attempts.contains_key(&lease.attempt) {
            return Err(lease::not_held());
        }
        let (run, attempt, revision) = self.facts(lease.attempt);
        let known = self.lease_of(lease.attempt);
        let held = Held { session, run: &run, attempt: &attempt, lease: known.as_ref() };
        let (answer, change) = decide(held, &Self::lease_fence(lease), &revision.policy(), self.now)?;
        self.apply(change);
        Ok(answer)
    }

    fn register(&mut self, session: SessionId, body: &str) -> Answered {
        let (ticket, boot, capabilities, max_runs) = decode_registration(body);
        let registration = Registration {
            session,
            ticket,
            capabilities,
            max_runs,
            boot,
            software: "test".to_owned(),
            protocol: 1,
            body: Digest::of(Domain::Registration, body.as_bytes()),
        };
        let known = self.sessions.contains_key(&session);
        let verdict =
            register(&self.worker, self.current(), known, &registration, &self.tickets, self.cadence, self.now);
        match verdict {
            RegistrationVerdict::Accepted { worker, session, .. } => {
                self.worker = *worker;
                self.sessions.insert(session.id, *session);
            }
            RegistrationVerdict::Repeated => {}
            RegistrationVerdict::Refused { refusal, rival, copied } => {
                if let Some(rival) = rival {
                    self.worker.rival = Some(rival);
                }
                self.copies += usize::from(copied);
                return Err(refusal);
            }
        }
        let current = self.current().unwrap();
        Ok(Answer::Registered {
            session: current.projection(self.now.lease),
            ticket: self.tickets.next(&self.worker.id, current.id, current.generation),
        })
    }

    fn ask(&mut self, session: &Session, offer: OfferId, token: Digest) -> AskAnswer {
        let ask = claim::Ask { offer, token };
        let known =
            self.leases.get(&offer).cloned().map(|lease| (lease.clone(), self.attempts[&lease.attempt].clone()));
        match claim::recover_ask(&ask, known.as_ref().map(|(lease, attempt)| (lease, attempt)), session, self.now) {
            AskVerdict::Granted(granted) => {
                let (lease, change) = *granted;
                self.apply(change);
                AskAnswer::Granted(Box::new(self.offer(&lease)))
            }
            AskVerdict::Gone => AskAnswer::Gone,
            AskVerdict::Open => {
                let pending = self.runs.values().find(|(run, _)| run.state == RunState::Pending).cloned();
                let Some((run, revision)) = pending else { return AskAnswer::None };
                let attempt = self.latest(&run);
                let limits = Limited::default();
                let (policy, busy) = (revision.policy(), BTreeSet::new());
                let gpu = revision.placement().require().gpu.as_ref();
                let waiting = Waiting { run: &run, attempt: &attempt, policy: &policy, limits, gpu, busy: &busy };
                match claim::claim(&self.worker, session, self.active(), waiting, &ask, 0, self.now) {
                    Ok((lease, change)) => {
                        self.apply(change);
                        AskAnswer::Granted(Box::new(self.offer(&lease)))
                    }
                    Err(_) => AskAnswer::None,
                }
            }
        }
    }

    fn offer(&self, lease: &Lease) -> Offer {
        let (run, attempt, revision) = self.facts(lease.attempt);
        Offer {
            offer: lease.offer,
            run: run.id,
            attempt: attempt.id,
            number: attempt.number,
            project: run.project,
            task: None,
            digest: revision.digest(),
            revision,
            fence: lease.fence,
            lease_generation: lease.generation,
            lease_version: lease.version,
            remaining: lease.expires.since(self.now.lease),
            lease: lease.length,
            score: 0,
            devices: lease.devices.clone(),
            created_at: run.created_at,
            after: None,
            scheduled_at: None,
        }
    }

    fn end(&mut self, numbers: SessionNumbers, lease: &HeldLease, said: &super::super::port::End) -> Answered {
        if !self.attempts.contains_key(&lease.attempt) {
            return Err(lease::not_held());
        }
        let call = EndCall {
            session: self.fence(numbers),
            lease: Self::lease_fence(lease),
            ending: said.ending.clone(),
            callback: said
                .callback
                .as_ref()
                .map(|(callback, token)| attempt::Callback { sequence: callback.sequence, token: token.digest() }),
            running: said.running.clone(),
            log: said.log,
            usage: said.usage,
            left: said.left.clone(),
            body: Digest::of(Domain::Body, format!("{said:?}").as_bytes()),
        };
        let (run, attempt, revision) = self.facts(lease.attempt);
        let known = self.lease_of(lease.attempt);
        let latest = self.latest(&run);
        let facts =
            EndFacts { current: self.current(), run: &run, attempt: &attempt, latest: &latest, lease: known.as_ref() };
        let (answer, change) = end::end(facts, &call, &revision.policy(), self.now);
        self.apply(change);
        answer.map(Answer::Ended)
    }

    /// Every attempt that may have a live process, by the control plane's knowledge.
    pub(super) fn open_attempts(&self) -> usize {
        let open = |state: AttemptState| matches!(state, AttemptState::Claimed) || state.is_started();
        self.attempts.values().filter(|attempt| open(attempt.state)).count()
    }

    /// How many claims there ever were.
    pub(super) fn claims(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn first_attempts_only(&self) -> bool {
        self.attempts.values().all(|attempt| attempt.number == AttemptNumber::FIRST)
    }
}
