//! One thread that makes things durable, in order, so that no fsync delays a heartbeat; and whether the disk has room for
//! new work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::JoinHandle;

use leasehold_core::disk::{Space, is_low_for_offers};
use leasehold_core::id::{AttemptId, OfferId};
use tokio::sync::mpsc::Sender;

use super::tasks::BROKE;
use crate::attempt_dir::AttemptDir;
use crate::engine::port::{Ask, Input, OpId};
use crate::inbox::directory::Inbox;
use crate::inbox::record::Record;
use crate::pending_claims::PendingClaims;
use crate::session_file::SessionFile;
use crate::state::StateFile;
use crate::state_dir::StateDir;

/// What is to be made durable.
pub(super) enum Write {
    Record(Box<Record>),
    RemoveRecord(OfferId),
    Session(Box<SessionFile>),
    Asks(Vec<Ask>),
    CreateDirectory(AttemptId),
}

/// The writer's thread. Dropping it finishes what was handed over.
pub(super) struct Disk {
    writes: Option<mpsc::Sender<(OpId, Write)>>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    pub(super) fn start(state: std::sync::Arc<StateDir>, inbox: Inbox, done: Sender<Input>) -> std::io::Result<Self> {
        // Bounded by the engine: one write per record, one for each of the two small files.
        let (writes, queue) = mpsc::channel::<(OpId, Write)>();
        let thread = std::thread::Builder::new().name("durable".to_owned()).spawn(move || {
            while let Ok((op, write)) = queue.recv() {
                let result = unbroken(|| carry_out(&state, &inbox, write));
                // Nobody listens any more when the agent is leaving.
                let _ = done.blocking_send(Input::Done { op, result });
            }
        })?;
        Ok(Self { writes: Some(writes), thread: Some(thread) })
    }

    /// Hands a write over. Without its thread the agent ends: a restart finds what is on disk, a wait would find nothing.
    pub(super) fn write(&self, op: OpId, write: Write) -> std::io::Result<()> {
        let handed_over = self.writes.as_ref().is_some_and(|writes| writes.send((op, write)).is_ok());
        if handed_over {
            Ok(())
        } else {
            Err(std::io::Error::other("nothing more is made durable: the writer is gone"))
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.writes = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was said when it came.
            let _ = thread.join();
        }
    }
}

/// Whether the disk was too low for new work when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Lowness {
    low: bool,
}

impl Lowness {
    /// Looks again, at the cost of one system call; answers what changed. A file system that does not tell counts as it
    /// was: the write that fails then says it.
    pub(super) fn changed(&mut self, state: &StateDir) -> Option<bool> {
        let found = rustix::fs::statvfs(state.dir().path()).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let low = is_low_for_offers(self.low, Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) });
        (std::mem::replace(&mut self.low, low) != low).then_some(low)
    }
}

/// A write that panics is as unsure as one that failed, and is said: the engine waits for it, and others come after it.
fn unbroken(write: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|_| {
        tracing::error!("a defect of this program, please report it: a write broke");
        Err(BROKE.to_owned())
    })
}

fn carry_out(state: &StateDir, inbox: &Inbox, write: Write) -> Result<(), String> {
    match write {
        Write::Record(record) => inbox.write(&record).map_err(|error| error.to_string()),
        Write::RemoveRecord(offer) => inbox.remove(offer).map_err(|error| error.to_string()),
        Write::Session(file) => file.write(state.dir()).map_err(|error| error.to_string()),
        Write::Asks(asks) => PendingClaims(asks).write(state.dir()).map_err(|error| error.to_string()),
        Write::CreateDirectory(attempt) => {
            AttemptDir::create(state.attempts(), attempt).map(drop).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_panics_is_unsure_and_not_the_last_one() {
        assert_eq!(unbroken(|| panic!("a write that breaks")), Err(BROKE.to_owned()));
        assert_eq!(unbroken(|| Ok(())), Ok(()));
    }
}
