//! Migrations: ordered, embedded SQL texts, each applied once, with its version and checksum in the database.
//!
//! A schema that is newer than this program is refused, and so is one whose applied text differs from ours: guessing what a
//! table means is how data is lost. Applied under the lock, at start.

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::time::UtcMillis;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::moved;
use super::open::OpenError;

/// Tells a database of Leasehold from any other (`LSHD`).
pub(super) const APPLICATION_ID: i32 = 0x4c53_4844;

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
    Migration { version: 1, name: "0001_first", sql: include_str!("../../migrations/sqlite/0001_first.sql") },
    Migration { version: 2, name: "0002_limits", sql: include_str!("../../migrations/sqlite/0002_limits.sql") },
    Migration { version: 3, name: "0003_beats", sql: include_str!("../../migrations/sqlite/0003_beats.sql") },
    Migration { version: 4, name: "0004_plainly", sql: include_str!("../../migrations/sqlite/0004_plainly.sql") },
    Migration {
        version: 5,
        name: "0005_clock_steps",
        sql: include_str!("../../migrations/sqlite/0005_clock_steps.sql"),
    },
    Migration { version: 6, name: "0006_started", sql: include_str!("../../migrations/sqlite/0006_started.sql") },
    Migration { version: 7, name: "0007_tasks", sql: include_str!("../../migrations/sqlite/0007_tasks.sql") },
    Migration {
        version: 8,
        name: "0008_in_its_page",
        sql: include_str!("../../migrations/sqlite/0008_in_its_page.sql"),
    },
    Migration { version: 9, name: "0009_devices", sql: include_str!("../../migrations/sqlite/0009_devices.sql") },
    Migration { version: 10, name: "0010_schedules", sql: include_str!("../../migrations/sqlite/0010_schedules.sql") },
    Migration { version: 11, name: "0011_asked", sql: include_str!("../../migrations/sqlite/0011_asked.sql") },
    Migration { version: 12, name: "0012_chains", sql: include_str!("../../migrations/sqlite/0012_chains.sql") },
    Migration { version: 13, name: "0013_webhooks", sql: include_str!("../../migrations/sqlite/0013_webhooks.sql") },
    Migration { version: 14, name: "0014_kept", sql: include_str!("../../migrations/sqlite/0014_kept.sql") },
    Migration { version: 15, name: "0015_told", sql: include_str!("../../migrations/sqlite/0015_told.sql") },
];

impl Migration {
    fn checksum(&self) -> Digest {
        Digest::of(Domain::Migration, self.sql.as_bytes())
    }
}

