//! The checkout these commands work on: where it is, which files it holds, and how a program is run in it.
//!
//! Files come from git (tracked, or new and not ignored), so that build output is never judged.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace this binary was built from.
pub(crate) fn root() -> &'static Path {
    // The manifest directory is `<root>/xtask`, so the parent always exists.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo puts what it builds, wherever the person has sent it.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// A `cargo` command at the root of the workspace: the one that runs us, or the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.current_dir(root());
    command
}

/// The same command where it takes only what others leave of the processors.
pub(crate) fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice
}

/// Runs a command with our own streams and fails with its text when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", text_of(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", text_of(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", text_of(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}:\n{}", text_of(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed bytes that are not UTF-8", text_of(command)))
}

fn text_of(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    format!("`{text}`")
}

/// One text file of the repository, its path relative to the root with `/` between parts.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every text file of the repository.
pub(crate) fn text_files() -> Result<Vec<TextFile>> {
    let listing = output_of(
        Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root()),
    )?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let absolute: PathBuf = root().join(path);
        // A tracked file that was just deleted is listed too.
        let Ok(bytes) = std::fs::read(&absolute) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    if files.is_empty() {
        bail!("git lists no file under {}", root().display());
    }
    Ok(files)
}
