//! The worker protocol as bytes: golden files of every message, what is refused of each, and properties.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod convert;
mod golden;
mod messages;
mod properties;
mod reference;
mod refused;
