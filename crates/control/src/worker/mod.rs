//! What a person does to a worker: one file per verb.

mod drain;

pub use drain::Drained;
