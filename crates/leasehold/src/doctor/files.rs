//! The data directory: whose it is, what it is, and the room on its disk.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use leasehold_core::limits::{DISK_FREE_NEEDED, DISK_FREE_WANTED};
use rustix::fs::Access;

use super::{Finding, size};
use crate::data_directory::DataDirectory;

/// Why nothing more can be looked at: this user may not look into the directory, no control plane ever had it, or it is that of
/// a replica whose database is not named. Where the database is `elsewhere`, a replica may have left nothing in it yet.
pub(crate) fn odd(data: &DataDirectory, elsewhere: bool) -> Option<Finding> {
    let may = rustix::fs::access(data.path(), Access::READ_OK | Access::EXEC_OK);
    let entries = may.map_err(std::io::Error::from).and_then(|()| fs::read_dir(data.path()));
    match entries {
        Err(error) => Some(unreadable(data.path(), &error)),
        Ok(_) if !elsewhere && data.is_of_a_replica() => {
            let path = data.path().display();
            Some(Finding::problem(
                "data_directory",
                format!("{path} is that of a replica on PostgreSQL, and no database is named"),
                "name the database as `leasehold serve` is told: --database, or LEASEHOLD_DATABASE_FILE",
            ))
        }
        Ok(_) if elsewhere || !data.is_untouched() => None,
        Ok(mut entries) => {
            let what = if entries.next().is_none() { "is empty" } else { "holds nothing of a control plane" };
            let path = data.path().display();
            let advice = format!(
                "name the data directory of a control plane with --data, or start one here with `leasehold serve --data {path}`"
            );
            Some(Finding::problem("data_directory", format!("{path} {what}"), advice))
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Finding {
    let detail = format!("{} cannot be looked into: {error}", path.display());
    let advice = match fs::symlink_metadata(path) {
        Ok(found) => format!("run the doctor as user {}, whose directory it is", found.uid()),
        Err(_) => "run the doctor as the user whose data it is".to_owned(),
    };
    Finding::problem("data_directory", detail, advice)
}

/// The directory: there, this user's, and closed to others.
pub(crate) fn directory(data: &DataDirectory) -> Finding {
    closed("data_directory", data.path(), 0o700)
}

/// Whether a file or directory is this user's, and has no mode beyond this one.
pub(super) fn closed(check: &'static str, path: &Path, mode: u32) -> Finding {
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
