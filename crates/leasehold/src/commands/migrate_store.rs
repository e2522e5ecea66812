//! `leasehold migrate-store`: the store of a control plane, from SQLite to PostgreSQL, with everything that is in it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::compose::{self, Answer, Progress, Rows, StoreArgs};
use crate::doctor::size;
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::interrupt::Interrupts;
use crate::logging::{self, LogFormat};
use crate::output::OutputArgs;
use crate::target::DATA_DIRECTORY;

const AFTER_HELP: &str = "\
Examples:
  export LEASEHOLD_DATABASE=postgres://leasehold_owner@db.example/leasehold
  leasehold migrate-store --data /var/lib/leasehold --dry-run      look only
  leasehold migrate-store --data /var/lib/leasehold
  leasehold migrate-store --data /var/lib/leasehold \\
    --master-key-file /etc/leasehold/key
  leasehold migrate-store --data /var/lib/leasehold --take-back

Stop the control plane first, and copy its data directory. The database is
empty, and the user in its URL owns the schema. Every run, log, worker, token
and line of the audit arrives, or none. Workers keep their identity; jobs run
on, and are kept where the move is shorter than their leases.

Two stores never live: the file is marked before anything arrives, and no
control plane of any version opens a marked file. Whatever ended the command,
the same command again ends the move; Ctrl-C gives the store back. See
docs/operating-postgresql.md.

Exit codes:
  0 moved · 1 not moved · 3 there is no store on SQLite
  8 not known whether it was moved: run it again
  10 the database holds an installation, or has this store
  130 interrupted, not moved";

/// How much is copied between two lines that say so.
const SAID_EVERY: u64 = 64 << 20;

/// Moves a store.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct MigrateStore {
    /// The data directory of the control plane on SQLite
    #[arg(long, env = "LEASEHOLD_DATA", value_name = "DIR", default_value = DATA_DIRECTORY)]
    data: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    /// Only look whether the store can be moved, and what is in it; nothing is changed
    #[arg(long, conflicts_with = "take_back")]
    dry_run: bool,

    /// Give the store back to SQLite, after a move that did not happen: the database is asked whether it did
    #[arg(long)]
    take_back: bool,

    /// With --take-back: the database is gone for good and cannot be asked. Your word stands for its answer, in the audit
    #[arg(long, requires = "take_back")]
    destroyed: bool,

    #[command(flatten)]
    output: OutputArgs,
}

impl MigrateStore {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        logging::start(LogFormat::Text, "warn");
        if self.take_back {
            let answer = compose::take_back_store(&self.data, &self.store, self.destroyed).await?;
            return self.tell(&answer);
        }
        if self.store.database.url()?.is_none() {
            let text = "--database: name the PostgreSQL database to move to, such as postgres://leasehold_owner@db.example/leasehold";
            return Err(UsageError(text.to_owned()).into());
        }
        let mut interrupts = Interrupts::listen()?;
        let mut said = Said::new(&self.output);
        let mut progress = |progress| said.hear(progress);
        let moved = compose::migrate_store(&self.data, &self.store, self.dry_run, &mut progress, interrupts.next());
        self.tell(&moved.await?)
    }

    fn tell(&self, answer: &Answer) -> anyhow::Result<Exit> {
        let printed = Printed::of(answer);
        self.output.one(&printed, printed.database.unwrap_or(printed.state), |out| self.page(answer, out))?;
        Ok(Exit::Done)
    }

    fn page(&self, answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
        let data = self.data.display();
        match answer {
            Answer::Moved { to, tables } => {
                let rows: u64 = tables.iter().map(|(_, rows, _)| rows).sum();
                let bytes: u64 = tables.iter().filter_map(|(_, _, bytes)| *bytes).sum();
                writeln!(out, "moved {rows} rows ({}) to {to}", size(bytes))?;
                self.what_now(out)
            }
            Answer::AlreadyMoved { to } => {
                writeln!(out, "the store was moved to {to}")?;
                self.what_now(out)
            }
            Answer::Movable { to, tables, has_schema } => {
                for (table, rows, _) in tables {
                    writeln!(out, "{rows:>12} {table}")?;
                }
                let schema = if *has_schema { "is empty" } else { "is empty, and gets its schema" };
                writeln!(out, "the store in {data} can be moved: {to} {schema}; nothing was changed")
            }
            Answer::TakenBack { from } => {
                writeln!(out, "the store in {data} is as it was: nothing of it is in {from}")?;
                writeln!(out, "start it with: leasehold serve --data {data}")
            }
            Answer::NotMoved => writeln!(out, "the store in {data} was not moved: there is nothing to take back"),
        }
    }

    fn what_now(&self, out: &mut dyn Write) -> io::Result<()> {
        let data = self.data.display();
        writeln!(out, "start it there: leasehold serve --data {data} --database-file FILE, with the same master key")?;
        writeln!(
            out,
            "in FILE: the URL of the role that replicas run as (deploy/postgresql/roles.sql), not of the schema's owner"
        )?;
        writeln!(out, "{data}/leasehold.db is marked and no control plane opens it; remove it after the first backup")
    }
}

