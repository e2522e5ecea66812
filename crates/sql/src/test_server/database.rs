//! Databases of a test server, and questions to them in plain SQL.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;

use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{PASSWORD, ROLE, Result, SUPERUSER, TestServer, TestServerError};

/// A database of one test, owned by an ordinary role. Dropped with everything in it, whoever is connected.
#[derive(Debug)]
pub struct TestDatabase<'a> {
    server: &'a TestServer,
    name: String,
}

impl TestDatabase<'_> {
    /// How the product reaches it.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// How the superuser reaches it, for tests that make what the product never would.
    pub fn superuser_url(&self) -> String {
        self.server.superuser_url(&self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL in it as superuser: see [`TestServer::query`].
    pub fn query(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        self.server.query(&self.name, sql)
    }

    /// Ends the connections on which replicas hear each other's hints. They are made anew.
    pub fn cut_off_who_listens(&self) -> Result<()> {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_notify%' \
                   AND datname = current_database() AND pid <> pg_backend_pid()";
        self.query(sql).map(drop)
    }
}

impl Drop for TestDatabase<'_> {
    fn drop(&mut self) {
        // A server that was stopped removes it with its directory.
        let _ = self.server.query("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

impl TestServer {
    /// An empty database.
    pub fn database(&self) -> Result<TestDatabase<'_>> {
        self.create("template1")
    }

    /// Makes an empty database of this name that lives as long as the server; answers how the product reaches it.
    pub fn make_database(&self, name: &str) -> Result<String> {
        self.query("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"))?;
        Ok(self.url(name))
    }

    /// A copy of the template of this name, which `prepare` fills, given its URL, when it is asked for the first time. It
    /// must have closed its connections to it when it returns.
    pub fn database_like(&self, template: &str, prepare: impl FnOnce(&str)) -> Result<TestDatabase<'_>> {
        let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        if !templates.iter().any(|made| made == template) {
            self.query("postgres", &format!("CREATE DATABASE {template} OWNER {ROLE}"))?;
            prepare(&self.url(template));
            // A connection that is still closing would be in the way of every copy.
            self.query("postgres", &format!("ALTER DATABASE {template} ALLOW_CONNECTIONS false"))?;
            let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname =";
            self.query("postgres", &format!("{end} '{template}'"))?;
            templates.push(template.to_owned());
        }
        drop(templates);
        self.create(template)
    }

    fn create(&self, template: &str) -> Result<TestDatabase<'_>> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.query("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template}"))?;
        Ok(TestDatabase { server: self, name })
    }

    fn superuser_url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{PASSWORD}@{}/{database}", self.address())
    }

    /// How many transactions have written something so far, in any of its databases; notifications count, too.
    pub fn writes(&self) -> Result<u64> {
        let rows = self.query("postgres", "SELECT txid_snapshot_xmax(txid_current_snapshot())")?;
        let first = rows.into_iter().flatten().flatten().next();
        let count = first.and_then(|count| count.parse().ok());
        count.ok_or_else(|| TestServerError("it does not say how much was written".to_owned()))
    }

    /// Runs SQL in a database as superuser, and returns the rows of every statement in it as text. Blocks.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let url = self.superuser_url(database);
        // A thread of its own, since the caller may be inside a runtime.
        thread::scope(|scope| scope.spawn(|| ask(&url, sql)).join())
            .map_err(|_| TestServerError("the question panicked".to_owned()))?
            .map_err(|error| {
                let said = error.as_db_error().map_or_else(|| format!("{error:?}"), ToString::to_string);
                TestServerError(format!("{said}, asked {sql}"))
            })
    }
}

fn ask(url: &str, sql: &str) -> std::result::Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime of one thread").block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await?;
        drop(client);
        // Until the server has seen the end: the next statement may need that nobody is connected.
        let _ = connection.await;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    })
}
