//! A connection in the hands of one call: its statements, and the end of its transaction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use deadpool_postgres::Object;
use futures_util::future::join3;
use leasehold_store::observe::Fact;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Fault, Undone};
use crate::postgres::column::Bound;
use crate::postgres::open::OpenError;
use crate::postgres::rights;
use crate::postgres::rows::Columns;

/// Waiting for a standby is not cut short: a timeout there would acknowledge what only this server has.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

/// A connection in the hands of one call.
pub(in crate::postgres) struct Connection {
    /// None once it was given back.
    client: Option<Object>,
    /// A transaction was begun and not ended yet.
    open: AtomicBool,
    wrote: AtomicBool,
    facts: Mutex<Vec<Fact>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if *self.open.get_mut()
            && let Some(client) = self.client.take()
        {
            // Its caller went away, or its transaction could not be ended: closing it undoes what it did.
            drop(Object::take(client));
        }
    }
}

impl Connection {
    pub(in crate::postgres) fn new(client: Object) -> Self {
        Self {
            client: Some(client),
            open: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
            facts: Mutex::default(),
        }
    }

    fn client(&self) -> Result<&Object, Fault> {
        self.client.as_ref().ok_or_else(|| Fault::Damaged("a call without a connection".to_owned()))
    }

    /// What its user may not do of all that is needed in `schema`; nothing, where that cannot be told.
    pub(in crate::postgres) async fn missing_rights(&self, schema: &str) -> Option<String> {
        match rights::refuse(self.client().ok()?, schema).await {
            Err(OpenError::NoRights { said, .. }) => Some(said),
            _ => None,
        }
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self, how: &str) -> Result<(), Fault> {
        self.open.store(true, Ordering::SeqCst);
        Ok(self.client()?.batch_execute(how).await?)
    }

    /// Commits what was begun. An error that [`Fault::refused_to_commit`] means that it is not known what became of it.
    pub(in crate::postgres) async fn commit(&self) -> Result<(), Fault> {
        self.end(COMMIT).await
    }

    /// Undoes what was begun. Where that fails, the connection is closed, which undoes it too.
    pub(in crate::postgres) async fn roll_back(&self) {
        if let Err(fault) = self.end("ROLLBACK").await {
            tracing::debug!(reason = fault.reason(), "a connection is closed instead of rolled back");
        }
    }

    async fn end(&self, how: &str) -> Result<(), Fault> {
        if self.open.load(Ordering::SeqCst) {
            self.client()?.batch_execute(how).await?;
            self.open.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether a row changed.
    pub(in crate::postgres) fn wrote(&self) -> bool {
        self.wrote.load(Ordering::SeqCst)
    }

    /// Something that is true once this is committed.
    pub(in crate::postgres) fn note(&self, fact: Fact) {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).push(fact);
    }

    /// What is true once this is committed.
    pub(in crate::postgres) fn take_facts(&self) -> Vec<Fact> {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a statement; answers how many rows changed.
    pub(in crate::postgres) async fn execute<const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
    ) -> Result<u64, Fault> {
        let client = self.client()?;
        #[cfg(test)]
        crate::postgres::plans::note(sql);
        let statement = client.prepare_cached(sql).await?;
        let rows = client.execute_raw(&statement, values).await?;
        if rows > 0 {
            self.wrote.store(true, Ordering::SeqCst);
        }
        Ok(rows)
    }

    /// Runs a statement that must change exactly one row: anything else means that what was loaded is not what is there.
    pub(in crate::postgres) async fn execute_one<const N: usize>(
        &self,
        what: &str,
        sql: &'static str,
        values: [Bound<'_>; N],
    ) -> Result<(), Fault> {
        match self.execute(sql, values).await? {
            1 => Ok(()),
            rows => Err(Fault::Damaged(format!("{what}: {rows} rows changed where one should"))),
        }
    }

    /// For tests: a column of texts, as this transaction sees it.
    #[cfg(test)]
    pub(in crate::postgres) async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.client().unwrap().query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn query<const N: usize>(&self, sql: &'static str, values: [Bound<'_>; N]) -> Result<Vec<Row>, Fault> {
        let client = self.client()?;
        #[cfg(test)]
        crate::postgres::plans::note(sql);
        let statement = client.prepare_cached(sql).await?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        Ok(client.query(&statement, &values).await?)
    }

    /// Carries out one statement as a transaction of its own, in one round trip: the commit is sent behind it before it is
    /// answered. A connection that breaks meanwhile leaves open whether it was done.
    pub(in crate::postgres) async fn at_once<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Undone> {
        let rows = self.sent_at_once(sql, values).await?;
        // What cannot be read was written all the same.
        let read = rows.iter().map(|row| read(&mut Columns::of(row))).collect::<Result<_, Fault>>();
        read.map_err(|fault| Undone::Unknown(fault.reason()))
    }

    async fn sent_at_once<const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
    ) -> Result<Vec<Row>, Undone> {
        let client = self.client().map_err(Undone::Certainly)?;
        #[cfg(test)]
        crate::postgres::plans::note(sql);
        let statement = client.prepare_cached(sql).await.map_err(|error| Undone::Certainly(error.into()))?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        self.open.store(true, Ordering::SeqCst);
        // Each is sent when it is first polled, which is in this order.
        let (begun, rows, committed) =
            join3(client.batch_execute("BEGIN"), client.query(&statement, &values), client.batch_execute(COMMIT)).await;
        let rows = match begun.and(rows) {
            Ok(rows) => rows,
            // Refused by the server, and with it the commit.
            Err(error) if error.code().is_some() => return Err(Undone::Certainly(error.into())),
            Err(error) => return Err(Undone::Unknown(Fault::from(error).reason())),
        };
        match committed.map_err(Fault::from) {
            Ok(()) => self.open.store(false, Ordering::SeqCst),
            Err(fault) if fault.refused_to_commit() => return Err(Undone::Certainly(fault)),
            Err(fault) => return Err(Undone::Unknown(format!("COMMIT: {}", fault.reason()))),
        }
        Ok(rows)
    }

    /// The first row of a query, if there is one.
    pub(in crate::postgres) async fn first<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let rows = self.query(sql, values).await?;
        rows.first().map(|row| read(&mut Columns::of(row))).transpose()
    }

    /// The row of a query that always has one, such as a count.
    pub(in crate::postgres) async fn only<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let first = self.first(sql, values, read).await?;
        first.ok_or_else(|| Fault::Damaged(format!("no row answers: {sql}")))
    }

    /// Every row of a query; the query bounds how many.
    pub(in crate::postgres) async fn all<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let rows = self.query(sql, values).await?;
        rows.iter().map(|row| read(&mut Columns::of(row))).collect()
    }
}
