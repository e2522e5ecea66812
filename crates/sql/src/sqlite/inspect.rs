//! A look at a database from outside, for `doctor`: whether a control plane runs on it or not, and without changing
//! anything, not even a file beside it.
//!
//! No lock is taken that a control plane would meet: who holds the database is read from the kernel's list of locks. A
//! database that nobody has open and whose log is empty is read as a file that does not change; SQLite would otherwise make
//! its companions anew. Rows are counted and named here, never judged.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leasehold_core::id::WorkerId;
use leasehold_core::limits::PAGE;
use leasehold_core::time::{LeaseInstant, Now, UtcMillis};
use leasehold_store::call::Installation;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::migrate::{APPLICATION_ID, MIGRATIONS};
use super::moved::{self, Moved};
use super::transaction::{Fault, Tx};
use super::{installation, lock};

/// Damages that are told at most.
const DAMAGES: u32 = 8;

/// Who has a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// No process.
    Nobody,
    /// A control plane; its process id, where this machine's list of locks knows it.
    ControlPlane(Option<u32>),
}

/// A database as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Its size, and that of its write-ahead log, in bytes.
    pub bytes: (u64, u64),
    /// Its schema version, and the newest that this program knows.
    pub schema: (u32, u32),
    /// Where it was moved to, or is being moved to.
    pub moved: Option<Moved>,
    /// What SQLite's own quick check says is broken; at most eight lines.
    pub damage: Vec<String>,
    /// What is in it, where its schema is one that this program can read.
    pub contents: Option<Contents>,
}

/// What is in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The installation, its keys sealed; none before its first start is done.
    pub installation: Option<Installation>,
    /// The lease clock, as it was stored last.
    pub lease_clock: LeaseInstant,
    /// The latest time at which a run says that it was submitted.
    pub latest_submission: Option<UtcMillis>,
    /// Runs whose question is open.
    pub lost_runs: u64,
    /// Workers whose session ran out without a word, in name order; at most [`PAGE`].
    pub silent_workers: Vec<WorkerId>,
    /// When the certificates of workers that are not silent for good end, the earliest first; at most [`PAGE`].
    pub certificates: Vec<(WorkerId, UtcMillis)>,
}

/// Why there is nothing to tell of a database.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is none.
    #[error("there is no database at {}", .0.display())]
    NotThere(PathBuf),
    /// There is nothing in it: a first start that was cut off leaves it so, and so does a lost database.
    #[error("the database {} is empty", .0.display())]
    Empty(PathBuf),
    /// It belongs to another program.
    #[error("the file {} is a database of another program", .0.display())]
    Foreign(PathBuf),
    /// The system does not let this user look.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no database, or too broken to be looked at.
    #[error("the database {} cannot be read: {source}", path.display())]
    Broken {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

/// Looks at the database at `path`. Blocking, and as long as reading the whole file takes.
pub fn inspect(path: &Path) -> Result<Inspection, InspectError> {
    let mut before = still(path)?;
    for _ in 0..3 {
        let found = look(path, before)?;
        let after = still(path)?;
        // What began to change while it was read as unchanging may look broken and is not.
        if before != Still::Yes || after == Still::Yes {
            return Ok(found);
        }
        before = after;
    }
    look(path, Still::No)
}

/// The mark of the database at `path`, where it was moved away or is being moved. Sooner told than all the rest.
pub fn mark(path: &Path) -> Result<Option<Moved>, InspectError> {
    let connection = ours(path, still(path)?)?;
    moved::read(&connection).map_err(|source| InspectError::Broken { path: path.to_owned(), source })
}

/// Who has the database at `path`; nobody, where there is none.
pub fn holder(path: &Path) -> std::io::Result<Holder> {
    lock::holder(path)
}

/// The kind of network file system that a directory is on; none for a local one.
pub fn network_file_system(directory: &Path) -> std::io::Result<Option<&'static str>> {
    lock::network_of(directory)
}

/// Whether a database is a file that does not change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Still {
    Yes,
    No,
}

fn still(path: &Path) -> Result<Still, InspectError> {
    let held = lock::holder(path).map_err(|source| InspectError::Unreadable { path: path.to_owned(), source })?;
    Ok(if held == Holder::Nobody && size(&beside(path, "-wal")) == 0 { Still::Yes } else { Still::No })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.size())
}

