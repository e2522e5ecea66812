//! What a call of the port sees of its transaction: a connection, the clocks, and whether it wrote anything.
//!
//! A call never begins or ends a transaction: the writer and the readers do. Statements are prepared once per
//! connection. (Control design, *Store*.)

use std::cell::{Cell, RefCell};

use leasehold_core::time::Now;
use leasehold_store::observe::Fact;
use leasehold_store::outcome::{Outcome, StoreError};
use rusqlite::{Connection, ErrorCode, params_from_iter};

use super::column::Bound;
use super::rows::{Columns, Damaged};

/// Why a call of the port was not carried out. Everything it wrote is undone.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite refused a statement.
    Sqlite(rusqlite::Error),
    /// A stored row contradicts its own rules.
    Damaged(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Damaged> for Fault {
    fn from(Damaged(reason): Damaged) -> Self {
        Self::Damaged(reason)
    }
}

impl Fault {
    /// Whether another transaction took a unique value first: the call may be decided once more.
    pub(super) fn is_unique_race(&self) -> bool {
        use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                matches!(error.extended_code, SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_PRIMARYKEY)
            }
            _ => false,
        }
    }
}

impl From<Fault> for StoreError {
    /// What a caller may conclude: nothing was committed, so it is certainly not done.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(reason) => Self::Damaged { reason },
            Fault::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    Self::Damaged { reason: error.to_string() }
                }
                _ => Self::NotDone { reason: error.to_string() },
            },
        }
    }
}

/// What a call of the port decides on.
pub(super) type Decided<T, R> = Result<Outcome<T, R>, Fault>;

/// One call's part of a transaction.
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    /// The clocks, read once, after the transaction began.
    pub(super) now: Now,
    wrote: Cell<bool>,
    facts: RefCell<Vec<Fact>>,
}

impl<'c> Tx<'c> {
    /// A call's part of the transaction that is open on `connection`.
    pub(super) fn new(connection: &'c Connection, now: Now) -> Self {
        Self { connection, now, wrote: Cell::new(false), facts: RefCell::default() }
    }

    /// Whether a row changed.
    pub(super) fn wrote(&self) -> bool {
        self.wrote.get()
    }

    /// Something that is true once this is committed.
    pub(super) fn note(&self, fact: Fact) {
        self.facts.borrow_mut().push(fact);
    }

    /// What is true once this is committed.
    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.facts.into_inner()
    }

    /// Runs a statement; answers how many rows changed.
    pub(super) fn execute<const N: usize>(&self, sql: &'static str, values: [Bound<'_>; N]) -> Result<usize, Fault> {
        let rows = self.prepare(sql)?.execute(params_from_iter(values))?;
        if rows > 0 {
            self.wrote.set(true);
        }
        Ok(rows)
    }

    /// Runs a statement that must change exactly one row: anything else means that what was loaded is not what is there.
    pub(super) fn execute_one<const N: usize>(
        &self,
        what: &str,
        sql: &'static str,
        values: [Bound<'_>; N],
    ) -> Result<(), Fault> {
        match self.execute(sql, values)? {
            1 => Ok(()),
            rows => Err(Fault::Damaged(format!("{what}: {rows} rows changed where one should"))),
        }
    }

    /// The first row of a query, if there is one.
    pub(super) fn first<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        rows.next()?.map(|row| read(&mut Columns::of(row))).transpose()
    }

    /// The row of a query that always has one, such as a count.
    pub(super) fn only<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.first(sql, values, read)?.ok_or_else(|| Fault::Damaged(format!("no row answers: {sql}")))
    }

    /// Every row of a query; the query bounds how many.
    pub(super) fn all<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut read_rows = Vec::new();
        self.each(sql, values, |columns| {
            read_rows.push(read(columns)?);
            Ok(true)
        })?;
        Ok(read_rows)
    }

    /// The rows of a query, one by one, until `read` has enough.
    pub(super) fn each<const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            if !read(&mut Columns::of(row))? {
                break;
            }
        }
        Ok(())
    }

    fn prepare(&self, sql: &'static str) -> Result<rusqlite::CachedStatement<'c>, Fault> {
        #[cfg(test)]
        super::plans::note(sql);
        Ok(self.connection.prepare_cached(sql)?)
    }
}
