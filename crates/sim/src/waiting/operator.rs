//! The operator's side: one connection to the admin socket that stays, so that what is timed is a request and no connection.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::eventually::PATIENCE;

/// How often what is awaited is looked for: seldom enough to take nothing from what is measured next.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// Somebody who asks at the admin socket, one request after the other.
pub(super) struct Operator {
    socket: PathBuf,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Operator {
    /// One of the control plane with this socket.
    pub(super) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), connection: None }
    }

    /// A connection that takes a request: the one there is, or a new one where the server has closed it.
    async fn ready(&mut self) -> Result<&mut SendRequest<Full<Bytes>>> {
        let lives = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !lives {
            let stream = UnixStream::connect(&self.socket).await.context("nobody answers on the admin socket")?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            self.connection = Some(sender);
        }
        self.connection.as_mut().context("a connection was just made")
    }

    async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let request = Request::builder()
            .method(&method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let answer = self.ready().await?.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// `POST`, which must succeed.
    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.send(Method::POST, path, body.to_string()).await?;
        serde_json::from_slice(&answer).with_context(|| format!("{path} answers JSON"))
    }

    /// Makes sure that the next request needs no new connection.
    pub(super) async fn warm(&mut self) -> Result<()> {
        self.ready().await.map(|_| ())
    }

    /// Waits until so many workers wait for work at the control plane, by its own count.
    pub(super) async fn until_waiting(&mut self, workers: usize) -> Result<()> {
        let awaited = format!("leasehold_open_pulls {workers}");
        let looking = async {
            loop {
                let metrics = self.send(Method::GET, "/metrics", String::new()).await?;
                if String::from_utf8_lossy(&metrics).lines().any(|line| line == awaited) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.with_context(|| format!("waited in vain for {awaited}"))?
    }
}
