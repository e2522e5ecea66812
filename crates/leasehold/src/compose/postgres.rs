//! The store at a URL: PostgreSQL, for any number of replicas.
//!
//! The data directory still is this replica's alone: its lock, its admin socket, and the highest timeline of the database
//! that it has seen. A database that lags behind that is refused, at every connection. (`docs/operating-postgresql.md`.)

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use leasehold_control::Metrics;
use leasehold_core::database::{Distrust, History, Trust, trust};
use leasehold_core::time::Clock;
use leasehold_sql::postgres::{OpenError as PostgresError, PostgresOptions, PostgresStore, Witness};
use leasehold_sql::sqlite::{Lock, OpenError as LockError, Place, Stage, mark};
use leasehold_store::port::Store;

use super::sqlite::in_use;
use crate::data_directory::DataDirectory;
use crate::database::DatabaseUrl;

/// The store, and the lock of this replica's data directory.
#[derive(Debug)]
pub(super) struct Opened {
    store: PostgresStore,
    _lock: Lock,
}

impl Opened {
    pub(super) fn port(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    pub(super) async fn close(self) {
        self.store.close().await;
    }
}

/// Opens the database at `url`, making its schema if there is none.
pub(super) async fn open(
    data: &DataDirectory,
    url: &DatabaseUrl,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> anyhow::Result<Opened> {
    let moved_to = moved_to(data)?;
    let lock = match Lock::take(&data.database()) {
        Ok(lock) => lock,
        Err(LockError::Held { pid, .. }) => return Err(in_use(data, pid)),
        Err(error) => return Err(error.into()),
    };
    let options = PostgresOptions::new()
        .observed(Arc::new(metrics))
        .witnessed(Arc::new(Memory::of(data)?))
        .watching_the_clock(clock);
    let options = moved_to.into_iter().fold(options, PostgresOptions::only);
    let store = connect(url, options).await;
    let store = store.map_err(|error| match error.downcast_ref::<PostgresError>() {
        Some(PostgresError::Elsewhere { .. }) => error.context(format!(
            "choose another directory with --data, or name with --database where this one was moved; if the database itself was \
             moved or upgraded since, remove {}, which is older than it",
            data.database().display()
        )),
        _ => error,
    })?;
    Ok(Opened { store, _lock: lock })
}

/// A control plane has one store: a file of SQLite beside it must be one that was moved away. Answers where to.
fn moved_to(data: &DataDirectory) -> anyhow::Result<Option<Place>> {
    let path = data.database();
    if !path.exists() {
        return Ok(None);
    }
    let place = data.path().display();
    match mark(&path)? {
        Some(moved) if moved.stage == Stage::Finished => Ok(Some(moved.to)),
        Some(moved) => anyhow::bail!(
            "the move of the installation in {place} to {} did not end: run `leasehold migrate-store` again with the same --data \
             and --database",
            moved.to.url
        ),
        None => anyhow::bail!(
            "{place} holds an installation on SQLite (leasehold.db), and a control plane has one store: choose another \
             directory with --data, or move what is in it with `leasehold migrate-store`"
        ),
    }
}

/// Brings the schema of the database at `url` up to date. Who does is no replica, and leaves nothing behind; where `data` is a
/// replica's, what that has seen of the database counts.
pub(super) async fn migrate(data: Option<DataDirectory>, url: &DatabaseUrl) -> anyhow::Result<()> {
    let options = match data {
        Some(data) if data.database_seen().exists() => PostgresOptions::new().witnessed(Arc::new(Memory::of(&data)?)),
        _ => PostgresOptions::new(),
    };
    connect(url, options).await?.close().await;
    Ok(())
}

async fn connect(url: &DatabaseUrl, options: PostgresOptions) -> anyhow::Result<PostgresStore> {
    let opened = PostgresStore::open(url.reveal(), options).await;
    opened.with_context(|| format!("cannot use the database {}", url.without_password()))
}

/// Which history of the database this replica has seen, remembered in its data directory.
struct Memory {
    data: DataDirectory,
    seen: Mutex<Option<History>>,
}

impl Witness for Memory {
    fn admits(&self, found: History) -> Result<(), String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match trust(*seen, found) {
            Ok(Trust::Known) => Ok(()),
            Ok(Trust::Remember) => {
                self.data.remember(found).map_err(|error| error.to_string())?;
                *seen = Some(found);
                Ok(())
            }
            Err(distrust) => Err(self.refusal(distrust)),
        }
    }
}

impl Memory {
    fn of(data: &DataDirectory) -> anyhow::Result<Self> {
        Ok(Self { data: data.clone(), seen: Mutex::new(data.seen()?) })
    }

    fn refusal(&self, distrust: Distrust) -> String {
        let file = self.data.database_seen();
        let file = file.display();
        match distrust {
            Distrust::Older { .. } => format!(
                "{distrust}. Connect to the server that took its place, and make this one its standby; only if the newer \
                 timeline is gone for good, and what was acknowledged on it with it, remove {file}"
            ),
            Distrust::Another { .. } => format!(
                "{distrust}. Connect to the one that this replica knows; if the database was moved on purpose, stop every \
                 replica, remove {file} and its like in their data directories, and start again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::database::{ClusterId, Timeline};

    use super::*;

    #[test]
    fn what_was_seen_survives_a_restart_and_an_older_timeline_is_told_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        let memory = || Memory::of(&data).unwrap();
        let history =
            |cluster, timeline| History { cluster: ClusterId::new(cluster), timeline: Timeline::new(timeline) };
        memory().admits(history(7, 1)).unwrap();
        memory().admits(history(7, 2)).unwrap();
        let told = memory().admits(history(7, 1)).unwrap_err();
        assert!(told.contains("old primary") && told.contains("database.seen"), "{told}");
        let told = memory().admits(history(8, 2)).unwrap_err();
        assert!(told.contains("another cluster"), "{told}");
        memory().admits(history(7, 2)).unwrap();
    }
}
