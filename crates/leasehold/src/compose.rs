//! The only place that picks an adapter: a data directory becomes a store and a control plane over it.
//!
//! (README of the design, *The house*; decisions, *Access on one machine*.)

use std::sync::Arc;

use anyhow::Context as _;
use leasehold_control::install;
use leasehold_control::{ControlPlane, Metrics, Settings};
use leasehold_core::crypto::ApiToken;
use leasehold_core::time::{Clock, Entropy};
use leasehold_sql::sqlite::{OpenError, Options, SqliteStore};

use crate::data_directory::{DataDirectory, DataVolume};
use crate::system::{SystemClock, SystemEntropy, elapsed};

/// A control plane on a store that is open.
#[derive(Debug)]
pub(crate) struct Composed {
    /// The services.
    pub control: ControlPlane,
    /// The first admin token, where the installation was made just now: shown once.
    pub first_token: Option<ApiToken>,
    store: SqliteStore,
}

impl Composed {
    /// Finishes what was sent to the store and gives up its lock.
    pub(crate) async fn close(self) {
        self.store.close().await;
    }
}

/// Looks at a database from outside; blocking.
pub(crate) use leasehold_sql::sqlite::{Contents, Holder, Inspection, holder, inspect, network_file_system};

/// Opens the store of a data directory and the installation in it, or makes both.
pub(crate) async fn open(data: &DataDirectory, settings: Settings) -> anyhow::Result<Composed> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), elapsed);
    let store = match SqliteStore::open(
        data.database_to_open()?,
        Options::new(Arc::clone(&clock)).observed(Arc::new(metrics.clone())),
    ) {
        Ok(store) => store,
        Err(OpenError::Held { pid, .. }) => {
            let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            anyhow::bail!(
                "the data directory {} is in use by {holder}, a control plane that runs: use it with `leasehold run`, \
                 stop it, or choose another directory with --data",
                data.path().display()
            );
        }
        Err(error) => {
            let what = format!("cannot open the data directory {} (choose another with --data)", data.path().display());
            return Err(anyhow::Error::new(error).context(what));
        }
    };
    // After the lock, so that two first starts never make two keys.
    let master = data.master_key(&*entropy)?;
    let opened = install::open(&store, &master, None, &*clock, &*entropy)
        .await
        .with_context(|| format!("cannot open the installation in {}", data.path().display()))?;
    data.write_ca_certificate(opened.keys.ca_certificate())?;
    let settings = Settings { metrics, volume: Arc::new(DataVolume::of(data)), ..settings };
    let control = ControlPlane::new(Arc::new(store.clone()), opened.keys, clock, entropy, settings);
    Ok(Composed { control, first_token: opened.first_token, store })
}
