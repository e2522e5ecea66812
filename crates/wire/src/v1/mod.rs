//! The worker protocol, version 1: one file per message.
//!
//! Additions never change what a body of this version means: a body with a field that the reader does not know is refused.

pub mod drain;
pub mod end;
pub mod enroll;
pub mod fence;
pub mod heartbeat;
pub mod logs;
pub mod offer;
pub mod offline;
pub mod problem;
pub mod projection;
pub mod pull;
pub mod register;
pub mod release;
pub mod running;
pub mod starting;

/// The protocol version that these messages are.
pub const PROTOCOL: u16 = 1;
