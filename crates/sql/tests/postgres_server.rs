//! The adapter and its server: who may do what, what is encrypted and proven, and what an inspection tells.
#![expect(clippy::unwrap_used, reason = "a harness that cannot be set up fails its test")]

use std::sync::Arc;

use leasehold_core::crypto::ApiToken;
use leasehold_core::database::History;
use leasehold_core::id::{ApiTokenId, TrustDomain};
use leasehold_core::role::Role;
use leasehold_core::time::{Entropy, UtcMillis};
use leasehold_sql::postgres::{OpenError, PostgresOptions, PostgresStore, Witness, inspect};
use leasehold_sql::test_server::{PASSWORD, TestServer};
use leasehold_store::call::{Installation, NewApiToken};
use leasehold_store::port::Store as _;

const ROLES: &str = include_str!("../../../deploy/postgresql/roles.sql");

struct Sevens;
impl Entropy for Sevens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(url, PostgresOptions::new()).await
}

async fn install(store: &PostgresStore) {
    let domain: TrustDomain = "home.example".parse().unwrap();
    let at = UtcMillis::new(1);
    let secret = || vec![1; 32];
    let installation = Installation {
        trust_domain: domain,
        ca_certificate: secret(),
        ca_key: secret(),
        ticket_key: secret(),
        created_at: at,
    };
    let first = NewApiToken {
        id: ApiTokenId::new(at, &Sevens),
        name: "first".to_owned(),
        role: Role::Admin,
        digest: ApiToken::new(&Sevens).digest(),
        created_at: at,
        expires_at: None,
    };
    store.create_installation(installation, first).await.unwrap();
}

