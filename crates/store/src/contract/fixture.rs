//! What the cases share: ids from a counter, machines that enroll and register, runs that are taken through their steps.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RunningCall, Starting, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::claim::Ask;
use leasehold_core::counter::{CallbackSequence, SessionVersion};
use leasehold_core::crypto::{Digest, Domain, Ticket};
use leasehold_core::end::{EndCall, Ended, Ending};
use leasehold_core::event::EventKind;
use leasehold_core::id::{
    ApiTokenId, AttemptId, BootId, EnrollmentId, OfferId, ProjectName, RunId, SessionId, WorkerId,
};
use leasehold_core::lease::{Lease, LeaseFence, LeaseProjection};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::registration::{Cadence, Registration};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::RunState;
use leasehold_core::session::{Said, Session, SessionFence, SessionProjection};
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::{Clock, Entropy, Millis, UtcMillis};

use super::{Harness, TestClock};
use crate::call::{
    AcknowledgeRunning, AdmitRun, AttemptStep, AuditPage, CancelRun, Claim, Enroll, EventsAfter, Heartbeat,
    NewEnrollment, RegisterSession, Renewal, ResolveRun, SessionStep,
};
use crate::outcome::{Outcome, Stored};
use crate::port::{ClaimRefused, Store};
use crate::view::{AskState, AuditEntry, Beaten, Grant, RunView, WorkerView};

/// What a case expects of an answer.
pub(super) trait Expect<T, R> {
    /// It changed something.
    fn applied(self) -> T;
    /// It had been applied before.
    fn replayed(self) -> T;
    /// It was refused.
    fn refused(self) -> R;
}

impl<T: Debug, R: Debug> Expect<T, R> for Stored<T, R> {
    #[track_caller]
    fn applied(self) -> T {
        match self {
            Ok(Outcome::Applied(answer)) => answer,
            other => panic!("expected it to be applied: {other:?}"),
        }
    }

    #[track_caller]
    fn replayed(self) -> T {
        match self {
            Ok(Outcome::Replayed(answer)) => answer,
            other => panic!("expected it to be a replay: {other:?}"),
        }
    }

    #[track_caller]
    fn refused(self) -> R {
        match self {
            Ok(Outcome::Refused(refusal)) => refusal,
            other => panic!("expected it to be refused: {other:?}"),
        }
    }
}

/// Bytes that differ at every call, so that ids are unique and the same in every run of a case.
#[derive(Default)]
struct Numbered(AtomicU64);

impl Entropy for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        bytes.fill(0);
        for (byte, part) in bytes.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte = part;
        }
    }
}

/// An enrolled machine.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) id: WorkerId,
    pub(super) enrollment: EnrollmentId,
}

/// A run that an agent holds the lease of.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) run: RunId,
    pub(super) attempt: AttemptId,
    pub(super) step: AttemptStep,
    pub(super) grant: Grant,
}

impl Taken {
    /// What this process would say when it runs: one launch per attempt and generation.
    pub(super) fn running_call(&self) -> RunningCall {
        RunningCall {
            handle: Handle { boot: boot("boot-a"), pid: 4242, start_time: 99 },
            callback: self.callback(),
            started_at: UtcMillis::new(1_800_000_000_500),
        }
    }

    pub(super) fn callback(&self) -> Callback {
        Callback { sequence: CallbackSequence::FIRST, token: self.completion("the launch") }
    }

    pub(super) fn completion(&self, secret: &str) -> Digest {
        Digest::of(Domain::CompletionToken, format!("{}{secret}", self.attempt).as_bytes())
    }

    /// An `end` by the launch of [`Self::callback`] where the ending is a launcher's word.
    pub(super) fn end_call(&self, ending: Ending) -> EndCall {
        let said = matches!(ending, Ending::Exited { .. } | Ending::Stopped { .. });
        let body = Digest::of(Domain::Body, format!("{}{ending:?}", self.attempt).as_bytes());
        EndCall {
            session: self.step.session.clone(),
            lease: self.step.lease.clone(),
            callback: said.then(|| self.callback()),
            running: said.then(|| self.running_call()),
            log: said.then(|| log_pin(b"")),
            usage: None,
            left: None,
            ending,
            body,
        }
    }

