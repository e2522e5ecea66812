//! Walls inside the sources: which code may name what.
//!
//! Comments and literals are no code (see [`crate::source`]); tests may name more than what ships, except where a
//! rule says otherwise.

use std::path::Path;

use super::Violation;
use crate::checkout::TextFile;
use crate::source::Source;

/// Where a file stands.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    /// `crates/<folder>/…`, or `xtask`.
    folder: &'a str,
    is_test: bool,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Self {
        let mut parts = path.split('/');
        let folder = match (parts.next(), parts.next()) {
            (Some("crates"), Some(folder)) => folder,
            (Some(top), _) => top,
            (None, _) => "",
        };
        let is_test = folder == "sim"
            || path.contains("/tests/")
            || path.contains("/benches/")
            || path.ends_with("/tests.rs")
            || path.ends_with("_tests.rs");
        Self { path, folder, is_test }
    }

    /// Whether this is the module `crates/<folder>/src/<module>.rs`, or a part of it.
    fn is_module(self, module: &str) -> bool {
        let prefix = format!("crates/{}/src/{module}", self.folder);
        self.path == format!("{prefix}.rs") || self.path.starts_with(&format!("{prefix}/"))
    }
}

/// Names that only some places may use.
struct Rule {
    names: &'static [&'static str],
    /// Whether the rule holds in this place.
    holds_in: fn(Place<'_>) -> bool,
    sentence: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        names: &["leasehold_sql"],
        holds_in: |place| {
            let composes = place.folder == "leasehold" && place.is_module("compose");
            !(place.is_test || composes || matches!(place.folder, "sql" | "xtask"))
        },
        sentence: "only `compose` picks a store adapter",
    },
    Rule {
        names: &["rusqlite", "libsqlite3_sys", "tokio_postgres", "deadpool_postgres", "sqlx", "diesel"],
        holds_in: |place| place.folder != "sql",
        sentence: "only crates/sql names a SQL driver",
    },
    Rule {
        names: &["axum", "hyper", "hyper_util", "http", "http_body_util", "tower", "reqwest", "leasehold_wire"],
        holds_in: |place| place.folder == "control" && !place.is_test,
        sentence: "services never see HTTP or wire types",
    },
    Rule {
        names: &["leasehold_store", "leasehold_control::port", "leasehold_control::store"],
        holds_in: |place| place.folder == "server" && !place.is_test,
        sentence: "handlers and pages call services, never the store port",
    },
    Rule {
        names: &["leasehold_store", "leasehold_sql", "leasehold_control", "leasehold_server"],
        holds_in: |place| place.folder == "worker",
        sentence: "the worker reaches nothing of the control plane",
    },
    Rule {
        names: &[
            "fs::rename",
            "fs::renameat",
            "fs::renameat_with",
            "renameat",
            "renameat_with",
            "fs::hard_link",
            "hard_link",
            "fs::link",
            "fs::linkat",
            "linkat",
            "libc::link",
            "libc::rename",
            "fs::fsync",
            "fsync",
            "fdatasync",
            "fs::sync",
            "syncfs",
            "sync_file_range",
            ".sync_all(",
            ".sync_data(",
            ".persist(",
            ".persist_noclobber(",
        ],
        holds_in: |place| place.folder == "worker" && !place.is_test && !place.is_module("durable"),
        sentence: "only `durable` renames, links or syncs a file",
    },
    Rule {
        names: &[".spawn()", ".exec()", ".output()", ".status()"],
        // The client asks answers for their status.
        holds_in: |place| {
            place.folder == "worker" && !place.is_test && !place.is_module("start") && !place.is_module("client")
        },
        sentence: "only `start` starts a process, with the fault points of its step",
    },
    Rule {
        names: &[
            "OFlags::CREATE",
            "OpenOptions",
            "File::create",
            "fs::write",
            "write_all_at",
            "set_len",
            "fallocate",
            "fs::copy",
            "symlink",
            "mkdir",
            "create_dir",
            "create_dir_all",
            "unlinkat",
            "remove_file",
            "remove_dir",
            "remove_dir_all",
        ],
        // Each of these takes a step of `fault::steps` for it.
        holds_in: |place| {
            let takes_steps = ["durable", "fault", "attempt_dir", "state_dir", "launcher/log", "cgroup"];
            place.folder == "worker" && !place.is_test && !takes_steps.iter().any(|module| place.is_module(module))
        },
        sentence: "a file is made, changed or removed in `durable`, as a kind and in a way that `fault::steps` declares",
    },
    Rule {
        names: &[".write_all("],
        // Pipes, terminals and the kernel besides: the launcher's request, answer and report, what people read, the
        // files of control groups.
        holds_in: |place| {
            let writes = [
                "durable",
                "fault",
                "launcher/log",
                "launcher/process",
                "launcher/child",
                "cgroup",
                "cli",
                "logging",
                "run/questions",
                "status/question",
            ];
            place.folder == "worker" && !place.is_test && !writes.iter().any(|module| place.is_module(module))
        },
        sentence: "bytes are written in `durable`, or with a step of `fault::steps` by who is named in this rule",
    },
    Rule {
        names: &["step_of_file"],
        holds_in: |place| place.folder == "worker" && !place.is_module("durable") && !place.is_module("fault"),
        sentence: "only `durable` takes a file's steps",
    },
    Rule {
        names: &["try_send_request", "send_request", "SendRequest", "TcpStream"],
        holds_in: |place| place.folder == "worker" && !place.is_test && !place.is_module("client/connection"),
        sentence: "only `client::connection` talks to the control plane, each call with the fault points of its step",
    },
    Rule {
        names: &["rustix::net"],
        // The name that excludes a second agent, and the socket between agent and launcher, each with its step.
        holds_in: |place| {
            place.folder == "worker"
                && !place.is_test
                && !place.is_module("state_dir")
                && !place.is_module("launcher/socket")
        },
        sentence: "a socket is made where its step of `fault::steps` is taken",
    },
    Rule {
        names: &["aws_lc_rs"],
        holds_in: |place| place.folder == "core" && !place.is_module("crypto"),
        sentence: "only `core::crypto` names the cryptographic provider",
    },
    Rule {
        names: &[
            "serde",
            "serde_json",
            "tokio",
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::thread",
            "std::io",
            "std::os",
            "std::time::Instant",
            "std::time::SystemTime",
            "Instant::now",
            "SystemTime::now",
            "async fn",
        ],
        holds_in: |place| place.folder == "core" && !place.is_test,
        sentence: "decisions have no I/O, no async, no clock and no serialisation",
    },
];

