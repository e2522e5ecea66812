//! Where PostgreSQL's programs are on this machine, and whom they run as.
//!
//! They refuse to run as root, so root runs them as `postgres`, or as `nobody` where there is no such user.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Result, TestServerError};

/// Names the directory of the programs, where they are neither on the path nor where packages put them.
const BIN: &str = "LEASEHOLD_TEST_POSTGRES_BIN";

/// Installed programs.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    directory: PathBuf,
    /// Whom root runs them as.
    user: Option<(u32, u32)>,
}

impl Programs {
    /// Those of `LEASEHOLD_TEST_POSTGRES_BIN`, else those on the path, else the newest that a package has installed.
    #[expect(clippy::disallowed_methods, reason = "tests are told by the environment which server to run")]
    pub(super) fn find() -> Result<Self> {
        let directory = if let Some(named) = std::env::var_os(BIN).map(PathBuf::from) {
            if !is_whole(&named) {
                return Err(TestServerError(format!("no initdb, pg_ctl and postgres in {}", named.display())));
            }
            named
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path).find(|directory| is_whole(directory));
            let found = found.or_else(newest_of_packages);
            found.ok_or_else(|| TestServerError("PostgreSQL is not installed".to_owned()))?
        };
        // Links on the path stand apart from the programs' own files.
        let postgres = directory.join("postgres").canonicalize()?;
        let directory = postgres.parent().map_or(directory, Path::to_owned);
        Ok(Self { directory, user: unprivileged()? })
    }

    /// One of the programs, to be run in `directory`, with nothing inherited that could point it elsewhere.
    pub(super) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.directory.join(program));
        command.current_dir(directory).env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
        if let Some((uid, gid)) = self.user {
            // Root's own groups go with it.
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Whether there is this program.
    pub(super) fn has(&self, program: &str) -> bool {
        self.directory.join(program).is_file()
    }

    /// Gives a directory to the user of the server.
    pub(super) fn give(&self, path: &Path) -> Result<()> {
        if let Some((uid, gid)) = self.user {
            chown(path, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

fn is_whole(directory: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|program| directory.join(program).is_file())
}

/// Debian and its kin keep a directory per major version and put none of them on the path.
fn newest_of_packages() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    let (_, newest) = numbered.filter(|(_, path)| is_whole(&path.join("bin"))).max()?;
    Some(newest.join("bin"))
}

/// Whom to run the programs as: nobody else, for an ordinary user.
fn unprivileged() -> Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let ids = |name: &str| {
        let line = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut ids = line.split(':').skip(1);
        Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
    };
    let found = ids("postgres").or_else(|| ids("nobody"));
    found.map(Some).ok_or_else(|| TestServerError("there is neither a user postgres nor a user nobody".to_owned()))
}
