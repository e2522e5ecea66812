//! The accept loop: connections in, requests with a known peer out, and an end to every task.
//!
//! Every connection is a task of this loop's own set; half-open ones are bounded in time and per address, so that a slow
//! client never keeps another waiting. A drain stops accepting, lets requests finish, and cuts what is left after
//! [`leasehold_core::limits::CONTROL_DRAIN_REQUESTS`]. (Protocol, preamble; control design, *Security* and *Operating it*.)

mod admin_socket;
mod connection;
mod peer;
mod places;
mod short_path;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use leasehold_core::id::TrustDomain;
use leasehold_core::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub(crate) use admin_socket::AdminSocket;
pub(crate) use peer::{Peer, Presented};
pub use short_path::ShortPath;
pub(crate) use tls::{api_config, ingress_config};

use crate::bind::BindError;
use crate::drain::Drain;
use crate::ports::Port;
use connection::Speaks;
use places::Place;
pub(crate) use places::Places;

/// From the TCP connection to the end of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a connection without a client certificate may stay on the worker ingress: enrolling takes one request.
const UNPROVEN: Duration = Duration::from_secs(30);

/// After an accept that failed for want of descriptors, which closing connections give back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a TCP listener does with its connections.
#[derive(Clone)]
pub(crate) enum Secured {
    /// TLS, and a worker's certificate for whoever wants more than to enroll.
    Workers {
        /// With client certificates of the CA.
        tls: TlsAcceptor,
        /// Whose workers.
        domain: TrustDomain,
    },
    /// TLS; plain HTTP is understood on loopback, where nobody listens in.
    Operators {
        /// Without client certificates.
        tls: TlsAcceptor,
    },
}

/// A bound TCP port.
pub(crate) struct TcpPort {
    socket: TcpListener,
    address: SocketAddr,
    secured: Secured,
    places: Arc<Places>,
}

impl TcpPort {
    /// A port that was taken, and what is done with its connections.
    pub(crate) fn on(port: Port, secured: Secured, places: Places) -> Result<Self, BindError> {
        let (socket, address) = port.listen()?;
        Ok(Self { socket, address, secured, places: Arc::new(places) })
    }

    /// Where it listens; the port that was chosen if none was named.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `router` until the drain, and returns when the last connection has ended.
    pub(crate) async fn serve(self, router: Router, drain: Drain) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = drain.begun() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let Some(place) = Places::take(&self.places, address.ip()) else {
                        tracing::debug!(peer = %address, "too many connections: closed");
                        continue;
                    };
                    let (secured, router, drain) = (self.secured.clone(), router.clone(), drain.clone());
                    connections.spawn(async move {
                        let wanted = place.wanted();
                        tokio::select! {
                            () = serve_tcp(stream, address, place, secured, router, drain) => {}
                            () = wanted => tracing::debug!(peer = %address, "closed: a newer connection has its place"),
                        }
                    });
                }
                Err(error) => pause(&error).await,
            }
        }
        drop(self.socket);
        finish(connections).await;
    }
}

/// The admin socket in the data directory, while it is bound.
pub(crate) async fn serve_admin(socket: AdminSocket, router: Router, drain: Drain) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.begun() => break,
            Some(_) = connections.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, uid)) => {
                let (router, drain) = (router.clone(), drain.clone());
                connections.spawn(async move {
                    let (peer, asked) = (Peer::AdminSocket { uid }, Arc::default());
                    connection::drive(stream, peer, Speaks::Either, None, asked, router, drain).await;
                });
            }
            Err(error) => pause(&error).await,
        }
    }
    drop(socket);
    finish(connections).await;
}

async fn pause(error: &io::Error) {
    // A peer that gave up between its SYN and our accept is no trouble of ours.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Waits for the connections to finish what they were answering, and cuts those that do not.
async fn finish(mut connections: JoinSet<()>) {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::CONTROL_DRAIN_REQUESTS.to_std(), all).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections did not finish in time: cut");
        connections.shutdown().await;
    }
}

async fn serve_tcp(
    stream: TcpStream,
    address: SocketAddr,
    mut place: Place,
    secured: Secured,
    router: Router,
    drain: Drain,
) {
    // Without it, uploads over small HTTP/2 windows stall on delayed acknowledgements.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(peer = %address, %error, "connection lost before its handshake");
        return;
    }
    match secured {
        Secured::Workers { tls, domain } => {
            let Some(stream) = handshake(&tls, stream, address, &drain).await else { return };
            let presented = Presented::of(stream.get_ref().1.peer_certificates(), &domain, address);
            let limit = if let Presented::Worker(principal) = &presented {
                place.proven(principal.worker());
                None
            } else {
                Some(UNPROVEN)
            };
            let peer = Peer::Ingress { address, presented };
            connection::drive(stream, peer, Speaks::Http2, limit, place.asked(), router, drain).await;
        }
        Secured::Operators { tls } => {
            let peer = Peer::Operator { address };
            match is_plain_on_loopback(&stream, &drain).await {
                Some(true) => connection::drive(stream, peer, Speaks::Either, None, place.asked(), router, drain).await,
                Some(false) => {
                    let Some(stream) = handshake(&tls, stream, address, &drain).await else { return };
                    connection::drive(stream, peer, Speaks::Either, None, place.asked(), router, drain).await;
                }
                None => {}
            }
        }
    }
    drop(place);
}

async fn handshake(
    tls: &TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
    drain: &Drain,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let result = tokio::select! {
        biased;
        () = drain.begun() => return None,
        result = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => result,
    };
    match result {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(peer = %address, %error, "TLS handshake refused");
            None
        }
        Err(_) => {
            tracing::debug!(peer = %address, "TLS handshake not finished in time");
            None
        }
    }
}

/// Whether the client speaks plain HTTP, which counts on loopback only; none if it says nothing.
async fn is_plain_on_loopback(stream: &TcpStream, drain: &Drain) -> Option<bool> {
    /// How a TLS record of a handshake begins; no HTTP method does.
    const TLS_HANDSHAKE: u8 = 0x16;
    if !stream.local_addr().is_ok_and(|local| local.ip().is_loopback()) {
        return Some(false);
    }
    let mut first = [0; 1];
    let peeked = tokio::select! {
        biased;
        () = drain.begun() => return None,
        peeked = tokio::time::timeout(HANDSHAKE, stream.peek(&mut first)) => peeked,
    };
    match peeked {
        Ok(Ok(1)) => Some(first[0] != TLS_HANDSHAKE),
        _ => None,
    }
}

/// Where the admin socket of a data directory lies.
pub fn admin_socket_path(data: &std::path::Path) -> PathBuf {
    data.join("admin.sock")
}