/// How a statement of SQL begins. Read at the beginning of a literal, in capitals, as we write it.
const STATEMENTS: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "CREATE UNIQUE ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "PRAGMA ",
    "BEGIN IMMEDIATE",
    "SAVEPOINT ",
    "WITH RECURSIVE ",
];

/// Every line of the sources that breaks a wall.
pub(super) fn violations(files: &[TextFile]) -> Vec<Violation> {
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| &file.text);
    let rust = files.iter().filter(|file| Path::new(&file.path).extension().is_some_and(|extension| extension == "rs"));
    rust.flat_map(|file| {
        let place = Place::of(&file.path);
        let whole = Source::read(&file.text);
        let shipped = whole.clone().without_tests();
        let mut found = named(place, &whole, &shipped);
        found.extend(sql(place, &shipped));
        found.extend(unsafe_code(place, &whole, architecture));
        found.extend(ignored_tests(place, &whole));
        found.extend(opening(place, &file.text));
        found
    })
    .collect()
}

fn at(place: Place<'_>, line: usize) -> String {
    format!("{}:{line}", place.path)
}

fn named(place: Place<'_>, whole: &Source, shipped: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for rule in RULES.iter().filter(|rule| (rule.holds_in)(place)) {
        // A rule that also holds in test files holds in test modules as well.
        let everywhere = (rule.holds_in)(Place { is_test: true, ..place });
        let source = if everywhere { whole } else { shipped };
        for name in rule.names {
            for line in source.lines_naming(name) {
                found.push(Violation::new(at(place, line), format!("names `{name}`: {}", rule.sentence)));
            }
        }
    }
    found
}