/// The answer, for programs.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    /// `moved`, `already_moved`, `movable`, `taken_back` or `not_moved`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tables: Vec<PrintedTable<'a>>,
}

#[derive(Debug, Serialize)]
struct PrintedTable<'a> {
    table: &'a str,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl<'a> Printed<'a> {
    fn of(answer: &'a Answer) -> Self {
        let tables = |tables: &'a [Rows]| {
            let one = |(table, rows, bytes): &'a Rows| PrintedTable { table, rows: *rows, bytes: *bytes };
            tables.iter().map(one).collect()
        };
        match answer {
            Answer::Moved { to, tables: moved } => Self { state: "moved", database: Some(to), tables: tables(moved) },
            Answer::AlreadyMoved { to } => Self { state: "already_moved", database: Some(to), tables: Vec::new() },
            Answer::Movable { to, tables: found, .. } => {
                Self { state: "movable", database: Some(to), tables: tables(found) }
            }
            Answer::TakenBack { from } => Self { state: "taken_back", database: Some(from), tables: Vec::new() },
            Answer::NotMoved => Self { state: "not_moved", database: None, tables: Vec::new() },
        }
    }
}

/// What is said on stderr while it goes on: a line per table, and one every so much.
struct Said<'a> {
    output: &'a OutputArgs,
    table: Option<&'static str>,
    rows: u64,
    bytes: u64,
    told: u64,
}

impl<'a> Said<'a> {
    fn new(output: &'a OutputArgs) -> Self {
        Self { output, table: None, rows: 0, bytes: 0, told: 0 }
    }

    fn hear(&mut self, progress: Progress) {
        match progress {
            Progress::Marked => self.output.note("the file is marked: no control plane opens it until this has ended"),
            Progress::Copied { table, rows, bytes } => {
                if self.table != Some(table) {
                    self.end_of_table();
                    (self.table, self.rows, self.bytes, self.told) = (Some(table), 0, 0, 0);
                }
                self.rows += rows;
                self.bytes += bytes;
                if self.bytes - self.told >= SAID_EVERY {
                    self.told = self.bytes;
                    self.output.note(&format!("copying {table}: {} rows, {}", self.rows, size(self.bytes)));
                }
            }
            Progress::Compared => {
                self.end_of_table();
                self.output.note("everything was read back and is what was sent");
            }
            Progress::Committing => self.output.note("committing"),
            Progress::Committed => {}
        }
    }

    fn end_of_table(&mut self) {
        if let Some(table) = self.table.take() {
            self.output.note(&format!("copied {table}: {} rows, {}", self.rows, size(self.bytes)));
        }
    }
}
