//! What is refused, before anything was changed.

use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::{Fixture, Progress, answers, installation, run, token};
use crate::migrate_store::{MoveError, look};
use crate::postgres::PostgresStore;
use crate::sqlite::{OpenError, Options, Source, SqliteStore, inspect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_open_is_refused_and_named() {
    let Some(fixture) = Fixture::new().await else { return };
    let store = fixture.sqlite().unwrap();
    let error = fixture.run(|_| {}).await.unwrap_err();
    let pid = std::process::id();
    assert!(matches!(error, MoveError::Open(OpenError::Held { pid: Some(found), .. }) if found == pid), "{error}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_empty_is_refused_and_the_store_stays() {
    let Some(fixture) = Fixture::new().await else { return };
    let other = fixture.postgres().await;
    let made = other.create_installation(installation(&fixture.clock, "other.internal"), token(&fixture.clock)).await;
    made.unwrap().into_result().unwrap();
    let (source, to) = (Source::open(&fixture.path()).unwrap(), fixture.destination());
    let said = look(&source, &to).await.unwrap_err();
    assert!(matches!(&said, MoveError::Occupied { trust_domain } if trust_domain == "other.internal"), "{said}");
    drop(source);
    let said = fixture.run(|_| {}).await.unwrap_err();
    assert!(matches!(said, MoveError::Occupied { .. }), "{said}");
    fixture.sql("DELETE FROM installation");
    let said = fixture.run(|_| {}).await.unwrap_err();
    assert!(matches!(&said, MoveError::Rows { table } if table == "api_token"), "{said}");
    fixture.sqlite().unwrap().close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_another_installs_meanwhile_is_refused_and_the_store_stays() {
    let Some(fixture) = Fixture::new().await else { return };
    let other = fixture.postgres().await;
    let (made, domain) = (installation(&fixture.clock, "other.internal"), token(&fixture.clock));
    let meanwhile = |progress| {
        if progress == Progress::Marked {
            let made = futures_util::future::FutureExt::boxed(other.create_installation(made.clone(), domain.clone()));
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(made)).unwrap();
        }
    };
    let said = fixture.run(meanwhile).await.unwrap_err();
    assert!(matches!(said, MoveError::Occupied { .. }), "{said}");
    fixture.sqlite().unwrap().close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_installs_while_rows_arrive_finds_them() {
    let Some(fixture) = Fixture::new().await else { return };
    let other = fixture.postgres().await;
    let mut meanwhile = None;
    let progress = |progress| {
        if matches!(progress, Progress::Copied { table: "api_token", .. }) {
            let (made, token) = (installation(&fixture.clock, "other.internal"), token(&fixture.clock));
            let other: PostgresStore = other.clone();
            meanwhile = Some(tokio::spawn(async move { other.create_installation(made, token).await }));
        }
    };
    fixture.run(progress).await.unwrap().unwrap();
    let outcome = meanwhile.unwrap().await.unwrap();
    assert!(!matches!(outcome, Ok(leasehold_store::outcome::Outcome::Applied(()))), "{outcome:?}");
    let found = other.installation().await.unwrap().unwrap();
    assert_eq!(found.trust_domain.to_string(), "home.example");
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_file_never_lives_beside_what_was_moved() {
    let Some(fixture) = Fixture::new().await else { return };
    let backup = fixture.path().with_extension("backup");
    std::fs::copy(fixture.path(), &backup).unwrap();
    fixture.run(|_| {}).await.unwrap().unwrap();
    let moved = fixture.destination();
    let said = run(&backup, &moved, &fixture.clock, |_| {}, std::future::pending()).await.unwrap_err();
    assert!(matches!(&said, MoveError::OlderCopy { .. }), "{said}");
    // A copy of the file that was moved is marked, without its log beside it too.
    std::fs::copy(fixture.path(), &backup).unwrap();
    let said = SqliteStore::open(&backup, Options::new(fixture.clock.clone())).unwrap_err();
    assert!(matches!(&said, OpenError::Moved(moved) if moved.to.url.contains("the-new-one")), "{said}");
    let found = inspect(&backup).unwrap();
    assert!(found.moved.is_some());
    assert_eq!(found.schema.0, found.schema.1, "the mark is no schema");
}

/// A program from before there were moves reads the steps of the schema, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_older_program_refuses_a_file_that_was_moved() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.run(|_| {}).await.unwrap().unwrap();
    let connection = Connection::open(fixture.path()).unwrap();
    let newest: u32 = connection.query_row("SELECT max(version) FROM schema_migration", [], |row| row.get(0)).unwrap();
    assert_eq!(newest, u32::MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_and_what_postgresql_does_not_take_are_told_and_nothing_is_moved() {
    let Some(fixture) = Fixture::new().await else { return };
    let before = fixture.sqlite().unwrap();
    let said = answers::of(&before).await;
    before.close().await;
    let connection = Connection::open(fixture.path()).unwrap();
    connection.execute_batch("INSERT INTO audit VALUES (NULL, 0, 'a' || char(0), NULL, 'secret', 's', '{}')").unwrap();
    let error = fixture.run(|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("audit") && error.contains("actor") && !error.contains("secret"), "{error}");
    let after = fixture.sqlite().unwrap();
    assert_eq!(answers::of(&after).await, said);
    after.close().await;
    connection
        .execute_batch("DELETE FROM audit WHERE action = 'secret'; PRAGMA foreign_keys = off; DELETE FROM placement")
        .unwrap();
    let error = fixture.run(|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("run"), "{error}");
    assert!(!fixture.has_arrived().await);
    fixture.sqlite().unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_otherwise_than_it_was_sent_is_never_committed() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.postgres().await.close().await;
    fixture.sql(
        "CREATE FUNCTION bend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := NEW.name || '!'; RETURN NEW; END $$; \
         CREATE TRIGGER bent BEFORE INSERT ON run FOR EACH ROW EXECUTE FUNCTION bend()",
    );
    let error = fixture.run(|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("run arrived otherwise"), "{error}");
    fixture.sql(
        "CREATE OR REPLACE FUNCTION bend() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.state = 'pending' THEN RETURN NULL; END IF; RETURN NEW; END $$",
    );
    let error = fixture.run(|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("another number of rows"), "{error}");
    assert!(!fixture.has_arrived().await);
    fixture.sql("DROP TRIGGER bent ON run");
    fixture.run(|_| {}).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_installed_is_not_moved() {
    let Some(fixture) = Fixture::new().await else { return };
    std::fs::remove_file(fixture.path()).unwrap();
    fixture.sqlite().unwrap().close().await;
    let error = fixture.run(|_| {}).await.unwrap_err();
    assert!(matches!(error, MoveError::NotInstalled), "{error}");
    fixture.sqlite().unwrap().close().await;
}
