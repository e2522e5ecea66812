//! `cargo xtask alone`: each package compiles by itself, with its tests, from what its own manifest asks for.
//!
//! CI builds the workspace at once, where a feature that one package asks for is there for all of them: what a package
//! forgets to ask for shows only here. It compiles shared libraries once for each set of features, so CI leaves it out.

use anyhow::Result;

use crate::checkout::{cargo, root, run as run_command};

/// Checks one package after the other.
pub(crate) fn run() -> Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    for package in metadata.workspace_packages() {
        println!("{}", package.name);
        run_command(cargo().args(["check", "--locked", "--quiet", "--all-targets", "--package", &package.name]))?;
    }
    Ok(())
}
