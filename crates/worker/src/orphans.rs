//! Directories of attempts whose record is gone: found at the start, and moved away for a person to look at.
//!
//! An attempt's directory goes before its record, so one without a record belongs to a record that was damaged, or is
//! nobody's. A launcher that still lives there is left alone: it stops its job before its lease ends, and nothing here
//! could say so to anybody. (Worker design, *Inbox*.)

use std::path::Path;

use leasehold_core::id::AttemptId;

use crate::attempt_dir::AttemptDir;
use crate::durable::{Dir, DurableError};
use crate::fault::steps::file;

/// Moves what no record is known of from `attempts` to `quarantine`. Answers what was found, for people.
pub fn quarantine(
    attempts: &Path,
    is_known: impl Fn(AttemptId) -> bool,
    quarantine: &Dir,
) -> Result<Vec<String>, DurableError> {
    let dir = Dir::open(attempts)?;
    let mut found = Vec::new();
    for name in dir.names()? {
        if let Ok(attempt) = name.parse::<AttemptId>() {
            if is_known(attempt) {
                continue;
            }
            if launcher_lives(attempts, attempt) {
                found.push(format!("attempts/{name} has no record, and its launcher lives: left until it has ended"));
                continue;
            }
        }
        let moved = dir.quarantine::<file::Orphan>(&name, quarantine)?;
        found.push(format!("attempts/{name} was moved to quarantine/{moved}: it has no record"));
    }
    Ok(found)
}

/// What cannot be told is taken for a launcher that lives: its directory must not move under it.
fn launcher_lives(attempts: &Path, attempt: AttemptId) -> bool {
    match AttemptDir::find(attempts, attempt) {
        Ok(Some(dir)) => dir.is_locked().unwrap_or(true),
        Ok(None) | Err(DurableError::Unsafe { .. } | DurableError::Exists(_)) => false,
        Err(DurableError::Io { source, .. }) => source.kind() != std::io::ErrorKind::NotADirectory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_knows_and_nobody_holds_is_moved_away() {
        let state = tempfile::tempdir().unwrap();
        let attempts = Dir::create(&state.path().join("attempts")).unwrap();
        let away = Dir::create(&state.path().join("quarantine")).unwrap();
        let id = |number: u8| format!("01900000-0000-7000-8000-00000000000{number}").parse::<AttemptId>().unwrap();
        let [known, orphan, held] = [1, 2, 3].map(|number| AttemptDir::create(attempts.path(), id(number)).unwrap());
        let lock = held.try_lock().unwrap().unwrap();
        std::fs::write(orphan.path("log"), "what it wrote").unwrap();
        std::fs::write(attempts.path().join("anything"), "x").unwrap();
        let look = || quarantine(attempts.path(), |attempt| attempt == id(1), &away).unwrap();
        assert_eq!(look().len(), 3);
        assert_eq!(attempts.names().unwrap(), [id(1).to_string(), id(3).to_string()]);
        assert_eq!(std::fs::read_to_string(away.path().join(id(2).to_string()).join("log")).unwrap(), "what it wrote");
        assert!(away.exists("anything").unwrap());
        // Its launcher has ended.
        drop(lock);
        assert_eq!(look().len(), 1);
        assert_eq!(attempts.names().unwrap(), [id(1).to_string()]);
        drop(known);
    }
}
