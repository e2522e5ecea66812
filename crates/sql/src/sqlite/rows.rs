//! Rows as SQLite hands them out. The records that are read from them are said in [`crate::stored::rows`].

use rusqlite::Row;

use super::column::Cell;
use super::transaction::Fault;
use crate::stored;

pub(super) use crate::stored::rows::*;

/// The columns of one row, read from left to right.
pub(super) type Columns<'r> = stored::rows::Columns<'r, Fault>;

impl stored::rows::Row for Row<'_> {
    type Fault = Fault;

    fn cell(&self, at: usize) -> Result<Cell<'_>, Fault> {
        Ok(self.get_ref(at)?.into())
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.as_ref().column_name(at).ok()
    }
}
