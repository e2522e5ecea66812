//! The server keeps what it acknowledged, and nothing of it is left behind.

use std::os::unix::process::ExitStatusExt as _;

use super::*;

fn value(server: &TestServer, database: &str, sql: &str) -> String {
    server.query(database, sql).unwrap().into_iter().flatten().flatten().next().unwrap_or_default()
}

#[test]
fn databases_are_apart_and_copies_hold_what_their_template_does() {
    let Some(server) = TestServer::shared_or_skip("databases_are_apart") else { return };
    let prepare = |url: &str| {
        let (_, name) = url.rsplit_once('/').unwrap();
        server.query(name, "CREATE TABLE given (x int); INSERT INTO given VALUES (7)").unwrap();
    };
    let first = server.database_like("prepared", prepare).unwrap();
    let second = server.database_like("prepared", |_| panic!("it is there")).unwrap();
    first.query("INSERT INTO given VALUES (8)").unwrap();
    assert_eq!(second.query("SELECT x FROM given").unwrap(), [[Some("7".to_owned())]]);
    assert!(server.database().unwrap().query("SELECT x FROM given").is_err());
    let name = first.name().to_owned();
    drop(first);
    assert!(server.query(&name, "SELECT 1").is_err());
}

#[test]
fn what_was_committed_survives_a_kill_and_a_stop() {
    if TestServer::shared_or_skip("what_was_committed_survives").is_none() {
        return;
    }
    let server = TestServer::start().unwrap();
    server.query("postgres", "CREATE TABLE kept (x int)").unwrap();
    server.query("postgres", "INSERT INTO kept VALUES (1)").unwrap();
    server.kill().unwrap();
    assert!(server.query("postgres", "SELECT 1").is_err());
    server.start_again().unwrap();
    server.query("postgres", "INSERT INTO kept VALUES (2)").unwrap();
    server.stop(StopMode::Immediate).unwrap();
    server.start_again().unwrap();
    server.stop(StopMode::Fast).unwrap();
    server.start_again().unwrap();
    assert_eq!(value(&server, "postgres", "SELECT sum(x) FROM kept"), "3");
    assert_eq!(value(&server, "postgres", "SHOW fsync"), "on");
    let directory = server.directory.clone();
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn a_standby_has_what_was_acknowledged_and_takes_over_on_a_new_timeline() {
    let Some(shared) = TestServer::shared_or_skip("a_standby_has_what_was_acknowledged") else { return };
    if !shared.can_replicate() {
        eprintln!("skipped: a_standby_has_what_was_acknowledged needs pg_basebackup");
        return;
    }
    let primary = TestServer::start().unwrap();
    let standby = primary.standby("second", true).unwrap();
    primary.query("postgres", "CREATE TABLE kept (x int)").unwrap();
    primary.query("postgres", "INSERT INTO kept VALUES (1)").unwrap();
    primary.kill().unwrap();
    standby.promote().unwrap();
    assert_eq!(value(&standby, "postgres", "SELECT sum(x) FROM kept"), "1");
    standby.query("postgres", "CHECKPOINT").unwrap();
    primary.start_again().unwrap();
    assert!(standby.timeline().unwrap() > primary.timeline().unwrap());
}

/// The child of the test below: starts a server, says where, and is killed.
#[test]
fn a_server_whose_process_is_killed_goes_with_it() {
    if TestServer::shared_or_skip("a_server_whose_process_is_killed").is_none() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this);
    child.args(["--exact", "test_server::tests::started_and_left", "--include-ignored", "--nocapture"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
    let directory =
        lines.map_while(std::result::Result::ok).find_map(|line| Some(line.split_once("server in ")?.1.to_owned()));
    let directory = PathBuf::from(directory.unwrap());
    assert!(directory.join("data/postmaster.pid").exists());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    watchdog::gone(&directory).unwrap();
}

#[test]
#[ignore = "the child of the test above, which runs it"]
fn started_and_left() {
    let server = TestServer::start().unwrap();
    println!("server in {}", server.directory.display());
    // Until it is killed.
    let _ = io::Read::read(&mut io::stdin(), &mut [0]);
}
