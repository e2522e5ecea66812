//! The store of Leasehold on SQL databases: every statement of the product is in this crate.
//!
//! [`sqlite`] is the embedded default; [`postgres`] stands beside it, file by file. An adapter loads records, calls a
//! decision of `leasehold-core` and writes what it answers; no rule is decided here. [`migrate_store`] moves a whole store from
//! one to the other. Nothing outside this crate names a database driver. (Control design, *Store*.)

pub mod migrate_store;
pub mod postgres;
#[cfg(test)]
mod scene;
pub mod sqlite;
mod stored;
#[cfg(feature = "test-server")]
pub mod test_server;
