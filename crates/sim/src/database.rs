//! What the control plane's database holds, read from outside: how a test proves that a refused call changed nothing.
//!
//! Python's own dump of the file, so that the harness needs no driver and depends on the shape of no table.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use leasehold_sql::test_server::{TestDatabase, TestServer};

use crate::eventually::eventually;
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

/// What may never be in a database, whatever happened: each query finds the rows that contradict each other. Both databases
/// are asked the same, but for how an id becomes text.
const CONTRADICTIONS: &[(&str, &str)] = &[
    (
        "a live attempt without its active lease",
        "SELECT hex(id), state FROM attempt a WHERE state IN ('claimed', 'starting', 'running') AND NOT EXISTS \
         (SELECT 1 FROM lease l WHERE l.attempt = a.id AND l.generation = a.lease_generation AND l.state = 'active')",
    ),
    (
        "an active lease of an attempt that is not live",
        "SELECT hex(l.attempt), a.state FROM lease l JOIN attempt a ON a.id = l.attempt \
         WHERE l.state = 'active' AND a.state NOT IN ('claimed', 'starting', 'running')",
    ),
    (
        "a lease that is not what its attempt says",
        "SELECT hex(a.id), a.lease_generation, max(l.generation) FROM attempt a LEFT JOIN lease l ON l.attempt = a.id \
         GROUP BY a.id HAVING a.lease_generation IS DISTINCT FROM max(l.generation)",
    ),
    (
        "a lease of another worker's session, or of another run",
        "SELECT hex(l.attempt) FROM lease l JOIN session s ON s.id = l.session JOIN attempt a ON a.id = l.attempt \
         WHERE s.worker <> l.worker OR s.generation <> l.session_generation OR a.run <> l.run \
         OR (l.state = 'active' AND a.worker IS DISTINCT FROM l.worker)",
    ),
    (
        "a run whose state is not its latest attempt's",
        "SELECT hex(r.id), r.state, a.state FROM run r JOIN attempt a ON a.run = r.id AND a.number = r.latest WHERE NOT \
         CASE r.state WHEN 'pending' THEN a.state = 'pending' WHEN 'dispatching' THEN a.state IN ('claimed', 'starting') \
         WHEN 'running' THEN a.state = 'running' WHEN 'lost' THEN a.state = 'lost' ELSE a.ended_at IS NOT NULL END",
    ),
    (
        "an attempt beyond the latest, or an earlier one that has not ended",
        "SELECT hex(a.id), a.number, r.latest, a.state FROM attempt a JOIN run r ON r.id = a.run \
         WHERE a.number > r.latest OR (a.number < r.latest AND a.ended_at IS NULL)",
    ),
    (
        "a fence number that is not the run's highest claim",
        "SELECT hex(r.id), r.fence, max(l.fence) FROM run r LEFT JOIN lease l ON l.run = r.id GROUP BY r.id \
         HAVING r.fence IS DISTINCT FROM max(l.fence)",
    ),
    (
        "a gap in a run's events",
        "SELECT hex(run), count(*), max(sequence) FROM event GROUP BY run HAVING count(*) <> max(sequence) OR min(sequence) <> 1",
    ),
    (
        "a gap in a log, or more of it than its end pinned",
        "SELECT hex(c.attempt), sum(c.length), max(c.log_offset + c.length), a.log_length FROM log_chunk c \
         JOIN attempt a ON a.id = c.attempt GROUP BY c.attempt, a.log_length \
         HAVING sum(c.length) <> max(c.log_offset + c.length) OR max(c.log_offset + c.length) > a.log_length",
    ),
    (
        "a worker whose current session is not its newest",
        "SELECT w.id FROM worker w LEFT JOIN session s ON s.worker = w.id GROUP BY w.id \
         HAVING w.generation IS DISTINCT FROM max(s.generation)",
    ),
];

