//! Whether a program can be executed, asked before the barrier: a failed exec leaves the child's name there, and
//! only a receipt undoes its meaning. (Launcher facts, *Traps*.)

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Finds `name` as a shell would: a path as it is (from `working_dir`), a bare name along `search_path`.
/// An error is the sentence for people.
pub(super) fn find(name: &str, search_path: &str, working_dir: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = working_dir.join(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(why) => Err(format!("cannot execute {}: {why}", path.display())),
        };
    }
    let mut refused = None;
    for dir in search_path.split(':') {
        // An empty entry means the working directory, as everywhere.
        let path = working_dir.join(dir).join(name);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(why) if path.exists() => {
                refused = refused.or(Some(format!("cannot execute {}: {why}", path.display())));
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| format!("program `{name}` not found in PATH ({search_path})")))
}

fn executable(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a file".to_owned());
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|errno| std::io::Error::from(errno).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_would() {
        let here = Path::new("/");
        assert_eq!(find("sh", "/nowhere:/bin", here), Ok("/bin/sh".into()));
        assert_eq!(find("bin/sh", "", here), Ok("/bin/sh".into()));
        assert_eq!(find("/bin/sh", "", here), Ok("/bin/sh".into()));
    }

    #[test]
    fn what_cannot_be_executed_is_named() {
        let here = Path::new("/");
        assert!(find("no-such-program", "/bin", here).unwrap_err().contains("`no-such-program` not found in PATH"));
        assert!(find("/etc/passwd", "", here).unwrap_err().contains("/etc/passwd"));
        assert!(find("passwd", "/etc", here).unwrap_err().contains("/etc/passwd"));
        assert!(find("/bin", "", here).unwrap_err().contains("not a file"));
    }
}
