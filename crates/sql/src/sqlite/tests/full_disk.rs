//! A disk that others have filled to the last byte: commits go on in what was reserved, and the reserve comes back.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use leasehold_store::contract::TestClock;
use leasehold_store::port::Store as _;

use super::super::{Options, SqliteStore};
use super::{Fixture, revision};
use crate::scene::Scene;

/// A file system of 32 MiB; gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = ["-t", "tmpfs", "-o", "size=32m,mode=0700", "tmpfs"];
        let mounted = Command::new("mount").args(size).arg(directory.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Writes until nothing fits any more.
fn fill(directory: &Path) {
    let mut file = File::create(directory.join("filler")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

fn reserved(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("store.db-reserve")).map_or(0, |file| file.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_disk_that_others_filled_refuses_no_commit_until_the_reserve_is_used_up() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let directory = tempfile::Builder::new().tempdir_in(disk.0.path()).unwrap();
    let clock = Arc::new(TestClock::new());
    let store = SqliteStore::open(directory.path().join("store.db"), Options::new(clock.clone())).unwrap();
    let mut fixture = Fixture { directory, scene: Scene::on(store, clock) };
    let here = fixture.directory.path().to_owned();
    assert_eq!(reserved(&here), 4 << 20, "an eighth of the disk");
    fill(&here);

    // Each is a commit of its own, and each makes the database grow: more than the log's part of the reserve holds.
    let mut admitted = Vec::new();
    for _ in 0..200 {
        admitted.push(fixture.admit(revision(&[])).await);
    }
    // What only changes rows goes on for ever.
    for _ in 0..2000 {
        fixture.store.check().await.unwrap();
    }
    assert_eq!(reserved(&here), 0, "given up");

    // A start on the full disk, too.
    fixture.reopen().await;
    fixture.store.check().await.unwrap();
    for run in &admitted {
        assert!(fixture.store.run(*run).await.unwrap().is_some());
    }

    std::fs::remove_file(here.join("filler")).unwrap();
    fixture.store.check().await.unwrap();
    fixture.store.check().await.unwrap();
    assert_eq!(reserved(&here), 4 << 20, "taken back");
    fixture.store.close().await;
}
