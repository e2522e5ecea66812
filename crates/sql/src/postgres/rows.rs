//! Rows as PostgreSQL hands them out. The records that are read from them are said in [`crate::stored::rows`].

use tokio_postgres::Row;

use super::column::Cell;
use super::transaction::Fault;
use crate::stored;

pub(super) use crate::stored::rows::*;

/// The columns of one row, read from left to right.
pub(super) type Columns<'r> = stored::rows::Columns<'r, Fault>;

impl stored::rows::Row for Row {
    type Fault = Fault;

    fn cell(&self, at: usize) -> Result<Cell<'_>, Fault> {
        Ok(self.try_get(at)?)
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.columns().get(at).map(tokio_postgres::Column::name)
    }
}
