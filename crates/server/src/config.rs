//! What the server is called, where it listens, and how many connections it keeps.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The default port of the operator API.
pub const API_PORT: u16 = 7440;
/// The default port of the worker ingress.
pub const INGRESS_PORT: u16 = 7443;

/// What a server is bound with.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The admin socket, see [`crate::admin_socket_path`]; none opens none.
    pub admin_socket: Option<PathBuf>,
    /// Host names and IP addresses for the server's certificate, so that API clients find their name in it. Workers do
    /// not look at names.
    pub names: Vec<String>,
    /// Where workers find the ingress, for the line that enrolls one, such as `https://control.example:7443`; what was bound
    /// if nothing is said.
    pub ingress_url: Option<String>,
    /// Connections that each TCP listener keeps.
    pub connections: usize,
    /// Connections of one address to the worker ingress that have not shown a worker's certificate.
    pub strangers_per_address: u32,
    /// Connections of one address to the operator API.
    pub operators_per_address: u32,
}

impl Default for ServerConfig {
    /// No admin socket, and the names of loopback.
    fn default() -> Self {
        Self {
            admin_socket: None,
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()],
            ingress_url: None,
            connections: 4096,
            strangers_per_address: 64,
            operators_per_address: 512,
        }
    }
}

/// Where a server came to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The operator API.
    pub api: SocketAddr,
    /// The worker ingress.
    pub ingress: SocketAddr,
    /// The admin socket.
    pub admin_socket: Option<PathBuf>,
}
