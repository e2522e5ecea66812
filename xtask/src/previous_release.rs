//! The binaries of the latest release, built from the commit that `docs/releases.md` names: what a rolling upgrade begins with.
//!
//! The commit is checked out beside what this build makes. What both lock files agree on is compiled once: only the place
//! where the binaries come out is another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::checkout::{cargo, output_of, root, run, target_directory, yielding};

const RELEASES: &str = "docs/releases.md";

/// A line of the table of releases.
#[derive(Debug, PartialEq, Eq)]
struct Release<'a> {
    version: &'a str,
    commit: &'a str,
}

/// The two binaries of the latest release.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) leasehold: PathBuf,
    pub(crate) worker: PathBuf,
}

/// Builds them, or finds them built.
pub(crate) fn build() -> Result<Binaries> {
    build_with(run)
}

/// Builds them beside something else, which goes first.
pub(crate) fn build_beside() -> Result<()> {
    build_with(|build| run(yielding(build).arg("--quiet"))).map(drop)
}

fn build_with(run: impl FnOnce(&mut Command) -> Result<()>) -> Result<Binaries> {
    let table = fs::read_to_string(root().join(RELEASES))?;
    let release = latest(&table).with_context(|| format!("{RELEASES} names no release"))?;
    let commit = resolved(&release)?;
    let target = target_directory()?;
    let home = target.join("previous-release");
    let tree = home.join(release.version);
    check_out(&tree, &commit)?;
    eprintln!("building release {} ({})", release.version, release.commit);
    let out = home.join("target");
    let mut build = cargo();
    build.args(["build", "--locked", "--bins", "--target-dir"]).arg(&out);
    // Built once, and nobody looks into it with a debugger: what the workspace's own crates need for that costs time.
    build.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    run(build.env("CARGO_BUILD_BUILD_DIR", &target).current_dir(&tree))?;
    let binary = |name: &str| out.join("debug").join(name);
    Ok(Binaries { leasehold: binary("leasehold"), worker: binary("leasehold-worker") })
}

/// The last line of the table of releases.
fn latest(table: &str) -> Option<Release<'_>> {
    let cells = table.lines().filter(|line| line.starts_with("| ")).map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        (cells.next(), cells.nth(1))
    });
    let mut releases = cells.filter_map(|(version, commit)| {
        let (version, commit) = (version?, commit?.trim_matches('`'));
        let is_release = version.starts_with(|first: char| first.is_ascii_digit());
        is_release.then_some(Release { version, commit })
    });
    releases.next_back()
}

/// The whole name of its commit.
fn resolved(release: &Release<'_>) -> Result<String> {
    let Release { version, commit } = release;
    let name = format!("{commit}^{{commit}}");
    let found = output_of(Command::new("git").args(["rev-parse", "--verify", "--quiet", &name]).current_dir(root()));
    let Ok(found) = found else {
        bail!(
            "this clone does not have commit {commit}, from which release {version} was built ({RELEASES}): fetch the whole \
             history (`git fetch --unshallow`)"
        );
    };
    Ok(found.trim().to_owned())
}

/// Puts the commit's files there; whatever else is there goes.
fn check_out(tree: &Path, commit: &str) -> Result<()> {
    if tree.exists() {
        let head = output_of(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(tree)).unwrap_or_default();
        if head.trim() == commit {
            return Ok(());
        }
        fs::remove_dir_all(tree)?;
    }
    // A worktree whose directory went with an earlier target directory is still known.
    run(Command::new("git").args(["worktree", "prune"]).current_dir(root()))?;
    let mut add = Command::new("git");
    add.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(tree).arg(commit);
    run(add.current_dir(root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_table_is_the_latest_release() {
        let table = "# Releases\n\n| version | date | commit | schema |\n| --- | --- | --- | --- |\n\
                     | 0.1.0 | 2026-11-30 | `aaa` | 1 |\n| 0.2.0 | 2026-12-30 | `bbb` | 3 |\n\nText.\n";
        assert_eq!(latest(table), Some(Release { version: "0.2.0", commit: "bbb" }));
        assert_eq!(latest("# Releases\n"), None);
    }

    #[test]
    fn the_releases_of_this_repository_name_one() {
        let table = fs::read_to_string(root().join(RELEASES)).unwrap();
        assert!(latest(&table).is_some(), "{table}");
    }

    #[test]
    fn a_commit_that_is_not_there_is_said_with_what_to_do() {
        let missing = Release { version: "9.9.9", commit: "0123456789abcdef0123456789abcdef01234567" };
        let said = resolved(&missing).unwrap_err().to_string();
        assert!(said.contains("9.9.9") && said.contains("--unshallow"), "{said}");
    }
}
