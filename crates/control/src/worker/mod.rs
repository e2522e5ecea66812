//! What a person does to a worker: one file per verb.

mod delete;
mod drain;
mod takeover;

pub use delete::Deleted;
pub use drain::Drained;
