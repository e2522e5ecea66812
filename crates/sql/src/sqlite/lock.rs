//! One control plane per database: a lock file of its own beside it, and file systems on which locks can be trusted.
//!
//! The lock is the kernel's (flock), so it ends with its process; the file only names the holder.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::open::OpenError;

/// The lock of a database, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the database at `path`, or says who holds it.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
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
        Ok(Self { _file: file })
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Refuses a file system that is shared over a network: neither its locks nor its shared memory reach across machines.
pub(super) fn refuse_network(directory: &Path) -> Result<(), OpenError> {
    let refused = |source| OpenError::Unusable { path: directory.to_owned(), source };
    let found = rustix::fs::statfs(directory).map_err(|errno| refused(errno.into()))?;
    // The width of the magic number differs between platforms; 32 bits of it count.
    let magic = u32::try_from(i128::from(found.f_type) & 0xffff_ffff).unwrap_or_default();
    match network_kind(magic) {
        Some(kind) => Err(OpenError::Network { path: directory.to_owned(), kind }),
        None => Ok(()),
    }
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
