//! What the tests share: an installation over the model, clocks that stand until they are moved, and machines that enroll,
//! register, pull and report as an agent does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RunningCall, Starting};
use leasehold_core::canonical::Value;
use leasehold_core::capability::{Capabilities, Claimed, Gpu};
use leasehold_core::claim::Ask;
use leasehold_core::counter::{CallbackSequence, SessionVersion};
use leasehold_core::crypto::{ApiToken, CompletionToken, Digest, Domain, LeaseToken, Ticket};
use leasehold_core::end::{Ended, Ending};
use leasehold_core::id::{BootId, OfferId, ProjectName, RunId, SessionId};
use leasehold_core::lease::LeaseFence;
use leasehold_core::offer::Offer;
use leasehold_core::registration::Registration;
use leasehold_core::revision::Revision;
use leasehold_core::session::Said;
use leasehold_core::time::{BootInstant, Clock, Entropy, Millis, UtcMillis};
use leasehold_store::call::AdmitRun;
use leasehold_store::faulty::{Faulty, Schedule};
use leasehold_store::model::ModelStore;
use leasehold_store::port::Store;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admit::Submit;
use crate::dispatch::{CycleEnd, Dispatcher};
use crate::end::End;
use crate::enroll::Invite;
use crate::error::{OperatorResult, WorkerResult};
use crate::install;
use crate::plane::{ControlPlane, Settings};
use crate::principal::{Caller, SessionRef, WorkerPrincipal};
use crate::pull::{AskAnswer, Pull, Pulled};
use crate::room::{Elsewhere, Volume};
use crate::seal::MasterKey;

mod replicas;

pub(crate) use replicas::{Replicas, counting};

/// Clocks that stand until they are moved.
pub(crate) struct StoppedClock {
    utc: AtomicI64,
    boot: AtomicI64,
    /// From when on they go with tokio's time, if they do.
    runs_from: Option<tokio::time::Instant>,
}

impl StoppedClock {
    pub(crate) fn new() -> Self {
        Self { utc: AtomicI64::new(1_800_000_000_000), boot: AtomicI64::new(1_000_000), runs_from: None }
    }

    /// Clocks that go with tokio's time, which a test may have paused.
    pub(crate) fn running() -> Self {
        Self { runs_from: Some(tokio::time::Instant::now()), ..Self::new() }
    }

    fn ran(&self) -> i64 {
        self.runs_from.map_or(0, |from| i64::try_from(from.elapsed().as_millis()).unwrap())
    }

    pub(crate) fn advance(&self, span: Millis) {
        let span = i64::try_from(span.get()).unwrap();
        self.utc.fetch_add(span, Ordering::SeqCst);
        self.boot.fetch_add(span, Ordering::SeqCst);
    }
}

impl Clock for StoppedClock {
    fn utc(&self) -> UtcMillis {
        UtcMillis::new(self.utc.load(Ordering::SeqCst) + self.ran())
    }

    fn boot(&self) -> BootInstant {
        BootInstant::new(self.boot.load(Ordering::SeqCst) + self.ran())
    }
}

/// Bytes that differ at every call and are the same in every run of a test.
#[derive(Default)]
pub(crate) struct Numbered(AtomicU64);

impl Entropy for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        bytes.fill(0);
        // Around the version and variant bits of a UUID, so that ids of one millisecond keep the order they were made in.
        let parts = [(number >> 14) & 0x0f, (number >> 6) & 0xff, number & 0x3f];
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = u8::try_from(part).unwrap();
        }
    }
}

/// One control plane over a store: the model, unless a test says otherwise.
pub(crate) struct World<S = ModelStore> {
    pub(crate) plane: ControlPlane,
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<StoppedClock>,
    pub(crate) entropy: Arc<Numbered>,
    pub(crate) first_token: ApiToken,
}

/// The loops of a control plane at work; stopped in order by [`Running::stop`].
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends them as the death of the process would: nothing more is said.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Arc::new(Elsewhere)).await
    }

    /// A control plane whose store lies on `volume`.
    pub(crate) async fn on(volume: Arc<dyn Volume>) -> Self {
        Self::at(Arc::new(StoppedClock::new()), volume).await
    }

    async fn at(clock: Arc<StoppedClock>, volume: Arc<dyn Volume>) -> Self {
        let store = Arc::new(ModelStore::new(clock.clone()));
        Self::over(store, clock, Settings { volume, ..Settings::default() }).await
    }

    /// A second control plane over the same store, which fails by `schedule`.
    pub(crate) fn replica(&self, schedule: Schedule) -> ControlPlane {
        let port = Arc::new(Faulty::new(self.store.clone(), schedule));
        let (keys, clock) = (self.plane.keys().clone(), self.clock.clone());
        ControlPlane::new(port, keys, clock, self.entropy.clone(), Settings::default())
    }
}

