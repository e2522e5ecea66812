//! One connection, from its first request to its last: HTTP with the measured transport settings.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use leasehold_core::limits;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service as _;

use super::peer::Peer;
use crate::drain::Drain;

// Measured: 30 KiB per idle connection, and uploads of 1 MiB do not stall.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 128 * 1024;
const STREAMS: u32 = 32;
const SEND_BUFFER: usize = 16 * 1024;

/// A silent HTTP/2 peer is asked whether it is there …
const PING_EVERY: Duration = Duration::from_secs(30);
/// … and taken for gone after this.
const PING_ANSWER: Duration = Duration::from_secs(20);
/// How long an HTTP/1.1 client may take to say what it wants, between requests too.
const HTTP1_HEADERS: Duration = Duration::from_secs(30);

/// How long a connection may take to its first request: before HTTP's own timers there is one byte to wait for.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// What a listener's clients may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/2 alone.
    Http2,
    /// HTTP/1.1 or HTTP/2.
    Either,
}

/// Serves one connection until its end, its `limit` or the drain. Requests that are being answered are finished. Sets
/// `asked` at the first request.
pub(super) async fn drive(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    speaks: Speaks,
    limit: Option<Duration>,
    asked: Arc<AtomicBool>,
    router: Router,
    drain: Drain,
) {
    let service = hyper::service::service_fn({
        let (peer, asked) = (peer.clone(), Arc::clone(&asked));
        move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            router.clone().call(request)
        }
    });
    let builder = builder(speaks);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let silent = async {
        tokio::time::sleep(FIRST_REQUEST).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = connection.as_mut() => Some(result),
        () = drain.begun() => None,
        () = silent => {
            tracing::debug!(?peer, "connection without a request closed");
            return;
        }
        () = over => {
            // Not graceful: whoever shows no certificate gets one span of time, used or not.
            tracing::debug!(?peer, "connection without a certificate closed");
            return;
        }
    };
    let result = if let Some(result) = result {
        result
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = result {
        tracing::debug!(?peer, %error, "connection ended");
    }
}

fn builder(speaks: Speaks) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let header_list = u32::try_from(limits::HEADER_LIST).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(header_list)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HTTP1_HEADERS).max_buf_size(2 * limits::HEADER_LIST);
    if speaks == Speaks::Http2 { builder.http2_only() } else { builder }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::drain::DrainSwitch;

    const PEER: Peer = Peer::AdminSocket { uid: 1000 };

    fn router() -> Router {
        Router::new().route("/", axum::routing::get(|| async { "hello" }))
    }

    /// Serves a client that sends `said` and then nothing; answers how long the server kept it and what it was sent.
    async fn kept(said: &[u8], speaks: Speaks, limit: Option<Duration>) -> (Duration, Vec<u8>) {
        let switch = DrainSwitch::new();
        let (server, mut client): (DuplexStream, DuplexStream) = tokio::io::duplex(64 * 1024);
        client.write_all(said).await.unwrap();
        let began = tokio::time::Instant::now();
        drive(server, PEER, speaks, limit, Arc::default(), router(), switch.drain()).await;
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.unwrap();
        (began.elapsed(), sent)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_asks_is_closed() {
        for said in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nhost: x"] {
            for speaks in [Speaks::Either, Speaks::Http2] {
                let (time, _) = kept(said, speaks, None).await;
                assert!(time <= FIRST_REQUEST.max(HTTP1_HEADERS), "{} kept {time:?}", String::from_utf8_lossy(said));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_limit_however_busy_it_was() {
        let limit = Duration::from_secs(7);
        let (time, sent) = kept(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Speaks::Either, Some(limit)).await;
        assert!(String::from_utf8_lossy(&sent).ends_with("hello"));
        assert_eq!(time.as_secs(), limit.as_secs());
    }

    #[tokio::test]
    async fn a_drain_ends_an_idle_connection_at_once() {
        let switch = DrainSwitch::new();
        let (server, _client): (DuplexStream, DuplexStream) = tokio::io::duplex(64 * 1024);
        switch.begin();
        drive(server, PEER, Speaks::Either, None, Arc::default(), router(), switch.drain()).await;
    }
}
