//! Requests to the operator API, over the admin socket or an address; one connection per request.
//!
//! Every answer is either what was asked for, or an error with a sentence and the exit code that goes with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use leasehold_server::ShortPath;
use leasehold_wire::api::problem::{Problem, ProblemCode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::exit::Exit;
use crate::sse;
use crate::target::{Target, authority};

/// The largest answer that is read whole.
const ANSWER_LIMIT: usize = 16 * 1024 * 1024;

/// Why a request did not bring its answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// Nobody answers there.
    #[error(
        "cannot reach the control plane at {target}: {source}. Is it running? Start it with `leasehold serve` or \
         `leasehold up`"
    )]
    Unreachable {
        /// Where.
        target: String,
        /// Why; part of the sentence, so that it stands before the fix.
        source: io::Error,
    },
    /// The CA certificate cannot be used.
    #[error("cannot use the CA certificate {}: {reason}. Name a copy of ca.pem from the control plane's data directory", file.display())]
    CaCertificate {
        /// Which file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// TLS needs to know whom to trust.
    #[error(
        "https needs the control plane's CA certificate: set LEASEHOLD_CACERT (or --cacert) to a copy of ca.pem from \
         its data directory"
    )]
    NoCaCertificate,
    /// The connection broke before the answer was complete.
    #[error("the connection to {target} broke: {reason}. Whether the request was carried out is unknown")]
    Broken {
        /// Where.
        target: String,
        /// Why.
        reason: String,
    },
    /// The answer is not what this version understands.
    #[error(
        "the answer of {target} cannot be understood: {reason}. Is a control plane of this version listening there?"
    )]
    Answer {
        /// Where.
        target: String,
        /// Why.
        reason: String,
    },
    /// The control plane refused.
    #[error("{}", sentence(.0))]
    Refused(Box<Problem>),
}

/// What a person is told of a refusal: what was wrong, each field, and the fix.
fn sentence(problem: &Problem) -> String {
    let mut text = match &problem.errors[..] {
        [] => problem.detail.clone(),
        errors => errors.iter().map(|error| error.message.clone()).collect::<Vec<_>>().join("\n"),
    };
    if problem.code == ProblemCode::Unauthenticated {
        text.push_str(". Set LEASEHOLD_TOKEN (or --token) to a valid API token");
    } else if let Some(fix) = &problem.fix {
        text.push_str(". ");
        text.push_str(fix);
    }
    text
}

impl RequestError {
    /// The exit code that goes with it.
    pub(crate) fn exit(&self) -> Exit {
        let Self::Refused(problem) = self else { return Exit::Error };
        match problem.status {
            400 | 413 | 415 => Exit::Usage,
            401 | 403 => Exit::NotAllowed,
            404 => Exit::NotFound,
            409 => Exit::Conflict,
            _ => Exit::Error,
        }
    }

    /// Whether asking again may bring another answer: nobody was there, the connection broke, or there was no room.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused(problem) => problem.status == 503 || problem.status == 429,
            _ => false,
        }
    }
}

/// What a request carries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    body: Option<Vec<u8>>,
    headers: Vec<(HeaderName, String)>,
}

impl Asked {
    /// A JSON body.
    pub(crate) fn json(body: Vec<u8>) -> Self {
        Self { body: Some(body), headers: Vec::new() }
    }

    /// The same with one header more.
    #[must_use]
    pub(crate) fn with(mut self, name: HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A way to ask one control plane.
#[derive(Clone)]
pub(crate) struct Client {
    target: Target,
    tls: Option<TlsConnector>,
}

impl Client {
    /// A client of `target`. Nothing is sent yet.
    pub(crate) fn new(target: Target) -> Result<Self, RequestError> {
        let tls = match &target {
            Target::Address { tls: true, cacert, .. } => Some(trusting(cacert.as_deref())?),
            _ => None,
        };
        Ok(Self { target, tls })
    }

    /// Where it asks.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The error of a part of an answer that cannot be read.
    pub(crate) fn not_understood(&self, error: &serde_json::Error) -> RequestError {
        RequestError::Answer { target: self.target.to_string(), reason: error.to_string() }
    }

    /// Asks with `GET`; the answer is JSON.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        self.ask(Method::GET, path, Asked::default()).await
    }

    /// Asks with `POST`; the answer is JSON.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, asked: Asked) -> Result<T, RequestError> {
        self.ask(Method::POST, path, asked).await
    }

