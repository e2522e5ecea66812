//! The mark of a store that is being moved to another database, or was: it fences the file.
//!
//! Two parts, written in one transaction. A row says where the store went and how far it got. A step of the schema that no
//! program has makes every program refuse the file, one from before there were moves too: that reads nothing else, and says
//! that a newer leasehold is needed, which says the rest. The mark is brought into the file itself, not its log alone, before
//! anything is alive elsewhere. Whether a mark may be taken back is not decided here (see [`crate::migrate_store`]).

use super::transaction::Fault;
use leasehold_core::database::{ClusterId, History, Timeline};
use leasehold_core::id::MoveId;
use leasehold_core::time::UtcMillis;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

/// The step of the schema that no program has.
pub(super) const FENCE: u32 = u32::MAX;

/// How far a move got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Rows are copied: nothing is alive at the target, whatever happened since.
    Copying,
    /// The target was asked to commit, or was about to be: only the target knows whether it did.
    Committing,
    /// The target has it. What is here is older.
    Finished,
}

impl Stage {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Committing => "committing",
            Self::Finished => "finished",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Copying, Self::Committing, Self::Finished].into_iter().find(|stage| stage.as_str() == text)
    }
}

/// Which database a store is moved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// As people name it; without a password.
    pub url: String,
    /// The cluster, and its history when the move began.
    pub history: History,
    /// The database's number in its cluster.
    pub database: u32,
    /// The schema.
    pub schema: String,
}

impl Place {
    /// Whether both are one database, whatever they are called.
    pub fn is(&self, other: &Self) -> bool {
        (self.history.cluster, self.database, &self.schema) == (other.history.cluster, other.database, &other.schema)
    }
}

/// The mark of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Which move.
    pub id: MoveId,
    /// Where to.
    pub to: Place,
    /// How far it got.
    pub stage: Stage,
    /// When that was.
    pub at: UtcMillis,
}

/// The mark of a database, if it has one.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Moved>> {
    let there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'moved')";
    if !connection.query_row(there, [], |row| row.get::<_, bool>(0))? {
        return Ok(None);
    }
    let sql = "SELECT id, url, cluster, timeline, database, schema, stage, at FROM moved WHERE one = 1";
    let found = connection.query_row(sql, [], |row| {
        let damaged = |column: usize, what: &str| {
            rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.to_owned().into())
        };
        let history = History {
            cluster: ClusterId::new(row.get::<_, String>(2)?.parse().map_err(|_| damaged(2, "no cluster"))?),
            timeline: Timeline::new(row.get(3)?),
        };
        Ok(Moved {
            id: MoveId::from_bytes(row.get(0)?).map_err(|_| damaged(0, "no id of a move"))?,
            to: Place { url: row.get(1)?, history, database: row.get(4)?, schema: row.get(5)? },
            stage: Stage::parse(&row.get::<_, String>(6)?).ok_or_else(|| damaged(6, "no stage of a move"))?,
            at: UtcMillis::new(row.get(7)?),
        })
    });
    found.optional()
}

/// Marks a database, durably, in place of the mark that it may have.
pub(super) fn write(connection: &mut Connection, moved: &Moved) -> rusqlite::Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS moved (
             one INTEGER PRIMARY KEY CHECK (one = 1),
             id BLOB NOT NULL CHECK (length(id) = 16),
             url TEXT NOT NULL,
             cluster TEXT NOT NULL,
             timeline INTEGER NOT NULL,
             database INTEGER NOT NULL,
             schema TEXT NOT NULL,
             stage TEXT NOT NULL CHECK (stage IN ('copying', 'committing', 'finished')),
             at INTEGER NOT NULL
         ) STRICT",
    )?;
    let Moved { id, to, stage, at } = moved;
    tx.execute(
        "INSERT OR REPLACE INTO moved (one, id, url, cluster, timeline, database, schema, stage, at) \
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            id.as_bytes(),
            to.url,
            to.history.cluster.to_string(),
            to.history.timeline.get(),
            to.database,
            to.schema,
            stage.as_str(),
            at.get(),
        ],
    )?;
    tx.execute(
        "INSERT OR IGNORE INTO schema_migration (version, name, checksum, applied_at) \
         VALUES (?1, 'moved', zeroblob(32), ?2)",
        params![FENCE, at.get()],
    )?;
    tx.commit()?;
    into_the_file(connection)
}

/// Takes the mark away, durably: the file is a store again.
///
/// `also` happens in the same transaction.
pub(super) fn remove(
    connection: &mut Connection,
    also: impl FnOnce(&Connection) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    also(&tx)?;
    tx.execute("DELETE FROM schema_migration WHERE version = ?1", [FENCE])?;
    tx.execute_batch("DROP TABLE IF EXISTS moved")?;
    tx.commit()?;
    Ok(into_the_file(connection)?)
}

/// Brings what was committed from the write-ahead log into the file: a copy of the file alone is marked too.
fn into_the_file(connection: &Connection) -> rusqlite::Result<()> {
    let busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy {
        let why = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let what = "another process reads the database, such as a backup: end it and try again";
        return Err(rusqlite::Error::SqliteFailure(why, Some(what.to_owned())));
    }
    Ok(())
}
