//! What a call of the port sees of its transaction: a connection, the clocks, and whether it wrote anything.
//!
//! A [`Unlocked`] has a connection and nothing else. [`Unlocked::lock`] begins the transaction, takes every lock that is needed in
//! the one order, and then reads the clock, once: only what it answers, a [`Tx`], knows the time and can be decided on.
//! READ COMMITTED: each statement sees what was committed while the one before it waited, so what is counted under a
//! lock is counted in a later statement. A call never ends its transaction: [`super::PostgresStore`] does. A connection whose
//! transaction was not ended in order is closed, never used again. (Control design, *Store*.)

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::try_join;
use leasehold_core::clock_step::Reading;
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName};
use leasehold_core::time::{BootInstant, Clock, LeaseInstant, Millis, Now, UtcMillis};
use leasehold_store::outcome::Outcome;

use super::clock::{Clocks, Watch};
use super::column::values;
use super::lock::{self, Locks};
use super::rows;

mod connection;
mod fault;

pub(super) use connection::Connection;
pub(super) use fault::{Again, Fault, Undone};

/// What a call of the port decides on.
pub(super) type Decided<T, R> = Result<Outcome<T, R>, Fault>;

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
        let millis = self.begin_with(locks.take(&self.connection)).await?;
        self.at(asked, millis)
    }

    /// The same for a scan: takes those of `attempts` that nobody else has, and answers which those are.
    pub(super) async fn lock_free(self, attempts: &[AttemptId]) -> Result<(Tx, Vec<AttemptId>), Fault> {
        let free = self.begin_with(lock::free_attempts(&self.connection, attempts)).await?;
        Ok((self.locked().await?, free))
    }

    /// The same for runs, with their attempts.
    pub(super) async fn lock_free_runs(self, runs: &[RunId]) -> Result<(Tx, Vec<RunId>), Fault> {
        let free = self.begin_with(lock::free_runs(&self.connection, runs)).await?;
        Ok((self.locked().await?, free))
    }

    /// The same for tasks, with their triggers.
    pub(super) async fn lock_free_tasks(
        self,
        tasks: &[(ProjectName, TaskName)],
    ) -> Result<(Tx, Vec<(ProjectName, TaskName)>), Fault> {
        let free = self.begin_with(lock::free_tasks(&self.connection, tasks)).await?;
        Ok((self.locked().await?, free))
    }

    /// The same for the followers of the first `limit` new successes. Answers them, and whether another has some.
    pub(super) async fn lock_followers(self, limit: usize) -> Result<(Tx, lock::Followers), Fault> {
        let taken = self.begin_with(lock::followers(&self.connection, limit)).await?;
        Ok((self.locked().await?, taken))
    }

    /// The same for whoever moves the ends after a step of the clock, which nobody does beside it: the clock as it is, with
    /// what this replica knows of it.
    pub(super) async fn lock_clock(self, watch: &Watch) -> Result<(Tx, Reading), Fault> {
        let lock = "SELECT pg_advisory_xact_lock(lock_key('clock'))";
        self.begin_with(self.first(lock, values![], |_| Ok(()))).await?;
        let asked = watch.boot();
        let now = self.peek_clock().await?;
        let reading = Reading { asked, said: now.lease, answered: watch.boot() };
        Ok((Tx { connection: self.connection, now }, reading))
    }

    /// Begins the transaction with its first statement, which takes locks.
    async fn begin_with<T>(&self, first: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        // Sent together: the server does one after the other.
        let ((), taken) = try_join(self.begin("BEGIN ISOLATION LEVEL READ COMMITTED"), first).await?;
        Ok(taken)
    }

    /// Reads the clock, now that the locks are taken.
    async fn locked(self) -> Result<Tx, Fault> {
        let asked = self.clocks.boot();
        let millis = self.millis().await?;
        self.at(asked, millis)
    }

    /// Begins a transaction that only reads, in one snapshot.
    pub(super) async fn snapshot(self) -> Result<Tx, Fault> {
        let asked = self.clocks.boot();
        let begun = self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let ((), millis) = try_join(begun, self.millis()).await?;
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

impl Tx {
    /// Writes to the log of the database and to no table: what is committed behind it has been through the disk.
    pub(super) async fn leave_a_mark(&self) -> Result<(), Fault> {
        self.first("SELECT pg_logical_emit_message(true, 'leasehold', '')::text", values![], |_| Ok(())).await?;
        Ok(())
    }
}
