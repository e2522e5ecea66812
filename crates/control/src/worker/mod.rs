//! What a person does to a worker: one file per verb.

mod drain;
mod takeover;

pub use drain::Drained;
