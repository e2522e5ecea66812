//! The path of a Unix socket has at most 107 bytes. The same socket's name in its open directory is always short, so that a
//! data directory may lie as deep as a person wants.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The longest path of a socket on Linux, its terminating zero aside.
const LONGEST: usize = 107;

/// A path by which the kernel finds the socket at a path of any length, for as long as this lives.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl ShortPath {
    /// That of the socket at `path`, which need not be there yet; its directory is.
    pub fn of(path: &Path) -> io::Result<Self> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if path.as_os_str().len() > LONGEST => {
                let directory = File::open(parent)?;
                let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
                Ok(Self { path, _directory: Some(directory) })
            }
            _ => Ok(Self { path: path.to_owned(), _directory: None }),
        }
    }
}

impl AsRef<Path> for ShortPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}
