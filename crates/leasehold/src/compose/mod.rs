//! The only place that picks an adapter: a data directory, and what was said of the database, become a control plane.
//!
//! (Design, *The map*; decisions, *Access on one machine*.)

mod migrate_store;
mod postgres;
mod sqlite;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use leasehold_control::install::{self, InstallError};
use leasehold_control::{ControlPlane, Metrics, Settings};
use leasehold_core::crypto::ApiToken;
use leasehold_core::time::{Clock, Entropy};
use leasehold_store::port::Store;

use crate::data_directory::DataDirectory;
use crate::database::{DatabaseArgs, DatabaseUrl};
use crate::master_key::{FoundKey, MasterKeyArgs};
use crate::system::{SystemClock, SystemEntropy, elapsed};

/// A control plane on a store that is open.
#[derive(Debug)]
pub(crate) struct Composed {
    /// The services.
    pub control: ControlPlane,
    /// The first admin token, where the installation was made just now: shown once.
    pub first_token: Option<ApiToken>,
    store: OpenStore,
}

impl Composed {
    /// Finishes what was sent to the store and gives up its lock.
    pub(crate) async fn close(self) {
        self.store.close().await;
    }
}

/// Looks at a database from outside; blocking.
pub(crate) use leasehold_sql::sqlite::{
    Contents, Holder, InspectError, Inspection, Stage, holder, inspect, network_file_system,
};

/// Moves a store to PostgreSQL, and gives it back.
pub(crate) use migrate_store::{Answer, Progress, Rows, migrate_store, take_back_store};

/// Looks at a database on PostgreSQL.
pub(crate) use leasehold_sql::postgres::{ClockSteps, Inspection as PostgresInspection};
pub(crate) async fn inspect_postgres(
    url: &DatabaseUrl,
) -> Result<PostgresInspection, leasehold_sql::postgres::OpenError> {
    leasehold_sql::postgres::inspect(url.reveal()).await
}

/// What a control plane keeps its state in.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
}

/// Refuses a data directory that a control plane has which runs.
pub(crate) fn refuse_held(data: &DataDirectory) -> anyhow::Result<()> {
    match holder(&data.database()) {
        Ok(Holder::ControlPlane(pid)) => Err(sqlite::in_use(data, pid)),
        // Opening it says what is wrong.
        Ok(Holder::Nobody) | Err(_) => Ok(()),
    }
}

#[derive(Debug)]
enum OpenStore {
    Sqlite(sqlite::Opened),
    Postgres(postgres::Opened),
}

impl OpenStore {
    fn port(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(opened) => opened.port(),
            Self::Postgres(opened) => opened.port(),
        }
    }

    async fn close(self) {
        match self {
            Self::Sqlite(opened) => opened.close().await,
            Self::Postgres(opened) => opened.close().await,
        }
    }
}

/// Opens the store, in the data directory or at the URL that was given, and the installation in it, or makes both.
pub(crate) async fn open(data: &DataDirectory, args: &StoreArgs, settings: Settings) -> anyhow::Result<Composed> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), elapsed);
    let url = args.database.url()?;
    let settings = Settings { metrics: metrics.clone(), ..settings };
    let (store, settings) = match &url {
        None => {
            let (store, volume) = sqlite::open(data, Arc::clone(&clock), metrics)?;
            (OpenStore::Sqlite(store), Settings { volume, ..settings })
        }
        Some(url) => (OpenStore::Postgres(postgres::open(data, url, Arc::clone(&clock), metrics).await?), settings),
    };
    let port = store.port();
    // After the lock, so that two first starts on one directory never make two keys.
    let opened = match open_installation(data, args, url.as_ref(), &*port, &*clock, &*entropy).await {
        Ok(opened) => opened,
        Err(error) => {
            drop(port);
            store.close().await;
            return Err(error);
        }
    };
    data.write_ca_certificate(opened.keys.ca_certificate())?;
    let control = ControlPlane::new(port, opened.keys, clock, entropy, settings);
    Ok(Composed { control, first_token: opened.first_token, store })
}

/// Brings the schema of the database up to date, and makes nothing else.
pub(crate) async fn migrate(data: &Path, args: &StoreArgs) -> anyhow::Result<()> {
    if let Some(url) = args.database.url()? {
        return postgres::migrate(DataDirectory::existing(data).ok(), &url).await;
    }
    let data = DataDirectory::prepare(data)?;
    let (store, _) = sqlite::open(&data, Arc::new(SystemClock), Metrics::default())?;
    store.close().await;
    Ok(())
}

async fn open_installation(
    data: &DataDirectory,
    args: &StoreArgs,
    url: Option<&DatabaseUrl>,
    store: &dyn Store,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> anyhow::Result<install::Opened> {
    let place = url.map_or_else(|| data.path().display().to_string(), DatabaseUrl::without_password);
    let failed = || format!("cannot open the installation in {place}");
    let installed = store.installation().await.with_context(failed)?.is_some();
    let FoundKey { key, origin, made, .. } = args.master_key.find(data, installed, entropy)?;
    match install::open(store, &key, None, clock, entropy).await {
        Err(InstallError::MasterKey) if made => {
            // Two replicas began at the same moment, each with a key of its own, and the other's installation is the one.
            data.remove_master_key()?;
            anyhow::bail!(
                "another replica made the installation in {place} at the same moment, with a master key of its own: copy \
                 master.key from its data directory to {origin}, or name it with --master-key-file, and start again"
            )
        }
        Err(InstallError::MasterKey) if url.is_some() => anyhow::bail!(
            "the master key of {origin} does not open the installation in {place}: every replica needs the key that the \
             first one was started with (master.key in its data directory, LEASEHOLD_MASTER_KEY_FILE or LEASEHOLD_MASTER_KEY)"
        ),
        other => other.with_context(failed),
    }
}