fn sql(place: Place<'_>, shipped: &Source) -> Vec<Violation> {
    // The end-to-end tests read what the product wrote, from outside, and compare it with what it says.
    let from_outside = place.path == "crates/sim/src/database.rs";
    if matches!(place.folder, "sql" | "xtask") || from_outside {
        return Vec::new();
    }
    let is_statement = |text: &str| STATEMENTS.iter().any(|statement| text.trim_start().starts_with(statement));
    let literals = shipped.literals.iter().filter(|literal| is_statement(&literal.text));
    literals
        .map(|literal| Violation::new(at(place, literal.line), "holds SQL: statements live in crates/sql"))
        .collect()
}

/// `unsafe` has a named home: a module of its own, listed with its reason under `ARCHITECTURE.md`.
fn unsafe_code(place: Place<'_>, whole: &Source, architecture: &str) -> Vec<Violation> {
    let Some(line) = whole.lines_naming("unsafe").first().copied() else { return Vec::new() };
    let listed = architecture.lines().any(|line| line.contains(place.path) && line.contains("unsafe"));
    if listed {
        return Vec::new();
    }
    vec![Violation::new(
        at(place, line),
        "holds `unsafe` but is no named home of it: move it there, or name this path on a line about `unsafe` in \
         ARCHITECTURE.md, with the proof",
    )]
}

fn ignored_tests(place: Place<'_>, whole: &Source) -> Vec<Violation> {
    whole
        .lines_naming("#[ignore]")
        .into_iter()
        .map(|line| Violation::new(at(place, line), "ignores a test without a reason: say why, and where it does run"))
        .collect()
}

