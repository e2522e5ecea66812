//! Programs that a test writes and then has executed.
//!
//! Another process writes them: while this one held such a file open for writing, a child that another test starts would
//! keep it open until it executes, and the kernel would refuse to execute the file (*text file busy*).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Puts `content` under a name, executable by all.
///
/// # Errors
///
/// `install` cannot be started, or cannot write there.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().context("cannot start install")?;
    install.stdin.take().context("it has an input")?.write_all(content.as_ref())?;
    ensure!(install.wait()?.success(), "{} is not written", path.display());
    Ok(())
}
