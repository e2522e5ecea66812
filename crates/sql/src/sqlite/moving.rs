//! The store that is moved away: its lock, its mark, its rows. Faces [`crate::postgres::moving`], where they arrive.
//!
//! It decides nothing: when the file is marked and when the mark may be taken back stands in [`crate::migrate_store`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use leasehold_core::actor::Actor;
use leasehold_core::crypto::{Digest, Domain, Hasher};
use leasehold_core::time::{LeaseInstant, Now, UtcMillis};
use leasehold_store::call::Installation;
use rusqlite::{Connection, OpenFlags};

use super::lock::Lock;
use super::migrate::{MIGRATIONS, migrate};
use super::moved::{self, Moved};
use super::open::{OpenError, configure, connect};
use super::reserve::Reserve;
use super::transaction::{Fault, Tx};
use super::{audit, clock, installation};
use crate::migrate_store::tables::Table;
use crate::migrate_store::tuple::{self, Change};

/// About so much is read before it is handed on.
const PIECE: usize = 256 * 1024;

/// Damages that are told at most.
const DAMAGES: u32 = 8;

/// A store that is moved away. Its lock is held until it is dropped.
pub struct Source {
    connection: Arc<Mutex<Connection>>,
    path: PathBuf,
    // Last: only a database that nobody has open any more may be another's.
    _lock: Lock,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What went wrong with the store that is moved away.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// SQLite refused something.
    #[error("cannot {action}")]
    Sqlite {
        /// What was tried.
        action: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// It is not whole.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// A row that PostgreSQL would not take.
    #[error("a row of {table} cannot be moved: {why}")]
    Unfit {
        /// Of which table.
        table: &'static str,
        /// Which column, and why.
        why: String,
    },
    /// Whoever took the rows is gone.
    #[error("nobody takes the rows any more")]
    Abandoned,
}

fn failed(action: &'static str) -> impl FnOnce(rusqlite::Error) -> SourceError {
    move |source| SourceError::Sqlite { action, source }
}

/// Rows on their way.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) rows: u64,
}

/// What is handed on: the pieces of a table, and then its end.
#[derive(Debug)]
pub(crate) enum Sent {
    Piece(Piece),
    End(Contents),
}

/// What a whole table was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
}

impl Source {
    /// Takes the store at `path`, which is there, and changes nothing.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        // An exhausted disk gets the reserve's space back: the mark must find room.
        let reserve = Reserve::of(path);
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        configure(&connection, reserve.checkpoint_pages())
            .map_err(|source| OpenError::Sqlite { action: "set the database up", source })?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), path: path.to_owned(), _lock: lock })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same store in another thread's hands; the lock stays here.
    pub(crate) fn reader(&self) -> Reader {
        Reader(self.connection.clone())
    }

    /// Its mark, if it was marked.
    pub fn moved(&self) -> Result<Option<Moved>, SourceError> {
        moved::read(&self.connection()).map_err(failed("read the database's mark"))
    }

    /// Brings its schema up to date.
    pub fn migrate(&self, now: UtcMillis) -> Result<(), OpenError> {
        migrate(&mut self.connection(), MIGRATIONS, now)
    }

    /// Whether its schema is up to date.
    pub(crate) fn is_up_to_date(&self) -> Result<bool, SourceError> {
        let sql = "SELECT max(version) FROM schema_migration";
        let found: Option<u32> =
            self.connection().query_row(sql, [], |row| row.get(0)).map_err(failed("read the database's schema"))?;
        Ok(found == MIGRATIONS.last().map(|newest| newest.version))
    }

    /// Refuses what is not whole. As long as reading the whole file takes.
    pub fn check(&self) -> Result<(), SourceError> {
        let connection = self.connection();
        let said = |sql: &str| -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare(sql)?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let mut damage = said(&format!("PRAGMA integrity_check({DAMAGES})")).map_err(failed("check the database"))?;
        damage.retain(|line| line != "ok");
        let dangling = format!(
            "SELECT 'a row of ' || \"table\" || ' refers to nothing' FROM pragma_foreign_key_check LIMIT {DAMAGES}"
        );
        damage.extend(said(&dangling).map_err(failed("check the database"))?);
        if damage.is_empty() { Ok(()) } else { Err(SourceError::Damaged(damage.join("; "))) }
    }

    /// What is installed in it.
    pub fn installation(&self) -> Result<Option<Installation>, SourceError> {
        let connection = self.connection();
        told(installation::installation(&Tx::new(&connection, at(UtcMillis::new(0)))))
    }

    /// The stored lease clock: it stands still, since no control plane runs.
    pub(crate) fn lease_clock(&self) -> Result<LeaseInstant, SourceError> {
        let connection = self.connection();
        told(clock::stored(&Tx::new(&connection, at(UtcMillis::new(0)))))
    }

    /// Its tables with their columns.
    pub(crate) fn tables(&self) -> Result<BTreeMap<String, BTreeSet<String>>, SourceError> {
        let connection = self.connection();
        let read = || -> rusqlite::Result<BTreeMap<String, BTreeSet<String>>> {
            let sql = "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c \
                       WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
            let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                tables.entry(row.get(0)?).or_default().insert(row.get(1)?);
            }
            Ok(tables)
        };
        read().map_err(failed("read the database's schema"))
    }

    /// How many rows each of its tables has, by name; for people.
    pub fn counts(&self) -> Result<Vec<(String, u64)>, SourceError> {
        let names = self.tables()?.into_keys();
        let connection = self.connection();
        let count = |name: String| {
            let sql = format!("SELECT count(*) FROM \"{name}\"");
            let rows: i64 = connection.query_row(&sql, [], |row| row.get(0)).map_err(failed("count the rows"))?;
            Ok((name, u64::try_from(rows).unwrap_or(0)))
        };
        names.map(count).collect()
    }

    /// Marks it, durably.
    pub(crate) fn mark(&self, moved: &Moved) -> Result<(), SourceError> {
        moved::write(&mut self.connection(), moved).map_err(failed("mark the database as moved"))
    }

    /// Takes its mark away, durably; where a person did that, who.
    pub(crate) fn unmark(&self, word: Option<(&Actor, UtcMillis, &Moved)>) -> Result<(), SourceError> {
        told(moved::remove(&mut self.connection(), |connection| {
            let Some((actor, utc, Moved { id, to, .. })) = word else { return Ok(()) };
            let tx = Tx::new(connection, at(utc));
            audit::write(&tx, actor, "take_back_store", "installation", &[("move", id), ("to", &to.url)])
        }))
    }

    /// Gives back the space that only a store that is written needs.
    pub(crate) fn give_up_reserve(&self) {
        let mut reserve = self.path.as_os_str().to_owned();
        reserve.push("-reserve");
        if let Err(error) = std::fs::remove_file(&reserve)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the reserve of the moved database stays: {} may be removed", reserve.display());
        }
    }
}

