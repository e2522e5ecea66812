//! How values stand in columns, and records in rows: the same in every database, so that a row means the same wherever it
//! lies.

pub(crate) mod after;
pub(crate) mod column;
pub(crate) mod devices;
pub(crate) mod evidence;
pub(crate) mod facts;
pub(crate) mod faults;
pub(crate) mod ledger;
pub(crate) mod outcome;
pub(crate) mod parsed;
pub(crate) mod rows;
