//! The walls of the architecture: what each crate may depend on, name and do.
//!
//! Every rule is a pure function over text that the caller read, and each has a test that shows it catching a
//! violation: a wall that cannot fail is none. The rules themselves stand in `ARCHITECTURE.md`.

mod arrows;
mod documents;
mod repository;
mod rules;
mod worker_tree;

use std::fmt;

use anyhow::{Result, bail};
use cargo_metadata::MetadataCommand;

use crate::checkout::{self, root};

/// A broken rule: where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// A path, with its line where there is one, or the name of a package.
    place: String,
    sentence: String,
}

impl Violation {
    fn new(place: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { place: place.into(), sentence: sentence.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.sentence)
    }
}

/// Checks every wall and names every violation.
pub(crate) fn check() -> Result<()> {
    let files = checkout::text_files()?;
    let metadata =
        MetadataCommand::new().current_dir(root()).no_deps().other_options(vec!["--locked".to_owned()]).exec()?;
    let crates = arrows::crates(&metadata);

    let mut violations = arrows::violations(&crates);
    violations.extend(worker_tree::violations(&worker_tree::read()?));
    violations.extend(rules::violations(&files));
    violations.extend(repository::violations(&files));
    violations.extend(documents::violations(&files));
    violations.sort();
    violations.dedup();

    if violations.is_empty() {
        println!("{} crates and {} files keep within the walls", crates.len(), files.len());
        return Ok(());
    }
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    bail!("{} violations:\n{}", lines.len(), lines.join("\n"))
}
