//! Readers: a few threads with read-only connections, so that no page waits behind the writer.
//!
//! Each call reads one snapshot; nothing here can write.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_store::outcome::StoreError;
use rusqlite::Connection;

use super::clock::LeaseClock;
use super::queue::Job;
use super::transaction::{Fault, Tx};

/// What one reader thread owns; the queue is shared.
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) clock: Arc<LeaseClock>,
    pub(super) calls: Arc<Mutex<Receiver<Box<dyn Job>>>>,
}

impl Reader {
    /// Carries calls out until the queue is closed and empty.
    pub(super) fn serve(self) {
        while let Some(job) = self.next() {
            self.carry_out(job);
        }
    }

    fn next(&self) -> Option<Box<dyn Job>> {
        // Waiting with the lock held is the queue's order: who holds it takes the next call, the others wait for the lock.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn carry_out(&self, mut job: Box<dyn Job>) {
        let read = self.statement("BEGIN").and_then(|()| {
            // A failed read has its own answer; there is nothing to undo.
            drop(job.run(&Tx::new(&self.connection, self.clock.now())));
            if self.connection.is_autocommit() { Ok(()) } else { self.statement("COMMIT") }
        });
        job.answer(read);
    }

    fn statement(&self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|error| Fault::from(error).into())
    }
}
