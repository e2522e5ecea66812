//! What the machine can do at all, measured in the same minutes: one write that is on disk.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use leasehold_sql::test_server::{Laps, PlainRows};
use tokio::time::Instant;

/// How many writes are timed at a time.
const TIMES: usize = 200;

/// The bare limit of a store.
pub(super) enum Limit {
    /// An `UPDATE` of one row by its key, committed on one connection.
    Row(PlainRows),
    /// A page appended to a file and synced.
    Page(File),
}

impl Limit {
    /// Of the PostgreSQL server with a database at `url`.
    pub(super) async fn of_postgres(url: &str) -> Result<Self> {
        Ok(Self::Row(PlainRows::prepare(url, 1).await?))
    }

    /// Of the disk under this directory.
    pub(super) fn of_disk(directory: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(directory.join("synced-pages"))?;
        Ok(Self::Page(file))
    }

    /// What one is called.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Row(_) => "commit of one row",
            Self::Page(_) => "synced page",
        }
    }

    /// Times some.
    pub(super) async fn measure(&mut self) -> Result<Laps> {
        match self {
            Self::Row(rows) => Ok(rows.commit(TIMES).await?),
            Self::Page(file) => {
                let mut laps = Laps::default();
                for _ in 0..TIMES {
                    let begun = Instant::now();
                    file.write_all(&[7; 4096])?;
                    file.sync_data()?;
                    laps.add(begun.elapsed());
                }
                Ok(laps)
            }
        }
    }
}
