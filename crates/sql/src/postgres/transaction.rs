//! What a call of the port sees of its transaction: a connection, the clocks, and whether it wrote anything.
//!
//! A [`Unlocked`] has a connection and nothing else. [`Unlocked::lock`] begins the transaction, takes every lock that is needed in
//! the one order, and then reads the clock, once: only what it answers, a [`Tx`], knows the time and can be decided on.
//! READ COMMITTED: each statement sees what was committed while the one before it waited, so what is counted under a
//! lock is counted in a later statement. A call never ends its transaction: [`super::PostgresStore`] does. A connection whose
//! transaction was not ended in order is closed, never used again. (Control design, *Store*.)

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::Object;
use futures_util::future::join3;
use leasehold_core::clock_step::Reading;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName};
use leasehold_core::time::{BootInstant, Clock, LeaseInstant, Millis, Now, UtcMillis};
use leasehold_store::observe::Fact;
use leasehold_store::outcome::{Outcome, StoreError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::clock::{Clocks, Watch};
use super::column::{Bound, values};
use super::lock::{self, Locks};
use super::rows::{self, Columns};

/// Why a call of the port was not carried out. Everything it wrote is undone.
#[derive(Debug)]
pub(super) enum Fault {
    /// PostgreSQL refused a statement, or the connection broke.
    Postgres(tokio_postgres::Error),
    /// A stored row contradicts its own rules.
    Damaged(String),
    /// It took longer than any call may.
    TooSlow,
    /// The database's clock stepped since it was read last: nothing is decided on it before the ends are moved.
    ClockStepped,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

/// Whether a call that was certainly not done may be decided once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Another transaction took a unique value first: once.
    Raced,
    /// Another transaction was in the way, or the connection broke: a few times.
    Collided,
    /// Once the ends that were fixed before the clock stepped are moved.
    Stepped,
    /// It would fail again.
    Never,
}

impl Fault {
    /// What may be done after this fault, all of whose transaction is undone.
    pub(super) fn again(&self) -> Again {
        let error = match self {
            Self::Postgres(error) => error,
            Self::ClockStepped => return Again::Stepped,
            Self::Damaged(_) | Self::TooSlow => return Again::Never,
        };
        let Some(state) = error.code() else {
            return if error.is_closed() || error.to_string().contains("communicating with the server") {
                Again::Collided
            } else {
                Again::Never
            };
        };
        if *state == SqlState::UNIQUE_VIOLATION {
            return Again::Raced;
        }
        let collided = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            // A statement that was sent behind the one that failed.
            SqlState::IN_FAILED_SQL_TRANSACTION,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
        ];
        if collided.contains(state) { Again::Collided } else { Again::Never }
    }

    /// Whether this answer to COMMIT says that nothing was committed. Everything else leaves it open: a server that goes
    /// down may have committed first.
    pub(super) fn refused_to_commit(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        let class = error.code().map(|state| state.code().get(..2));
        matches!(class.flatten(), Some("23" | "40" | "P0"))
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Damaged(reason) => reason.clone(),
            Self::TooSlow => "the database did not answer in time".to_owned(),
            Self::ClockStepped => "the database's clock stepped".to_owned(),
            Self::Postgres(error) => {
                use std::error::Error as _;
                if let Some(error) = error.as_db_error() {
                    // Message and code alone: a detail may show values of rows.
                    return format!("{} ({})", error.message(), error.code().code());
                }
                let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
                format!("{error}{cause}")
            }
        }
    }
}

impl From<Fault> for StoreError {
    /// What a caller may conclude: nothing was committed, so it is certainly not done.
    fn from(fault: Fault) -> Self {
        let reason = fault.reason();
        match &fault {
            Fault::Damaged(_) => Self::Damaged { reason },
            Fault::Postgres(error)
                if matches!(error.code(), Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED)) =>
            {
                Self::Damaged { reason }
            }
            Fault::Postgres(_) | Fault::TooSlow | Fault::ClockStepped => Self::NotDone { reason },
        }
    }
}

/// What a call of the port decides on.
pub(super) type Decided<T, R> = Result<Outcome<T, R>, Fault>;

/// A try of a call that did not end with a commit that was answered.
#[derive(Debug)]
pub(super) enum Undone {
    /// Nothing was committed.
    Certainly(Fault),
    /// Whether it was committed is not known.
    Unknown(String),
}

/// Waiting for a standby is not cut short: a timeout there would acknowledge what only this server has.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