#[tokio::test]
async fn the_two_roles_do_what_they_are_for_and_nothing_else() {
    if !TestServer::is_there_or_skip("the_two_roles") {
        return;
    }
    // Roles belong to a whole server.
    let server = TestServer::start_with(&[]).unwrap();
    server.query("postgres", "DROP ROLE leasehold").unwrap();
    server.query("postgres", "CREATE DATABASE control ENCODING 'UTF8' TEMPLATE template0").unwrap();
    server.query("control", ROLES).unwrap();
    for role in ["leasehold", "leasehold_owner"] {
        server.query("postgres", &format!("ALTER ROLE {role} PASSWORD '{PASSWORD}'")).unwrap();
    }
    let runtime = server.url("control");
    let owner = runtime.replace("leasehold:", "leasehold_owner:");

    let early = open(&runtime).await.unwrap_err();
    assert!(matches!(early, OpenError::NoRights { .. }), "{early:?}");
    assert!(early.to_string().contains("--migrate-only") && !early.to_string().contains(PASSWORD), "{early}");

    open(&owner).await.unwrap().close().await;
    let store = open(&runtime).await.unwrap();
    store.check().await.unwrap();
    install(&store).await;
    assert!(store.installation().await.unwrap().is_some());
    store.statistics().await.unwrap();
    assert!(!inspect(&runtime).await.unwrap().contents.unwrap().silent_workers.iter().any(|_| true));

    let as_runtime =
        |sql: &str| server.query("control", &format!("SET ROLE leasehold; SET search_path TO leasehold; {sql}"));
    as_runtime("SELECT count(*) FROM run").unwrap();
    // One line of each, for whoever tries to change or remove some.
    let told = "SET search_path TO leasehold; SET session_replication_role TO replica; \
                INSERT INTO event VALUES ('01900000-0000-7000-8000-000000000001', 1, 0, 'run_admitted', NULL, 'system', '{}'); \
                INSERT INTO audit (at, actor, action, subject, facts) VALUES (0, 'system', 'told', 'nothing', '{}')";
    server.query("control", told).unwrap();
    for sql in [
        "CREATE TABLE mine (x int)",
        "CREATE TABLE public.mine (x int)",
        "CREATE TEMPORARY TABLE mine (x int)",
        "CREATE SCHEMA mine",
        "DROP TABLE run",
        "ALTER TABLE run ADD COLUMN x int",
        "ALTER TABLE run DISABLE TRIGGER ALL",
        "TRUNCATE event",
        "CREATE OR REPLACE FUNCTION clock_millis() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "UPDATE audit SET facts = ''",
        "DELETE FROM audit",
        "DELETE FROM event",
        "SET session_replication_role = replica",
    ] {
        assert!(as_runtime(sql).is_err(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted_and_prove_who_answers_as_the_url_says() {
    if !TestServer::is_there_or_skip("connections_are_encrypted") {
        return;
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer_key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&issuer_key).unwrap();
    let issuer = rcgen::Issuer::new(params, issuer_key);
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let settings = [("ssl", "on"), ("ssl_cert_file", "../certificate"), ("ssl_key_file", "../key")];
    let files = [("certificate", leaf.pem()), ("key", key.serialize_pem())];
    let server =
        TestServer::start_with_files(&settings, &files.each_ref().map(|(name, text)| (*name, text.as_str()))).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (trusted, wrong) = (file("ca.pem", ca.pem()), file("other.pem", other.cert.pem()));
    let by_address = server.make_database("control").unwrap();
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let encrypted =
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'leasehold'";
    for (url, mode, is_encrypted) in [
        (&by_address, String::new(), true),
        (&by_address, "?sslmode=disable".to_owned(), false),
        (&by_address, "?sslmode=require".to_owned(), true),
        (&by_address, format!("?sslmode=verify-ca&sslrootcert={trusted}"), true),
        (&by_name, format!("?sslmode=verify-full&sslrootcert={trusted}"), true),
    ] {
        let store = open(&format!("{url}{mode}")).await.unwrap_or_else(|error| panic!("{mode}: {error:?}"));
        store.check().await.unwrap();
        let found = server.query("postgres", encrypted).unwrap()[0][0].clone().unwrap();
        assert_eq!(found != "0", is_encrypted, "{mode}");
        store.close().await;
        server.wait_until("SELECT count(*) FROM pg_stat_activity WHERE usename = 'leasehold'", "0").unwrap();
    }
    for (url, mode) in [
        (&by_address, format!("?sslmode=verify-full&sslrootcert={trusted}")),
        (&by_name, format!("?sslmode=verify-full&sslrootcert={wrong}")),
        (&by_name, format!("?sslmode=require&sslrootcert={wrong}")),
    ] {
        let refused = open(&format!("{url}{mode}")).await.unwrap_err();
        assert!(matches!(refused, OpenError::Handshake { .. }), "{mode}: {refused:?}");
        assert!(refused.to_string().contains("sslrootcert"), "{mode}: {refused}");
    }
}

#[tokio::test]
async fn a_server_that_no_longer_keeps_what_it_acknowledges_is_told_by_a_replica_that_runs() {
    if !TestServer::is_there_or_skip("a_server_that_no_longer_keeps") {
        return;
    }
    let server = TestServer::start_with(&[]).unwrap();
    let store = open(&server.make_database("control").unwrap()).await.unwrap();
    store.check().await.unwrap();
    let switch = |to: &str| {
        server.query("postgres", &format!("ALTER SYSTEM SET full_page_writes = {to}")).unwrap();
        server.query("postgres", "SELECT pg_reload_conf()").unwrap();
    };
    for (to, word) in [("off", Some("full_page_writes = off")), ("on", None)] {
        switch(to);
        let mut said = None;
        for _ in 0..500 {
            said = store.check().await.err().map(|error| error.to_string());
            if said.is_some() == word.is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(said.is_some(), word.is_some(), "{said:?}");
        assert!(word.is_none_or(|word| said.as_deref().is_some_and(|said| said.contains(word))), "{said:?}");
    }
}

#[tokio::test]
async fn an_inspection_tells_the_history_and_a_witness_that_refuses_it_keeps_the_store_shut() {
    struct Nobody;
    impl Witness for Nobody {
        fn admits(&self, history: History) -> Result<(), String> {
            Err(format!("timeline {} is old", history.timeline))
        }
    }
    let Some(server) = TestServer::shared_or_skip("an_inspection_tells_the_history") else { return };
    let database = server.database().unwrap();
    let found = inspect(&database.url()).await.unwrap();
    assert_eq!(found.history.unwrap().timeline.get(), 1);
    assert!(found.refused.is_none() && found.standbys.is_none() && found.contents.is_none());
    let (applied, known) = found.schema.unwrap();
    assert!(applied == 0 && known > 0);

    let options = PostgresOptions::new().witnessed(Arc::new(Nobody));
    let refused = PostgresStore::open(&database.url(), options).await.unwrap_err();
    assert_eq!(refused.to_string(), "timeline 1 is old");
    assert_eq!(inspect(&database.url()).await.unwrap().schema.unwrap().0, 0, "nothing was made in it");

    let store = open(&database.url()).await.unwrap();
    install(&store).await;
    assert!(store.warning().await.unwrap().contains("standby"));
    let found = inspect(&database.url()).await.unwrap();
    assert_eq!(found.schema.unwrap(), (known, known));
    assert!(found.contents.unwrap().installation.is_some());
}