    /// Asks with `PUT`; the answer is JSON.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, asked: Asked) -> Result<T, RequestError> {
        self.ask(Method::PUT, path, asked).await
    }

    /// Asks with `GET` for the sake of its status: anything but a success is an error.
    pub(crate) async fn probe(&self, path: &str) -> Result<(), RequestError> {
        let (response, connection) = self.send(Method::GET, path, Asked::default(), "*/*").await?;
        self.whole(response).await?;
        connection.end();
        Ok(())
    }

    /// Asks with `DELETE`; the answer is JSON.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str, asked: Asked) -> Result<T, RequestError> {
        self.ask(Method::DELETE, path, asked).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, asked: Asked) -> Result<T, RequestError> {
        let (response, connection) = self.send(method, path, asked, "application/json").await?;
        let bytes = self.whole(response).await?;
        connection.end();
        serde_json::from_slice(&bytes).map_err(|error| self.not_understood(&error))
    }

    /// Opens a stream of events.
    pub(crate) async fn events(&self, path: &str, after: Option<String>) -> Result<Events, RequestError> {
        let mut asked = Asked::default();
        if let Some(after) = after {
            asked = asked.with(HeaderName::from_static("last-event-id"), after);
        }
        let (response, connection) = self.send(Method::GET, path, asked, "text/event-stream").await?;
        Ok(Events {
            target: self.target.to_string(),
            body: response.into_body(),
            reader: sse::Reader::default(),
            ready: Vec::new().into_iter(),
            _connection: connection,
        })
    }

    /// Sends one request; anything but a success is an error.
    async fn send(
        &self,
        method: Method,
        path: &str,
        asked: Asked,
        accept: &'static str,
    ) -> Result<(Response<Incoming>, Connection), RequestError> {
        let (mut sender, connection) = self.connect().await?;
        let broken = |error: String| RequestError::Broken { target: self.target.to_string(), reason: error };
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        request = match &self.target {
            Target::Socket(_) => request.header(HOST, "localhost"),
            Target::Address { host, port, token, .. } => {
                let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                    RequestError::Refused(Box::new(Problem::new(
                        ProblemCode::Unauthenticated,
                        "the API token holds characters that no token has",
                    )))
                })?;
                bearer.set_sensitive(true);
                request.header(HOST, authority(host, *port)).header(AUTHORIZATION, bearer)
            }
        };
        for (name, value) in &asked.headers {
            request = request.header(name, value);
        }
        if asked.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request =
            request.body(Full::new(Bytes::from(asked.body.unwrap_or_default()))).map_err(|e| broken(e.to_string()))?;
        let response = sender.send_request(request).await.map_err(|e| broken(e.to_string()))?;
        if response.status().is_success() {
            return Ok((response, connection));
        }
        let status = response.status();
        let bytes = self.whole(response).await?;
        Err(self.refusal(status, &bytes))
    }

    fn refusal(&self, status: StatusCode, bytes: &[u8]) -> RequestError {
        match serde_json::from_slice::<Problem>(bytes) {
            Ok(problem) => RequestError::Refused(Box::new(problem)),
            Err(_) => RequestError::Answer { target: self.target.to_string(), reason: format!("it says {status}") },
        }
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, RequestError> {
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| RequestError::Broken { target: self.target.to_string(), reason: error.to_string() })
    }

    async fn connect(&self) -> Result<(http1::SendRequest<Full<Bytes>>, Connection), RequestError> {
        let unreachable = |source| RequestError::Unreachable { target: self.target.to_string(), source };
        match &self.target {
            Target::Socket(path) => {
                let short = ShortPath::of(path).map_err(unreachable)?;
                self.handshake(UnixStream::connect(&short).await.map_err(unreachable)?).await
            }
            Target::Address { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
                // Small requests: waiting to fill a packet only costs time.
                stream.set_nodelay(true).map_err(unreachable)?;
                let Some(tls) = &self.tls else { return self.handshake(stream).await };
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| unreachable(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
                self.handshake(tls.connect(name, stream).await.map_err(unreachable)?).await
            }
        }
    }

    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(http1::SendRequest<Full<Bytes>>, Connection), RequestError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| RequestError::Broken { target: self.target.to_string(), reason: error.to_string() })?;
        let task = tokio::spawn(async move {
            // The request that this connection carries hears of every error that matters.
            let _ = connection.await;
        });
        Ok((sender, Connection(task)))
    }
}

