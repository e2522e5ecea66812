//! How a call of the port is carried out: on a connection of the pool, in a transaction of its own, again where that may help.
//!
//! A call that was certainly not done is decided again a few times; one whose commit was not answered is *unknown*, and only
//! its caller's replay tells. (Control design, *Store*.)

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use leasehold_store::observe::{Access, Called};
use leasehold_store::outcome::StoreError;
use tokio::time::timeout;

use super::PostgresStore;
use super::transaction::{Again, Connection, Fault, Tx, Undone, Unlocked};

/// How long one try of a call may take before its connection is given up.
pub(super) const CALL: Duration = Duration::from_secs(30);

/// How often a call is decided again because others were in its way.
pub(super) const COLLISIONS: u32 = 5;

/// How often a call is decided again because the clock stepped.
const STEPS: u32 = 3;

impl PostgresStore {
    /// A call that may write.
    pub(super) async fn write<T, W: Future<Output = Result<T, Fault>>>(
        &self,
        name: &'static str,
        body: impl Fn(Unlocked) -> W,
    ) -> Result<T, StoreError> {
        self.called(name, Access::Write, self.attempted(body)).await
    }

    /// A call that only reads, in one snapshot.
    pub(super) async fn read<T, R: Future<Output = Result<T, Fault>>>(
        &self,
        name: &'static str,
        body: impl Fn(Tx) -> R,
    ) -> Result<T, StoreError> {
        let body = &body;
        let in_snapshot = move |db: Unlocked| async move { body(db.snapshot().await?).await };
        self.called(name, Access::Read, self.attempted(in_snapshot)).await
    }

    /// A call, measured where somebody wants to know.
    pub(super) async fn called<T>(
        &self,
        name: &'static str,
        access: Access,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(observer) = &self.inner.observer else { return call.await };
        let begun = observer.elapsed();
        let answer = call.await;
        observer.called(name, access, observer.elapsed().saturating_sub(begun), Called::of(&answer));
        answer
    }

    /// Carries a call out, again where that may help, each time in a transaction of its own.
    pub(super) async fn attempted<T, W: Future<Output = Result<T, Fault>>>(
        &self,
        body: impl Fn(Unlocked) -> W,
    ) -> Result<T, StoreError> {
        let (mut raced, mut collided, mut stepped) = (0, 0, 0);
        loop {
            let connection = Arc::new(Connection::new(self.connect().await?));
            match self.attempt(&connection, &body).await {
                Ok(answer) => return Ok(answer),
                Err(Undone::Unknown(reason)) => return Err(StoreError::Unknown { reason }),
                Err(Undone::Certainly(fault)) => {
                    match fault.again() {
                        Again::Raced if raced == 0 => raced += 1,
                        Again::Collided if collided < COLLISIONS => collided += 1,
                        Again::Stepped if stepped < STEPS => {
                            stepped += 1;
                            self.settle_clock().await?;
                        }
                        _ => return Err(self.explained(fault, &connection).await),
                    }
                    tracing::debug!(reason = fault.reason(), "a call of the store is decided again");
                }
            }
        }
    }

    /// What a caller may conclude; where a right was missing, all that are missing are named.
    async fn explained(&self, fault: Fault, connection: &Connection) -> StoreError {
        if fault.may_be_of_rights()
            && let Some(missing) = connection.missing_rights(&self.inner.schema).await
        {
            return StoreError::NotAllowed { reason: format!("{}; {missing}", fault.reason()) };
        }
        fault.into()
    }

    pub(super) async fn attempt<T, W: Future<Output = Result<T, Fault>>>(
        &self,
        connection: &Arc<Connection>,
        body: &impl Fn(Unlocked) -> W,
    ) -> Result<T, Undone> {
        let unlocked = Unlocked::new(connection.clone(), self.inner.clocks.clone());
        let answer = match timeout(CALL, Box::pin(body(unlocked))).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(fault)) => {
                // A server that does not answer is not waited for.
                let _ = timeout(CALL, connection.roll_back()).await;
                return Err(Undone::Certainly(fault));
            }
            Err(_) => return Err(Undone::Certainly(Fault::TooSlow)),
        };
        match timeout(CALL, connection.commit()).await {
            Ok(Ok(())) => {}
            // What wrote nothing is not done, whatever became of its commit.
            Ok(Err(fault)) if fault.refused_to_commit() || !connection.wrote() => return Err(Undone::Certainly(fault)),
            Ok(Err(fault)) => return Err(Undone::Unknown(format!("COMMIT: {}", fault.reason()))),
            Err(_) => return Err(Undone::Unknown("COMMIT was not answered in time".to_owned())),
        }
        self.tell(connection);
        Ok(answer)
    }

    /// Tells what a commit made true.
    fn tell(&self, connection: &Connection) {
        let facts = connection.take_facts();
        if let Some(observer) = &self.inner.observer {
            for fact in facts {
                observer.committed(fact);
            }
        }
    }

    /// A call that may write, and whose plain case is one statement. Where that does not apply, or was certainly not done, the
    /// call is carried out as any other.
    pub(super) async fn write_at_once<T, P, W>(
        &self,
        name: &'static str,
        plain: impl FnOnce(Unlocked) -> P,
        body: impl Fn(Unlocked) -> W,
    ) -> Result<T, StoreError>
    where
        P: Future<Output = Result<Option<T>, Undone>>,
        W: Future<Output = Result<T, Fault>>,
    {
        self.called(name, Access::Write, async {
            match self.at_once(plain).await? {
                Some(answer) => Ok(answer),
                None => self.attempted(body).await,
            }
        })
        .await
    }

    /// The plain case of a call; none: certainly nothing was done.
    async fn at_once<T, P: Future<Output = Result<Option<T>, Undone>>>(
        &self,
        plain: impl FnOnce(Unlocked) -> P,
    ) -> Result<Option<T>, StoreError> {
        if !self.inner.plainly {
            return Ok(None);
        }
        let connection = Arc::new(Connection::new(self.connect().await?));
        let unlocked = Unlocked::new(connection.clone(), self.inner.clocks.clone());
        let answer = timeout(CALL, Box::pin(plain(unlocked))).await;
        match answer.unwrap_or_else(|_| Err(Undone::Unknown(Fault::TooSlow.reason()))) {
            Ok(answer) => {
                self.tell(&connection);
                Ok(answer)
            }
            Err(Undone::Certainly(fault)) => {
                tracing::debug!(reason = fault.reason(), "the plain case of a call is not tried again");
                // A server that does not answer is not waited for.
                let _ = timeout(CALL, connection.roll_back()).await;
                Ok(None)
            }
            Err(Undone::Unknown(reason)) => Err(StoreError::Unknown { reason }),
        }
    }

    pub(super) async fn connect(&self) -> Result<Object, StoreError> {
        self.inner.connections.get().await
    }
}
