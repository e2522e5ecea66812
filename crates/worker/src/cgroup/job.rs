//! The control group of one attempt: made before its process, joined by it before its exec, removed after it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use leasehold_core::revision::Cpu;

/// The period over which a share of processors is counted, in microseconds.
const PERIOD: u64 = 100_000;
/// For shares so small that the kernel would refuse their quota of the usual period.
const LONG_PERIOD: u64 = 1_000_000;
/// Below this many thousandths of a core the long period is used: the least quota is a millisecond.
const SMALL_MILLI: u64 = 10;
/// How deep groups that the job made itself are removed.
const DEPTH: usize = 8;

/// Bytes that a job may use, swap not counted: it gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit(pub u64);

/// One attempt's group, by its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobGroup {
    directory: PathBuf,
}

/// Writes to a file of the kernel's; never makes one.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

impl JobGroup {
    /// The group that has, had or will have this directory.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes it. One that an earlier launcher of the same attempt left is taken over: nobody got past the barrier.
    pub fn create(directory: PathBuf) -> io::Result<Self> {
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Self { directory }),
        }
    }

    /// All its processes together get so much memory, and no swap; where it is not enough, all of them are killed.
    pub fn limit_memory(&self, limit: MemoryLimit) -> io::Result<()> {
        self.write("memory.max", &limit.0.to_string())?;
        // Absent where the kernel accounts no swap.
        for (file, value) in [("memory.swap.max", "0"), ("memory.oom.group", "1")] {
            match self.write(file, value) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written?,
            }
        }
        Ok(())
    }

    /// All its processes together get so many processors.
    pub fn limit_cpu(&self, cpu: Cpu) -> io::Result<()> {
        let milli = u64::from(cpu.milli());
        let period = if milli < SMALL_MILLI { LONG_PERIOD } else { PERIOD };
        self.write("cpu.max", &format!("{} {period}", milli * period / 1000))
    }

    /// So many processes and threads may exist in it at once.
    pub fn limit_pids(&self, pids: u32) -> io::Result<()> {
        self.write("pids.max", &pids.to_string())
    }

    /// Moves the calling process, which has one thread, into it.
    pub fn join(&self) -> io::Result<()> {
        self.write("cgroup.procs", "0")
    }

    /// SIGKILL to every process in it, and to what they fork meanwhile.
    pub fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Whether a process is in it or below it; `None` where that cannot be asked. A group that is gone has none: the
    /// kernel removes no other.
    pub fn is_populated(&self) -> Option<bool> {
        match std::fs::read_to_string(self.directory.join("cgroup.events")) {
            Ok(text) => number(&text, "populated").map(|count| count > 0),
            Err(_) if !self.directory.exists() => Some(false),
            Err(_) => None,
        }
    }

    /// How many processes in it the kernel killed for lack of memory; `None` without the memory controller.
    pub fn oom_kills(&self) -> Option<u64> {
        number(&std::fs::read_to_string(self.directory.join("memory.events")).ok()?, "oom_kill")
    }

    /// The most memory that it used at once, in KiB; `None` without the memory controller, or before Linux 5.19.
    pub fn peak_kib(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.directory.join("memory.peak")).ok()?;
        Some(text.trim().parse::<u64>().ok()?.div_ceil(1024))
    }

    /// Removes it with the groups that its job made. One that a process lives in stays.
    pub fn remove(&self) {
        remove(&self.directory, DEPTH);
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.directory.join(file), text)
    }
}

fn remove(directory: &Path, depth: usize) {
    if std::fs::remove_dir(directory).is_ok() || depth == 0 {
        return;
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path(), depth - 1);
    }
    let _ = std::fs::remove_dir(directory);
}

/// The value of one line of a flat keyed file.
fn number(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files that a test names: a tree that only looks like one of the kernel's.
    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, JobGroup) {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files {
            std::fs::write(directory.path().join(file), text).unwrap();
        }
        let group = JobGroup::create(directory.path().to_owned()).unwrap();
        (directory, group)
    }

    fn read(directory: &tempfile::TempDir, file: &str) -> String {
        std::fs::read_to_string(directory.path().join(file)).unwrap()
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let files = ["memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max"];
        let (directory, group) = fake(&files.map(|file| (file, "")));
        group.limit_memory(MemoryLimit(64 << 20)).unwrap();
        group.limit_cpu("1.5".parse().unwrap()).unwrap();
        group.limit_pids(9).unwrap();
        assert_eq!(
            files.map(|file| read(&directory, file)),
            ["67108864", "0", "1", "150000 100000", "9"].map(str::to_owned)
        );
        group.limit_cpu("0.001".parse().unwrap()).unwrap();
        assert!(read(&directory, "cpu.max").starts_with("1000 1000000"), "the kernel's least quota is a millisecond");
    }

    #[test]
    fn a_limit_whose_controller_is_missing_is_an_error_and_missing_swap_accounting_is_none() {
        let (directory, group) = fake(&[("memory.max", "")]);
        group.limit_memory(MemoryLimit(4096)).unwrap();
        assert_eq!(read(&directory, "memory.max"), "4096");
        assert!(group.limit_cpu("1".parse().unwrap()).is_err());
        assert!(group.limit_pids(1).is_err());
        assert!(!directory.path().join("pids.max").exists(), "no file is ever made");
    }

    #[test]
    fn what_it_says_about_its_job_is_read() {
        let (_kept, group) = fake(&[
            ("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"),
            ("memory.peak", "67108865\n"),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
        ]);
        assert_eq!((group.oom_kills(), group.peak_kib(), group.is_populated()), (Some(2), Some(65537), Some(true)));
        let (directory, without) = fake(&[]);
        assert_eq!((without.oom_kills(), without.peak_kib(), without.is_populated()), (None, None, None));
        drop(directory);
        assert_eq!(without.is_populated(), Some(false), "a group that is gone has no process");
    }

    #[test]
    fn it_goes_with_the_groups_that_its_job_made() {
        let (directory, group) = fake(&[]);
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::create_dir_all(directory.path().join("c")).unwrap();
        group.remove();
        assert!(!directory.path().exists());
    }
}