/// A connection, driven by a task that ends with it.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Connection {
    fn end(self) {
        drop(self);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream of events that is open.
#[derive(Debug)]
pub(crate) struct Events {
    target: String,
    body: Incoming,
    reader: sse::Reader,
    ready: std::vec::IntoIter<sse::Event>,
    _connection: Connection,
}

impl Events {
    /// The next event; none when the stream has ended. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<sse::Event>, RequestError> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            let frame = match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    return Err(RequestError::Broken { target: self.target.clone(), reason: error.to_string() });
                }
            };
            if let Some(bytes) = frame.data_ref() {
                let events = self
                    .reader
                    .push(bytes)
                    .map_err(|error| RequestError::Answer { target: self.target.clone(), reason: error.to_string() })?;
                self.ready = events.into_iter();
            }
        }
    }
}

/// TLS that trusts one CA and nobody else.
fn trusting(file: Option<&Path>) -> Result<TlsConnector, RequestError> {
    let file = file.ok_or(RequestError::NoCaCertificate)?;
    let refused = |reason: String| RequestError::CaCertificate { file: file.to_owned(), reason };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| refused(error.to_string()))? {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused("it holds no certificate".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use leasehold_core::shape::{ShapeError, ShapeErrorKind};

    use super::*;

    #[test]
    fn each_refusal_has_the_exit_code_of_its_kind() {
        for (code, exit) in [
            (ProblemCode::InvalidRequest, Exit::Usage),
            (ProblemCode::LimitExceeded, Exit::Usage),
            (ProblemCode::Unauthenticated, Exit::NotAllowed),
            (ProblemCode::Forbidden, Exit::NotAllowed),
            (ProblemCode::NotFound, Exit::NotFound),
            (ProblemCode::AlreadyEnded, Exit::Conflict),
            (ProblemCode::KeyReused, Exit::Conflict),
            (ProblemCode::Overloaded, Exit::Error),
            (ProblemCode::Internal, Exit::Error),
        ] {
            let error = RequestError::Refused(Box::new(Problem::new(code, "no")));
            assert_eq!(error.exit(), exit, "{code:?}");
        }
    }

    #[test]
    fn a_refusal_tells_every_field_and_the_fix() {
        let errors = [
            ShapeError::new("limits.grace", ShapeErrorKind::Value, "x", "a duration"),
            ShapeError::new("priority", ShapeErrorKind::Limit, "1000", "-100 to 100"),
        ];
        let told = sentence(&Problem::of_shape(&errors));
        assert!(told.contains("limits.grace") && told.contains("priority"), "{told}");
        let told = sentence(&Problem::new(ProblemCode::Unauthenticated, "this token is unknown"));
        assert!(told.contains("LEASEHOLD_TOKEN"), "{told}");
        assert_eq!(sentence(&Problem::new(ProblemCode::AlreadyEnded, "it ended").fix("See it")), "it ended. See it");
    }

    #[test]
    fn tls_trusts_nobody_without_a_certificate() {
        assert!(matches!(trusting(None), Err(RequestError::NoCaCertificate)));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(trusting(Some(file.path())), Err(RequestError::CaCertificate { .. })));
    }
}