/// A database of ours, opened.
fn ours(path: &Path, still: Still) -> Result<Connection, InspectError> {
    match fs::File::open(path) {
        Ok(_) if size(path) == 0 && size(&beside(path, "-wal")) == 0 => {
            return Err(InspectError::Empty(path.to_owned()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(InspectError::NotThere(path.to_owned()));
        }
        Err(source) => return Err(InspectError::Unreadable { path: path.to_owned(), source }),
    }
    let broken = |source| InspectError::Broken { path: path.to_owned(), source };
    let connection = open(path, still).map_err(broken)?;
    let owner: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(broken)?;
    if owner != APPLICATION_ID {
        return Err(InspectError::Foreign(path.to_owned()));
    }
    Ok(connection)
}

fn look(path: &Path, still: Still) -> Result<Inspection, InspectError> {
    let connection = ours(path, still)?;
    let broken = |source| InspectError::Broken { path: path.to_owned(), source };
    let moved = moved::read(&connection).map_err(broken)?;
    let newest = "SELECT max(version) FROM schema_migration WHERE version <> ?1 OR ?2";
    let found = connection.query_row(newest, (moved::FENCE, moved.is_none()), |row| row.get(0));
    let schema: u32 = found.optional().map_err(broken)?.flatten().unwrap_or(0);
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let mut damage = damage(&connection).map_err(broken)?;
    let mut found = None;
    if schema == known && damage.is_empty() {
        match contents(&connection) {
            Ok(contents) => found = Some(contents),
            Err(Fault::Damaged(row)) => damage.push(row),
            Err(Fault::Sqlite(source)) => return Err(broken(source)),
        }
    }
    Ok(Inspection {
        bytes: (size(path), size(&beside(path, "-wal"))),
        schema: (schema, known),
        moved,
        damage,
        contents: found,
    })
}

fn open(path: &Path, still: Still) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => uri.push(char::from(*byte)),
            other => {
                let _ = write!(uri, "%{other:02X}");
            }
        }
    }
    uri.push_str(if still == Still::Yes { "?mode=ro&immutable=1" } else { "?mode=ro" });
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

fn damage(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA quick_check({DAMAGES})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    lines.filter(|line| line.as_ref().map_or(true, |line| line != "ok")).collect()
}

fn contents(connection: &Connection) -> Result<Contents, Fault> {
    let now = Now { lease: LeaseInstant::new(0), utc: UtcMillis::new(0) };
    let installation = installation::installation(&Tx::new(connection, now))?;
    let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let lease_clock: i64 = connection.query_row("SELECT at FROM lease_clock WHERE one = 1", [], |row| row.get(0))?;
    let mut silent = connection.prepare(
        "SELECT worker.id FROM worker JOIN session ON session.id = worker.current_session \
         WHERE worker.state = 'active' AND session.state <> 'offline' AND session.expires_lease < ?1 \
         ORDER BY worker.id LIMIT ?2",
    )?;
    let silent = silent.query_map((lease_clock, page), |row| row.get::<_, String>(0))?;
    let mut certificates = connection.prepare(
        "SELECT id, certificate_expires_at FROM worker WHERE state = 'active' ORDER BY certificate_expires_at, id LIMIT ?1",
    )?;
    let certificates =
        certificates.query_map([page], |row| Ok((row.get::<_, String>(0)?, UtcMillis::new(row.get(1)?))))?;
    let lost_runs: i64 = connection.query_row("SELECT count(*) FROM run WHERE state = 'lost'", [], |row| row.get(0))?;
    // A name that is none is left to the check of rows that a control plane makes.
    let named = |name: String| name.parse::<WorkerId>().ok();
    Ok(Contents {
        installation,
        lease_clock: LeaseInstant::new(lease_clock),
        // Ids of runs begin with their time.
        latest_submission: connection
            .query_row("SELECT created_at FROM run ORDER BY id DESC LIMIT 1", [], |row| row.get(0))
            .optional()?
            .map(UtcMillis::new),
        lost_runs: u64::try_from(lost_runs).unwrap_or(0),
        silent_workers: silent.filter_map(|name| name.map(named).transpose()).collect::<rusqlite::Result<_>>()?,
        certificates: certificates
            .filter_map(|row| row.map(|(name, at)| Some((named(name)?, at))).transpose())
            .collect::<rusqlite::Result<_>>()?,
    })
}
