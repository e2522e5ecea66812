//! How values that are more than one number or word stand in text columns: the same in every database, so that a row means
//! the same wherever it lies.

pub(crate) mod after;
pub(crate) mod devices;
pub(crate) mod evidence;
pub(crate) mod facts;
pub(crate) mod faults;
pub(crate) mod ledger;
pub(crate) mod outcome;
pub(crate) mod parsed;
