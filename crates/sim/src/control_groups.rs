//! Where a worker makes control groups, found as a person would find it; and what a killed one leaves there, removed.
//!
//! A worker removes its own place when it leaves in an orderly way; one that a test kills does not, and never starts
//! again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use leasehold_core::crypto::{Digest, Domain};

use crate::eventually::eventually;

/// The places that are there now of the worker `name` whose state directory is `state`. None without an identity.
pub fn homes(name: &str, state: &Path) -> Vec<PathBuf> {
    let Some(domain) = trust_domain(state) else { return Vec::new() };
    let digest = Digest::of(Domain::Body, domain.as_bytes()).to_string();
    let home = format!("leasehold-{name}-{}", digest.get(..8).unwrap_or_default());
    let own = own_group();
    // Its agents are in this process's group; one called `agent` stands beside its home.
    let bases = [Some(own.as_path()), own.parent()].into_iter().flatten();
    bases.map(|base| base.join(&home)).filter(|home| home.is_dir()).collect()
}

fn trust_domain(state: &Path) -> Option<String> {
    let identity: serde_json::Value = serde_json::from_slice(&fs::read(state.join("identity.json")).ok()?).ok()?;
    identity["trust_domain"].as_str().map(str::to_owned)
}

/// This process's directory in the tree of version 2; one that does not exist where there is none.
fn own_group() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        before.split(' ').nth(4).filter(|_| after.starts_with("cgroup2 "))
    });
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    match (point, own) {
        (Some(point), Some(own)) => Path::new(point).join(own),
        _ => PathBuf::from("/nonexistent"),
    }
}

/// Kills what lives in a worker's place and removes it.
pub fn clear(home: &Path) -> Result<()> {
    eventually(&format!("{} to be removed", home.display()), || {
        // Missing where the kernel is older than 5.14.
        let _ = fs::write(home.join("cgroup.kill"), "1");
        remove(home);
        if home.is_dir() { Err("something lives in it".to_owned()) } else { Ok(()) }
    })
}

fn remove(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    // Refused while a process lives in it: looked at again.
    let _ = fs::remove_dir(group);
}
