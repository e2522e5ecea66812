//! A disk of a few mebibytes that a test can fill, empty and make read-only. Needs root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::eventually::eventually;

/// A small file system in memory, mounted at a directory. Gone when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

/// What fills it.
const FILLER: &str = "filler";

/// What shows that there is room.
const PROBE: &str = "probe";

impl SmallDisk {
    /// Makes the directory `at` (0700) and mounts a disk of `mebibytes` there.
    pub fn mount(at: &Path, mebibytes: u32) -> Result<Self> {
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let options = format!("size={mebibytes}m,mode=700");
        mount(&["-t", "tmpfs", "-o", &options, "tmpfs", &at.display().to_string()])?;
        Ok(Self { at: at.to_owned() })
    }

    /// Fills it to the last byte.
    pub fn fill(&self) -> Result<()> {
        let mut filler = std::fs::File::create(self.at.join(FILLER))?;
        // Whole blocks first, then what is left of the last ones.
        for size in [64 * 1024, 4096, 1] {
            let block = vec![7; size];
            while filler.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    /// Makes room again, and waits for it: the kernel may count freed blocks late.
    pub fn empty(&self) -> Result<()> {
        std::fs::remove_file(self.at.join(FILLER)).context("it was full")?;
        let probe = self.at.join(PROBE);
        eventually("room on the small disk", || std::fs::write(&probe, [7; 4096]).map_err(|error| error.to_string()))?;
        std::fs::remove_file(probe).context("the probe was written")
    }

    /// Nothing can be written any more. Possible while no file of it is open for writing.
    pub fn make_read_only(&self) -> Result<()> {
        mount(&["-o", "remount,ro", &self.at.display().to_string()])
    }

    /// It can be written again.
    pub fn make_writable(&self) -> Result<()> {
        mount(&["-o", "remount,rw", &self.at.display().to_string()])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what still runs on it, when a test fails, keeps it until then.
        let status = Command::new("umount").arg("--lazy").arg(&self.at).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("cannot unmount {}", self.at.display());
        }
    }
}

fn mount(arguments: &[&str]) -> Result<()> {
    let output = Command::new("mount").args(arguments).output().context("cannot start `mount`")?;
    if !output.status.success() {
        bail!("`mount {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::is_root_or_skip;

    #[test]
    fn a_small_disk_is_filled_emptied_and_made_read_only() {
        if !is_root_or_skip("a_small_disk_is_filled_emptied_and_made_read_only") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let disk = SmallDisk::mount(&parent.path().join("disk"), 1).unwrap();
        let file = parent.path().join("disk/file");
        disk.fill().unwrap();
        assert!(std::fs::write(&file, b"more").is_err());
        disk.empty().unwrap();
        std::fs::write(&file, b"more").unwrap();
        disk.make_read_only().unwrap();
        assert!(std::fs::write(&file, b"more").is_err());
        disk.make_writable().unwrap();
        std::fs::write(&file, b"more").unwrap();
    }
}
