//! One HTTP/2 connection, made when it is needed: what was sent, and what certainly was not.

pub mod reach;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use leasehold_core::limits::{HEADER_LIST, KIB};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use crate::fault::steps::Step;
use crate::fault::{Side, reach};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A request that has no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// It never left this machine.
    NotSent(String),
    /// It may have arrived.
    MayHaveArrived(String),
}

/// An answer: its status and its whole body.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// A connection to the control plane.
pub struct Connection {
    address: String,
    tls: Arc<ClientConfig>,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection to `address` (host and port), not made yet.
    pub fn new(address: &str, tls: Arc<ClientConfig>) -> Self {
        Self { address: address.to_owned(), tls, sender: Mutex::new(None) }
    }

    /// Closes the connection once its requests are answered; the next request makes another.
    pub async fn close(&self) {
        self.sender.lock().await.take();
    }

    /// Takes the step `call`: sends a request and reads the whole answer, at most `limit` bytes.
    pub async fn send(&self, call: Step, request: Request<Full<Bytes>>, limit: usize) -> Result<Response, Unanswered> {
        reach(call, Side::Before).map_err(|error| Unanswered::NotSent(error.to_string()))?;
        let answer = self.exchange(request, limit).await?;
        reach(call, Side::After).map_err(|error| Unanswered::MayHaveArrived(error.to_string()))?;
        Ok(answer)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, limit: usize) -> Result<Response, Unanswered> {
        let mut sender = self.sender().await.map_err(Unanswered::NotSent)?;
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                self.close().await;
                let sent = error.take_message().is_none();
                let why = chain(&error.into_error());
                return Err(if sent { Unanswered::MayHaveArrived(why) } else { Unanswered::NotSent(why) });
            }
        };
        let status = response.status().as_u16();
        match Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => Ok(Response { status, body: body.to_bytes() }),
            Err(error) => Err(Unanswered::MayHaveArrived(format!("the answer broke off: {error}"))),
        }
    }

    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let mut known = self.sender.lock().await;
        if let Some(sender) = known.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *known = None;
        let made = tokio::time::timeout(CONNECT, self.connect()).await;
        let sender = made.map_err(|_| format!("no connection to {} within {CONNECT:?}", self.address))??;
        *known = Some(sender.clone());
        Ok(sender)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let refused = |what: &str, error: &dyn std::error::Error| format!("{what} {}: {}", self.address, chain(error));
        let stream = TcpStream::connect(&self.address).await.map_err(|error| refused("cannot reach", &error))?;
        // Without it, uploads over small windows stall on the peer's delayed acknowledgements.
        stream.set_nodelay(true).map_err(|error| refused("cannot set up the connection to", &error))?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| refused("not a host name:", &error))?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await
            .map_err(|error| refused("cannot agree on TLS with", &error))?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(window(64 * KIB))
            .initial_connection_window_size(window(128 * KIB))
            .max_header_list_size(window(HEADER_LIST))
            .max_send_buf_size(16 * KIB)
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(Duration::from_secs(10))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| refused("cannot speak HTTP/2 with", &error))?;
        // Ends when every sender is dropped and every stream is done, or with the connection.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {}", chain(&error));
            }
        });
        Ok(sender)
    }
}

fn window(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// An error with its causes: the outermost often says nothing.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
