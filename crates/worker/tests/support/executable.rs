//! Programs that a test writes and then runs.
//!
//! Another process writes them: while this one held such a file open for writing, a thread that forks would hand that on
//! to its child, and until the child executes, the kernel refuses to execute the file (*text file busy*).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Puts `content` under a name, executable by all.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(content.as_ref()).unwrap();
    assert!(install.wait().unwrap().success(), "{} is not written", path.display());
}
