//! The store in the data directory: SQLite, for one control plane.

use std::sync::Arc;

use leasehold_control::Metrics;
use leasehold_control::room::Volume;
use leasehold_core::time::Clock;
use leasehold_sql::sqlite::{OpenError, Options, SqliteStore};
use leasehold_store::port::Store;

use crate::data_directory::{DataDirectory, DataVolume};

/// The store, which holds its own lock.
#[derive(Debug)]
pub(super) struct Opened(SqliteStore);

impl Opened {
    pub(super) fn port(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    pub(super) async fn close(self) {
        self.0.close().await;
    }
}

/// Opens or makes the database of a data directory.
pub(super) fn open(
    data: &DataDirectory,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> anyhow::Result<(Opened, Arc<dyn Volume>)> {
    if data.is_of_a_replica() {
        anyhow::bail!(
            "{} was a control plane's on PostgreSQL: start it with --database (or LEASEHOLD_DATABASE, \
             LEASEHOLD_DATABASE_FILE), or choose another directory with --data. (It is told by {}.)",
            data.path().display(),
            data.database_seen().display()
        );
    }
    match SqliteStore::open(data.database_to_open()?, Options::new(clock).observed(Arc::new(metrics))) {
        Ok(store) => Ok((Opened(store), Arc::new(DataVolume::of(data)))),
        Err(OpenError::Held { pid, .. }) => Err(in_use(data, pid)),
        Err(moved @ OpenError::Moved(_)) => {
            Err(anyhow::Error::new(moved).context(format!("{} cannot be opened", data.database().display())))
        }
        Err(error) => {
            let what = format!("cannot open the data directory {} (choose another with --data)", data.path().display());
            Err(anyhow::Error::new(error).context(what))
        }
    }
}

/// What is said when another process has the data directory.
pub(super) fn in_use(data: &DataDirectory, pid: Option<u32>) -> anyhow::Error {
    let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    anyhow::anyhow!(
        "the data directory {} is in use by {holder}, a control plane that runs: use it with `leasehold run`, stop it, or \
         choose another directory with --data",
        data.path().display()
    )
}
