//! The data directory: whose it is, what is in it, and the room on its disk.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use leasehold_core::limits::{DISK_FREE_NEEDED, DISK_FREE_WANTED};

use super::{Finding, size};
use crate::data_directory::DataDirectory;
use crate::master_key::MasterKeyArgs;

/// The directory and the files in it: there, this user's, and closed to others.
pub(crate) fn files(data: &DataDirectory, master_key: &MasterKeyArgs) -> Vec<Finding> {
    let mut findings = vec![closed("data_directory", data.path(), 0o700)];
    findings.push(match master_key.check(data) {
        Ok(Some(file)) => closed("master_key", &file, 0o600),
        Ok(None) => Finding::ok("master_key", "in the environment"),
        Err(error) => Finding::problem(
            "master_key",
            error.to_string(),
            "put the key back that this data was made with, from where it was kept safe: without it no worker can be \
             let in and no certificate be made",
        ),
    });
    findings
}

fn closed(check: &'static str, path: &Path, mode: u32) -> Finding {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) => {
            return Finding::problem(
                check,
                format!("{}: {error}", path.display()),
                "run it as the user whose data it is",
            );
        }
    };
    let (own, other) = (rustix::process::geteuid().as_raw(), found.uid());
    let text = format!("{}, mode {:o}", path.display(), found.mode() & 0o777);
    if own != other {
        let advice = format!("run the control plane and the doctor as its owner, or `chown {own} {}`", path.display());
        return Finding::warning(check, format!("{text}, belongs to user {other}, this is user {own}"), advice);
    }
    if found.mode() & 0o777 & !mode != 0 {
        let advice = format!("`chmod {mode:o} {}`", path.display());
        return Finding::problem(check, format!("{text}: others may look into it"), advice);
    }
    Finding::ok(check, text)
}

/// The disk of the data directory: local, and with room.
pub(crate) fn room(path: &Path, network: std::io::Result<Option<&'static str>>) -> Vec<Finding> {
    let file_system = match network {
        Ok(None) => Finding::ok("file_system", "local"),
        Ok(Some(kind)) => Finding::problem(
            "file_system",
            format!("{kind}, a network file system"),
            "move the data directory to a local disk: locks do not hold across machines there",
        ),
        Err(error) => Finding::warning("file_system", error.to_string(), "see that the disk answers"),
    };
    let free = match rustix::fs::statvfs(path) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            return vec![file_system, Finding::warning("disk_space", error.to_string(), "see that the disk answers")];
        }
    };
    let text = format!("{} free", size(free));
    let space = if free < DISK_FREE_NEEDED {
        let advice = "make room now: a control plane that cannot write admits nothing and tells no end";
        Finding::problem("disk_space", text, advice)
    } else if free < DISK_FREE_WANTED {
        Finding::warning("disk_space", text, "make room, or move the data directory to a larger disk")
    } else {
        Finding::ok("disk_space", text)
    };
    vec![file_system, space]
}