    /// The same lease in the hands of another session.
    pub(super) fn held_by(&self, session: &SessionFence) -> Self {
        let mut taken = self.clone();
        taken.step.session = session.clone();
        taken
    }
}

/// Everything a case does to a store.
pub(super) struct World<'h> {
    harness: &'h dyn Harness,
    pub(super) store: Arc<dyn Store>,
    entropy: Numbered,
}

#[expect(clippy::unused_self, reason = "a case reads as what its world does")]
impl<'h> World<'h> {
    pub(super) fn new(harness: &'h dyn Harness) -> Self {
        Self { harness, store: harness.store(), entropy: Numbered::default() }
    }

    /// Begins this world's ids at `number`, for a case with several worlds.
    pub(super) fn number_from(&self, number: u64) {
        self.entropy.0.store(number, Ordering::SeqCst);
    }

    pub(super) fn clock(&self) -> &TestClock {
        self.harness.clock()
    }

    pub(super) fn pass(&self, span: Millis) {
        self.clock().advance(span);
    }

    pub(super) async fn dump(&self) -> String {
        self.harness.dump().await
    }

    /// Runs `step` and insists that no row changed.
    pub(super) async fn unchanged<T>(&self, step: impl Future<Output = T>) -> T {
        let before = self.dump().await;
        let answer = step.await;
        let after = self.dump().await;
        assert_eq!(before, after, "the store must not change");
        answer
    }

