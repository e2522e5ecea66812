//! `leasehold doctor` on directories that are no sound data directory: each is named for what it is, with what to do.
//!
//! Those that need a control plane which ran are in the end-to-end tests.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
const NOBODY: u32 = 65_534;

fn asked(verb: &str, program: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(verb).arg("--data").arg(data).env_clear().env("NO_COLOR", "1");
    command
}

fn doctor(program: &Path, data: &Path) -> Command {
    asked("doctor", program, data)
}

/// What it said; it found a problem.
#[track_caller]
fn told(Output { status, stdout, stderr }: Output) -> String {
    let told = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{told}");
    told
}

#[track_caller]
fn has(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_is_no_data_directory_is_named_for_what_it_is() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let program = Path::new(LEASEHOLD);
    let look = |data: &Path| told(doctor(program, data).output().unwrap());

    has(&look(&at("nowhere")), &["nowhere", "No such file", "--data"]);

    fs::write(at("file"), "").unwrap();
    has(&look(&at("file")), &["file is a file, not a directory", "--data"]);

    fs::create_dir(at("empty")).unwrap();
    let said = look(&at("empty"));
    has(&said, &["empty is empty", "--data", "leasehold serve"]);
    assert!(!said.contains("master key"), "one thing is wrong, and is told once: {said}");
    assert_eq!(fs::read_dir(at("empty")).unwrap().count(), 0, "nothing was made");

    fs::create_dir(at("photos")).unwrap();
    fs::write(at("photos/cat.jpg"), "").unwrap();
    has(&look(&at("photos")), &["photos holds nothing of a control plane", "--data"]);
}

#[test]
fn a_directory_that_lost_its_parts_is_told_part_by_part() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
    let at = |name: &str| root.path().join(name);
    let look = || told(doctor(Path::new(LEASEHOLD), root.path()).output().unwrap());

    // Of an installation the certificate alone is left.
    fs::write(at("ca.pem"), "a certificate").unwrap();
    has(&look(), &["there is no database at", "leasehold.db", "restore a backup", "master key", "put the key back"]);
    fs::write(at("leasehold.db"), "").unwrap();
    has(&look(), &["leasehold.db is empty", "restore a backup"]);
    fs::write(at("leasehold.db"), "no database at all").unwrap();
    has(&look(), &["leasehold.db cannot be read", "not a database", "restore a backup"]);

    fs::remove_file(at("ca.pem")).unwrap();
    has(&look(), &["ca.pem is missing", "writes it anew"]);
}

#[test]
fn a_directory_that_this_user_may_not_look_into_names_its_owner() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
    let data = root.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("leasehold.db"), "").unwrap();
    let (mut program, mut closed, root_looks) = (PathBuf::from(LEASEHOLD), 0, rustix::process::geteuid().is_root());
    if root_looks {
        // Nothing is closed to root: another user looks, with a copy that it can reach.
        program = root.path().join("leasehold");
        closed = 0o700;
        // Copied by another process: while we held it open for writing, a child of another test would keep it so until it
        // executes, and the kernel would not execute it ("text file busy").
        assert!(Command::new("cp").args([Path::new(LEASEHOLD), &program]).status().unwrap().success());
    }
    let look = |verb: &str| {
        let mut command = asked(verb, &program, &data);
        if root_looks {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        command.output().unwrap()
    };
    fs::set_permissions(&data, Permissions::from_mode(closed)).unwrap();
    let owner = rustix::process::geteuid().as_raw();
    let doctors = format!("run the doctor as user {owner}");
    has(&told(look("doctor")), &["cannot be looked into", "ermission denied", &doctors]);

    // Whoever asks the control plane itself is not told that there is none.
    let refused = look("ps");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    has(&said, &["is closed to this user", &format!("as user {owner}"), "LEASEHOLD_ADDR"]);
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
}
