//! One control plane per database: a lock file of its own beside it, and file systems on which locks can be trusted.
//!
//! The lock is the kernel's (flock), so it ends with its process; the file only names the holder.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::inspect::Holder;
use super::open::OpenError;

/// The lock of a database, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the database at `path`, or says who holds it.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let lock = beside(path);
        let refused = |source| OpenError::Unusable { path: lock.clone(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock).map_err(refused)?;
        if let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(refused(errno.into()));
            }
            let mut holder = String::new();
            // A holder that has not written its name yet is still a holder.
            let pid = file.read_to_string(&mut holder).ok().and_then(|_| holder.trim().parse().ok());
            return Err(OpenError::Held { path: path.to_owned(), pid });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(refused)?;
        writeln!(file, "{}", std::process::id()).map_err(refused)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    /// Closing would not be enough: a child that is about to execute something holds a copy of the descriptor until it does.
    fn drop(&mut self) {
        // What cannot be unlocked ends with the process.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Refuses a file system that is shared over a network: neither its locks nor its shared memory reach across machines.
pub(super) fn refuse_network(directory: &Path) -> Result<(), OpenError> {
    match network_of(directory) {
        Ok(Some(kind)) => Err(OpenError::Network { path: directory.to_owned(), kind }),
        Ok(None) => Ok(()),
        Err(source) => Err(OpenError::Unusable { path: directory.to_owned(), source }),
    }
}

/// The kind of network file system that a directory is on; none for a local one.
pub(super) fn network_of(directory: &Path) -> std::io::Result<Option<&'static str>> {
    let found = rustix::fs::statfs(directory)?;
    // The width of the magic number differs between platforms; 32 bits of it count.
    let magic = u32::try_from(i128::from(found.f_type) & 0xffff_ffff).unwrap_or_default();
    Ok(network_kind(magic))
}

/// Who holds the lock of the database at `path`, by the kernel's own list: asking takes no lock that anybody could meet.
pub(super) fn holder(path: &Path) -> std::io::Result<Holder> {
    let lock = match std::fs::metadata(beside(path)) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Holder::Nobody),
        Err(error) => return Err(error),
    };
    let (major, minor) = (rustix::fs::major(lock.dev()), rustix::fs::minor(lock.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", lock.ino());
    Ok(holder_in(&std::fs::read_to_string("/proc/locks")?, &file))
}

/// The holder of the file's `flock` in a list such as `1: FLOCK  ADVISORY  WRITE 7072 fe:00:12337166 0 EOF`. A process of
/// another namespace has no id here.
fn holder_in(locks: &str, file: &str) -> Holder {
    let of_file = |line: &str| -> Option<Option<u32>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let holds = words.get(1) == Some(&"FLOCK") && words.get(3) == Some(&"WRITE") && words.get(5) == Some(&file);
        holds.then(|| words.get(4).and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0))
    };
    locks.lines().find_map(of_file).map_or(Holder::Nobody, Holder::ControlPlane)
}

fn network_kind(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x564c => Some("NCP"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x0102_1997 => Some("9p"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x7461_636f => Some("OCFS2"),
        0x0116_1970 => Some("GFS2"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_told_by_the_kernels_list_and_asking_leaves_it_free() {
        let list = "1: FLOCK  ADVISORY  WRITE 7072 fe:00:12 0 EOF\n2: POSIX  ADVISORY  WRITE 9 fe:00:13 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 0 fe:00:14 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 8 fe:00:15 0 EOF\n";
        assert_eq!(holder_in(list, "fe:00:12"), Holder::ControlPlane(Some(7072)));
        assert_eq!(holder_in(list, "fe:00:14"), Holder::ControlPlane(None));
        for free in ["fe:00:13", "fe:00:15", "fe:00:1"] {
            assert_eq!(holder_in(list, free), Holder::Nobody, "{free}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        assert_eq!(holder(&path).unwrap(), Holder::Nobody);
        let lock = Lock::take(&path).unwrap();
        assert_eq!(holder(&path).unwrap(), Holder::ControlPlane(Some(std::process::id())));
        drop(lock);
        assert_eq!(holder(&path).unwrap(), Holder::Nobody);
        assert!(Lock::take(&path).is_ok());
    }

    #[test]
    fn a_dropped_lock_is_free_although_a_copy_of_its_descriptor_lives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let lock = Lock::take(&path).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(Lock::take(&path).is_ok());
        drop(copy);
    }

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        for magic in [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400] {
            assert!(network_kind(magic).is_some(), "{magic:#x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlayfs, zfs
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(network_kind(magic), None, "{magic:#x}");
        }
    }
}
