//! Whether the control plane can do its work now, and if not, why: for load balancers, service managers and `doctor`.
//!
//! Anybody may ask, so one answer of the store serves everybody for a while, and no reason holds a secret or names whose work
//! it is. (Control design, *Operating it*.)

use std::sync::{Mutex, PoisonError};

use leasehold_core::disk::Room;
use leasehold_core::time::{BootInstant, Millis};
use leasehold_store::outcome::StoreError;

use crate::error::Denied;
use crate::plane::ControlPlane;

/// How long an answer of the store serves.
const KEPT: Millis = Millis::from_secs(1);

/// A reason why the control plane cannot do its work, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The store does not commit.
    #[error("the store cannot be used: {0}")]
    Store(String),
    /// New work has no room.
    #[error("{}", Denied::DiskFull)]
    DiskFull,
    /// It ends.
    #[error("it was told to stop, and finishes what it is asked")]
    Draining,
}

/// Why the control plane cannot do its work: every reason, at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(". Also: "))]
pub struct NotReady(Vec<Reason>);

impl NotReady {
    /// Every reason.
    pub fn reasons(&self) -> &[Reason] {
        &self.0
    }
}

/// What was said last.
#[derive(Default)]
pub(crate) struct Readiness {
    /// By the store, when it was asked whether it can commit.
    checked: tokio::sync::Mutex<Option<(BootInstant, Checked)>>,
    /// To whoever asked, where it was no.
    told: Mutex<Option<NotReady>>,
}

/// Whether the store commits, and what is to be known of it although it does.
type Checked = Result<Option<&'static str>, StoreError>;

impl ControlPlane {
    /// Whether work can be done: the store commits, its disk has room for new work, and the control plane does not drain.
    /// Answers what there is room for, or every reason why not.
    pub async fn ready(&self) -> Result<Room, NotReady> {
        let mut reasons = Vec::new();
        if let Err(error) = self.checked().await {
            let (StoreError::NotDone { reason }
            | StoreError::NotAllowed { reason }
            | StoreError::Unknown { reason }
            | StoreError::Damaged { reason }) = error;
            reasons.push(Reason::Store(reason));
        }
        let room = self.room();
        if room == Room::WorkRefused {
            reasons.push(Reason::DiskFull);
        }
        if self.is_draining() {
            reasons.push(Reason::Draining);
        }
        let answer = if reasons.is_empty() { Ok(room) } else { Err(NotReady(reasons)) };
        self.tell(answer.as_ref().err());
        answer
    }

    /// What whoever runs the store should know of it although it works.
    pub async fn store_warning(&self) -> Option<&'static str> {
        self.checked().await.ok().flatten()
    }

    async fn checked(&self) -> Checked {
        let mut checked = self.readiness().checked.lock().await;
        let now = self.clock().boot();
        match &*checked {
            Some((at, answer)) if now.since(*at) < KEPT => answer.clone(),
            _ => {
                let answer = match self.store().check().await {
                    Ok(()) => Ok(self.store().warning().await),
                    Err(error) => Err(error),
                };
                *checked = Some((now, answer.clone()));
                answer
            }
        }
    }

    /// Writes into the log what changed since somebody asked last.
    fn tell(&self, now: Option<&NotReady>) {
        // Nothing can panic while it is held.
        let mut told = self.readiness().told.lock().unwrap_or_else(PoisonError::into_inner);
        match now {
            Some(why) if told.as_ref() != now => tracing::warn!(%why, "not ready"),
            None if told.is_some() => tracing::info!("ready again"),
            _ => {}
        }
        *told = now.cloned();
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::faulty::{Fault, Schedule};

    use super::*;
    use crate::fixture::World;

    #[tokio::test]
    async fn readiness_is_the_stores_power_to_commit_and_comes_back_by_itself() {
        let world = World::new().await;
        let replica = world.replica(Schedule::cycle([Fault::Undone, Fault::None]));
        for _ in 0..3 {
            let refused = replica.ready().await.unwrap_err().to_string();
            assert_eq!(refused, "the store cannot be used: the answer was lost on purpose");
        }
        world.clock.advance(KEPT);
        assert_eq!(replica.ready().await, Ok(Room::Ample));
        assert_eq!(replica.ready().await, Ok(Room::Ample), "one answer serves everybody for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn every_reason_is_told() {
        let world = World::new().await;
        let replica = world.replica(Schedule::cycle([Fault::Undone]));
        replica.run(std::future::ready(())).await;
        let told = replica.ready().await.unwrap_err();
        assert_eq!(told.reasons().len(), 2, "{told}");
        assert!(told.to_string().contains("on purpose. Also: it was told to stop"), "{told}");
    }
}
