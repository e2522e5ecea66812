//! Opening and closing: the lock, the file, the connections, the schema, the threads.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold_core::time::{Clock, LeaseInstant};
use leasehold_store::observe::Observer;
use rusqlite::{Connection, OpenFlags};

use super::clock::{self, LeaseClock};
use super::lock::{Lock, refuse_network};
use super::migrate::{MIGRATIONS, migrate};
use super::moved::{Moved, Stage};
use super::queue::Queue;
use super::readers::Reader;
use super::reserve::Reserve;
use super::transaction::{Fault, Tx};
use super::writer::{CLOCK_STORED, Writer};
use super::{Inner, SqliteStore};

/// How long a statement waits for another process that has the database open, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 256;

/// Calls that wait for the writer; more wait in their callers.
const WRITES: usize = 1024;

/// Reads that wait for a reader; more wait in their callers.
const READS: usize = 256;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
    /// Threads that read; at least one.
    pub readers: usize,
    /// Who is told what was committed and how long calls took.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Options {
    /// The usual: two readers.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, readers: 2, observer: None }
    }

    /// The same, and `observer` is told what was committed and how long calls took.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by {}: one control plane has a database at a time", path.display(), holder(*pid))]
    Held {
        /// The database.
        path: PathBuf,
        /// Who holds it, where that is known.
        pid: Option<u32>,
    },
    /// It lies on a network file system.
    #[error("{} is on a network file system ({kind}): SQLite needs a local disk; use --database postgres://… instead", path.display())]
    Network {
        /// The directory.
        path: PathBuf,
        /// Which kind of file system.
        kind: &'static str,
    },
    /// A file or its directory cannot be read and written.
    #[error("{} cannot be read and written: check that its directory exists and belongs to this user", path.display())]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A newer program has migrated it.
    #[error("the database has schema version {found}, this program knows up to {known}: use a newer leasehold")]
    NewerSchema {
        /// The database's version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// It was moved to another database, or is being moved.
    #[error("{}", moved_to(.0))]
    Moved(Box<Moved>),
    /// What was applied to it is not what this program has under that name.
    #[error(
        "migration {version} ({name}) was applied to the database with another text: it is from another build of leasehold"
    )]
    ChangedMigration {
        /// Which step.
        version: u32,
        /// Its name.
        name: &'static str,
    },
    /// It belongs to another program.
    #[error("the file is a database of another program")]
    Foreign,
    /// A row that opening needs is damaged.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// SQLite refused something else.
    #[error("cannot {action}")]
    Sqlite {
        /// What was tried.
        action: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A thread could not be started.
    #[error("a thread of the store could not be started")]
    Thread(#[source] std::io::Error),
}

fn moved_to(moved: &Moved) -> String {
    let to = &moved.to.url;
    match moved.stage {
        Stage::Finished => format!(
            "its installation was moved to {to}, and what is in the file is older than what is there: name that database \
             with --database, as the role that replicas run as"
        ),
        Stage::Copying | Stage::Committing => format!(
            "a move of its installation to {to} was begun and did not end: run `leasehold migrate-store` again with the same \
             --data and --database, which ends it, or with --take-back"
        ),
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl SqliteStore {
    /// Opens the database at `path`, making it if there is none. The lock is held until the store is closed or dropped.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), options, CLOCK_STORED)
    }

    pub(super) fn open_with(path: &Path, options: Options, patience: Duration) -> Result<Self, OpenError> {
        let Options { clock: machine, readers, observer } = options;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        refuse_network(directory)?;
        let lock = Lock::take(path)?;
        let mut reserve = Reserve::of(path);
        make_private(path)?;
        let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        configure(&connection, reserve.checkpoint_pages())
            .map_err(|source| OpenError::Sqlite { action: "set the database up", source })?;
        migrate(&mut connection, MIGRATIONS, machine.utc())?;
        let clock = Arc::new(resume_clock(&connection, machine)?);
        let (reads, read_calls) = Queue::bounded(READS);
        let read_calls = Arc::new(Mutex::new(read_calls));
        let mut read_threads = Vec::new();
        for _ in 0..readers.max(1) {
            let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            let reader = Reader { connection, clock: clock.clone(), calls: read_calls.clone() };
            read_threads.push(start("leasehold-read", move || reader.serve())?);
        }
        let (writes, calls) = Queue::bounded(WRITES);
        reserve.keep();
        let writer = Writer { connection, clock: clock.clone(), calls, patience, observer: observer.clone(), reserve };
        let thread = start("leasehold-write", move || {
            let writer = writer.serve();
            // The connection that closes last brings the write-ahead log into the file, and a reader's may not write: a copy
            // of the file alone would lack what was committed.
            read_threads.into_iter().for_each(join);
            writer.close();
            // Only a database that nobody writes any more may be another's.
            drop(lock);
        })?;
        Ok(Self { inner: Arc::new(Inner { writes, reads, clock, observer, thread: Mutex::new(Some(thread)) }) })
    }

    /// Finishes the calls that were sent, stores the lease clock, closes the database, which is one whole file then, and gives
    /// up the lock. Later calls are certainly not done.
    pub async fn close(&self) {
        let inner = self.inner.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || inner.close()).await {
            tracing::error!(%error, "the store did not close in order");
        }
    }
}

impl Inner {
    fn close(&self) {
        self.reads.close();
        self.writes.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.into_iter().for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store had panicked");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// The file, readable by nobody else; SQLite gives its companions the same mode.
fn make_private(path: &Path) -> Result<(), OpenError> {
    let refused = |source| OpenError::Unusable { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(refused)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(refused)
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |source| OpenError::Sqlite { action: "open the database", source };
    // Each connection stays on one thread, and a path is never taken for a URI.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    Ok(connection)
}

pub(super) fn configure(connection: &Connection, checkpoint_pages: u64) -> rusqlite::Result<()> {
    // Anything else here would mean a file system without shared memory: the readers could not open it either.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    connection.pragma_update(None, "wal_autocheckpoint", i64::try_from(checkpoint_pages).unwrap_or(1000))?;
    connection.pragma_update(None, "trusted_schema", false)
}

fn resume_clock(connection: &Connection, machine: Arc<dyn Clock>) -> Result<LeaseClock, OpenError> {
    let origin = LeaseClock::resume(machine.clone(), LeaseInstant::new(0));
    match clock::stored(&Tx::new(connection, origin.now())) {
        Ok(stored) => Ok(LeaseClock::resume(machine, stored)),
        Err(Fault::Damaged(reason)) => Err(OpenError::Damaged(reason)),
        Err(Fault::Sqlite(source)) => Err(OpenError::Sqlite { action: "read the lease clock", source }),
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(OpenError::Thread)
}