impl<S: Store> World<S> {
    /// A new installation in `store`.
    pub(crate) async fn over(store: Arc<S>, clock: Arc<StoppedClock>, settings: Settings) -> Self {
        let entropy = Arc::new(Numbered::default());
        let master = MasterKey::new(&*entropy);
        let opened = install::open(&*store, &master, None, &*clock, &*entropy).await.unwrap();
        let plane = ControlPlane::new(store.clone(), opened.keys, clock.clone(), entropy.clone(), settings);
        Self { plane, store, clock, entropy, first_token: opened.first_token.unwrap() }
    }

    /// A replica of this control plane on `store`, which it reaches by `port`.
    pub(crate) fn beside(&self, store: Arc<S>, port: Arc<dyn Store>) -> Self {
        let (keys, clock, entropy) = (self.plane.keys().clone(), self.clock.clone(), self.entropy.clone());
        let plane = ControlPlane::new(port, keys, clock.clone(), entropy.clone(), self.plane.settings().clone());
        Self { plane, store, clock, entropy, first_token: self.first_token.clone() }
    }

    pub(crate) fn start(&self) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let plane = self.plane.clone();
        let task = tokio::spawn(async move {
            plane.run(async { drop(stopped.await) }).await;
        });
        Running { stop, task }
    }

    /// Cycles until nothing more can be done now; answers how many.
    pub(crate) async fn dispatch(&self) -> usize {
        let mut dispatcher = Dispatcher::default();
        let mut cycles = 1;
        while self.plane.dispatch_cycle(&mut dispatcher).await.unwrap() == CycleEnd::Again {
            cycles += 1;
            assert!(cycles < 1000, "the dispatcher never settles");
        }
        cycles
    }

    pub(crate) async fn submit(&self, revision: Revision) -> RunId {
        self.try_submit(revision).await.unwrap()
    }

    pub(crate) async fn try_submit(&self, revision: Revision) -> OperatorResult<RunId> {
        let submit = Submit {
            project: ProjectName::default(),
            task: None,
            revision,
            parameters: BTreeMap::new(),
            idempotency_key: None,
        };
        Ok(self.plane.admit(&caller(), submit).await?.run.run.id)
    }

    /// A run of a task.
    pub(crate) async fn submit_of(&self, task: &str, revision: Revision) -> RunId {
        let submit = Submit {
            project: ProjectName::default(),
            task: Some(task.parse().unwrap()),
            revision,
            parameters: BTreeMap::new(),
            idempotency_key: None,
        };
        self.plane.admit(&caller(), submit).await.unwrap().run.run.id
    }

    /// Limits the project of everything that names none.
    pub(crate) async fn limit_project(&self, concurrency: Option<u32>) {
        self.plane.set_project(&caller(), ProjectName::default(), concurrency, None).await.unwrap();
    }

    /// A run that gets into the store without a hint in this process, as another replica's does.
    pub(crate) async fn submit_elsewhere(&self, revision: Revision) -> RunId {
        let now = self.clock.utc();
        let call = AdmitRun {
            actor: caller().actor,
            run: RunId::new(now, &*self.entropy),
            attempt: leasehold_core::id::AttemptId::new(now, &*self.entropy),
            project: ProjectName::default(),
            task: None,
            of: None,
            revision,
            idempotency_key: None,
        };
        let run = call.run;
        assert!(self.store.admit_run(call).await.unwrap().is_applied());
        run
    }

    pub(crate) fn ask(&self) -> Ask {
        Ask { offer: OfferId::new(self.clock.utc(), &*self.entropy), token: LeaseToken::new(&*self.entropy).digest() }
    }

    pub(crate) fn asks(&self, count: usize) -> Vec<Ask> {
        (0..count).map(|_| self.ask()).collect()
    }

    /// A machine that has enrolled and registered a session.
    pub(crate) async fn agent(&self, name: &str, max_runs: u16) -> Agent<'_, S> {
        self.agent_with(name, max_runs, BTreeMap::new()).await
    }

    pub(crate) async fn agent_with(&self, name: &str, max_runs: u16, labels: BTreeMap<String, String>) -> Agent<'_, S> {
        self.agent_of(name, max_runs, labels, capabilities()).await
    }

    /// A machine with so many GPUs, `0`, `1`, ….
    pub(crate) async fn agent_with_gpus(&self, name: &str, max_runs: u16, gpus: usize) -> Agent<'_, S> {
        let gpu = |number: usize| Gpu {
            id: number.to_string().parse().unwrap(),
            vendor: "nvidia".to_owned(),
            model: "T4".to_owned(),
            memory_mib: 15_360,
        };
        let claimed = Claimed { gpus: (0..gpus).map(gpu).collect(), ..(*capabilities()).clone() };
        self.agent_of(name, max_runs, BTreeMap::new(), Capabilities::new(claimed).unwrap()).await
    }

    /// A machine with these features.
    pub(crate) async fn agent_with_features(&self, name: &str, features: Vec<&str>) -> Agent<'_, S> {
        let features = features.into_iter().map(str::to_owned).collect();
        let claimed = Claimed { features, ..(*capabilities()).clone() };
        self.agent_of(name, 1, BTreeMap::new(), Capabilities::new(claimed).unwrap()).await
    }

    async fn agent_of(
        &self,
        name: &str,
        max_runs: u16,
        labels: BTreeMap<String, String>,
        capabilities: Capabilities,
    ) -> Agent<'_, S> {
        let invite = Invite { worker: Some(name.parse().unwrap()), labels, ..Invite::default() };
        let enrollment = self.plane.create_enrollment(&caller(), invite).await.unwrap();
        let enrolled = self.plane.enroll(&enrollment.token.token, &request(&key()), None).await.unwrap();
        let principal =
            WorkerPrincipal::of_verified_certificate(&enrolled.chain[0], self.plane.keys().trust_domain()).unwrap();
        let mut agent = Agent {
            world: self,
            principal,
            session: SessionRef {
                id: SessionId::new(self.clock.utc(), &*self.entropy),
                generation: leasehold_core::counter::SessionGeneration::FIRST,
            },
            ticket: enrolled.ticket,
            max_runs,
            capabilities,
        };
        agent.register().await;
        agent
    }
}

