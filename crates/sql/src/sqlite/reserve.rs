//! Space that belongs to the database before it is needed, so that a disk that others filled refuses no renewal and no end.
//!
//! Two parts. The write-ahead log's blocks are allocated beyond its end: nobody else can take them, and commits go on until
//! they are used up. A file beside the database is given up when a commit fails on an exhausted disk; what it frees lets
//! the checkpoint grow the database and the log begin anew. Both are taken (back) while there is room, never at the cost
//! of new work. A file system without preallocation has no reserve, and says so once. (Control design, *Store*; the marks
//! are [`leasehold_core::disk`].)

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use leasehold_core::disk::{self, Space};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The reserve of one database.
#[derive(Debug)]
pub(super) struct Reserve {
    database: PathBuf,
    /// Whether the file has its blocks.
    file: bool,
    /// Whether the write-ahead log has its blocks.
    log: bool,
    /// The file system cannot do it.
    unsupported: bool,
}

impl Reserve {
    /// The reserve of the database at `path`, before that is opened: an exhausted disk gets the file's space back now.
    pub(super) fn of(path: &Path) -> Self {
        let mut reserve = Self { database: path.to_owned(), file: false, log: false, unsupported: false };
        reserve.file = std::fs::metadata(reserve.beside("-reserve")).is_ok_and(|file| file.len() > 0);
        reserve.give_up();
        reserve
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.database.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }

    fn space(&self) -> Option<Space> {
        let directory = self.database.parent().filter(|parent| !parent.as_os_str().is_empty());
        let found = statvfs(directory.unwrap_or(Path::new("."))).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    /// After how many pages the write-ahead log is to be checkpointed: SQLite's own thousand, and on a small disk half of
    /// what is reserved for the log.
    pub(super) fn checkpoint_pages(&self) -> u64 {
        const PAGE: u64 = 4096;
        self.space().map_or(1000, |space| (disk::reserve(space) / 2 / PAGE).clamp(16, 1000))
    }

    /// Takes what is missing of the reserve, where there is room for it.
    pub(super) fn keep(&mut self) {
        if self.unsupported || self.file && self.log {
            return;
        }
        // The log first: its part cannot be taken away by others.
        if !self.log {
            self.log = self.take("-wal", FallocateFlags::KEEP_SIZE);
        }
        if self.log && !self.file {
            self.file = self.take("-reserve", FallocateFlags::empty());
        }
    }

    fn take(&mut self, suffix: &str, flags: FallocateFlags) -> bool {
        let Some(space) = self.space() else { return false };
        let bytes = disk::reserve(space);
        if bytes == 0 || !disk::may_reserve(space, bytes) {
            return false;
        }
        // The log exists while a connection has the database open; nobody locks that file, so closing it here is harmless.
        let taken = OpenOptions::new()
            .write(true)
            .create(suffix == "-reserve")
            .truncate(false)
            .mode(0o600)
            .open(self.beside(suffix))
            .and_then(|file| Ok(fallocate(&file, flags, 0, bytes)?));
        match taken {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                self.unsupported = true;
                tracing::warn!("this file system reserves no space: on a full disk, ends wait until there is room");
                false
            }
            Err(error) => {
                tracing::debug!(%error, "the reserve is not whole; it is tried again");
                false
            }
        }
    }

    /// Gives the file up, if the disk is exhausted; answers whether that freed something.
    pub(super) fn give_up(&mut self) -> bool {
        if !self.file || !self.space().is_some_and(disk::is_exhausted) {
            return false;
        }
        // Shortened, not removed: that needs no new block anywhere.
        let freed = OpenOptions::new().write(true).truncate(true).open(self.beside("-reserve"));
        if let Err(error) = &freed {
            tracing::error!(%error, "the reserve cannot be given up");
            return false;
        }
        self.file = false;
        tracing::warn!("the disk is exhausted: the reserve is given up for renewals and ends");
        true
    }
}
