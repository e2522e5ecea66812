//! A control plane's ingress as far as the wire goes: TLS 1.3 with its own CA, HTTP/2, and answers that a test chooses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{HeaderMap, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_core::crypto::{Digest, EnrollmentToken};
use leasehold_core::join::{JoinToken, public_key_digest};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::{Message, codes, encode};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, PublicKeyData, SanType,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The trust domain of every test.
pub(crate) const DOMAIN: &str = "home.example";

/// A certificate authority.
pub(crate) struct Ca {
    /// Its certificate.
    pub(crate) der: CertificateDer<'static>,
    /// What a join token pins.
    pub(crate) pin: Digest,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// A new one.
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let pin = public_key_digest(&key.subject_public_key_info());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { der, pin, issuer: Issuer::new(params, key) }
    }

    /// A certificate of `key` for the SAN `uri`.
    pub(crate) fn sign(
        &self,
        key: &impl PublicKeyData,
        uri: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![usage];
        params.signed_by(key, &self.issuer).unwrap().der().clone()
    }

    /// A worker's certificate for the key of a request.
    pub(crate) fn worker(&self, csr: &[u8], name: &str) -> Vec<u8> {
        let request = CertificateSigningRequestParams::from_der(&csr.into()).unwrap();
        let uri = format!("spiffe://{DOMAIN}/worker/{name}");
        self.sign(&request.public_key, &uri, ExtendedKeyUsagePurpose::ClientAuth).to_vec()
    }

    /// The token of an enrollment under this CA.
    pub(crate) fn token(&self) -> String {
        JoinToken { token: EnrollmentToken::from_bytes([7; 32]), ca: self.pin }.reveal()
    }
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Which TLS connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// Whether the client showed a certificate.
    pub(crate) certified: bool,
    /// Method and path, with the query.
    pub(crate) line: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

/// What the server does with a request that it has read.
pub(crate) enum Reply {
    /// An answer.
    Answer(u16, Vec<u8>),
    /// No answer, and the connection stays.
    Silence,
    /// No answer, and the connection breaks.
    Hangup,
}

/// Pieces of the log of this offer are never read: their bodies stall in flow control, as before a dead disk.
pub(crate) const UNREAD_OFFER: &str = "01900000-0000-7000-8000-00000000dead";

impl Reply {
    /// A message of the protocol.
    pub(crate) fn message<T: Message>(message: &T) -> Self {
        Self::Answer(200, encode(message))
    }

    /// A refusal in the protocol's form.
    pub(crate) fn refusal(refusal: &Refusal) -> Self {
        Self::Answer(codes::status(refusal.code), encode(&Problem::from(refusal)))
    }

    /// A refusal with nothing but its code.
    pub(crate) fn code(code: RefusalCode) -> Self {
        Self::refusal(&Refusal::new(code, "as the test wants it"))
    }
}

type Answering = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server; it ends with the test.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// A control plane of the domain under `ca`.
    pub(crate) async fn start(ca: &Ca, answering: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::named(ca, &format!("spiffe://{DOMAIN}/control"), answering).await
    }

    /// Somebody whose certificate says `uri`.
    pub(crate) async fn named(
        ca: &Ca,
        uri: &str,
        answering: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let leaf = ca.sign(&key, uri, ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(ca.der.clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![leaf, ca.der.clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(config)),
            Arc::clone(&requests),
            Arc::new(answering),
        ));
        Self { address, requests, _accepting: accepting }
    }

    /// The URL of a line to paste.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Everything that arrived so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    requests: Arc<Mutex<Vec<Request>>>,
    answering: Arc<Answering>,
) {
    let mut connections = JoinSet::new();
    for connection in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, connection, acceptor.clone(), Arc::clone(&requests), Arc::clone(&answering)));
    }
}

async fn serve(
    stream: TcpStream,
    connection: usize,
    acceptor: TlsAcceptor,
    requests: Arc<Mutex<Vec<Request>>>,
    answering: Arc<Answering>,
) {
    // A client that does not trust us ends the handshake; that is its test's business.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let certified = stream.get_ref().1.peer_certificates().is_some();
    let (hang_up, mut hung_up) = tokio::sync::mpsc::channel::<()>(1);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (requests, answering, hang_up) = (Arc::clone(&requests), Arc::clone(&answering), hang_up.clone());
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path_and_query().map_or("", |path| path.as_str());
            let line = format!("{} {path}", head.method);
            if head.headers.get("leasehold-offer").is_some_and(|offer| offer == UNREAD_OFFER) {
                return std::future::pending().await;
            }
            let body = body.collect().await?.to_bytes();
            let request = Request { connection, certified, line, headers: head.headers, body };
            requests.lock().unwrap().push(request.clone());
            match answering(&request) {
                Reply::Answer(status, body) => Ok::<_, hyper::Error>(
                    Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap(),
                ),
                Reply::Silence => std::future::pending().await,
                Reply::Hangup => {
                    hang_up.send(()).await.unwrap();
                    std::future::pending().await
                }
            }
        }
    });
    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        _ = hung_up.recv() => {}
    }
}
