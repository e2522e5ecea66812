//! The database that a store is moved to. Faces [`crate::sqlite::moving`], where it comes from.
//!
//! Everything arrives in one transaction under a lock of its own, so that whoever takes that lock later knows how the
//! transaction ended. A line of the audit, written in it, names the move: that is how it is recognised. It decides nothing:
//! what an answer means for the source stands in [`crate::migrate_store`].

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use leasehold_core::actor::Actor;
use leasehold_core::crypto::{Domain, Hasher};
use leasehold_core::id::MoveId;
use leasehold_core::time::Clock;
use tokio::sync::mpsc;
use tokio_postgres::{Client, CopyInSink};

use super::connect::{self, Address};
use super::history;
use super::migrate::{MIGRATIONS, applied, migrate};
use super::open::{OpenError, PostgresOptions};
use super::transaction::Fault;
use crate::migrate_store::Progress;
use crate::migrate_store::tables::{Catalog, Column, Kind, Table};
use crate::migrate_store::tuple::{HEADER, TRAILER};
use crate::sqlite::Place;
use crate::sqlite::moving::{Contents, Sent};
use crate::stored::facts;

/// Every table of the schema is meant.
const OURS: &str = "c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())";

/// What went wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// PostgreSQL refused something, or the connection broke. Its text says no value of a row.
    #[error("cannot {action}: {said}")]
    Postgres {
        /// What was tried.
        action: String,
        /// What PostgreSQL said.
        said: String,
    },
    /// What arrived is not what was sent.
    #[error("{table} arrived otherwise than it was sent ({what})")]
    Differs {
        /// Which table.
        table: &'static str,
        /// How.
        what: &'static str,
    },
    /// The source gave up.
    #[error("the rows stopped coming")]
    Abandoned,
}

fn failed(action: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> TargetError {
    move |error| TargetError::Postgres { action: action.into(), said: Fault::from(error).reason() }
}

/// What is in a database already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Empty,
    /// The installation that this move brought.
    Arrived,
    /// An installation, with its trust domain and its CA's certificate.
    Installed { trust_domain: String, ca_certificate: Vec<u8> },
    /// Rows of an installation that is not there.
    Rows(String),
}

/// How a commit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Committed {
    Yes,
    /// Nothing was committed.
    No(String),
    /// It was not answered.
    Unknown(String),
}

/// A database that a store is moved to.
pub(crate) struct Target {
    client: Client,
    place: Place,
    clock: Option<Arc<dyn Clock>>,
    /// Whether the schema is there.
    is_made: bool,
}

impl Target {
    /// Connects to the database at `url`, which people call `told`. With `make`, its schema is brought up to date.
    pub(crate) async fn open(url: &str, told: &str, options: &PostgresOptions, make: bool) -> Result<Self, OpenError> {
        let mut client = connect::single(&Address::of(url)?).await?;
        connect::admit(&client, options.witness.as_deref()).await?;
        connect::set_up(&client, &options.schema).await?;
        if make {
            migrate(&mut client, &options.schema, MIGRATIONS).await?;
        }
        let (found, known) = applied(&client, &options.schema, MIGRATIONS).await?;
        let asked = |source| OpenError::asked("move a store into it", source);
        let unhurried = "SET statement_timeout TO 0; SET lock_timeout TO '60s'; \
                         SET idle_in_transaction_session_timeout TO '10min'";
        client.batch_execute(unhurried).await.map_err(asked)?;
        let place = history::place(&client, told, &options.schema).await?;
        Ok(Self { client, place, clock: options.clock.clone(), is_made: found == known })
    }

    /// Which database it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether its schema is up to date.
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// What is in it, once whoever moves a store into it has ended.
    pub(crate) async fn standing(&self, id: Option<MoveId>) -> Result<Standing, TargetError> {
        if !self.is_made {
            return Ok(Standing::Empty);
        }
        self.begin().await?;
        let found = self.look(id).await?;
        self.client.batch_execute("ROLLBACK").await.map_err(failed("look at the database"))?;
        Ok(found)
    }

    async fn begin(&self) -> Result<(), TargetError> {
        let sql = "BEGIN ISOLATION LEVEL READ COMMITTED";
        self.client.batch_execute(sql).await.map_err(failed("begin a transaction"))?;
        // Held to the transaction's end: it tells whoever takes it next that this one has ended.
        let sql = "SELECT pg_advisory_xact_lock(lock_key('move of a store'))";
        let waiting = "wait for another `leasehold migrate-store` on this database";
        self.client.query_one(sql, &[]).await.map_err(failed(waiting))?;
        Ok(())
    }