/// A registered agent and what it remembers.
pub(crate) struct Agent<'w, S = ModelStore> {
    world: &'w World<S>,
    pub(crate) principal: WorkerPrincipal,
    pub(crate) session: SessionRef,
    ticket: Ticket,
    max_runs: u16,
    capabilities: Capabilities,
}

impl<S: Store> Agent<'_, S> {
    /// Registers a session, a new one if it had one before.
    pub(crate) async fn register(&mut self) {
        let session = SessionId::new(self.world.clock.utc(), &*self.world.entropy);
        let registration = Registration {
            session,
            ticket: self.ticket.clone(),
            capabilities: self.capabilities.clone(),
            max_runs: self.max_runs,
            boot: boot(),
            software: "0.1.0".to_owned(),
            protocol: 1,
            body: Digest::of(Domain::Registration, session.as_bytes()),
        };
        let registered = self.world.plane.register(&self.principal, registration).await.unwrap();
        self.ticket = registered.ticket;
        self.session = SessionRef { id: session, generation: registered.session.generation };
    }

    /// The session's version as the store has it: this agent loses no answer.
    pub(crate) async fn version(&self) -> SessionVersion {
        self.world.plane.worker(self.principal.worker()).await.unwrap().session.unwrap().version
    }

    pub(crate) async fn beat(&self) {
        self.beat_with(self.max_runs).await;
    }

    /// A beat that says how many slots are free.
    pub(crate) async fn beat_with(&self, slots: u16) {
        let said = Said { slots, obeys_drain: false };
        let (plane, version) = (&self.world.plane, self.version().await);
        plane.heartbeat(&self.principal, self.session, version, said, None, Vec::new()).await.unwrap();
    }

    pub(crate) fn pull(
        &self,
        asks: Vec<Ask>,
        wait: Millis,
    ) -> impl Future<Output = WorkerResult<Pulled>> + Send + use<S> {
        let (plane, principal) = (self.world.plane.clone(), self.principal.clone());
        let pull = Pull { session: self.session, asks, wait };
        async move { plane.pull(&principal, pull).await }
    }

    /// Pulls with one ask until it gets a run.
    pub(crate) async fn take(&self) -> Taken {
        let ask = self.world.ask();
        let before = self.world.plane.open_pulls().len();
        let pull = tokio::spawn(self.pull(vec![ask.clone()], Millis::from_secs(30)));
        while self.world.plane.open_pulls().len() == before && !pull.is_finished() {
            tokio::task::yield_now().await;
        }
        self.world.dispatch().await;
        let pulled = pull.await.unwrap().unwrap();
        Taken::of(&ask, granted(&pulled).remove(0))
    }

    pub(crate) async fn starting(&self, taken: &Taken) -> Starting {
        self.world.plane.starting(&self.principal, self.session, taken.lease.clone()).await.unwrap()
    }

    pub(crate) async fn running(&self, taken: &Taken) {
        self.world.plane.running(&self.principal, self.session, taken.lease.clone(), taken.running()).await.unwrap();
    }

    pub(crate) async fn log(&self, taken: &Taken, offset: u64, bytes: &[u8]) -> u64 {
        let lease = taken.lease.clone();
        self.world.plane.append_log(&self.principal, self.session, lease, offset, bytes.to_vec()).await.unwrap()
    }

    pub(crate) async fn exited(&self, taken: &Taken, code: u8, log: &[u8]) -> Ended {
        let end = self.exit(taken, code, log);
        self.world.plane.end(&self.principal, self.session, end).await.unwrap()
    }

    /// What the agent says when its process ended.
    pub(crate) fn exit(&self, taken: &Taken, code: u8, log: &[u8]) -> End {
        End {
            lease: taken.lease.clone(),
            ending: Ending::Exited { status: ExitStatus::Code(code), at: self.world.clock.utc() },
            callback: Some(taken.callback()),
            running: Some(taken.running()),
            log: Some(LogPin {
                length: log.len() as u64,
                digest: Digest::of(Domain::Log, log),
                cut: None,
                finished: true,
            }),
            usage: None,
            left: None,
            body: Digest::of(Domain::Body, &[code]),
        }
    }
}

