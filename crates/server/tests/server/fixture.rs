//! A server on loopback, machines that enroll at it as an agent does, and operators that call it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_control::enroll::Invite;
use leasehold_control::install;
use leasehold_control::seal::MasterKey;
use leasehold_control::{Caller, ControlPlane, Settings};
use leasehold_core::attempt::{Callback, ExitStatus, Handle, LogPin, RunningCall};
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::counter::{CallbackSequence, SessionGeneration, SessionVersion};
use leasehold_core::crypto::{ApiToken, CompletionToken, Digest, Domain, LeaseToken, Ticket};
use leasehold_core::id::{ApiTokenId, AttemptId, BootId, OfferId, RunId, SessionId};
use leasehold_core::refusal::RefusalCode;
use leasehold_core::revision::Revision;
use leasehold_core::role::Role;
use leasehold_core::time::{BootInstant, Clock, Entropy, Millis, UtcMillis};
use leasehold_server::{Bound, Ports, Server, ServerConfig};
use leasehold_sql::sqlite::{Options, SqliteStore};
use leasehold_store::call::NewApiToken;
use leasehold_store::model::ModelStore;
use leasehold_store::port::Store;
use leasehold_wire::api::problem::Problem as ApiProblem;
use leasehold_wire::v1::end::{Completion, EndAnswer, EndRequest, Ending, Log};
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::v1::fence::LeaseProof;
use leasehold_wire::v1::logs::{LogFence, LogsAnswer};
use leasehold_wire::v1::offer::Offer;
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::pull::{AskRequest, AskVerdict, PullAnswer, PullRequest};
use leasehold_wire::v1::register::{RegisterAnswer, RegisterRequest};
use leasehold_wire::v1::running::{RunningAnswer, RunningRequest};
use leasehold_wire::v1::starting::{StartingAnswer, StartingRequest};
use leasehold_wire::{Message, encode, parse, route};
use rustls::crypto::aws_lc_rs;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Nothing here takes this long, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Clocks that stand until they are moved.
#[derive(Debug)]
pub(crate) struct StoppedClock {
    utc: AtomicI64,
    boot: AtomicI64,
}

impl StoppedClock {
    fn new() -> Self {
        Self { utc: AtomicI64::new(1_800_000_000_000), boot: AtomicI64::new(1_000_000) }
    }

    pub(crate) fn advance_boot(&self, span: Millis) {
        self.boot.fetch_add(i64::try_from(span.get()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn advance_utc(&self, span: Millis) {
        self.utc.fetch_add(i64::try_from(span.get()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StoppedClock {
    fn utc(&self) -> UtcMillis {
        UtcMillis::new(self.utc.load(Ordering::SeqCst))
    }

    fn boot(&self) -> BootInstant {
        BootInstant::new(self.boot.load(Ordering::SeqCst))
    }
}

impl TimeProvider for StoppedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.utc.load(Ordering::SeqCst).unsigned_abs())))
    }
}

/// Bytes that differ at every call and are the same in every run of a test.
#[derive(Default)]
pub(crate) struct Numbered(AtomicU64);

impl Entropy for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        bytes.fill(0);
        // At the beginning, so that ids differ early; at the end, where an id keeps every bit.
        for (byte, part) in bytes.iter_mut().zip(number.to_be_bytes()[5..].iter()) {
            *byte = *part;
        }
        for (byte, part) in bytes.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte ^= part;
        }
    }
}

