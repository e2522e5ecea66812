//! What is refused, before anything was changed.

use leasehold_store::port::Store as _;
use rusqlite::Connection;

use super::{Fixture, Progress, answers, installation, run, token};
use crate::migrate_store::{Destination, MoveError, look};
use crate::postgres::{OpenError as PostgresError, PostgresStore};
use crate::scene::{Scene, exited, revision, step};
use crate::sqlite::{OpenError, Options, Source, SqliteStore, inspect};
use crate::test_server::{PASSWORD, TestServer};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_where_the_store_went_opens_no_other_database() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.run(|_| {}).await.unwrap().unwrap();
    let moved = crate::sqlite::mark(&fixture.path()).unwrap().unwrap();
    let only = || fixture.options().only(moved.to.clone());
    PostgresStore::open(&fixture.database.url(), only()).await.unwrap().close().await;
    let other = TestServer::shared_or_skip("another database").unwrap().database().unwrap();
    for (url, options) in [(other.url(), only()), (fixture.database.url(), only().in_schema("another"))] {
        let refused = PostgresStore::open(&url, options).await.unwrap_err();
        assert!(matches!(&refused, PostgresError::Elsewhere { url } if url.contains("the-new-one")), "{refused}");
    }
    let made = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('leasehold', 'another')";
    assert_eq!(other.query(made).unwrap()[0][0].as_deref(), Some("0"), "nothing was made there");
    assert_eq!(fixture.database.query(made).unwrap()[0][0].as_deref(), Some("1"), "nor beside it");
}

/// As `docs/operating-postgresql.md` says: the owner moves it, and replicas run as a user that may only read and write rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_schemas_owner_moved_the_runtime_role_serves() {
    if TestServer::shared_or_skip("a move by the schema's owner").is_none() {
        return;
    }
    // Roles belong to a whole server.
    let server = TestServer::start().unwrap();
    let fixture = Fixture::on(&server).await;
    let name = fixture.database.name();
    server.query("postgres", &format!("ALTER DATABASE {name} OWNER TO CURRENT_USER; DROP ROLE leasehold")).unwrap();
    fixture.database.query(include_str!("../../../../../deploy/postgresql/roles.sql")).unwrap();
    for role in ["leasehold", "leasehold_owner"] {
        fixture.database.query(&format!("ALTER ROLE {role} PASSWORD '{PASSWORD}'")).unwrap();
    }
    let before = fixture.sqlite().unwrap();
    let said = answers::of(&before).await;
    before.close().await;
    let runtime = fixture.destination();
    let owner = Destination { url: runtime.url.replace("leasehold:", "leasehold_owner:"), ..fixture.destination() };
    let refused = run(&fixture.path(), &runtime, &fixture.clock, |_| {}, std::future::pending()).await.unwrap_err();
    assert!(format!("{refused:?}").contains("NoRights"), "{refused:?}");
    run(&fixture.path(), &owner, &fixture.clock, |_| {}, std::future::pending()).await.unwrap().unwrap();

    let moved = crate::sqlite::mark(&fixture.path()).unwrap().unwrap();
    let store = PostgresStore::open(&runtime.url, fixture.options().only(moved.to)).await.unwrap();
    assert_eq!(answers::of(&store).await, said);
    let scene = Scene::on(store, fixture.clock.clone());
    let (session, run) = (scene.agent("later").await, scene.admit(revision(&[])).await);
    let grant = scene.claim(&session, run).await;
    let fence = step(&session, &grant);
    scene.store.acknowledge_starting(fence.clone()).await.unwrap().into_result().unwrap();
    scene.store.end(exited(&fence, &grant, 0, b"")).await.unwrap().into_result().unwrap();
    scene.store.close().await;
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
        .execute_batch("DROP TRIGGER audit_kept; DELETE FROM audit WHERE action = 'secret'; PRAGMA foreign_keys = off; DELETE FROM placement")
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
