//! How much room the store's disk has, and what gives way when it has little: log bytes first, then new work.
//!
//! The disk is asked through a port, because a service reads no file system; which marks count is
//! [`leasehold_core::disk`]. Renewals and ends are never refused here: the store keeps a reserve for them. (Control
//! design, *Logs, artifacts, secrets*.)

use leasehold_core::disk::{Room, Space};
use leasehold_core::time::Millis;

use crate::plane::ControlPlane;

/// When to ask again for what the disk has no room for.
pub(crate) const AGAIN: Millis = Millis::from_secs(5);

/// Where the store keeps its bytes.
pub trait Volume: Send + Sync + std::fmt::Debug {
    /// What is free there; none where nobody can tell, which counts as room enough.
    fn space(&self) -> Option<Space>;
}

/// A store whose disk is not this machine's business.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere;

impl Volume for Elsewhere {
    fn space(&self) -> Option<Space> {
        None
    }
}

impl ControlPlane {
    /// What the disk has room for now. Asked at every piece of a log and every new run: it costs one system call.
    pub fn room(&self) -> Room {
        let Some(space) = self.settings().volume.space() else { return Room::Ample };
        let mut before = self.last_room();
        let room = before.after(space);
        if room != *before {
            let free = space.free >> 20;
            match room {
                Room::Ample => {
                    tracing::info!("the disk has room again ({free} MiB free): logs and new work are taken in");
                }
                Room::LogsPaused => tracing::warn!("the disk is low ({free} MiB free): logs stay on the workers"),
                Room::WorkRefused => {
                    tracing::error!(
                        "the disk is nearly full ({free} MiB free): new work is refused, what runs goes on"
                    );
                }
            }
        }
        *before = room;
        room
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use leasehold_core::refusal::RefusalCode;
    use leasehold_core::run::RunState;

    use super::*;
    use crate::error::{Denied, ServiceError};
    use crate::fixture::{World, plain};

    const MIB: u64 = 1 << 20;

    #[derive(Debug, Default)]
    struct Disk(AtomicU64);

    impl Disk {
        fn free(&self, mib: u64) {
            self.0.store(mib * MIB, Ordering::Relaxed);
        }
    }

    impl Volume for Disk {
        fn space(&self) -> Option<Space> {
            Some(Space { free: self.0.load(Ordering::Relaxed), total: 1 << 40 })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn logs_give_way_first_then_new_work_and_never_an_end() {
        let disk = Arc::new(Disk::default());
        disk.free(1000);
        let world = World::on(disk.clone()).await;
        let agent = world.agent("nas", 2).await;
        let run = world.submit(plain()).await;
        let taken = agent.take().await;
        agent.starting(&taken).await;
        agent.running(&taken).await;
        agent.log(&taken, 0, b"before ").await;

        disk.free(100);
        let append = |offset| {
            world.plane.append_log(&agent.principal, agent.session, taken.lease.clone(), offset, b"during".to_vec())
        };
        match append(7).await {
            Err(ServiceError::Refused(refusal)) => {
                assert_eq!(refusal.code, RefusalCode::Overloaded);
                assert!(refusal.message.contains("disk"), "{}", refusal.message);
                assert!(refusal.retry_after.is_some());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.plane.ready().await, Ok(Room::LogsPaused));
        world.submit(plain()).await;

        disk.free(1);
        let refused = world.try_submit(plain()).await.unwrap_err();
        assert!(matches!(&refused, ServiceError::Refused(Denied::DiskFull)), "{refused}");
        assert!(world.plane.ready().await.unwrap_err().to_string().contains("disk is nearly full"));
        agent.exited(&taken, 0, b"before during").await;
        assert_eq!(world.plane.run_view(run).await.unwrap().run.state, RunState::Succeeded);

        // A follower does not wait for bytes that nobody takes in.
        let mut follower = world.plane.follow_log(run, taken.offer.attempt, 0).await.unwrap();
        assert_eq!(follower.next().await.unwrap().unwrap().bytes, b"before ");
        assert_eq!(follower.next().await.unwrap(), None);

        disk.free(1000);
        assert_eq!(append(7).await, Ok(13));
        world.try_submit(plain()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_not_started_on_a_disk_that_is_nearly_full() {
        let disk = Arc::new(Disk::default());
        disk.free(1000);
        let world = World::on(disk.clone()).await;
        let agent = world.agent("nas", 2).await;
        let run = world.submit(plain()).await;
        disk.free(1);
        let pull = tokio::spawn(agent.pull(world.asks(1), Millis::from_secs(30)));
        while world.plane.open_pulls().len() == 0 {
            tokio::task::yield_now().await;
        }
        world.dispatch().await;
        assert!(!pull.is_finished(), "nothing is handed out");
        pull.abort();
        let _ = pull.await;
        let explanation = world.plane.explain(run).await.unwrap().explanation.unwrap();
        assert!(explanation.nearest.contains("disk"), "{explanation:?}");
        disk.free(1000);
        assert_eq!(agent.take().await.offer.run, run);
    }
}
