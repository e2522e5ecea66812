//! How much memory a process holds, as the kernel counts it.

use anyhow::{Context, Result};

/// Resident and private dirty memory, in KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    resident: u64,
    private_dirty: u64,
}

impl Memory {
    /// Of the process `pid`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let file = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let field = |name: &str| {
            let line =
                text.lines().find(|line| line.starts_with(name)).with_context(|| format!("{file} has no {name}"))?;
            line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).with_context(|| format!("{file}: {line}"))
        };
        Ok(Self { resident: field("Rss:")?, private_dirty: field("Private_Dirty:")? })
    }

    /// The most that the process `pid` had resident since [`forget_peak`], in KiB.
    pub(crate) fn peak(pid: u32) -> Result<u64> {
        let file = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.with_context(|| format!("{file} has no VmHWM"))
    }

    /// For people.
    pub(crate) fn text(self) -> String {
        format!("{} KiB ({} KiB)", self.resident, self.private_dirty)
    }
}

/// From now on the peak of the process `pid` is counted anew.
pub(crate) fn forget_peak(pid: u32) -> Result<()> {
    let file = format!("/proc/{pid}/clear_refs");
    std::fs::write(&file, "5").with_context(|| format!("cannot write {file}"))
}

/// The child of `parent` whose command line holds `word`.
pub(crate) fn child_of(parent: u32, word: &str) -> Result<u32> {
    let entries = std::fs::read_dir("/proc").context("cannot read /proc")?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word) && status.contains(&format!("\nPPid:\t{parent}\n"))
    };
    let mut found = pids.filter(is_it);
    found.next().with_context(|| format!("process {parent} has no child `{word}`"))
}