/// A server at work. Ended by [`Cluster::stop`].
pub(crate) struct Cluster {
    pub(crate) control: ControlPlane,
    /// The model, where it is the store.
    model: Option<Arc<ModelStore>>,
    pub(crate) clock: Arc<StoppedClock>,
    pub(crate) bound: Bound,
    pub(crate) token: String,
    pub(crate) data: tempfile::TempDir,
    pub(crate) entropy: Arc<Numbered>,
    stop: watch::Sender<bool>,
    work: JoinHandle<()>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with_token(Role::Admin, None).await
    }

    /// A server whose one API token has this role.
    pub(crate) async fn with_token(role: Role, expires_at: Option<UtcMillis>) -> Self {
        let clock = Arc::new(StoppedClock::new());
        let model = Arc::new(ModelStore::new(clock.clone()));
        Self::over(model.clone(), Some(model), clock, tempfile::tempdir().unwrap(), role, expires_at).await
    }

    /// A server over a real database.
    pub(crate) async fn on_sqlite() -> Self {
        let clock = Arc::new(StoppedClock::new());
        let data = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(data.path().join("leasehold.db"), Options::new(clock.clone())).unwrap();
        Self::over(Arc::new(store), None, clock, data, Role::Admin, None).await
    }

    async fn over(
        store: Arc<dyn Store>,
        model: Option<Arc<ModelStore>>,
        clock: Arc<StoppedClock>,
        data: tempfile::TempDir,
        role: Role,
        expires_at: Option<UtcMillis>,
    ) -> Self {
        let entropy = Arc::new(Numbered::default());
        let master = MasterKey::new(&*entropy);
        // The installation is made in a store of its own, and moved with the token that this test wants.
        let first = ModelStore::new(clock.clone());
        install::open(&first, &master, None, &*clock, &*entropy).await.unwrap();
        let installation = first.installation().await.unwrap().unwrap();
        let token = ApiToken::new(&*entropy);
        let new = NewApiToken {
            id: ApiTokenId::new(clock.utc(), &*entropy),
            name: "test".to_owned(),
            role,
            digest: token.digest(),
            created_at: clock.utc(),
            expires_at,
        };
        assert!(store.create_installation(installation, new).await.unwrap().is_applied());
        let opened = install::open(&*store, &master, None, &*clock, &*entropy).await.unwrap();
        let control = ControlPlane::new(store, opened.keys, clock.clone(), entropy.clone(), Settings::default());

        let config = ServerConfig {
            admin_socket: Some(leasehold_server::admin_socket_path(data.path())),
            ..ServerConfig::default()
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let ports = Ports::take(any, any).unwrap();
        let server = Server::bind(ports, control.clone(), clock.clone(), &*entropy, &config).await.unwrap();
        let bound = server.bound();
        let (stop, stopped) = watch::channel(false);
        let signal = |mut stopped: watch::Receiver<bool>| async move { drop(stopped.wait_for(|now| *now).await) };
        let work = tokio::spawn({
            let control = control.clone();
            async move {
                tokio::join!(server.run(signal(stopped.clone())), control.run(signal(stopped)));
            }
        });
        Self { control, model, clock, bound, token: token.reveal(), data, entropy, stop, work }
    }

    /// Stops it in order; its end is part of every test that says how it ends.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.work).await.expect("the server never ends").unwrap();
    }

    pub(crate) fn ca(&self) -> Vec<u8> {
        self.control.keys().ca_certificate().to_vec()
    }

    /// Every row of the model.
    pub(crate) fn dump(&self) -> String {
        self.model.as_ref().expect("the store is the model").dump()
    }

    /// A client's TLS, with a certificate or without.
    pub(crate) fn tls(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Identity>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.ca())).unwrap();
        let builder = ClientConfig::builder_with_details(Arc::new(aws_lc_rs::default_provider()), self.clock.clone())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
                builder.with_client_auth_cert(identity.chain.clone(), key).unwrap()
            }
        }
    }

    /// A connection to the ingress.
    pub(crate) async fn connect(&self, identity: Option<&Identity>) -> Connection {
        let mut config = self.tls(&[&rustls::version::TLS13], identity);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = handshake(config, self.bound.ingress).await.unwrap();
        Connection::over(stream).await
    }

    pub(crate) async fn invite(&self, name: &str) -> leasehold_control::enroll::Enrollment {
        let invite = Invite { worker: Some(name.parse().unwrap()), ..Invite::default() };
        self.control.create_enrollment(&Caller::local(1000), invite).await.unwrap()
    }

    /// A machine that has enrolled over the network, and has not registered.
    pub(crate) async fn machine(&self, name: &str) -> Machine<'_> {
        let invitation = self.invite(name).await;
        let key = new_key();
        let request = EnrollRequest { token: invitation.token.token.clone(), csr: csr(&key) };
        let mut stranger = self.connect(None).await;
        let answer: EnrollAnswer = stranger.said("POST", route::ENROLL, encode(&request)).await.unwrap();
        assert_eq!(answer.worker_id.as_str(), name);
        let chain = answer.certificates.into_iter().map(Into::into).collect();
        let identity = Identity { chain, key };
        let connection = self.connect(Some(&identity)).await;
        Machine {
            cluster: self,
            identity,
            connection,
            session: SessionId::new(self.clock.utc(), &*self.entropy),
            generation: SessionGeneration::FIRST,
            version: SessionVersion::FIRST,
            ticket: answer.ticket,
        }
    }

    /// A machine that has enrolled and registered.
    pub(crate) async fn agent(&self, name: &str) -> Machine<'_> {
        let mut machine = self.machine(name).await;
        let body = machine.registration();
        machine.register(body).await.unwrap();
        machine
    }

    pub(crate) async fn submit(&self, argv: &[&str]) -> RunId {
        use leasehold_control::admit::Submit;
        let submit = Submit {
            project: leasehold_core::id::ProjectName::default(),
            task: None,
            revision: Revision::of_argv(argv.iter().copied()).unwrap(),
            parameters: std::collections::BTreeMap::new(),
            idempotency_key: None,
        };
        self.control.admit(&Caller::local(1000), submit).await.unwrap().run.run.id
    }

    pub(crate) fn ask(&self) -> AskRequest {
        AskRequest {
            offer_id: OfferId::new(self.clock.utc(), &*self.entropy),
            lease_token: LeaseToken::new(&*self.entropy),
        }
    }

    /// A request to the operator API over plain HTTP on loopback, with this token.
    pub(crate) async fn api(&self, token: Option<&str>, request: Request<Bytes>) -> Answer {
        let stream = TcpStream::connect(self.bound.api).await.unwrap();
        Answer::read(http1_call(stream, token, request).await).await
    }

    /// The same over the admin socket.
    pub(crate) async fn admin(&self, request: Request<Bytes>) -> Answer {
        let stream = UnixStream::connect(self.bound.admin_socket.as_ref().unwrap()).await.unwrap();
        Answer::read(http1_call(stream, None, request).await).await
    }

    /// The same, its body still to be read.
    pub(crate) async fn stream(&self, request: Request<Bytes>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.bound.api).await.unwrap();
        http1_call(stream, Some(&self.token), request).await
    }
}

