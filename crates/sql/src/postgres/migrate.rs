//! Migrations: ordered, embedded SQL texts, each applied once, with its version and checksum in the database.
//!
//! A schema that is newer than this program is refused, and so is one whose applied text differs from ours. Several replicas
//! may start at once: what is missing is applied under an advisory lock. Where nothing is missing, nothing but reading is
//! asked for, so a replica can run as a user that may not change the schema.

use leasehold_core::crypto::{Digest, Domain};
use tokio_postgres::{Client, GenericClient};

use super::connect::quoted;
use super::open::OpenError;

/// One step of the schema.
pub(super) struct Migration {
    /// 1, 2, 3, …
    pub(super) version: u32,
    /// Its file's name.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) sql: &'static str,
}

/// Every step, in order. A released one never changes.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_first", sql: include_str!("../../migrations/postgres/0001_first.sql") },
    Migration { version: 2, name: "0002_limits", sql: include_str!("../../migrations/postgres/0002_limits.sql") },
    Migration { version: 3, name: "0003_beats", sql: include_str!("../../migrations/postgres/0003_beats.sql") },
    Migration { version: 4, name: "0004_plainly", sql: include_str!("../../migrations/postgres/0004_plainly.sql") },
    Migration {
        version: 5,
        name: "0005_clock_steps",
        sql: include_str!("../../migrations/postgres/0005_clock_steps.sql"),
    },
    Migration { version: 6, name: "0006_started", sql: include_str!("../../migrations/postgres/0006_started.sql") },
    Migration { version: 7, name: "0007_tasks", sql: include_str!("../../migrations/postgres/0007_tasks.sql") },
    Migration {
        version: 8,
        name: "0008_in_its_page",
        sql: include_str!("../../migrations/postgres/0008_in_its_page.sql"),
    },
    Migration { version: 9, name: "0009_devices", sql: include_str!("../../migrations/postgres/0009_devices.sql") },
    Migration {
        version: 10,
        name: "0010_schedules",
        sql: include_str!("../../migrations/postgres/0010_schedules.sql"),
    },
    Migration { version: 11, name: "0011_asked", sql: include_str!("../../migrations/postgres/0011_asked.sql") },
    Migration { version: 12, name: "0012_chains", sql: include_str!("../../migrations/postgres/0012_chains.sql") },
    Migration { version: 13, name: "0013_webhooks", sql: include_str!("../../migrations/postgres/0013_webhooks.sql") },
    Migration { version: 14, name: "0014_kept", sql: include_str!("../../migrations/postgres/0014_kept.sql") },
    Migration { version: 15, name: "0015_told", sql: include_str!("../../migrations/postgres/0015_told.sql") },
];

impl Migration {
    fn checksum(&self) -> Digest {
        Digest::of(Domain::Migration, self.sql.as_bytes())
    }
}

/// Brings the schema to the newest of `migrations`. The connection's search path is the schema alone.
pub(super) async fn migrate(client: &mut Client, schema: &str, migrations: &[Migration]) -> Result<(), OpenError> {
    if missing(client, schema, migrations).await?.is_empty() {
        return Ok(());
    }
    let failed = |source| OpenError::asked("migrate the database", source);
    let tx = client.transaction().await.map_err(failed)?;
    // A replica that migrates may take its time, and the others wait for it.
    let unhurried = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0";
    tx.batch_execute(unhurried).await.map_err(failed)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('leasehold migrations of ' || $1, 0))";
    tx.execute(lock, &[&schema]).await.map_err(failed)?;
    let missing = missing(&tx, schema, migrations).await?;
    if missing.len() == migrations.len() {
        // One that somebody made for us needs no right to make one.
        let there = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
        let there: i64 = tx.query_one(there, &[&schema]).await.map_err(failed)?.get(0);
        let make = if there == 0 { format!("CREATE SCHEMA {};", quoted(schema)) } else { String::new() };
        let sql = format!(
            "{make} \
             CREATE TABLE IF NOT EXISTS schema_migration (
                 version integer PRIMARY KEY,
                 name text NOT NULL,
                 checksum bytea NOT NULL CHECK (octet_length(checksum) = 32),
                 applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
             )"
        );
        tx.batch_execute(&sql).await.map_err(failed)?;
    }
    for migration in missing {
        tx.batch_execute(migration.sql).await.map_err(failed)?;
        let (version, checksum) = (i32::try_from(migration.version).unwrap_or(i32::MAX), migration.checksum());
        tx.execute(
            "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
            &[&version, &migration.name, &checksum.as_bytes().as_slice()],
        )
        .await
        .map_err(failed)?;
        tracing::info!(version, name = migration.name, "migrated the database");
    }
    tx.commit().await.map_err(failed)
}

/// How many of the steps were applied, and how many there are; refuses what this program does not know.
pub(super) async fn applied(
    client: &Client,
    schema: &str,
    migrations: &[Migration],
) -> Result<(usize, usize), OpenError> {
    let missing = missing(client, schema, migrations).await?.len();
    Ok((migrations.len() - missing, migrations.len()))
}

/// The steps that were not applied yet; refuses what this program does not know.
async fn missing<'m>(
    client: &impl GenericClient,
    schema: &str,
    migrations: &'m [Migration],
) -> Result<Vec<&'m Migration>, OpenError> {
    let failed = |source| OpenError::asked("read the database's schema", source);
    let tables = "SELECT count(*), count(*) FILTER (WHERE tablename = 'schema_migration') FROM pg_tables \
                  WHERE schemaname = $1";
    let row = client.query_one(tables, &[&schema]).await.map_err(failed)?;
    let (tables, ours): (i64, i64) = (row.get(0), row.get(1));
    if ours == 0 {
        let empty = tables == 0;
        return if empty {
            Ok(migrations.iter().collect())
        } else {
            Err(OpenError::Foreign { schema: schema.to_owned() })
        };
    }
    let rows = client.query("SELECT version, checksum FROM schema_migration", &[]).await.map_err(failed)?;
    let applied: Vec<(u32, Vec<u8>)> =
        rows.iter().map(|row| (u32::try_from(row.get::<_, i32>(0)).unwrap_or(0), row.get(1))).collect();
    let known = migrations.last().map_or(0, |migration| migration.version);
    if let Some((found, _)) = applied.iter().max_by_key(|(version, _)| *version).filter(|(version, _)| *version > known)
    {
        return Err(OpenError::NewerSchema { found: *found, known });
    }
    let mut missing = Vec::new();
    for migration in migrations {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            Some((_, checksum)) if checksum == migration.checksum().as_bytes() => {}
            Some(_) => return Err(OpenError::ChangedMigration { version: migration.version, name: migration.name }),
            None => missing.push(migration),
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_migrations_are_numbered_without_a_gap() {
        for (expected, migration) in (1..).zip(MIGRATIONS) {
            assert_eq!(migration.version, expected, "{}", migration.name);
            assert!(migration.name.starts_with(&format!("{expected:04}_")), "{}", migration.name);
        }
    }
}
