//! What only this adapter promises: its file, its lock, its writer, its clock, its plans. What every store promises is in the
//! contract suite.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_store::contract::TestClock;

use super::{Options, SqliteStore};
use crate::scene::Scene;
pub(super) use crate::scene::{exited, revision, running, step};

mod clock;
mod crash;
mod damage;
mod full_disk;
mod group;
mod observed;
mod opening;
mod schema;
mod statements;
mod throughput;

/// A store in a directory of its own, and the clock that it reads.
pub(super) struct Fixture {
    pub(super) directory: tempfile::TempDir,
    scene: Scene<SqliteStore>,
}

impl Deref for Fixture {
    type Target = Scene<SqliteStore>;

    fn deref(&self) -> &Self::Target {
        &self.scene
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.scene
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(|options| options)
    }

    /// A store that is opened as `options` says.
    pub(super) fn with(options: impl FnOnce(Options) -> Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::new());
        let options = options(Options::new(clock.clone()));
        let store = SqliteStore::open(directory.path().join("store.db"), options).unwrap();
        Self { directory, scene: Scene::on(store, clock) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// The same data, closed and opened again.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await;
        self.store = SqliteStore::open(self.path(), Options::new(self.clock.clone())).unwrap();
    }
}
