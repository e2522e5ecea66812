//! The connections of a store: a few, kept open, each looked at when it is made; and what is said where none can be had.

use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use leasehold_store::outcome::StoreError;

use super::connect::{Address, admit, refuse_unsafe, set_up};
use super::open::{OpenError, PostgresOptions};
use super::{PostgresStore, rights};

/// How long a connection may take to be made, or to become free.
const CONNECT: Duration = Duration::from_secs(5);

/// The connections of one store. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    address: Address,
}

impl Connections {
    /// Connections to `address`; none is made before it is wanted.
    pub(super) fn to(address: Address, options: &PostgresOptions) -> Result<Self, OpenError> {
        let (schema, witness) = (options.schema.clone(), options.witness.clone());
        let prepare = Hook::async_fn(move |client, _| {
            let (schema, witness) = (schema.clone(), witness.clone());
            Box::pin(async move {
                let prepared = async {
                    admit(client, witness.as_deref()).await?;
                    set_up(client, &schema).await
                };
                prepared.await.map_err(|error| HookError::message(error.told()))
            })
        });
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(address.manager(manager))
            .max_size(options.connections.max(1))
            .wait_timeout(Some(CONNECT))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(CONNECT))
            .runtime(Runtime::Tokio1)
            .post_create(prepare)
            .build()
            .map_err(|error| OpenError::Pool(error.to_string()))?;
        Ok(Self { pool, address })
    }

    /// One of them, once one is free. Where none can be had, the reason is a sentence.
    pub(super) async fn get(&self) -> Result<Object, StoreError> {
        let not_done = |reason: &str| StoreError::NotDone { reason: reason.to_owned() };
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(source) => self.address.refusal(&source).into(),
            PoolError::PostCreateHook(error) => not_done(&error.to_string()),
            PoolError::Timeout(TimeoutType::Wait) => not_done("every connection to the database is in use"),
            PoolError::Timeout(_) => not_done("the database does not take a connection in time"),
            PoolError::Closed => not_done("the store is closed"),
            PoolError::NoRuntimeSpecified => not_done("there is nothing to wait with"),
        })
    }

    /// Closes those that are free, and the others as they become free.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

impl PostgresStore {
    /// Looks again at what may have changed since the connections were made: what the server promises, and what the user may
    /// do.
    pub(super) async fn look_again(&self) -> Result<(), StoreError> {
        let client = self.connect().await?;
        refuse_unsafe(&client).await?;
        Ok(rights::refuse(&client, &self.inner.schema).await?)
    }
}