pub(crate) async fn handshake(
    config: ClientConfig,
    address: std::net::SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

pub(crate) async fn http1_call(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    token: Option<&str>,
    mut request: Request<Bytes>,
) -> Response<Incoming> {
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    tokio::time::timeout(PATIENCE, send.send_request(request.map(Full::new))).await.expect("no answer").unwrap()
}

pub(crate) fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    Request::post(path).header("content-type", "application/json").body(body.into()).unwrap()
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("the body never ends").unwrap();
        Self { status: parts.status, headers: parts.headers, body: body.to_bytes() }
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        assert!(self.status.is_success(), "{}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn problem(&self) -> ApiProblem {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}: {}", self.status, self.text());
        let problem: ApiProblem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, self.status.as_u16());
        problem
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A certificate with its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: rcgen::KeyPair,
}

pub(crate) fn new_key() -> rcgen::KeyPair {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

pub(crate) fn csr(key: &rcgen::KeyPair) -> Vec<u8> {
    rcgen::CertificateParams::default().serialize_request(key).unwrap().der().to_vec()
}

/// An HTTP/2 connection to the ingress.
#[derive(Clone)]
pub(crate) struct Connection(http2::SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn over(stream: TlsStream<TcpStream>) -> Self {
        let (send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(send)
    }

    pub(crate) async fn send(&mut self, request: Request<Bytes>) -> hyper::Result<Answer> {
        let response = self.0.send_request(request.map(Full::new));
        let response = tokio::time::timeout(PATIENCE, response).await.expect("no answer")?;
        Ok(Answer::read(response).await)
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        self.send(request.body(body.into()).unwrap()).await.unwrap()
    }

    /// The message that a call was answered, or the problem.
    pub(crate) async fn said<T: Message>(
        &mut self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<T, Box<Problem>> {
        understood(&self.call(method, path, body).await)
    }
}

pub(crate) fn understood<T: Message>(answer: &Answer) -> Result<T, Box<Problem>> {
    if answer.status.is_success() {
        return Ok(parse(&answer.body).unwrap());
    }
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let problem: Box<Problem> = Box::new(parse(&answer.body).unwrap());
    assert_eq!(problem.status, answer.status.as_u16());
    Err(problem)
}

/// The code that a call was refused with.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Box<Problem>>) -> RefusalCode {
    result.expect_err("it was not refused").code
}

/// A machine that has enrolled.
pub(crate) struct Machine<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) identity: Identity,
    pub(crate) connection: Connection,
    pub(crate) session: SessionId,
    pub(crate) generation: SessionGeneration,
    pub(crate) version: SessionVersion,
    pub(crate) ticket: Ticket,
}