/// A run that an agent was granted.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) offer: Offer,
    pub(crate) lease: LeaseFence,
}

impl Taken {
    pub(crate) fn of(ask: &Ask, offer: Offer) -> Self {
        assert_eq!(ask.offer, offer.offer);
        let lease = LeaseFence {
            attempt: offer.attempt,
            offer: offer.offer,
            generation: offer.lease_generation,
            token: ask.token,
        };
        Self { offer, lease }
    }

    fn callback(&self) -> Callback {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(self.offer.attempt.as_bytes());
        Callback { sequence: CallbackSequence::FIRST, token: CompletionToken::from_bytes(secret).digest() }
    }

    fn running(&self) -> RunningCall {
        RunningCall {
            handle: Handle { boot: boot(), pid: 4242, start_time: 99 },
            callback: self.callback(),
            started_at: UtcMillis::new(1_800_000_000_500),
        }
    }
}

/// The offers of an answer, in the order of the asks.
pub(crate) fn granted(pulled: &Pulled) -> Vec<Offer> {
    let offers = pulled.asks.iter().filter_map(|(_, answer)| match answer {
        AskAnswer::Granted(offer) => Some((**offer).clone()),
        _ => None,
    });
    offers.collect()
}

pub(crate) fn caller() -> Caller {
    Caller::local(1000)
}

fn boot() -> BootId {
    "0f6d8a55-boot".parse().unwrap()
}

pub(crate) fn key() -> rcgen::KeyPair {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

/// A certificate request as a machine sends it.
pub(crate) fn request(key: &rcgen::KeyPair) -> Vec<u8> {
    rcgen::CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
}

pub(crate) fn capabilities() -> Capabilities {
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

/// `true`, with every default.
pub(crate) fn plain() -> Revision {
    Revision::of_argv(["true"]).unwrap()
}

/// `true`, with what `entries` say of the rest of a task file.
pub(crate) fn revision(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Revision {
    let command = Value::map([("argv", Value::texts(["true"]))]);
    Revision::from_value(&Value::map([("command", command)].into_iter().chain(entries))).unwrap()
}

/// `true`, on a worker with this label.
pub(crate) fn labelled(key: &str, text: &str) -> Revision {
    let labels = Value::map([("labels", Value::map([(key, Value::text(text))]))]);
    revision([("placement", Value::map([("require", labels)]))])
}