    async fn look(&self, id: Option<MoveId>) -> Result<Standing, TargetError> {
        let looking = || failed("look at the database");
        if let Some(id) = id {
            let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE action = 'migrate_store' AND facts = $1)";
            let row = self.client.query_one(sql, &[&fact(id)]).await.map_err(looking())?;
            if row.try_get(0).map_err(looking())? {
                return Ok(Standing::Arrived);
            }
        }
        let sql = "SELECT trust_domain, ca_certificate FROM installation";
        if let Some(row) = self.client.query_opt(sql, &[]).await.map_err(looking())? {
            let trust_domain = row.try_get(0).map_err(looking())?;
            return Ok(Standing::Installed { trust_domain, ca_certificate: row.try_get(1).map_err(looking())? });
        }
        for table in crate::migrate_store::tables::names() {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {table})");
            if self.client.query_one(&sql, &[]).await.and_then(|row| row.try_get(0)).map_err(looking())? {
                return Ok(Standing::Rows(table.to_owned()));
            }
        }
        Ok(Standing::Empty)
    }

    /// Its tables, with their columns and keys; columns that it works out by itself are none of them.
    pub(crate) async fn catalog(&self) -> Result<Catalog, TargetError> {
        let reading = || failed("read the database's schema");
        let mut catalog = Catalog::default();
        let sql = format!(
            "SELECT c.relname::text, a.attname::text, t.typname::text, a.attidentity <> '' FROM pg_attribute a \
             JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid \
             WHERE {OURS} AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' \
             ORDER BY c.relname, a.attnum"
        );
        for row in self.client.query(&sql, &[]).await.map_err(reading())? {
            let [table, name, type_name]: [String; 3] = [row.get(0), row.get(1), row.get(2)];
            let unknown = format!("{table}.{name} has the type {type_name}");
            let column = Kind::of(&type_name).map(|kind| Column { name, kind, numbered: row.get(3) }).ok_or(unknown);
            catalog.columns.entry(table).or_default().push(column);
        }
        let sql = format!(
            "SELECT c.relname::text, a.attname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
             JOIN unnest(i.indkey) WITH ORDINALITY k (attnum, at) ON true \
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum \
             WHERE {OURS} AND i.indisprimary ORDER BY c.relname, k.at"
        );
        for row in self.client.query(&sql, &[]).await.map_err(reading())? {
            catalog.keys.entry(row.get(0)).or_default().push(row.get(1));
        }
        Ok(catalog)
    }

    /// The lease clock: the database's, unless a test set another.
    pub(crate) async fn lease_clock(&self) -> Result<i64, TargetError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.boot().get());
        }
        let row = self.client.query_one("SELECT clock_millis()", &[]).await;
        row.and_then(|row| row.try_get(0)).map_err(failed("read the database's clock"))
    }

    /// Begins the one transaction; answers what is there, which must be nothing.
    pub(crate) async fn begin_copy(&self, tables: &[Table]) -> Result<Standing, TargetError> {
        self.begin().await?;
        let standing = self.look(None).await?;
        if standing == Standing::Empty {
            for (table, constraint) in self.circular(tables).await? {
                let sql = format!("ALTER TABLE {table} ALTER CONSTRAINT {constraint} DEFERRABLE INITIALLY DEFERRED");
                self.client.batch_execute(&sql).await.map_err(failed("fill the tables as their owner"))?;
            }
        }
        Ok(standing)
    }

    /// What refers to a table that is filled later.
    async fn circular(&self, tables: &[Table]) -> Result<Vec<(String, String)>, TargetError> {
        let sql = format!(
            "SELECT c.relname::text, f.relname::text, con.conname::text FROM pg_constraint con \
             JOIN pg_class c ON c.oid = con.conrelid JOIN pg_class f ON f.oid = con.confrelid \
             WHERE {OURS} AND con.contype = 'f'"
        );
        let place = |name: &str| tables.iter().position(|table| table.name == name);
        let rows = self.client.query(&sql, &[]).await.map_err(failed("read the database's schema"))?;
        let late = rows.iter().filter(|row| place(row.get(0)) < place(row.get(1)));
        Ok(late.map(|row| (row.get(0), row.get(2))).collect())
    }

    /// Fills the tables with what comes; answers what was sent of each.
    pub(crate) async fn fill(
        &self,
        tables: &[Table],
        mut coming: mpsc::Receiver<Sent>,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Vec<Contents>, TargetError> {
        let mut sent = Vec::new();
        for table in tables {
            let name = table.name;
            let filling = || failed(format!("fill {name}"));
            let sql = format!("COPY {name} ({}) FROM STDIN (FORMAT binary)", table.column_list());
            let sink: CopyInSink<Bytes> = self.client.copy_in(&sql).await.map_err(filling())?;
            let mut sink = std::pin::pin!(sink);
            sink.feed(Bytes::from_static(HEADER)).await.map_err(filling())?;
            let contents = loop {
                match coming.recv().await {
                    Some(Sent::Piece(piece)) => {
                        let (rows, bytes) = (piece.rows, piece.bytes.len() as u64);
                        sink.send(piece.bytes).await.map_err(filling())?;
                        progress(Progress::Copied { table: name, rows, bytes });
                    }
                    Some(Sent::End(contents)) => break contents,
                    None => return Err(TargetError::Abandoned),
                }
            };
            sink.send(Bytes::from_static(&TRAILER)).await.map_err(filling())?;
            if sink.finish().await.map_err(filling())? != contents.rows {
                return Err(TargetError::Differs { table: name, what: "another number of rows" });
            }
            sent.push(contents);
        }
        Ok(sent)
    }

    /// Reads everything back, and refuses what is not what was sent.
    pub(crate) async fn verify(&self, tables: &[Table], sent: &[Contents]) -> Result<(), TargetError> {
        for (table, sent) in tables.iter().zip(sent) {
            let reading = || failed(format!("read {} back", table.name));
            let sql = format!("COPY ({}) TO STDOUT (FORMAT binary)", table.select());
            let mut stream = std::pin::pin!(self.client.copy_out(&sql).await.map_err(reading())?);
            let mut hasher = Hasher::new(Domain::Rows);
            let (mut header, mut bytes) = (HEADER.len(), 0);
            // What ends the stream is no row, and is known for it only when nothing follows.
            let mut kept = BytesMut::new();
            while let Some(more) = stream.next().await {
                let more = more.map_err(reading())?;
                kept.extend_from_slice(&more);
                let begun = kept.len().min(header);
                kept.advance(begun);
                header -= begun;
                let rows = kept.split_to(kept.len().saturating_sub(TRAILER.len()));
                bytes += rows.len() as u64;
                hasher.update(&rows);
            }
            if bytes != sent.bytes || hasher.finish() != sent.digest {
                return Err(TargetError::Differs { table: table.name, what: "other values" });
            }
        }
        Ok(())
    }

    /// Makes what arrived ready to live: whatever is still held keeps the time that it had left when `waited` milliseconds of
    /// copying began, numbers go on behind the last one, and the audit says which move brought it.
    pub(crate) async fn wake(
        &self,
        tables: &[Table],
        waited: i64,
        id: MoveId,
        actor: &Actor,
    ) -> Result<(), TargetError> {
        for table in tables {
            let Some(alive) = table.alive else { continue };
            let later = table.columns.iter().filter(|column| column.is_lease_instant());
            let later: Vec<String> = later.map(|Column { name, .. }| format!("{name} = {name} + $1")).collect();
            let sql = format!("UPDATE {} SET {} WHERE {alive}", table.name, later.join(", "));
            self.client.execute(&sql, &[&waited]).await.map_err(failed("set the lease clock"))?;
        }
        for table in tables {
            for column in table.columns.iter().filter(|column| column.numbered) {
                let (of, name) = (table.name, &column.name);
                let sql = format!(
                    "SELECT setval(pg_get_serial_sequence('{of}', '{name}'), max({name})) FROM {of} HAVING max({name}) > 0"
                );
                self.client.query_opt(&sql, &[]).await.map_err(failed("number rows on as the schema's owner"))?;
            }
        }
        let at = self.clock.as_ref().map(|clock| clock.utc().get());
        let sql = "INSERT INTO audit (at, actor, origin, action, subject, facts) \
                   VALUES (coalesce($1, clock_millis()), $2, $3, 'migrate_store', 'installation', $4)";
        let (by, origin) = (actor.to_string(), actor.origin().map(|origin| origin.to_string()));
        self.client.execute(sql, &[&at, &by, &origin, &fact(id)]).await.map_err(failed("write the audit"))?;
        let checked = "SET CONSTRAINTS ALL IMMEDIATE";
        self.client.batch_execute(checked).await.map_err(failed("check what rows refer to"))?;
        for (table, constraint) in self.circular(tables).await? {
            let sql = format!("ALTER TABLE {table} ALTER CONSTRAINT {constraint} NOT DEFERRABLE");
            self.client.batch_execute(&sql).await.map_err(failed("fill the tables as their owner"))?;
        }
        Ok(())
    }

    /// Commits.
    pub(crate) async fn commit(&self) -> Committed {
        let Err(error) = self.client.batch_execute("SET LOCAL statement_timeout = 0; COMMIT").await else {
            return Committed::Yes;
        };
        let fault = Fault::from(error);
        if fault.refused_to_commit() { Committed::No(fault.reason()) } else { Committed::Unknown(fault.reason()) }
    }
}

fn fact(id: MoveId) -> String {
    facts::encode(&[("move".to_owned(), id.to_string())].into())
}
