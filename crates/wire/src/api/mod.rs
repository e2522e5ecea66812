//! The operator API: what people and scripts ask of the control plane, and what `-o json` prints.
//!
//! Requests are strict and answer every mistake at once; answers may grow fields, and a reader skips what it does not know.
//! Times are RFC 3339 in UTC. No answer holds a secret but the one that makes an enrollment. (Product, *The command line*.)

pub mod audit;
pub mod cancel;
pub mod delete;
pub mod drain;
pub mod enrollment;
pub mod event;
pub mod explanation;
pub mod log;
pub mod page;
pub mod problem;
pub mod project;
pub mod request;
pub mod resolve;
pub mod route;
pub mod run;
pub mod schedule;
pub mod schema;
pub mod secret;
pub mod submit;
pub mod takeover;
pub mod task;
pub mod task_schema;
pub mod time;
pub mod version;
pub mod webhook;
pub mod worker;