/// What SQLite is asked beside it; PostgreSQL lets no such row in.
const DAMAGE: &[(&str, &str)] = &[
    ("a row that refers to nothing", "PRAGMA foreign_key_check"),
    ("damage", "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
];

const ASK: &str = "
import json, sqlite3, sys
database = sqlite3.connect('file:' + sys.argv[1] + '?mode=rw', uri=True)
for what, query in json.load(sys.stdin):
    for row in database.execute(query):
        print(what, row)
";

/// What in the database of a data directory contradicts itself; empty for any history.
pub fn contradictions(data: &Path) -> Result<Vec<String>> {
    let file = database_in(data)?;
    let mut python = Command::new("python3")
        .args(["-c", ASK])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start python3")?;
    let queries = serde_json::to_vec(&[CONTRADICTIONS, DAMAGE].concat())?;
    python.stdin.take().context("python has an input")?.write_all(&queries)?;
    let output = python.wait_with_output()?;
    if !output.status.success() {
        bail!("cannot ask {}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// The same for a database on PostgreSQL.
pub fn contradictions_in(server: &TestServer, database: &str) -> Result<Vec<String>> {
    let mut told = Vec::new();
    for (what, query) in CONTRADICTIONS {
        let rows = server.query(database, &in_schema(&query.replace("hex(", "text(")))?;
        told.extend(rows.iter().map(|row| format!("{what} {row:?}")));
    }
    Ok(told)
}

/// How many attempts on PostgreSQL are in each state: its name, and the count.
pub fn attempts_by_state(server: &TestServer, database: &str) -> Result<Vec<Vec<Option<String>>>> {
    Ok(server.query(database, &in_schema("SELECT state, count(*) FROM attempt GROUP BY state ORDER BY state"))?)
}

/// The runs on PostgreSQL that were claimed more than once.
pub fn claimed_again(server: &TestServer, database: &str) -> Result<Vec<Vec<Option<String>>>> {
    Ok(server.query(database, &in_schema("SELECT run, count(*) FROM lease GROUP BY run HAVING count(*) > 1"))?)
}

/// Adds to a schema on PostgreSQL, as a next release would: a column to every table, a table, and the step's number, 9999.
pub fn grow(server: &TestServer, database: &str) -> Result<()> {
    let tables = server.query(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'leasehold'")?;
    for table in tables.into_iter().flatten().flatten() {
        let grown = format!("ALTER TABLE {table} ADD COLUMN later text DEFAULT 'not known yet'");
        server.query(database, &in_schema(&grown))?;
    }
    server.query(database, &in_schema("CREATE TABLE later (id integer)"))?;
    let step = "INSERT INTO schema_migration (version, name, checksum) VALUES (9999, 'later', sha256('later'))";
    server.query(database, &in_schema(step))?;
    Ok(())
}

/// Takes the number of [`grow`] back.
pub fn forget_growth(server: &TestServer, database: &str) -> Result<()> {
    server.query(database, &in_schema("DELETE FROM schema_migration WHERE version = 9999"))?;
    Ok(())
}

/// Keeps a table on PostgreSQL from being written while `work` is done, so that whoever writes it stops there.
pub fn while_held<T>(database: &TestDatabase<'_>, table: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let hold = in_schema(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT pg_sleep(600)"));
    let held =
        format!("SELECT count(*) FROM pg_locks WHERE mode = 'ShareLock' AND relation = 'leasehold.{table}'::regclass");
    let release = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                   WHERE query LIKE '%IN SHARE MODE; SELECT pg_sleep%' AND pid <> pg_backend_pid()";
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| database.query(&hold));
        let done = eventually("the table to be held", || match database.query(&held) {
            Ok(rows) if rows == [[Some("1".to_owned())]] => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .and_then(|()| work());
        database.query(release)?;
        // It was ended on purpose.
        let _ = holding.join();
        done
    })
}

/// A question where the product keeps its tables.
fn in_schema(sql: &str) -> String {
    format!("SET search_path TO leasehold, public; {sql}")
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
    fn a_contradiction_is_told_and_a_sound_database_is_not_blamed() {
        let directory = tempfile::tempdir().unwrap();
        let schema = include_str!("../../sql/migrations/sqlite/0001_first.sql");
        let change = |script: &str| {
            let program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
            let mut python = Command::new("python3");
            let file = directory.path().join("a.db");
            process::run(python.args(["-c", program]).arg(file).arg(script)).unwrap().expect_code(0);
        };
        change(schema);
        assert_eq!(contradictions(directory.path()).unwrap(), Vec::<String>::new());
        change(
            "insert into attempt (id, run, number, state, version, resolution, may_live, lease_generation) \
             values (zeroblob(16), zeroblob(16), 1, 'running', 1, 'none', 0, 1)",
        );
        let told = contradictions(directory.path()).unwrap().join("\n");
        for what in ["without its active lease", "not what its attempt says", "refers to nothing"] {
            assert!(told.contains(what), "{what}: {told}");
        }
    }

    #[test]
    fn a_contradiction_on_postgresql_is_told_too() {
        let Some(server) = TestServer::shared_or_skip("a_contradiction_on_postgresql_is_told_too") else { return };
        let database = server.database().unwrap();
        for statement in [
            include_str!("../../sql/migrations/postgres/0001_first.sql"),
            "INSERT INTO revision VALUES (decode(repeat('00', 32), 'hex'), '')",
            "INSERT INTO placement VALUES (decode(repeat('00', 32), 'hex'), '')",
            "INSERT INTO run (id, project, revision, placement, lane_task, name, priority, state, version, latest, failures, \
             machinery_failures, created_at, mutex) SELECT gen_random_uuid(), 'default', r.digest, p.digest, '', 'a', 0, \
             'pending', 1, 1, 0, 0, 0, false FROM revision r, placement p",
        ] {
            database.query(statement).unwrap();
        }
        assert_eq!(contradictions_in(server, database.name()).unwrap(), Vec::<String>::new());
        database
            .query(
                "INSERT INTO attempt (id, run, number, state, version, resolution, may_live, lease_generation) \
                 SELECT gen_random_uuid(), id, 1, 'running', 1, 'none', false, 1 FROM run",
            )
            .unwrap();
        let told = contradictions_in(server, database.name()).unwrap().join("\n");
        for what in ["without its active lease", "not what its attempt says", "not its latest attempt's"] {
            assert!(told.contains(what), "{what}: {told}");
        }
    }

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