/// A module opens with why it exists.
fn opening(place: Place<'_>, text: &str) -> Option<Violation> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
    (!first.starts_with("//!"))
        .then(|| Violation::new(at(place, 1), "does not say why it exists: open it with a `//!` sentence"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Violation> {
        violations(&[TextFile { path: path.to_owned(), text: format!("//! Why.\n{text}\n") }])
    }

    #[test]
    fn each_place_names_only_what_it_may() {
        let cases = [
            ("crates/server/src/api/runs.rs", "use leasehold_sql::Sqlite;", true),
            ("crates/leasehold/src/compose.rs", "use leasehold_sql::Sqlite;", false),
            ("crates/leasehold/src/compose/sqlite.rs", "use leasehold_sql::Sqlite;", false),
            ("crates/leasehold/src/up.rs", "use leasehold_sql::Sqlite;", true),
            ("crates/control/tests/dispatch.rs", "use leasehold_sql::Sqlite;", false),
            ("crates/leasehold/src/compose.rs", "use rusqlite::Connection;", true),
            ("crates/sql/src/sqlite/claim.rs", "use rusqlite::Connection;", false),
            ("crates/control/src/pull.rs", "use axum::Json;", true),
            ("crates/control/src/pull.rs", "fn f(m: leasehold_wire::v1::Pull) {}", true),
            ("crates/control/src/pull.rs", "let http_like = 1;", false),
            ("crates/server/src/ingress/pull.rs", "use leasehold_store::Store;", true),
            ("crates/server/src/ingress/pull.rs", "use leasehold_control::pull;", false),
            ("crates/worker/src/pull.rs", "use leasehold_control::pull;", true),
            ("crates/worker/tests/pull.rs", "use leasehold_store::Store;", true),
            ("crates/worker/src/inbox/write.rs", "std::fs::rename(a, b)?;", true),
            ("crates/worker/src/inbox/write.rs", "use rustix::fs::{linkat, openat};", true),
            ("crates/worker/src/inbox/write.rs", "file.sync_all()?;", true),
            ("crates/worker/src/durable.rs", "file.sync_all()?;", false),
            ("crates/worker/src/durable/disk.rs", "file.sync_all()?;", false),
            ("crates/worker/src/inbox/write.rs", "#[cfg(test)]\nmod tests { fn f() { file.sync_all(); } }", false),
            ("crates/worker/src/detect.rs", "let child = command.spawn()?;", true),
            ("crates/worker/src/start.rs", "around(step, || command.spawn())", false),
            ("crates/worker/src/run/mod.rs", "self.tasks.spawn(async move {});", false),
            ("crates/worker/src/client/mod.rs", "let status = response.status();", false),
            ("crates/worker/src/inbox/write.rs", "std::fs::write(path, bytes)?;", true),
            ("crates/worker/src/inbox/write.rs", "openat(dir, name, OFlags::CREATE, mode)?;", true),
            ("crates/worker/src/inbox/write.rs", "file.write_all(bytes)?;", true),
            ("crates/worker/src/durable/mod.rs", "file.write_all(bytes)?;", false),
            ("crates/worker/src/launcher/log.rs", "around(LOG_APPEND, || file.write_all(frames));", false),
            ("crates/worker/src/run/disk.rs", "around(step_of_file(\"record\", \"x\"), act)?;", true),
            ("crates/worker/src/engine/pull.rs", "sender.try_send_request(request).await", true),
            ("crates/worker/src/client/connection.rs", "sender.try_send_request(request).await", false),
            ("crates/worker/src/run/mod.rs", "use rustix::net::{bind, listen};", true),
            ("crates/core/src/lease.rs", "use serde::Serialize;", true),
            ("crates/core/src/lease.rs", "use std::{fmt, fs};", true),
            ("crates/core/src/lease.rs", "let t = Instant::now();", true),
            ("crates/core/src/lease.rs", "pub async fn f() {}", true),
            ("crates/core/src/lease.rs", "use aws_lc_rs::digest;", true),
            ("crates/core/src/crypto.rs", "use aws_lc_rs::digest;", false),
            ("crates/core/src/lease.rs", "// tokio and serde stay outside", false),
        ];
        for (path, text, refused) in cases {
            let violations = found(path, text);
            assert_eq!(!violations.is_empty(), refused, "{text} in {path}: {violations:?}");
        }
    }

    #[test]
    fn sql_lives_in_one_crate() {
        let statement = "const Q: &str = \"\n  SELECT id FROM run\";";
        assert_eq!(found("crates/control/src/pull.rs", statement).len(), 1);
        assert_eq!(found("crates/sql/src/sqlite/claim.rs", statement).len(), 0);
        assert_eq!(found("crates/control/src/pull.rs", "const Q: &str = \"Select a worker\";").len(), 0);
    }

    #[test]
    fn unsafe_needs_a_home_that_the_architecture_names() {
        let path = "crates/worker/src/launcher/child.rs";
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let code = file(path, "//! Why.\nfn f() { unsafe { g() } }\n");
        assert_eq!(violations(std::slice::from_ref(&code)).len(), 1);
        let map_only = file("ARCHITECTURE.md", "`crates/worker/src/launcher/child.rs`: the child\n");
        assert_eq!(violations(&[code.clone(), map_only]).len(), 1);
        let home =
            file("ARCHITECTURE.md", "- `crates/worker/src/launcher/child.rs`: `unsafe`, between fork and exec\n");
        assert_eq!(violations(&[code, home]).len(), 0);
        assert_eq!(found(path, "// unsafe\nconst S: &str = \"unsafe\"; #[expect(unsafe_code)] fn f() {}").len(), 0);
    }

    #[test]
    fn an_ignored_test_says_why() {
        let path = "crates/core/src/lease.rs";
        assert_eq!(found(path, "#[test]\n#[ignore]\nfn f() {}").len(), 1);
        assert_eq!(
            found(path, "#[test]\n#[ignore = \"an hour long; `cargo xtask chaos` runs it\"]\nfn f() {}").len(),
            0
        );
    }

    #[test]
    fn a_module_says_why_it_exists() {
        let file = |text: &str| TextFile { path: "crates/core/src/lease.rs".to_owned(), text: text.to_owned() };
        assert_eq!(violations(&[file("use std::fmt;\n")]).len(), 1);
        assert_eq!(violations(&[file("\n//! Leases.\nuse std::fmt;\n")]).len(), 0);
    }
}
