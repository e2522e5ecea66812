//! The TCP ports of a server, taken before anything that cannot be taken back is made: a first start whose port is busy must
//! not leave an installation behind, with a token that was shown once.
//!
//! Nobody can connect there before [`crate::Server::bind`]: a load balancer goes elsewhere while a store is opened.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::bind::BindError;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// One that is taken.
pub(crate) struct Port {
    what: &'static str,
    socket: TcpSocket,
    address: SocketAddr,
}

impl Port {
    /// Takes `address`; `what` names the listener in the error.
    fn take(what: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let take = || -> io::Result<Self> {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // What an earlier process's connections still hold is no other program; one that listens there is.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let address = socket.local_addr()?;
            Ok(Self { what, socket, address })
        };
        take().map_err(|error| BindError::of(what, address, error))
    }

    /// From now on connections come in. Who took the port at the same moment may have been quicker.
    pub(crate) fn listen(self) -> Result<(TcpListener, SocketAddr), BindError> {
        let Self { what, socket, address } = self;
        let listener = socket.listen(BACKLOG).map_err(|error| BindError::of(what, address, error))?;
        Ok((listener, address))
    }
}

/// Both of a server.
pub struct Ports {
    pub(crate) api: Port,
    pub(crate) ingress: Port,
}

impl Ports {
    /// Takes a port for the operator API (TLS, and plain HTTP for connections on loopback) and one for the worker ingress.
    /// Where one cannot be had, none is taken. In a runtime.
    pub fn take(api: SocketAddr, ingress: SocketAddr) -> Result<Self, BindError> {
        Ok(Self { api: Port::take("the operator API", api)?, ingress: Port::take("the worker ingress", ingress)? })
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("api", &self.api.address).field("ingress", &self.ingress.address).finish()
    }
}