    pub(super) fn token_id(&self) -> ApiTokenId {
        ApiTokenId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn enrollment_id(&self) -> EnrollmentId {
        EnrollmentId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn session_id(&self) -> SessionId {
        SessionId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn run_id(&self) -> RunId {
        RunId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn attempt_id(&self) -> AttemptId {
        AttemptId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn offer_id(&self) -> OfferId {
        OfferId::new(self.clock().utc(), &self.entropy)
    }

    pub(super) fn ask(&self) -> Ask {
        let offer = self.offer_id();
        Ask { offer, token: Digest::of(Domain::LeaseToken, offer.as_bytes()) }
    }

    pub(super) fn new_enrollment(&self, worker: &str) -> NewEnrollment {
        let id = self.enrollment_id();
        NewEnrollment {
            id,
            worker: worker.parse().unwrap(),
            labels: BTreeMap::from([("site".to_owned(), "attic".to_owned())]),
            token: Digest::of(Domain::EnrollmentToken, id.as_bytes()),
            expires_at: self.clock().utc().plus(Millis::from_secs(900)),
        }
    }

    pub(super) fn enroll_call(&self, enrollment: &NewEnrollment, key: &str) -> Enroll {
        Enroll {
            token: enrollment.token,
            public_key: Digest::of(Domain::PublicKey, key.as_bytes()),
            certificate: format!("certificate of {key}").into_bytes(),
            certificate_expires_at: self.clock().utc().plus(Millis::from_secs(90 * 86_400)),
            origin: Some(machine_origin()),
        }
    }

    /// A machine that has become the worker `name`.
    pub(super) async fn machine(&self, name: &str) -> Machine {
        let enrollment = self.new_enrollment(name);
        self.store.create_enrollment(admin(), enrollment.clone()).await.applied();
        let enrolled = self.store.enroll(self.enroll_call(&enrollment, name)).await.applied();
        Machine { id: enrolled.worker, enrollment: enrolled.enrollment }
    }

    /// The ticket that the machine holds now.
    pub(super) async fn ticket(&self, machine: &Machine) -> Ticket {
        match self.store.worker(&machine.id).await.unwrap().unwrap().session {
            Some(session) => tickets().next(&machine.id, session.id, session.generation),
            None => tickets().first(&machine.id, machine.enrollment),
        }
    }

    /// A registration of `session` with `ticket` from `boot_id`.
    pub(super) fn registration(
        &self,
        machine: &Machine,
        session: SessionId,
        ticket: Ticket,
        boot_id: &str,
    ) -> RegisterSession {
        let body = format!("{session}{}{boot_id}", ticket.digest());
        RegisterSession {
            worker: machine.id.clone(),
            registration: Registration {
                session,
                ticket,
                capabilities: capabilities(),
                max_runs: 4,
                boot: boot(boot_id),
                software: "1.2.3".to_owned(),
                protocol: 1,
                body: Digest::of(Domain::Registration, body.as_bytes()),
            },
            tickets: tickets(),
            cadence: Cadence::default(),
            origin: Some(machine_origin()),
        }
    }

    /// A new session of the machine, registered with the ticket it holds.
    pub(super) async fn session(&self, machine: &Machine, boot_id: &str) -> SessionFence {
        let call = self.registration(machine, self.session_id(), self.ticket(machine).await, boot_id);
        let session = call.registration.session;
        let projection = self.store.register_session(call).await.applied();
        SessionFence { worker: machine.id.clone(), session, generation: projection.generation }
    }

    /// A live session of a new machine, of boot `boot-a`.
    pub(super) async fn agent(&self, name: &str) -> (Machine, SessionFence) {
        let machine = self.machine(name).await;
        let session = self.session(&machine, "boot-a").await;
        (machine, session)
    }

    pub(super) async fn worker(&self, id: &WorkerId) -> WorkerView {
        self.store.worker(id).await.unwrap().unwrap()
    }

    /// The current session of a worker, as stored.
    pub(super) async fn current(&self, id: &WorkerId) -> Session {
        self.worker(id).await.session.unwrap()
    }

    pub(super) async fn version(&self, session: &SessionFence) -> SessionVersion {
        self.current(&session.worker).await.version
    }

    /// A beat that renews these leases.
    pub(super) async fn beat_call(&self, session: &SessionFence, leases: &[&Taken]) -> Heartbeat {
        let renewals = leases
            .iter()
            .map(|taken| Renewal { fence: taken.step.lease.clone(), version: taken.grant.lease.version, left: None })
            .collect();
        let said = Said { slots: 4, obeys_drain: false };
        Heartbeat { session: session.clone(), version: self.version(session).await, said, faults: None, renewals }
    }

    pub(super) async fn beat(&self, session: &SessionFence, leases: &[&Taken]) -> Stored<Beaten, Refusal> {
        self.store.heartbeat(self.beat_call(session, leases).await).await
    }

    /// An active lease as its holder would find it again.
    pub(super) async fn lease(&self, taken: &Taken) -> Lease {
        let ask = Ask { offer: taken.step.lease.offer, token: taken.step.lease.token };
        let pull = self.store.recover_asks(taken.step.session.clone(), vec![ask]).await.unwrap();
        match pull.into_result().unwrap().asks.remove(0) {
            AskState::Granted(grant) => grant.lease,
            other => panic!("the lease is not active: {other:?}"),
        }
    }

    /// What a beat says about one lease.
    pub(super) async fn renewal(&self, taken: &Taken) -> Result<LeaseProjection, Refusal> {
        let beaten = self.beat(&taken.step.session, &[taken]).await.applied();
        assert_eq!(beaten.leases.len(), 1);
        assert_eq!(beaten.leases[0].0, taken.attempt);
        beaten.leases[0].1.clone()
    }

    pub(super) async fn drain(&self, session: &SessionFence) -> Stored<SessionProjection, Refusal> {
        let version = self.version(session).await;
        self.store.drain_session(SessionStep { session: session.clone(), version }).await
    }

    pub(super) async fn offline(&self, session: &SessionFence) -> Stored<SessionProjection, Refusal> {
        let version = self.version(session).await;
        self.store.offline_session(SessionStep { session: session.clone(), version }).await
    }

    pub(super) fn submission(&self, revision: Revision) -> AdmitRun {
        AdmitRun {
            actor: admin(),
            run: self.run_id(),
            attempt: self.attempt_id(),
            project: ProjectName::default(),
            task: None,
            of: None,
            revision,
            idempotency_key: None,
        }
    }

    /// A pending run of `revision`.
    pub(super) async fn run(&self, revision: Revision) -> RunId {
        self.store.admit_run(self.submission(revision)).await.applied().run.id
    }

    pub(super) async fn view(&self, run: RunId) -> RunView {
        self.store.run(run).await.unwrap().unwrap()
    }

    pub(super) async fn state(&self, run: RunId) -> RunState {
        self.view(run).await.run.state
    }

    pub(super) fn claim_call(&self, session: &SessionFence, ask: &Ask, run: RunId) -> Claim {
        Claim { session: session.clone(), ask: ask.clone(), run, score: 7 }
    }

    /// Claims `run` with a new ask.
    pub(super) async fn try_take(&self, session: &SessionFence, run: RunId) -> Result<Taken, ClaimRefused> {
        let grant = self.store.claim(self.claim_call(session, &self.ask(), run)).await.unwrap().into_result()?;
        Ok(taken(session, grant))
    }

    pub(super) async fn take(&self, session: &SessionFence, run: RunId) -> Taken {
        self.try_take(session, run).await.unwrap()
    }

    /// A run of `revision`, claimed.
    pub(super) async fn claimed(&self, session: &SessionFence, revision: Revision) -> Taken {
        let run = self.run(revision).await;
        self.take(session, run).await
    }

    /// A run of `revision`, starting.
    pub(super) async fn starting(&self, session: &SessionFence, revision: Revision) -> Taken {
        let taken = self.claimed(session, revision).await;
        self.start(&taken).await;
        taken
    }

    /// A run of `revision` whose process runs.
    pub(super) async fn running(&self, session: &SessionFence, revision: Revision) -> Taken {
        let taken = self.starting(session, revision).await;
        self.acknowledge_running(&taken).await.applied();
        taken
    }

    /// `claimed → starting`.
    pub(super) async fn start(&self, taken: &Taken) {
        let answer = self.store.acknowledge_starting(taken.step.clone()).await.applied();
        assert!(matches!(answer, Starting::Accepted(_)), "{answer:?}");
    }

    pub(super) async fn acknowledge_running(&self, taken: &Taken) -> Stored<LeaseProjection, Refusal> {
        let call = taken.running_call();
        self.store.acknowledge_running(AcknowledgeRunning { step: taken.step.clone(), call }).await
    }

    pub(super) async fn end(&self, taken: &Taken, ending: Ending) -> Stored<Ended, Refusal> {
        self.store.end(taken.end_call(ending)).await
    }

    pub(super) fn cancel_call(&self, run: RunId) -> CancelRun {
        CancelRun { actor: admin(), run, why: Some("no longer needed".to_owned()) }
    }

    /// A person's word about a run, whichever its latest attempt is.
    pub(super) fn resolve_call(&self, run: RunId, verb: Verb) -> ResolveRun {
        ResolveRun { actor: admin(), run, verb, why: Some("looked at the machine".to_owned()), attempt: None }
    }

    /// Lets the lease of an attempt that nobody renews run out, and declares it.
    pub(super) async fn expire(&self, taken: &Taken) {
        let length = taken.grant.lease.length.max(Millis::from_secs(20));
        self.pass(length.plus(Millis::from_secs(2)));
        let scanned = self.store.expire_leases(64).await.unwrap();
        assert!(scanned.runs.contains(&taken.run), "{scanned:?}");
    }

    /// Lets the longest back-off pass and begins the attempt that is due; claims it with `session`.
    pub(super) async fn next_attempt(&self, run: RunId) -> AttemptId {
        self.pass(Millis::from_secs(3600));
        let scanned = self.store.begin_retries(vec![self.attempt_id()]).await.unwrap();
        assert_eq!(scanned.runs, [run]);
        self.view(run).await.attempts.last().unwrap().id
    }

    /// The kinds of a run's events, in order; their sequence is checked on the way.
    pub(super) async fn story(&self, run: RunId) -> Vec<EventKind> {
        let events = self.store.events(EventsAfter { run, after: None }, 1000).await.unwrap();
        for (event, sequence) in events.iter().zip(1..) {
            assert_eq!(event.sequence.get(), sequence, "sequences have no gap");
            assert_eq!(event.run, run);
        }
        events.iter().map(|event| event.kind).collect()
    }

    pub(super) async fn audit(&self) -> Vec<AuditEntry> {
        self.store.audit(AuditPage::Oldest { after: None }, 1000).await.unwrap()
    }

    /// How many audit rows of this action there are.
    pub(super) async fn audited(&self, action: &str) -> usize {
        self.audit().await.iter().filter(|entry| entry.action == action).count()
    }
}

/// The lease of a grant in the hands of `session`.
pub(super) fn taken(session: &SessionFence, grant: Grant) -> Taken {
    let lease = LeaseFence {
        attempt: grant.attempt.id,
        offer: grant.lease.offer,
        generation: grant.lease.generation,
        token: grant.lease.token,
    };
    let step = AttemptStep { session: session.clone(), lease };
    Taken { run: grant.run.id, attempt: grant.attempt.id, step, grant }
}

/// Where the machines of the cases call from.
pub(super) fn machine_origin() -> Origin {
    Origin::Address([192, 0, 2, 7].into())
}

pub(super) fn admin() -> Actor {
    Actor::Local { uid: 1000 }
}

pub(super) fn tickets() -> TicketKey {
    TicketKey::from_bytes([7; 32])
}

pub(super) fn boot(id: &str) -> BootId {
    id.parse().unwrap()
}

pub(super) fn seconds(seconds: u64) -> Millis {
    Millis::from_secs(seconds)
}

pub(super) fn capabilities() -> Capabilities {
    Capabilities::new(Claimed {
        arch: "x86_64".to_owned(),
        os: "linux".to_owned(),
        executors: ["process".to_owned()].into(),
        memory_mib: 1024,
        disk_mib: 4096,
        ..Claimed::default()
    })
    .unwrap()
}

/// A revision that runs `true`, with these further entries of a task file.
pub(super) fn revision_with(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Revision {
    let command = Value::map([("argv", Value::List(vec![Value::text("true")]))]);
    let entries = entries.into_iter().chain([("command", command)]);
    Revision::from_value(&Value::map(entries)).unwrap()
}

/// A revision with every default: a lost run is held, nothing is retried but what never ran.
pub(super) fn plain() -> Revision {
    revision_with([])
}

/// A revision whose lost runs are retried.
pub(super) fn retried_when_lost() -> Revision {
    revision_with([("retry", Value::map([("on_lost", Value::text("retry")), ("safety", Value::text("idempotent"))]))])
}

/// A revision whose lost runs fail.
pub(super) fn failed_when_lost() -> Revision {
    revision_with([("retry", Value::map([("on_lost", Value::text("fail"))]))])
}

pub(super) fn exited(code: u8) -> Ending {
    Ending::Exited { status: ExitStatus::Code(code), at: UtcMillis::new(1_800_000_009_000) }
}

pub(super) fn stopped(reason: StopReason) -> Ending {
    Ending::Stopped { reason, status: ExitStatus::Signal(15), at: UtcMillis::new(1_800_000_009_000) }
}

pub(super) fn log_pin(bytes: &[u8]) -> LogPin {
    let digest = Digest::of(Domain::Log, bytes);
    LogPin { length: u64::try_from(bytes.len()).unwrap(), digest, cut: None, finished: true }
}

#[track_caller]
pub(super) fn assert_code(refusal: &Refusal, code: RefusalCode) {
    assert_eq!(refusal.code, code, "{refusal}");
}
