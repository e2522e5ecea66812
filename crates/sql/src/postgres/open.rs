//! Opening and closing: the server, the schema, the connections.

use std::sync::Arc;

use leasehold_core::time::Clock;
use leasehold_store::observe::Observer;
use leasehold_store::outcome::StoreError;
use tokio_postgres::error::SqlState;

use super::beats::Beats;
use super::clock::{Clocks, Watch};
use super::connect::{self, Address};
use super::connections::Connections;
use super::hints::Hints;
use super::history::{self, Witness};
use super::migrate::{MIGRATIONS, migrate};
use super::{Inner, PostgresStore, rights};
use crate::sqlite::Place;

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The schema that holds every table of the installation.
    pub(super) schema: String,
    /// Connections at most; calls beyond wait.
    pub(super) connections: usize,
    /// Who is told what was committed and how long calls took.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// A clock in place of the database's.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// This machine's boot-time clock, which the database's is compared with.
    pub(super) machine: Option<Arc<dyn Clock>>,
    /// Who remembers which history of the database was seen.
    pub(super) witness: Option<Arc<dyn Witness>>,
    /// The only database that it may be.
    pub(super) only: Option<Place>,
    /// Whether the plain case of a call is one statement.
    pub(super) plainly: bool,
}

impl PostgresOptions {
    /// The usual: the schema `leasehold`, sixteen connections.
    pub fn new() -> Self {
        Self {
            schema: "leasehold".to_owned(),
            connections: 16,
            observer: None,
            clock: None,
            machine: None,
            witness: None,
            only: None,
            plainly: true,
        }
    }

    /// The same, with the tables in this schema: several installations can share a database.
    #[must_use]
    pub fn in_schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// The same, with this many connections at most.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// The same, and `observer` is told what was committed and how long calls took.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// The same, and `witness` is asked whether the history that a connection stands in may be trusted.
    #[must_use]
    pub fn witnessed(self, witness: Arc<dyn Witness>) -> Self {
        Self { witness: Some(witness), ..self }
    }

    /// The same, and any database but this one is refused, before anything is made in it.
    #[must_use]
    pub fn only(self, place: Place) -> Self {
        Self { only: Some(place), ..self }
    }

    /// The same, and the database's clock is compared with `machine`'s boot-time clock, so that a step of it ends no lease.
    #[must_use]
    pub fn watching_the_clock(self, machine: Arc<dyn Clock>) -> Self {
        Self { machine: Some(machine), ..self }
    }

    /// The same, but every call asks `core`.
    #[cfg(test)]
    pub(super) fn never_plainly(self) -> Self {
        Self { plainly: false, ..self }
    }

    /// The same, but `clock` takes the place of the database's: for tests. Replicas that read different clocks do not agree on
    /// what has ended.
    #[must_use]
    pub fn timed_by(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no database that can be had.
    #[error("the database's URL cannot be used: {0}")]
    Url(String),
    /// It is not the one that was asked for.
    #[error("it is another database than {url}, where the installation was moved")]
    Elsewhere {
        /// What the one that was asked for is called.
        url: String,
    },
    /// No connection came about.
    #[error(
        "the server {server} cannot be reached ({said}): check that PostgreSQL runs there and takes connections, and the address"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What the system or the server said.
        said: String,
    },
    /// The server asks for a password, and there is none.
    #[error(
        "the server {server} asks the user {user} for a password, and the URL has none: write it as \
         postgres://USER:PASSWORD@HOST/DATABASE, into a file that LEASEHOLD_DATABASE_FILE names"
    )]
    NoPassword {
        /// Its address.
        server: String,
        /// Who wanted in.
        user: String,
    },
    /// The server encrypts nothing, and the URL wants that.
    #[error(
        "the server {server} offers no TLS, which the URL asks for: switch it on there (ssl = on), or write sslmode=disable \
         where nobody can read along"
    )]
    NoTls {
        /// Its address.
        server: String,
    },
    /// The server did not prove itself as the URL asks for, or no encryption came about.
    #[error(
        "no encrypted connection to the server {server} came about ({said}): check its certificate, and sslmode and \
         sslrootcert in the URL"
    )]
    Handshake {
        /// Its address.
        server: String,
        /// What was wrong.
        said: String,
    },
    /// The server does not let the user in.
    #[error(
        "the server {server} does not let the user {user} in ({said}): check the user, its password and the server's \
         pg_hba.conf"
    )]
    Refused {
        /// Its address.
        server: String,
        /// Who wanted in.
        user: String,
        /// What the server said.
        said: String,
    },
    /// There is no such database.
    #[error(
        "the server has no database {database}: make it with CREATE DATABASE {database}, or name another in the URL"
    )]
    NoDatabase {
        /// Its name.
        database: String,
    },
    /// The user may not do what is needed.
    #[error(
        "the database does not let this user {action} ({said}): grant what deploy/postgresql/roles.sql grants; the schema is \
         migrated by its owner, with `leasehold serve --migrate-only`"
    )]
    NoRights {
        /// What was tried.
        action: &'static str,
        /// What the server said.
        said: String,
    },
    /// Whoever remembers what was seen of the database does not trust it.
    #[error("{0}")]
    History(String),
    /// The server is too old.
    #[error("the database is PostgreSQL {found}: version {oldest} is the oldest that is supported")]
    OldServer {
        /// Its major version.
        found: i32,
        /// The oldest that is supported.
        oldest: i32,
    },
    /// The database's texts are in another encoding.
    #[error(
        "the database has the encoding {found}: make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding {
        /// Which.
        found: String,
    },
    /// The server follows another one.
    #[error("the database is a standby, which cannot be written to: connect to its primary")]
    Standby,
    /// The server may lose what it acknowledged.
    #[error(
        "the database has {name} = {value}, with which {loses}: set it to on for the server, the database and the user \
         (SHOW {name} must say so)"
    )]
    Lossy {
        /// The setting.
        name: &'static str,
        /// What it is set to.
        value: String,
        /// What that means.
        loses: &'static str,
    },
    /// A newer program has migrated it.
    #[error("the database has schema version {found}, this program knows up to {known}: use a newer leasehold")]
    NewerSchema {
        /// The database's version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
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
    /// The schema belongs to another program.
    #[error("the schema {schema} of the database holds tables of another program")]
    Foreign {
        /// Its name.
        schema: String,
    },
    /// A row that is needed is damaged.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// PostgreSQL refused something else.
    #[error("cannot {action}")]
    Postgres {
        /// What was tried.
        action: &'static str,
        /// What PostgreSQL said.
        source: tokio_postgres::Error,
    },
    /// The pool of connections could not be made.
    #[error("the connections cannot be kept: {0}")]
    Pool(String),
}

