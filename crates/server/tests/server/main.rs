//! The server over real sockets and real TLS, with the control plane it serves and the model as its store.

#![expect(clippy::unwrap_used, reason = "a test whose world cannot be set up has failed")]

mod api;
mod fixture;
mod garbage;
mod ingress;
mod listener;
mod openapi;
mod races;
mod streams;
mod webhooks;