impl Machine<'_> {
    pub(crate) fn registration(&self) -> Vec<u8> {
        encode(&RegisterRequest::new(self.ticket.clone(), &capabilities(), 4, boot(), "0.1.0"))
    }

    pub(crate) async fn register(&mut self, body: Vec<u8>) -> Result<RegisterAnswer, Box<Problem>> {
        let answer: RegisterAnswer = self.connection.said("PUT", &route::session(self.session), body).await?;
        self.generation = answer.session.generation;
        self.version = answer.session.version;
        Ok(answer)
    }

    pub(crate) fn pull_request(&self, asks: &[AskRequest], wait: Millis) -> Vec<u8> {
        encode(&PullRequest { session_generation: self.generation, asks: asks.to_vec(), wait_ms: wait })
    }

    pub(crate) async fn pull(&mut self, asks: &[AskRequest], wait: Millis) -> Result<PullAnswer, Box<Problem>> {
        let body = self.pull_request(asks, wait);
        self.connection.said("POST", &route::pull(self.session), body).await
    }

    /// Pulls with one ask until it gets a run.
    pub(crate) async fn take(&mut self) -> Taken {
        let ask = self.cluster.ask();
        let answer = self.pull(std::slice::from_ref(&ask), Millis::from_secs(10)).await.unwrap();
        match &answer.asks[0].verdict {
            AskVerdict::Granted(offer) => Taken { offer: (**offer).clone(), ask },
            other => panic!("no run: {other:?}"),
        }
    }

    pub(crate) async fn starting(&mut self, taken: &Taken) -> Result<StartingAnswer, Box<Problem>> {
        let body = encode(&StartingRequest { session_generation: self.generation, lease: taken.proof() });
        self.connection.said("POST", &route::starting(self.session, taken.offer.attempt_id), body).await
    }

    pub(crate) async fn running(&mut self, taken: &Taken) -> Result<RunningAnswer, Box<Problem>> {
        let body = encode(&RunningRequest {
            session_generation: self.generation,
            lease: taken.proof(),
            running: (&taken.running()).into(),
        });
        self.connection.said("POST", &route::running(self.session, taken.offer.attempt_id), body).await
    }

    pub(crate) async fn log(&mut self, taken: &Taken, offset: u64, bytes: &[u8]) -> Result<LogsAnswer, Box<Problem>> {
        let fence = LogFence { session_generation: self.generation, lease: taken.proof() };
        let path = route::logs(self.session, taken.offer.attempt_id, offset);
        let mut request = Request::post(format!("https://localhost{path}"));
        for (name, text) in fence.headers() {
            request = request.header(name, text);
        }
        let (name, token) = fence.token_header();
        let request = request.header(name, token.as_str()).body(Bytes::copy_from_slice(bytes)).unwrap();
        understood(&self.connection.send(request).await.unwrap())
    }

    pub(crate) async fn exited(&mut self, taken: &Taken, code: u8, log: &[u8]) -> Result<EndAnswer, Box<Problem>> {
        let body = taken.end(self.generation, code, log);
        self.connection.said("POST", &route::end(self.session, taken.offer.attempt_id), body).await
    }

    /// Takes the run that waits, and reports its process as running.
    pub(crate) async fn run(&mut self) -> Taken {
        let taken = self.take().await;
        self.starting(&taken).await.unwrap();
        self.running(&taken).await.unwrap();
        taken
    }
}

/// A run that a machine was granted.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) offer: Offer,
    pub(crate) ask: AskRequest,
}

impl Taken {
    pub(crate) fn proof(&self) -> LeaseProof {
        LeaseProof {
            offer_id: self.ask.offer_id,
            generation: self.offer.lease.generation,
            token: self.ask.lease_token.clone(),
        }
    }

    pub(crate) fn attempt(&self) -> AttemptId {
        self.offer.attempt_id
    }

    fn completion(&self) -> CompletionToken {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(self.offer.attempt_id.as_bytes());
        CompletionToken::from_bytes(secret)
    }

    pub(crate) fn running(&self) -> RunningCall {
        RunningCall {
            handle: Handle { boot: boot(), pid: 4242, start_time: 99 },
            callback: Callback { sequence: CallbackSequence::FIRST, token: self.completion().digest() },
            started_at: UtcMillis::new(1_800_000_000_500),
        }
    }

    pub(crate) fn end(&self, generation: SessionGeneration, code: u8, log: &[u8]) -> Vec<u8> {
        let ending = leasehold_core::end::Ending::Exited {
            status: ExitStatus::Code(code),
            at: UtcMillis::new(1_800_000_001_000),
        };
        let pin = LogPin { length: log.len() as u64, digest: Digest::of(Domain::Log, log), cut: None, finished: true };
        encode(&EndRequest {
            session_generation: generation,
            lease: self.proof(),
            ending: Ending::from(&ending),
            completion: Some(Completion { sequence: CallbackSequence::FIRST, token: self.completion() }),
            running: Some((&self.running()).into()),
            log: Some(Log::from(pin)),
            usage: None,
            cancel_incomplete: None,
        })
    }
}

pub(crate) fn boot() -> BootId {
    "0f6d8a55-boot".parse().unwrap()
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
