//! The only place of the worker that links, renames or syncs a file.
//!
//! Everything goes through the descriptor of one private directory ([`Dir`], 0700, our own), never through a path:
//! a directory that is moved or replaced is noticed, not followed. Five ways to write, each named for what survives:
//!
//! - [`Dir::publish`]: a first version; never replaces, survives a power cut once it returned.
//! - [`Dir::replace`]: a new version of a file; the old one or the new one is there afterwards, never a mixture, and the
//!   new one once it returned. [`Dir::update`] spares the directory's sync: a power cut may fall back to the old one.
//! - [`Dir::latch`]: a one-way latch within this boot; exactly one side ever creates the name. Not synced.
//! - [`Dir::prepare`] and [`Prepared::commit`]: a file whose space is reserved before it is needed.
//!
//! A file is named by its kind, and only the ways declared for the kind compile. Every step has a fault point on both
//! sides (see [`crate::fault`]), so that a test can kill the process or spoil the disk there.
//! (Worker design, *Inbox* and *The decidable spawn barrier*.)

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::fault::around;
use crate::fault::steps::{
    FOLDER_MAKE, Latched as LatchedFile, Prepared as PreparedFile, Published, Quarantined, Removed, Replaced, Updated,
    act, step_of_file,
};

const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIR: Mode = Mode::RWXU;
/// What [`Dir::let_through`] adds.
const LET_THROUGH: Mode = Mode::XGRP.union(Mode::XOTH);

/// Why a durable file or directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// The operating system refused.
    #[error("{name}: {source}")]
    Io {
        /// Which file or directory.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The name is taken; nothing was written.
    #[error("{0} exists already")]
    Exists(String),
    /// Somebody else's, readable by others, not a plain file, or too large.
    #[error("{name} is refused: {why}")]
    Unsafe {
        /// Which file or directory.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl DurableError {
    /// Whether the disk is what failed, and not what somebody left on it: the same may work later, without a person.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io { source, .. } if may_pass(source))
    }

    /// Whether a disk or a quota was full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// Whether a disk failed: full, broken, or read-only.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::ReadOnlyFilesystem];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

fn named<E: Into<io::Error>>(name: &str) -> impl FnOnce(E) -> DurableError {
    let name = name.to_owned();
    |source| DurableError::Io { name, source: source.into() }
}

/// Which side won a one-way latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latched {
    /// This call created the name.
    Won,
    /// The name was there already; nothing was changed.
    Taken,
}

