//! The language of Leasehold: what crosses the network, in one place for both sides.
//!
//! [`v1`] holds the worker protocol, one file per message; `api` (behind a feature that the worker lacks) holds the
//! operator API. Parsing is strict: known fields only, every bound of [`leasehold_core::limits`], no null, no float, no
//! name twice, and an error that names the field. (Protocol; design, *The map*.)
//!
//! Never here: I/O, HTTP types, a decision about a session or lease. Messages carry core's own types, so what was
//! parsed is valid; what remains to be decided is decided in `core`.

#[cfg(feature = "api")]
pub mod api;
pub mod codes;
pub mod document;
pub mod error;
mod field;
mod node;
pub mod parse;
pub mod route;
pub mod v1;

pub use error::WireError;
pub use parse::{Message, encode, parse, parse_with_digest};
