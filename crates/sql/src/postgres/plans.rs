//! Every statement that the tests of this process prepared, so that one of them can ask PostgreSQL how it carries each out.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static PREPARED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Remembers a statement.
pub(super) fn note(sql: &'static str) {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).insert(sql);
}

/// What was prepared so far.
pub(super) fn prepared() -> Vec<&'static str> {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}