/// A private directory of ours, held by its descriptor.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Creates the directory (0700) where it is missing, then opens it. Its parent must exist.
    pub fn create(path: &Path) -> Result<Self, DurableError> {
        let made = around(FOLDER_MAKE, || match fs::mkdir(path, PRIVATE_DIR) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(io::Error::from(errno)),
        });
        made.map_err(named(&path.display().to_string()))?;
        Self::open(path)
    }

    /// Makes what stands above `path` where it is missing, with the rights that this machine gives to directories.
    pub fn create_parents(path: &Path) -> Result<(), DurableError> {
        let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
        around(FOLDER_MAKE, || std::fs::create_dir_all(parent)).map_err(named(&parent.display().to_string()))
    }

    /// Opens an existing directory; refuses a symbolic link, another owner and any access for others but
    /// [`Dir::let_through`].
    pub fn open(path: &Path) -> Result<Self, DurableError> {
        let name = path.display().to_string();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = fs::open(path, flags, Mode::empty()).map_err(named(&name))?;
        let stat = fs::fstat(&fd).map_err(named(&name))?;
        // To search a directory shows nothing of it: whoever is let through must know the name of what is meant for him.
        private(&name, stat.st_uid, stat.st_mode, LET_THROUGH)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Lets other users reach what is theirs below it, by name: they may search it, and neither list nor change it.
    pub fn let_through(&self) -> io::Result<()> {
        Ok(fs::fchmod(&self.fd, PRIVATE_DIR.union(LET_THROUGH))?)
    }

    /// Where it was opened; for messages and for what needs a path (a job's working directory).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A second hold on the same open directory.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Writes `name` for the first time: temporary file, fsync, link without replacing, fsync of the directory.
    pub fn publish<F: Published>(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        match self.link_new(F::WHAT, name, &format!("{name}.new"), bytes, true) {
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                Err(DurableError::Exists(name.to_owned()))
            }
            linked => linked.and_then(|()| self.sync_names(F::WHAT, act::SYNC_DIR)),
        }
    }

    /// Makes the name of a file that was published survive a power cut, where [`Dir::publish`] broke off before that.
    pub fn publish_again<F: Published>(&self) -> Result<(), DurableError> {
        self.sync_names(F::WHAT, act::SYNC_DIR)
    }

    /// Writes the next version of `name`: temporary file, fsync, rename, fsync of the directory.
    pub fn replace<F: Replaced>(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        self.rename_new(F::WHAT, name, bytes)?;
        self.sync_names(F::WHAT, act::SYNC_DIR)
    }

    /// Writes the next version of `name`: temporary file, fsync, rename.
    pub fn update<F: Updated>(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        self.rename_new(F::WHAT, name, bytes)
    }

    /// Creates `name` with `bytes` unless it exists: of all callers in this boot exactly one wins. The name appears
    /// with its whole content. `side` keeps the temporary files of two racing sides apart. Not synced: a latch
    /// decides within a boot, where the page cache is the truth.
    pub fn latch<F: LatchedFile>(&self, name: &str, side: &str, bytes: &[u8]) -> Result<Latched, DurableError> {
        match self.link_new(F::WHAT, name, &format!("{name}.{side}"), bytes, false) {
            Ok(()) => Ok(Latched::Won),
            Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(Latched::Taken),
            Err(error) => Err(error),
        }
    }

    /// Reserves `size` bytes for a file that will become `name`, so that a disk that fills up cannot stop it.
    pub fn prepare<F: PreparedFile>(&self, name: &str, size: usize) -> Result<Prepared, DurableError> {
        let (what, temporary) = (F::WHAT, format!("{name}.new"));
        let file = self.create_temporary(what, &temporary)?;
        at(what, act::RESERVE, name, || {
            let length = u64::try_from(size).unwrap_or(u64::MAX);
            match fs::fallocate(&file, FallocateFlags::empty(), 0, length) {
                // Not every file system reserves; written zeros take the space as well.
                Err(Errno::OPNOTSUPP) => file.write_all_at(&vec![0; size], 0),
                reserved => reserved.map_err(io::Error::from),
            }
        })?;
        Ok(Prepared { file, what, temporary, name: name.to_owned(), size })
    }

    /// Reads a whole file of ours, `None` if there is none. Refuses a link, another owner, access for others and
    /// more than `limit` bytes.
    pub fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>, DurableError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            // A link, a socket, somebody else's: not a disk that fails.
            Err(errno @ (Errno::LOOP | Errno::NXIO | Errno::ACCESS)) => {
                let why = io::Error::from(errno).to_string();
                return Err(DurableError::Unsafe { name: name.to_owned(), why });
            }
            Err(errno) => return Err(named(name)(errno)),
        };
        let stat = fs::fstat(&file).map_err(named(name))?;
        private(name, stat.st_uid, stat.st_mode, Mode::empty())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(DurableError::Unsafe { name: name.to_owned(), why: "not a plain file".to_owned() });
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        (&mut file).take(most).read_to_end(&mut bytes).map_err(named(name))?;
        if bytes.len() > limit {
            return Err(DurableError::Unsafe { name: name.to_owned(), why: format!("larger than {limit} bytes") });
        }
        Ok(Some(bytes))
    }

    /// Whether `name` exists, whatever it is.
    pub fn exists(&self, name: &str) -> Result<bool, DurableError> {
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(named(name)(errno)),
        }
    }

    /// The names in the directory, in order.
    pub fn names(&self) -> Result<Vec<String>, DurableError> {
        let here = || self.path.display().to_string();
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(named(&here()))? {
            let entry = entry.map_err(named(&here()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes a file; a missing one is removed already.
    pub fn remove<F: Removed>(&self, name: &str) -> Result<(), DurableError> {
        at(F::WHAT, act::REMOVE, name, || match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        })
    }

    /// Moves a file that cannot be trusted into `quarantine`, under its name or the first free `name.N`.
    /// Answers the name it has there.
    pub fn quarantine<F: Quarantined>(&self, name: &str, quarantine: &Self) -> Result<String, DurableError> {
        for n in 0..u32::MAX {
            let target = if n == 0 { name.to_owned() } else { format!("{name}.{n}") };
            let moved = at(F::WHAT, act::QUARANTINE, name, || {
                let flags = fs::RenameFlags::NOREPLACE;
                fs::renameat_with(&self.fd, name, &quarantine.fd, &target, flags).map_err(io::Error::from)
            });
            match moved {
                Ok(()) => return quarantine.sync_names(F::WHAT, act::QUARANTINE_SYNC).map(|()| target),
                Err(DurableError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(DurableError::Exists(name.to_owned()))
    }

    fn sync_names(&self, what: &'static str, act: &'static str) -> Result<(), DurableError> {
        at(what, act, &self.path.display().to_string(), || fs::fsync(&self.fd).map_err(io::Error::from))
    }

    fn create_temporary(&self, what: &'static str, temporary: &str) -> Result<File, DurableError> {
        // What a crash left under this name was never published. An empty directory of somebody's holds nothing.
        if fs::unlinkat(&self.fd, temporary, AtFlags::empty()) == Err(Errno::ISDIR) {
            let _ = fs::unlinkat(&self.fd, temporary, AtFlags::REMOVEDIR);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at(what, act::CREATE, temporary, || {
            fs::openat(&self.fd, temporary, flags, PRIVATE_FILE).map(File::from).map_err(io::Error::from)
        })
    }

    fn write_temporary(&self, what: &'static str, name: &str, bytes: &[u8], sync: bool) -> Result<(), DurableError> {
        let mut file = self.create_temporary(what, name)?;
        at(what, act::WRITE, name, || file.write_all(bytes))?;
        if sync {
            at(what, act::SYNC, name, || file.sync_all())?;
        }
        Ok(())
    }

    /// Writes `temporary` and links it to `name`. The temporary name has no meaning afterwards, whatever came of it.
    fn link_new(
        &self,
        what: &'static str,
        name: &str,
        temporary: &str,
        bytes: &[u8],
        sync: bool,
    ) -> Result<(), DurableError> {
        let linked = self.write_temporary(what, temporary, bytes, sync).and_then(|()| {
            at(what, act::LINK, name, || {
                fs::linkat(&self.fd, temporary, &self.fd, name, AtFlags::empty()).map_err(io::Error::from)
            })
        });
        let _ = fs::unlinkat(&self.fd, temporary, AtFlags::empty());
        linked
    }

    /// Writes a temporary file and renames it to `name`. What could not become that is not left behind.
    fn rename_new(&self, what: &'static str, name: &str, bytes: &[u8]) -> Result<(), DurableError> {
        let temporary = format!("{name}.new");
        let renamed =
            self.write_temporary(what, &temporary, bytes, true).and_then(|()| self.rename(what, &temporary, name));
        if renamed.is_err() {
            let _ = fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
        }
        renamed
    }

    fn rename(&self, what: &'static str, from: &str, to: &str) -> Result<(), DurableError> {
        at(what, act::RENAME, to, || fs::renameat(&self.fd, from, &self.fd, to).map_err(io::Error::from))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A file whose space is reserved and that has no name yet.
#[derive(Debug)]
pub struct Prepared {
    file: File,
    what: &'static str,
    temporary: String,
    name: String,
    size: usize,
}

impl Prepared {
    /// Fills the file and gives it its name: write, fsync, rename, fsync of the directory. May be tried again.
    pub fn commit(&self, dir: &Dir, bytes: &[u8]) -> Result<(), DurableError> {
        if bytes.len() > self.size {
            let why = format!("{} bytes in {} reserved ones", bytes.len(), self.size);
            return Err(DurableError::Unsafe { name: self.name.clone(), why });
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        at(self.what, act::WRITE, &self.name, || {
            self.file.write_all_at(bytes, 0)?;
            self.file.set_len(length)
        })?;
        at(self.what, act::SYNC, &self.name, || self.file.sync_all())?;
        // A second try after a sync that failed finds the new name in place already.
        if dir.exists(&self.temporary)? || !dir.exists(&self.name)? {
            dir.rename(self.what, &self.temporary, &self.name)?;
        }
        dir.sync_names(self.what, act::SYNC_DIR)
    }
}

/// Refuses what others own, and any access for others but `allowed`.
fn private(name: &str, owner: u32, mode: u32, allowed: Mode) -> Result<(), DurableError> {
    let us = rustix::process::geteuid().as_raw();
    let why = if owner != us {
        format!("owned by uid {owner}, not by {us}: run this as the user that the worker runs as")
    } else if mode & 0o077 & !allowed.as_raw_mode() != 0 {
        let right = mode & 0o7700;
        format!("mode {:04o} gives others access: if nobody used it, `chmod {right:04o}` it", mode & 0o7777)
    } else {
        return Ok(());
    };
    Err(DurableError::Unsafe { name: name.to_owned(), why })
}

fn at<T>(
    what: &'static str,
    act: &'static str,
    name: &str,
    step: impl FnOnce() -> io::Result<T>,
) -> Result<T, DurableError> {
    around(step_of_file(what, act), step).map_err(named(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::fault::passed::steps_of;
    use crate::fault::steps::{Way, file};

    fn dir() -> (tempfile::TempDir, Dir) {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::create(&parent.path().join("state")).unwrap();
        (parent, dir)
    }

    #[test]
    fn a_first_version_is_never_replaced() {
        let (_parent, dir) = dir();
        dir.publish::<file::Record>("a", b"one").unwrap();
        assert!(matches!(dir.publish::<file::Record>("a", b"two"), Err(DurableError::Exists(_))));
        assert_eq!(dir.read("a", 10).unwrap().unwrap(), b"one");
        assert_eq!(dir.names().unwrap(), ["a"], "no temporary file is left");
    }

    #[test]
    fn an_update_replaces_and_leaves_no_other_name() {
        let (_parent, dir) = dir();
        dir.publish::<file::Record>("a", b"one").unwrap();
        dir.update::<file::Record>("a", b"two").unwrap();
        dir.replace::<file::Session>("a", b"three").unwrap();
        assert_eq!(dir.read("a", 10).unwrap().unwrap(), b"three");
        assert_eq!(dir.names().unwrap(), ["a"]);
    }

    #[test]
    fn of_many_racing_sides_exactly_one_wins_a_latch() {
        let (_parent, dir) = dir();
        let won: usize = std::thread::scope(|scope| {
            let sides: Vec<_> = (0..8)
                .map(|side| {
                    let dir = &dir;
                    scope.spawn(move || {
                        let side = format!("side-{side}");
                        usize::from(dir.latch::<file::Barrier>("b", &side, side.as_bytes()).unwrap() == Latched::Won)
                    })
                })
                .collect();
            sides.into_iter().map(|side| side.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
        assert_eq!(dir.names().unwrap(), ["b"]);
        assert!(dir.read("b", 10).unwrap().unwrap().starts_with(b"side-"));
    }

    #[test]
    fn a_prepared_file_appears_only_when_committed() {
        let (_parent, dir) = dir();
        let prepared = dir.prepare::<file::Receipt>("r", 4096).unwrap();
        assert_eq!(dir.read("r", 10).unwrap(), None);
        prepared.commit(&dir, b"done").unwrap();
        prepared.commit(&dir, b"done").unwrap();
        assert_eq!(dir.read("r", 10).unwrap().unwrap(), b"done");
        assert!(matches!(prepared.commit(&dir, &[0; 4097]), Err(DurableError::Unsafe { .. })));
    }

    #[test]
    fn what_others_could_have_written_is_refused() {
        let (parent, dir) = dir();
        dir.publish::<file::Record>("a", b"one").unwrap();
        let path = dir.path().join("a");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(dir.read("a", 10), Err(DurableError::Unsafe { .. })));
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert!(matches!(dir.read("link", 10), Err(DurableError::Unsafe { .. })));
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::set_permissions(dir.path().join("d"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(dir.read("d", 10), Err(DurableError::Unsafe { .. })));
        dir.publish::<file::Record>("large", b"12345").unwrap();
        assert!(matches!(dir.read("large", 4), Err(DurableError::Unsafe { .. })));
        dir.let_through().unwrap();
        Dir::open(&parent.path().join("state")).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(Dir::open(&parent.path().join("state")), Err(DurableError::Unsafe { .. })));
    }

    #[test]
    fn quarantine_keeps_what_is_there() {
        let (parent, dir) = dir();
        let quarantine = Dir::create(&parent.path().join("quarantine")).unwrap();
        for (content, name) in [("one", "a"), ("two", "a.1")] {
            dir.publish::<file::Record>("a", content.as_bytes()).unwrap();
            assert_eq!(dir.quarantine::<file::Record>("a", &quarantine).unwrap(), name);
            assert_eq!(quarantine.read(name, 10).unwrap().unwrap(), content.as_bytes());
        }
        assert_eq!(dir.names().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn every_way_passes_exactly_the_points_that_are_declared_for_it() {
        let (parent, dir) = dir();
        let quarantine = Dir::create(&parent.path().join("quarantine")).unwrap();
        let check = |what: &str, way: Way, passed: Vec<String>| {
            let declared: Vec<String> = way.acts().iter().map(|act| format!("{what}.{act}")).collect();
            assert_eq!(passed, declared, "{way:?}");
        };
        check("record", Way::Published, steps_of(|| dir.publish::<file::Record>("a", b"1").unwrap()));
        check("record", Way::Updated, steps_of(|| dir.update::<file::Record>("a", b"2").unwrap()));
        check("record", Way::Quarantined, steps_of(|| dir.quarantine::<file::Record>("a", &quarantine).unwrap()));
        check("record", Way::Removed, steps_of(|| dir.remove::<file::Record>("a").unwrap()));
        check("session", Way::Replaced, steps_of(|| dir.replace::<file::Session>("s", b"1").unwrap()));
        check("barrier", Way::Latched, steps_of(|| dir.latch::<file::Barrier>("b", "side", b"1").unwrap()));
        let prepare = || dir.prepare::<file::Receipt>("r", 8).unwrap().commit(&dir, b"1").unwrap();
        check("receipt", Way::Prepared, steps_of(prepare));
        assert_eq!(steps_of(|| Dir::create(&parent.path().join("more")).unwrap()), ["folder.make"]);
    }
}
