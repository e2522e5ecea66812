//! The worker's edge against a real TLS 1.3 and HTTP/2 server: joining, and what each call is told.
#![expect(clippy::unwrap_used, reason = "in the harness of a test a panic is the report")]

mod calls;
#[path = "../support/executable.rs"]
mod executable;
mod exit_codes;
mod join;
mod server;
mod start_over;
