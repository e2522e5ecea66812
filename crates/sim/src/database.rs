//! What the control plane's database holds, read from outside: how a test proves that a refused call changed nothing.
//!
//! Python's own dump of the file, so that the harness needs no driver and depends on the shape of no table.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Tables that may grow although nothing was changed: what was refused is told there, and time goes on. SQLite counts the
/// rows of such a table in one of its own.
const TELLING: &[&str] = &["audit", "event", "clock", "sqlite_sequence"];

const DUMP: &str = "
import sqlite3, sys
for line in sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True).iterdump():
    print(repr(line))
";

/// Every row of the database in a data directory, but those that only tell of calls or of time.
pub fn rows(data: &Path) -> Result<BTreeSet<String>> {
    let file = database_in(data)?;
    let ended = process::run(Command::new("python3").args(["-c", DUMP]).arg(&file))?;
    ended.expect_code(0);
    let rows: BTreeSet<String> = ended.stdout.lines().filter(|line| !tells(line)).map(str::to_owned).collect();
    if rows.is_empty() {
        bail!("{} holds nothing", file.display());
    }
    Ok(rows)
}

/// Whether a line of a dump fills a telling table: the name of the table stands between the first two quotes.
fn tells(line: &str) -> bool {
    line.contains("INSERT INTO")
        && line.split('"').nth(1).is_some_and(|table| TELLING.iter().any(|word| table.contains(word)))
}

/// What was added and what went between two readings; empty when nothing changed.
pub fn changes(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    let gone = before.difference(after).map(|row| format!("- {row}"));
    let new = after.difference(before).map(|row| format!("+ {row}"));
    gone.chain(new).collect()
}

fn database_in(data: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(data).with_context(|| format!("cannot list {}", data.display()))? {
        let path = entry?.path();
        let mut magic = [0; 15];
        let opened = std::fs::File::open(&path);
        if path.is_file()
            && opened.is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
            && &magic == b"SQLite format 3"
        {
            return Ok(path);
        }
    }
    bail!("there is no SQLite database in {}", data.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_row_shows_and_a_told_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let change = |script: &str| {
            let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
            let file = directory.path().join("a.db");
            let mut python = Command::new("python3");
            process::run(python.args(["-c", program]).arg(file).arg(script)).unwrap().expect_code(0);
        };
        change(
            "create table run (id, state); create table audit (id integer primary key autoincrement); insert into run values (1, 'pending');",
        );
        let before = rows(directory.path()).unwrap();
        change("insert into audit values (1);");
        assert_eq!(changes(&before, &rows(directory.path()).unwrap()), Vec::<String>::new());
        change("update run set state = 'running';");
        let changed = changes(&before, &rows(directory.path()).unwrap());
        assert_eq!(changed.len(), 2, "{changed:?}");
    }
}
