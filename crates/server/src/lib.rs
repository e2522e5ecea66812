//! Listeners, principals and routes of the control plane.
//!
//! Two TCP listeners and one socket: the worker ingress (TLS 1.3, a client certificate for everything but enrolling), the
//! operator API (bearer tokens), and the admin socket of the data directory. A request is judged from the outside in:
//! connection, identity, permission, size, schema; then one service of `leasehold-control` is called.
//!
//! Never here: a decision about a session, lease or run; the store port; a clock read other than by parameter. Identity
//! comes from the connection, never from a body. (Protocol; control design, *Security* and *Operating it*.)

mod api;
mod bind;
mod body;
mod config;
mod drain;
mod ingress;
mod listener;
mod ports;
mod rates;
mod server;

pub use api::{Needs, RouteInfo, openapi, routes};
pub use bind::BindError;
pub use config::{API_PORT, Bound, INGRESS_PORT, ServerConfig};
pub use listener::{ShortPath, admin_socket_path};
pub use ports::Ports;
pub use server::Server;