/// Brings the database to the newest of `migrations`.
pub(super) fn migrate(connection: &mut Connection, migrations: &[Migration], now: UtcMillis) -> Result<(), OpenError> {
    let failed = |source| OpenError::Sqlite { action: "migrate the database", source };
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let owner: i32 = tx.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(failed)?;
    let objects: i64 = tx.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if owner != APPLICATION_ID && (owner != 0 || objects > 0) {
        return Err(OpenError::Foreign);
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migration (
             version INTEGER PRIMARY KEY,
             name TEXT NOT NULL,
             checksum BLOB NOT NULL CHECK (length(checksum) = 32),
             applied_at INTEGER NOT NULL
         ) STRICT",
    )
    .map_err(failed)?;
    let known = migrations.last().map_or(0, |migration| migration.version);
    let found: Option<u32> =
        tx.query_row("SELECT max(version) FROM schema_migration", [], |row| row.get(0)).map_err(failed)?;
    if let Some(found) = found.filter(|found| *found > known) {
        let moved = moved::read(&tx).map_err(failed)?;
        return Err(moved.map_or(OpenError::NewerSchema { found, known }, |moved| OpenError::Moved(Box::new(moved))));
    }
    for migration in migrations {
        let applied: Option<Vec<u8>> = tx
            .query_row("SELECT checksum FROM schema_migration WHERE version = ?1", [migration.version], |row| {
                row.get(0)
            })
            .optional()
            .map_err(failed)?;
        match applied {
            Some(checksum) if checksum == migration.checksum().as_bytes() => {}
            Some(_) => return Err(OpenError::ChangedMigration { version: migration.version, name: migration.name }),
            None => {
                tx.execute_batch(migration.sql).map_err(failed)?;
                tx.execute(
                    "INSERT INTO schema_migration (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
                    params![migration.version, migration.name, migration.checksum().as_bytes(), now.get()],
                )
                .map_err(failed)?;
                tracing::info!(version = migration.version, name = migration.name, "migrated the database");
            }
        }
    }
    tx.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "CREATE TABLE first (id INTEGER PRIMARY KEY) STRICT;";
    const TWO: &str = "ALTER TABLE first ADD COLUMN name TEXT;";
    const NOW: UtcMillis = UtcMillis::new(1_800_000_000_000);

    fn steps(texts: &[&'static str]) -> Vec<Migration> {
        (1..).zip(texts).map(|(version, sql)| Migration { version, name: "step", sql }).collect()
    }

    #[test]
    fn the_embedded_migrations_are_numbered_without_a_gap() {
        for (expected, migration) in (1..).zip(MIGRATIONS) {
            assert_eq!(migration.version, expected, "{}", migration.name);
            assert!(migration.name.starts_with(&format!("{expected:04}_")), "{}", migration.name);
        }
    }

    /// A database remembers the checksum of what it was made by: a released step that changes locks its users out.
    #[test]
    fn a_released_migration_never_changes() {
        let released = ["fe923c1021aecf5c9ae06f49f87a57052df782cbf76024a6f6d251cbd9388ef4"];
        for (migration, checksum) in MIGRATIONS.iter().zip(released) {
            assert_eq!(migration.checksum().to_string(), checksum, "{}", migration.name);
        }
    }

    #[test]
    fn each_migration_is_applied_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &steps(&[ONE]), NOW).unwrap();
        migrate(&mut connection, &steps(&[ONE]), NOW).unwrap();
        migrate(&mut connection, &steps(&[ONE, TWO]), NOW).unwrap();
        connection.execute("INSERT INTO first (id, name) VALUES (1, 'kept')", []).unwrap();
        migrate(&mut connection, &steps(&[ONE, TWO]), NOW).unwrap();
        let name: String = connection.query_row("SELECT name FROM first", [], |row| row.get(0)).unwrap();
        assert_eq!(name, "kept");
    }

    #[test]
    fn what_waited_before_there_were_limits_has_those_of_its_revision() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &MIGRATIONS[..1], NOW).unwrap();
        let insert = |id: &str, project: &str, task: &str, state: &str, revision: &str| {
            let closed = if state == "failed" { "9, 'exited', 0" } else { "NULL, NULL, NULL" };
            format!(
                "INSERT INTO revision VALUES (x'{id:0>64}', CAST('{revision}' AS BLOB));
                 INSERT OR IGNORE INTO placement VALUES (zeroblob(32), x'00');
                 INSERT INTO run (id, project, task, revision, placement, lane_task, name, priority, state, version, latest,
                                  failures, machinery_failures, created_at, closed_at, closing_outcome, closing_unobserved)
                 VALUES (x'{id:0>32}', '{project}', {task}, x'{id:0>64}', zeroblob(32), '', 'n', 0,
                         '{state}', 0, 1, 0, 0, 7, {closed});"
            )
        };
        let both = r#"{"limits":{"concurrency":2,"mutex":true}}"#;
        for text in [
            insert("01", "lab", "'report'", "running", both),
            insert("02", "lab", "NULL", "pending", both),
            insert("03", "home", "'report'", "pending", r#"{"limits":{"mutex":false}}"#),
            insert("04", "home", "'report'", "pending", "damaged"),
            insert("05", "home", "'report'", "failed", both),
        ] {
            connection.execute_batch(&text).unwrap();
        }
        migrate(&mut connection, MIGRATIONS, NOW).unwrap();
        let mut rows = connection.prepare("SELECT mutex, concurrency FROM run ORDER BY id").unwrap();
        let found = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let found: Vec<(i64, Option<i64>)> = found.map(Result::unwrap).collect();
        assert_eq!(found, [(1, Some(2)), (1, None), (0, None), (0, None), (0, None)], "what ended holds nothing");
        let mut rows = connection.prepare("SELECT name, created_at FROM project ORDER BY name").unwrap();
        let found = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let found: Vec<(String, i64)> = found.map(Result::unwrap).collect();
        assert_eq!(found, [("home".to_owned(), 7), ("lab".to_owned(), 7)]);
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &steps(&[ONE, TWO]), NOW).unwrap();
        let error = migrate(&mut connection, &steps(&[ONE]), NOW).unwrap_err();
        assert!(matches!(error, OpenError::NewerSchema { found: 2, known: 1 }), "{error}");
    }

    #[test]
    fn a_changed_migration_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &steps(&[ONE]), NOW).unwrap();
        let changed = "CREATE TABLE first (id INTEGER PRIMARY KEY)  STRICT;";
        let error = migrate(&mut connection, &steps(&[changed, TWO]), NOW).unwrap_err();
        assert!(matches!(error, OpenError::ChangedMigration { version: 1, .. }), "{error}");
    }

    #[test]
    fn a_failing_migration_leaves_everything_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &steps(&[ONE]), NOW).unwrap();
        migrate(&mut connection, &steps(&[ONE, "CREATE TABLE second (id INTEGER) STRICT; nonsense;"]), NOW)
            .unwrap_err();
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'second'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 0);
        migrate(&mut connection, &steps(&[ONE, TWO]), NOW).unwrap();
    }

    #[test]
    fn another_programs_database_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (id INTEGER)").unwrap();
        let error = migrate(&mut connection, MIGRATIONS, NOW).unwrap_err();
        assert!(matches!(error, OpenError::Foreign), "{error}");
    }
}