/// A connection in the hands of one call.
pub(super) struct Connection {
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
    pub(super) fn new(client: Object) -> Self {
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

    /// Begins a transaction.
    async fn begin(&self, how: &str) -> Result<(), Fault> {
        self.open.store(true, Ordering::SeqCst);
        Ok(self.client()?.batch_execute(how).await?)
    }

    /// Commits what was begun. An error that [`Fault::refused_to_commit`] means that it is not known what became of it.
    pub(super) async fn commit(&self) -> Result<(), Fault> {
        self.end(COMMIT).await
    }

    /// Undoes what was begun. Where that fails, the connection is closed, which undoes it too.
    pub(super) async fn roll_back(&self) {
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
    pub(super) fn wrote(&self) -> bool {
        self.wrote.load(Ordering::SeqCst)
    }

    /// Something that is true once this is committed.
    pub(super) fn note(&self, fact: Fact) {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).push(fact);
    }

    /// What is true once this is committed.
    pub(super) fn take_facts(&self) -> Vec<Fact> {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a statement; answers how many rows changed.
    pub(super) async fn execute<const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
    ) -> Result<u64, Fault> {
        let client = self.client()?;
        #[cfg(test)]
        super::plans::note(sql);
        let statement = client.prepare_cached(sql).await?;
        let rows = client.execute_raw(&statement, values).await?;
        if rows > 0 {
            self.wrote.store(true, Ordering::SeqCst);
        }
        Ok(rows)
    }

    /// Runs a statement that must change exactly one row: anything else means that what was loaded is not what is there.
    pub(super) async fn execute_one<const N: usize>(
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
    pub(super) async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.client().unwrap().query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn query<const N: usize>(&self, sql: &'static str, values: [Bound<'_>; N]) -> Result<Vec<Row>, Fault> {
        let client = self.client()?;
        #[cfg(test)]
        super::plans::note(sql);
        let statement = client.prepare_cached(sql).await?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        Ok(client.query(&statement, &values).await?)
    }

    /// Carries out one statement as a transaction of its own, in one round trip: the commit is sent behind it before it is
    /// answered. A connection that breaks meanwhile leaves open whether it was done.
    pub(super) async fn at_once<T, const N: usize>(
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
        super::plans::note(sql);
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
    pub(super) async fn first<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let rows = self.query(sql, values).await?;
        rows.first().map(|row| read(&mut Columns::of(row))).transpose()
    }

    /// The row of a query that always has one, such as a count.
    pub(super) async fn only<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let first = self.first(sql, values, read).await?;
        first.ok_or_else(|| Fault::Damaged(format!("no row answers: {sql}")))
    }

    /// Every row of a query; the query bounds how many.
    pub(super) async fn all<T, const N: usize>(
        &self,
        sql: &'static str,
        values: [Bound<'_>; N],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let rows = self.query(sql, values).await?;
        rows.iter().map(|row| read(&mut Columns::of(row))).collect()
    }
}

impl Tx {
    /// Writes to the log of the database and to no table: what is committed behind it has been through the disk.
    pub(super) async fn leave_a_mark(&self) -> Result<(), Fault> {
        self.first("SELECT pg_logical_emit_message(true, 'leasehold', '')::text", values![], |_| Ok(())).await?;
        Ok(())
    }
}

/// One call of the port, before its transaction.
pub(super) struct Unlocked {
    connection: Arc<Connection>,
    clocks: Clocks,
}

impl Deref for Unlocked {
    type Target = Connection;