impl OpenError {
    /// Whether it is over once somebody has granted something.
    pub const fn is_of_rights(&self) -> bool {
        matches!(self, Self::NoRights { .. })
    }

    /// The whole of it, with what PostgreSQL said.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Postgres { source, .. } => format!("{self}: {}", said(source)),
            other => other.to_string(),
        }
    }

    /// What an answer to `action` means.
    pub(super) fn asked(action: &'static str, source: tokio_postgres::Error) -> Self {
        match source.as_db_error() {
            Some(said) if *said.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
                Self::NoRights { action, said: said.message().to_owned() }
            }
            _ => Self::Postgres { action, source },
        }
    }
}

impl From<OpenError> for StoreError {
    /// What a caller may conclude where a server is not trusted with a call.
    fn from(error: OpenError) -> Self {
        let reason = error.told();
        if error.is_of_rights() { Self::NotAllowed { reason } } else { Self::NotDone { reason } }
    }
}

/// What the server or the system said: the message alone, since a detail may show values of rows.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl PostgresStore {
    /// Opens the database at `url` (`postgres://user:password@host:port/database`), making its schema if there is none.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Address::of(url)?;
        let mut client = connect::single(&address).await?;
        connect::admit(&client, options.witness.as_deref()).await?;
        connect::set_up(&client, &options.schema).await?;
        if let Some(only) = &options.only
            && !history::place(&client, url, &options.schema).await?.is(only)
        {
            return Err(OpenError::Elsewhere { url: only.url.clone() });
        }
        rights::refuse_closed(&client, &options.schema).await?;
        migrate(&mut client, &options.schema, MIGRATIONS).await?;
        rights::refuse_missing(&client, &options.schema).await?;
        let watch = match options.machine.clone() {
            Some(machine) => Some(Arc::new(Watch::begin(machine, options.clock.as_ref(), &client).await?)),
            None => None,
        };
        drop(client);
        let connections = Connections::to(address.clone(), &options)?;
        let PostgresOptions { observer, clock, schema, plainly, .. } = options;
        let clocks = Clocks { told: clock, watch };
        let hints = Arc::new(Hints::of(address, schema.clone()));
        let beats = Beats::on(connections.clone(), clocks.told.clone());
        Ok(Self { inner: Arc::new(Inner { connections, schema, observer, clocks, hints, beats, plainly }) })
    }

    /// Closes the connections that are free, and the others as they become free; no hint is said or heard any more. Later
    /// calls are certainly not done.
    #[expect(clippy::unused_async, reason = "stores are closed alike, and SQLite's waits for its threads")]
    pub async fn close(&self) {
        self.inner.hints.close();
        self.inner.connections.close();
    }
}
