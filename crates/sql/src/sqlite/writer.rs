//! The one writer: a thread that carries out queued calls in groups, one transaction and one sync per group.
//!
//! Each call has a savepoint, so one that fails undoes only itself; every answer waits for the commit. The stored lease
//! clock goes along with each commit. A group that an exhausted disk refused is carried out once more in the space of the
//! [`super::reserve`]. (Control design, *SQLite*.)

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use leasehold_store::observe::{Fact, Observer};
use leasehold_store::outcome::StoreError;
use rusqlite::{Connection, ErrorCode};

use super::clock::{self, LeaseClock};
use super::queue::{Job, Undo};
use super::reserve::Reserve;
use super::transaction::{Fault, Tx};

/// Calls in one transaction.
pub(super) const GROUP: usize = 64;

/// How often the lease clock is stored while a lease lives and nothing else commits.
pub(super) const CLOCK_STORED: Duration = Duration::from_secs(5);

/// What the writer thread owns.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) clock: Arc<LeaseClock>,
    pub(super) calls: Receiver<Box<dyn Job>>,
    /// How long it waits for a call before it looks after the clock: [`CLOCK_STORED`].
    pub(super) patience: Duration,
    /// Who is told what was committed.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// What a full disk cannot take from it.
    pub(super) reserve: Reserve,
}

impl Writer {
    /// Carries calls out until the queue is closed and empty; then stores the clock.
    pub(super) fn serve(mut self) -> Self {
        loop {
            self.reserve.keep();
            match self.calls.recv_timeout(self.patience) {
                Ok(first) => self.carry_out(self.group(first)),
                Err(RecvTimeoutError::Timeout) => self.keep_clock(clock::is_needed),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.keep_clock(|_| Ok(true));
        self
    }

    pub(super) fn close(self) {
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database was not closed in order; the next start recovers it");
        }
    }

    fn group(&self, first: Box<dyn Job>) -> Vec<Box<dyn Job>> {
        let mut group = vec![first];
        group.extend(self.calls.try_iter().take(GROUP - 1));
        group
    }

    /// One transaction for the whole group.
    fn carry_out(&mut self, mut group: Vec<Box<dyn Job>>) {
        let mut committed = self.try_out(&mut group);
        // Whatever of the first try may stand in the log, a commit of the second replaces it.
        if committed.is_err() && self.reserve.give_up() {
            committed = self.try_out(&mut group);
        }
        for job in group {
            job.answer(committed.clone());
        }
    }

    /// Carries the group out and tells the observer what it made true.
    fn try_out(&self, group: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let mut facts = Vec::new();
        self.transact(|| {
            let mut wrote = false;
            for job in group {
                wrote |= self.one(&mut **job, &mut facts)?;
            }
            Ok(wrote)
        })?;
        if let Some(observer) = &self.observer {
            for fact in facts {
                observer.committed(fact);
            }
        }
        Ok(())
    }

    /// Stores the clock in a transaction of its own, if it is `needed`.
    fn keep_clock(&self, needed: impl Fn(&Tx<'_>) -> Result<bool, Fault>) {
        if let Err(error) = self.transact(|| Ok(needed(&Tx::new(&self.connection, self.clock.now()))?)) {
            tracing::warn!(%error, "the lease clock was not stored");
        }
    }

    /// Begins, does `work`, stores the clock if it wrote (as it says), and commits.
    fn transact(&self, work: impl FnOnce() -> Result<bool, StoreError>) -> Result<(), StoreError> {
        self.statement("BEGIN IMMEDIATE")?;
        let worked = work().and_then(|wrote| {
            if wrote {
                clock::store(&Tx::new(&self.connection, self.clock.now()))?;
            }
            Ok(())
        });
        match worked {
            Ok(()) => self.commit(),
            Err(error) => {
                self.roll_back()?;
                Err(error)
            }
        }
    }

    /// One call in its savepoint; answers whether it wrote, and adds what it made true to `facts`. An error is the whole group's: the transaction is gone.
    fn one(&self, job: &mut dyn Job, facts: &mut Vec<Fact>) -> Result<bool, StoreError> {
        for again in [true, false] {
            self.statement("SAVEPOINT call")?;
            let tx = Tx::new(&self.connection, self.clock.now());
            let undo = job.run(&tx).err();
            if self.connection.is_autocommit() {
                return Err(StoreError::NotDone { reason: "SQLite rolled the transaction back".to_owned() });
            }
            let Some(undo) = undo else {
                self.statement("RELEASE call")?;
                let wrote = tx.wrote();
                facts.append(&mut tx.into_facts());
                return Ok(wrote);
            };
            self.statement("ROLLBACK TO call")?;
            self.statement("RELEASE call")?;
            if !(again && undo == Undo::Raced) {
                break;
            }
        }
        Ok(false)
    }

    fn statement(&self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|error| Fault::from(error).into())
    }

    /// Commits, and says what may be concluded when SQLite does not say yes.
    fn commit(&self) -> Result<(), StoreError> {
        let Err(error) = self.connection.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]))
        else {
            return Ok(());
        };
        let undone = self.roll_back().is_ok();
        Err(conclude(&error, undone))
    }

    fn roll_back(&self) -> Result<(), StoreError> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.statement("ROLLBACK")
            .map_err(|error| StoreError::Unknown { reason: format!("a transaction could not be rolled back: {error}") })
    }
}

/// What a failed COMMIT means, after the rollback that followed it.
///
/// Refused before anything reached the log: certainly not done. After a failed write or sync, the commit's frames may stand in
/// the log, and a crash before the next commit could bring them back: unknown.
fn conclude(error: &rusqlite::Error, undone: bool) -> StoreError {
    let refused = matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ConstraintViolation | ErrorCode::ReadOnly
        )
    );
    let reason = format!("COMMIT: {error}");
    if refused && undone { StoreError::NotDone { reason } } else { StoreError::Unknown { reason } }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_commit_that_was_refused_is_certainly_not_done() {
        for (code, certain) in [
            (ffi::SQLITE_BUSY, true),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, true),
            (ffi::SQLITE_IOERR_FSYNC, false),
            (ffi::SQLITE_IOERR_WRITE, false),
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_CORRUPT, false),
        ] {
            let answer = conclude(&failure(code), true);
            assert_eq!(matches!(answer, StoreError::NotDone { .. }), certain, "{code}: {answer}");
        }
        let answer = conclude(&failure(ffi::SQLITE_BUSY), false);
        assert!(matches!(answer, StoreError::Unknown { .. }), "{answer}");
    }
}