/// Reads a store, from whichever thread.
pub(crate) struct Reader(Arc<Mutex<Connection>>);

impl Reader {
    /// Reads tables, one behind the other, each in the order of its key and all in one snapshot, and hands them on until
    /// `take` wants no more.
    pub(crate) fn read(
        &self,
        tables: &[Table],
        change: &Change,
        mut take: impl FnMut(Sent) -> bool,
    ) -> Result<(), SourceError> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = connection.unchecked_transaction().map_err(failed("read the database"))?;
        for table in tables {
            let contents = read(&snapshot, table, change, |piece| take(Sent::Piece(piece)))?;
            if !take(Sent::End(contents)) {
                return Err(SourceError::Abandoned);
            }
        }
        Ok(())
    }
}

fn read(
    connection: &Connection,
    table: &Table,
    change: &Change,
    mut take: impl FnMut(Piece) -> bool,
) -> Result<Contents, SourceError> {
    let reading = || failed("read the database");
    let mut statement = connection.prepare(&table.select()).map_err(reading())?;
    let mut rows = statement.query([]).map_err(reading())?;
    let mut hasher = Hasher::new(Domain::Rows);
    let (mut all, mut bytes) = (0, 0);
    let (mut piece, mut in_piece) = (BytesMut::with_capacity(2 * PIECE), 0);
    let mut hand_on = |piece: &mut BytesMut, in_piece: &mut u64| {
        hasher.update(piece);
        (all, bytes) = (all + *in_piece, bytes + piece.len() as u64);
        let whole = Piece { bytes: piece.split().freeze(), rows: std::mem::take(in_piece) };
        if take(whole) { Ok(()) } else { Err(SourceError::Abandoned) }
    };
    while let Some(row) = rows.next().map_err(reading())? {
        tuple::encode(row, table, change, &mut piece).map_err(|why| SourceError::Unfit { table: table.name, why })?;
        in_piece += 1;
        if piece.len() >= PIECE {
            hand_on(&mut piece, &mut in_piece)?;
        }
    }
    if in_piece > 0 {
        hand_on(&mut piece, &mut in_piece)?;
    }
    Ok(Contents { rows: all, bytes, digest: hasher.finish() })
}

fn at(utc: UtcMillis) -> Now {
    Now { lease: LeaseInstant::new(0), utc }
}

fn told<T>(answer: Result<T, Fault>) -> Result<T, SourceError> {
    answer.map_err(|fault| match fault {
        Fault::Sqlite(source) => SourceError::Sqlite { action: "read the database", source },
        Fault::Damaged(reason) => SourceError::Damaged(reason),
    })
}