    /// What is read here is read without a lock: only keys, to be looked at again.
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Unlocked {
    pub(super) fn new(connection: Arc<Connection>, clocks: Clocks) -> Self {
        Self { connection, clocks }
    }

    /// Begins the transaction, takes the locks in the one order, and then reads the clock.
    pub(super) async fn lock(self, locks: Locks<'_>) -> Result<Tx, Fault> {
        let asked = self.clocks.boot();
        // Sent together: the server does one after the other.
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let ((), millis) = futures_util::future::try_join(begun, locks.take(&self.connection)).await?;
        self.at(asked, millis)
    }

    /// The same for a scan: takes those of `attempts` that nobody else has, and answers which those are.
    pub(super) async fn lock_free(self, attempts: &[AttemptId]) -> Result<(Tx, Vec<AttemptId>), Fault> {
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let ((), free) = futures_util::future::try_join(begun, lock::free_attempts(&self.connection, attempts)).await?;
        let asked = self.clocks.boot();
        let millis = self.millis().await?;
        Ok((self.at(asked, millis)?, free))
    }

    /// The same for runs, with their attempts.
    pub(super) async fn lock_free_runs(self, runs: &[RunId]) -> Result<(Tx, Vec<RunId>), Fault> {
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let ((), free) = futures_util::future::try_join(begun, lock::free_runs(&self.connection, runs)).await?;
        let asked = self.clocks.boot();
        let millis = self.millis().await?;
        Ok((self.at(asked, millis)?, free))
    }

    /// The same for tasks, with their triggers.
    pub(super) async fn lock_free_tasks(
        self,
        tasks: &[(ProjectName, TaskName)],
    ) -> Result<(Tx, Vec<(ProjectName, TaskName)>), Fault> {
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let ((), free) = futures_util::future::try_join(begun, lock::free_tasks(&self.connection, tasks)).await?;
        let asked = self.clocks.boot();
        let millis = self.millis().await?;
        Ok((self.at(asked, millis)?, free))
    }

    /// The same for the followers of the first `limit` new successes. Answers them, and whether another has some.
    pub(super) async fn lock_followers(self, limit: usize) -> Result<(Tx, lock::Followers), Fault> {
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let ((), taken) = futures_util::future::try_join(begun, lock::followers(&self.connection, limit)).await?;
        let asked = self.clocks.boot();
        let millis = self.millis().await?;
        Ok((self.at(asked, millis)?, taken))
    }

    /// The same for whoever moves the ends after a step of the clock, which nobody does beside it: the clock as it is, with
    /// what this replica knows of it.
    pub(super) async fn lock_clock(self, watch: &Watch) -> Result<(Tx, Reading), Fault> {
        let begun = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let lock = "SELECT pg_advisory_xact_lock(lock_key('clock'))";
        futures_util::future::try_join(begun, self.first(lock, values![], |_| Ok(()))).await?;
        let asked = watch.boot();
        let now = self.peek_clock().await?;
        let reading = Reading { asked, said: now.lease, answered: watch.boot() };
        Ok((Tx { connection: self.connection, now }, reading))
    }

    /// Begins a transaction that only reads, in one snapshot.
    pub(super) async fn snapshot(self) -> Result<Tx, Fault> {
        let asked = self.clocks.boot();
        let begun = self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let ((), millis) = futures_util::future::try_join(begun, self.millis()).await?;
        self.at(asked, millis)
    }

    /// What tests set in place of the database's clock, for a statement that reads that clock itself.
    pub(super) fn told(&self) -> (Option<LeaseInstant>, Option<UtcMillis>) {
        self.clocks.told.as_deref().map(told_by).map(|told| (told.lease, told.utc)).unzip()
    }

    /// The clocks, for a look at keys before anything is locked. What is decided is decided at [`Tx::now`].
    pub(super) async fn peek_clock(&self) -> Result<Now, Fault> {
        match &self.clocks.told {
            Some(clock) => Ok(told_by(&**clock)),
            None => self.millis().await.map(at),
        }
    }

    /// The same, for a scan that calls people late: nobody for as long as this answers beside it. Also learns which steps of
    /// the clock others have dealt with.
    pub(super) async fn peek_clock_closely(&self) -> Result<(Now, Millis), Fault> {
        let Some(watch) = &self.clocks.watch else { return Ok((self.peek_clock().await?, Millis::ZERO)) };
        let asked = watch.boot();
        // The snapshot is taken before the clock is read: who sees no step here knows every step that was dealt with.
        let (millis, dealt_with) = self
            .only("SELECT clock_millis(), (SELECT max(id) FROM clock_step)", values![], |columns| {
                Ok((columns.next()?, columns.next::<Option<u64>>()?))
            })
            .await?;
        let now = self.checked(asked, millis)?;
        watch.knows(dealt_with);
        Ok((now, watch.doubts_for()))
    }

    async fn millis(&self) -> Result<i64, Fault> {
        self.only("SELECT clock_millis()", values![], rows::column).await
    }

    /// What the clocks say when the database's said `millis`, having been asked no earlier than `asked`. A clock that
    /// stepped since this replica looked at it last says nothing.
    pub(super) fn checked(&self, asked: BootInstant, millis: i64) -> Result<Now, Fault> {
        let now = self.clocks.told.as_deref().map_or_else(|| at(millis), told_by);
        match &self.clocks.watch {
            Some(watch) if watch.has_stepped(asked, now.lease) => Err(Fault::ClockStepped),
            _ => Ok(now),
        }
    }

    fn at(self, asked: BootInstant, millis: i64) -> Result<Tx, Fault> {
        let now = self.checked(asked, millis)?;
        Ok(Tx { connection: self.connection, now })
    }
}

/// Both clocks are the database's.
fn at(millis: i64) -> Now {
    Now { lease: LeaseInstant::new(millis), utc: UtcMillis::new(millis) }
}

fn told_by(clock: &dyn Clock) -> Now {
    Now { lease: LeaseInstant::new(clock.boot().get()), utc: clock.utc() }
}

/// One call's transaction, with its locks taken.
pub(super) struct Tx {
    connection: Arc<Connection>,
    /// The clocks, read once, after the locks.
    pub(super) now: Now,
}

impl Deref for Tx {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}
