//! What the adapters' own tests play through: ids from a counter, machines that enroll and register, runs, steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::actor::Actor;
use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RunningCall};
use leasehold_core::canonical::Value;
use leasehold_core::capability::{Capabilities, Claimed, Gpu};
use leasehold_core::claim::Ask;
use leasehold_core::counter::CallbackSequence;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::end::{EndCall, Ending};
use leasehold_core::id::{ApiTokenId, AttemptId, EnrollmentId, OfferId, ProjectName, RunId, SessionId};
use leasehold_core::lease::LeaseFence;
use leasehold_core::registration::{Cadence, Registration};
use leasehold_core::revision::Revision;
use leasehold_core::session::SessionFence;
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::{Clock as _, Entropy, Millis};
use leasehold_store::call::{AdmitRun, AttemptStep, Claim, Enroll, NewEnrollment, RegisterSession};
use leasehold_store::contract::TestClock;
use leasehold_store::port::Store;
use leasehold_store::view::Grant;

mod every_call;

pub(crate) use every_call::{every_call, told_of_every_method};

/// A store, the clock that it reads, and everything that is done to it.
pub(crate) struct Scene<S> {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store: S,
    numbers: Numbers,
}

/// Bytes that differ at every call and are the same in every run of a test.
#[derive(Default)]
struct Numbers(AtomicU64);

impl Entropy for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        bytes.fill(0);
        for (byte, part) in bytes.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte = part;
        }
    }
}

pub(crate) fn tickets() -> TicketKey {
    TicketKey::from_bytes([9; 32])
}

pub(crate) fn revision(entries: &[(&str, Value)]) -> Revision {
    let mut all = BTreeMap::from([("command".to_owned(), Value::map([("argv", Value::texts(["true"]))]))]);
    all.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Revision::from_value(&Value::Map(all)).unwrap()
}

impl<S: Store> Scene<S> {
    /// A scene on a new store, which reads `clock`.
    pub(crate) fn on(store: S, clock: Arc<TestClock>) -> Self {
        Self { clock, store, numbers: Numbers::default() }
    }

    pub(crate) fn submission(&self, revision: Revision) -> AdmitRun {
        let now = self.clock.utc();
        AdmitRun {
            actor: Actor::Local { uid: 1000 },
            run: RunId::new(now, &self.numbers),
            attempt: AttemptId::new(now, &self.numbers),
            project: ProjectName::default(),
            task: None,
            of: None,
            revision,
            idempotency_key: None,
        }
    }

    pub(crate) async fn admit(&self, revision: Revision) -> RunId {
        let admitted = self.store.admit_run(self.submission(revision)).await.unwrap();
        admitted.into_result().unwrap().run.id
    }

    /// A live session of a new machine.
    pub(crate) async fn agent(&self, name: &str) -> SessionFence {
        let now = self.clock.utc();
        let id = EnrollmentId::new(now, &self.numbers);
        let token = Digest::of(Domain::EnrollmentToken, id.as_bytes());
        let enrollment = NewEnrollment {
            id,
            worker: name.parse().unwrap(),
            labels: BTreeMap::from([("site".to_owned(), "attic".to_owned())]),
            token,
            expires_at: now.plus(Millis::from_secs(900)),
        };
        self.store.create_enrollment(Actor::System, enrollment.clone()).await.unwrap().into_result().unwrap();
        let call = Enroll {
            token,
            public_key: Digest::of(Domain::PublicKey, name.as_bytes()),
            certificate: b"certificate".to_vec(),
            certificate_expires_at: now.plus(Millis::from_secs(86_400)),
            origin: None,
        };
        self.store.enroll(call).await.unwrap().into_result().unwrap();
        let session = SessionId::new(now, &self.numbers);
        let claimed = Claimed {
            arch: "x86_64".to_owned(),
            os: "linux".to_owned(),
            executors: ["process".to_owned()].into(),
            gpus: vec![Gpu { id: "0".parse().unwrap(), vendor: "v".into(), model: "m".into(), memory_mib: 1 }],
            ..Claimed::default()
        };
        let call = RegisterSession {
            worker: enrollment.worker.clone(),
            registration: Registration {
                session,
                ticket: tickets().first(&enrollment.worker, id),
                capabilities: Capabilities::new(claimed).unwrap(),
                max_runs: 256,
                boot: "boot-a".parse().unwrap(),
                software: "1.2.3".to_owned(),
                protocol: 1,
                body: Digest::of(Domain::Registration, session.as_bytes()),
            },
            tickets: tickets(),
            cadence: Cadence::default(),
            origin: None,
        };
        let projection = self.store.register_session(call).await.unwrap().into_result().unwrap();
        SessionFence { worker: enrollment.worker, session, generation: projection.generation }
    }

    pub(crate) fn ask(&self) -> Ask {
        let offer = OfferId::new(self.clock.utc(), &self.numbers);
        Ask { offer, token: Digest::of(Domain::LeaseToken, offer.as_bytes()) }
    }

    pub(crate) async fn claim(&self, session: &SessionFence, run: RunId) -> Grant {
        let call = Claim { session: session.clone(), ask: self.ask(), run, score: 0 };
        self.store.claim(call).await.unwrap().into_result().unwrap()
    }

    pub(crate) fn token_id(&self) -> ApiTokenId {
        ApiTokenId::new(self.clock.utc(), &self.numbers)
    }

    pub(crate) fn session_id(&self) -> SessionId {
        SessionId::new(self.clock.utc(), &self.numbers)
    }

    pub(crate) fn attempt_id(&self) -> AttemptId {
        AttemptId::new(self.clock.utc(), &self.numbers)
    }
}

/// The step by which `session` proves the lease of `grant`.
pub(crate) fn step(session: &SessionFence, grant: &Grant) -> AttemptStep {
    let lease = &grant.lease;
    AttemptStep {
        session: session.clone(),
        lease: LeaseFence {
            attempt: lease.attempt,
            offer: lease.offer,
            generation: lease.generation,
            token: lease.token,
        },
    }
}

pub(crate) fn running(grant: &Grant) -> RunningCall {
    RunningCall {
        handle: Handle { boot: "boot-a".parse().unwrap(), pid: 7, start_time: 99 },
        callback: Callback {
            sequence: CallbackSequence::FIRST,
            token: Digest::of(Domain::CompletionToken, grant.attempt.id.as_bytes()),
        },
        started_at: grant.now.utc,
    }
}

/// The process ended by itself with `code`.
pub(crate) fn exited(step: &AttemptStep, grant: &Grant, code: u8, log: &[u8]) -> EndCall {
    let running = running(grant);
    EndCall {
        session: step.session.clone(),
        lease: step.lease.clone(),
        ending: Ending::Exited { status: ExitStatus::Code(code), at: grant.now.utc },
        callback: Some(running.callback),
        running: Some(running),
        log: Some(LogPin { length: log.len() as u64, digest: Digest::of(Domain::Log, log), cut: None, finished: true }),
        usage: None,
        left: None,
        body: Digest::of(Domain::Body, &[code]),
    }
}
