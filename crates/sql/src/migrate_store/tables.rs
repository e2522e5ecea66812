//! What is copied, in which order, and from what to what: every table and column of both schemas, or nothing.
//!
//! The order is written down here; columns and their types are read from the databases, so that a column that a migration
//! adds to both is copied without a word. What is on one side only must be named here, or no move begins (and a test fails).

use std::collections::{BTreeMap, BTreeSet};

/// A table, and the rows whose lease-clock columns still decide something.
#[derive(Debug, Clone, Copy)]
struct Listed {
    name: &'static str,
    /// A condition that both databases read alike; of a table without such columns there is none.
    alive: Option<&'static str>,
}

const fn table(name: &'static str) -> Listed {
    Listed { name, alive: None }
}

const fn on_the_lease_clock(name: &'static str, alive: &'static str) -> Listed {
    Listed { name, alive: Some(alive) }
}

/// Every table, each behind those that it refers to. The installation is first: whoever has made another one of the target
/// meanwhile is met at once.
const TABLES: &[Listed] = &[
    table("installation"),
    table("api_token"),
    table("enrollment"),
    table("worker"),
    table("worker_fault"),
    table("capabilities"),
    on_the_lease_clock("session", "state <> 'offline'"),
    table("project"),
    table("placement"),
    table("revision"),
    table("task"),
    table("task_revision"),
    table("task_trigger"),
    table("webhook_token"),
    table("schedule_ledger"),
    on_the_lease_clock("run", "due_lease IS NOT NULL"),
    table("task_edge"),
    table("arrival"),
    on_the_lease_clock("attempt", "state IN ('claimed', 'starting', 'running')"),
    on_the_lease_clock("lease", "state = 'active'"),
    table("event"),
    table("event_digest"),
    on_the_lease_clock("refused", "until_lease IS NOT NULL"),
    table("log_chunk"),
    table("audit"),
    table("idempotency_key"),
];

/// Tables of SQLite that belong to the file, not to the installation.
const OF_SQLITE: &[&str] = &["schema_migration", "lease_clock", "moved"];

/// Tables of PostgreSQL that belong to the database, not to the installation.
const OF_POSTGRES: &[&str] = &["schema_migration", "clock_step"];

/// Columns of PostgreSQL alone that may be empty, as they are of runs from before they were there: table and column.
const FOUND_AGAIN: &[(&str, &str)] =
    &[("run", "lease_millis"), ("run", "max_attempts"), ("run", "start_millis"), ("run", "timeout_millis")];

/// How a column's value is written for PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `uuid`: the sixteen bytes of an id.
    Uuid,
    /// `bytea`.
    Bytes,
    /// `text`.
    Text,
    /// `smallint`, `integer`, `bigint`: so many bytes.
    Integer(u8),
    /// `boolean`: 0 and 1 in SQLite.
    Boolean,
}

impl Kind {
    /// The kind of a PostgreSQL type.
    pub(crate) fn of(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "uuid" => Self::Uuid,
            "bytea" => Self::Bytes,
            "text" => Self::Text,
            "int2" => Self::Integer(2),
            "int4" => Self::Integer(4),
            "int8" => Self::Integer(8),
            "bool" => Self::Boolean,
            _ => return None,
        })
    }
}

/// A column that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// PostgreSQL numbers new rows by itself.
    pub(crate) numbered: bool,
}

impl Column {
    /// Whether it is an instant of the lease clock, which is another one at the target.
    pub(crate) fn is_lease_instant(&self) -> bool {
        self.name.ends_with("_lease")
    }
}

/// A table that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column>,
    /// Its primary key, in which order rows are read on both sides.
    pub(crate) key: Vec<String>,
    /// Which rows' lease instants still decide something.
    pub(crate) alive: Option<&'static str>,
}

impl Table {
    /// Its columns, for a statement. Their names are those of our own migrations and need no quotes.
    pub(crate) fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What reads every row of it, in the order of its key.
    pub(crate) fn select(&self) -> String {
        format!("SELECT {} FROM {} ORDER BY {}", self.column_list(), self.name, self.key.join(", "))
    }
}

/// What a PostgreSQL schema holds.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The columns of each table; a type that no column of ours has is named.
    pub(crate) columns: BTreeMap<String, Vec<Result<Column, String>>>,
    /// The primary key of each.
    pub(crate) keys: BTreeMap<String, Vec<String>>,
}

/// The names of the tables, in order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

/// The tables in order, or what is on one side only.
pub(crate) fn plan(sqlite: &BTreeMap<String, BTreeSet<String>>, postgres: &Catalog) -> Result<Vec<Table>, String> {
    let listed: BTreeSet<&str> = names().collect();
    let there = sqlite.keys().map(String::as_str).filter(|name| !OF_SQLITE.contains(name));
    differing(&listed, &there.collect(), "SQLite")?;
    let there = postgres.columns.keys().map(String::as_str).filter(|name| !OF_POSTGRES.contains(name));
    differing(&listed, &there.collect(), "PostgreSQL")?;
    TABLES
        .iter()
        .map(|Listed { name, alive }| {
            let columns: Result<Vec<Column>, String> = postgres.columns[*name].iter().cloned().collect();
            let mut columns = columns?;
            columns.retain(|column| !FOUND_AGAIN.contains(&(name, &column.name)));
            let names = columns.iter().map(|column| column.name.as_str()).collect();
            differing(&names, &sqlite[*name].iter().map(String::as_str).collect(), &format!("{name} of SQLite"))?;
            if columns.iter().any(Column::is_lease_instant) != alive.is_some() {
                return Err(format!("{name}: which of its rows are on the lease clock?"));
            }
            let key = postgres.keys.get(*name).cloned().ok_or_else(|| format!("{name} has no primary key"))?;
            Ok(Table { name, columns, key, alive: *alive })
        })
        .collect()
}

fn differing(expected: &BTreeSet<&str>, found: &BTreeSet<&str>, of: &str) -> Result<(), String> {
    let missing = expected.difference(found).map(|name| format!("{of} lacks {name}"));
    let more = found.difference(expected).map(|name| format!("{of} has {name}, which the other side lacks"));
    let all: Vec<String> = missing.chain(more).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join(", ")) }
}
