//! What a test server can do at all: for measurements, next to the product's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Result, TestServerError};

impl From<tokio_postgres::Error> for TestServerError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error.as_db_error().map_or_else(|| format!("{error:?}"), ToString::to_string))
    }
}

/// How long each of many calls took, and how long it took until all were done.
#[derive(Debug, Clone, Default)]
pub struct Laps {
    each: Vec<Duration>,
    whole: Duration,
}

impl Laps {
    /// Calls by several callers at once, which were all done after `whole`.
    pub fn new(each: Vec<Duration>, whole: Duration) -> Self {
        Self { each, whole }
    }

    /// One more call, after these.
    pub fn add(&mut self, took: Duration) {
        self.each.push(took);
        self.whole += took;
    }

    /// What was timed after these.
    pub fn append(&mut self, mut later: Self) {
        self.each.append(&mut later.each);
        self.whole += later.whole;
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// The longest, in milliseconds; 0 where there is none.
    pub fn max(&self) -> f64 {
        self.each.iter().max().map_or(0.0, |took| took.as_secs_f64() * 1e3)
    }

    /// Calls in a second, by all callers together.
    #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
    pub fn per_second(&self) -> f64 {
        self.each.len() as f64 / self.whole.as_secs_f64()
    }

    /// The middle one, in milliseconds.
    pub fn p50(&self) -> f64 {
        self.quantile(50)
    }

    /// What one in a hundred exceeds, in milliseconds.
    pub fn p99(&self) -> f64 {
        self.quantile(99)
    }

    fn quantile(&self, percent: usize) -> f64 {
        let mut each = self.each.clone();
        each.sort_unstable();
        let at = each.len().saturating_sub(1) * percent / 100;
        each.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// Connections that each have a row of their own to write, in a narrow table with one index: what one commit costs at least.
#[derive(Debug)]
pub struct PlainRows(Vec<Arc<(Client, Statement)>>);

impl PlainRows {
    /// So many connections to a database, whose role may make a schema.
    pub async fn prepare(url: &str, connections: usize) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            if clients.is_empty() {
                let make = "CREATE SCHEMA IF NOT EXISTS plain; \
                            CREATE TABLE IF NOT EXISTS plain.row (id bigint PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);";
                let fill = format!(
                    "INSERT INTO plain.row SELECT id, 0 FROM generate_series(0, {connections}) id ON CONFLICT DO NOTHING"
                );
                client.batch_execute(&format!("{make} {fill}")).await?;
            }
            let update = client.prepare("UPDATE plain.row SET n = n + 1 WHERE id = $1").await?;
            clients.push(Arc::new((client, update)));
        }
        Ok(Self(clients))
    }

    /// Commits, each of one row; `each` of them on every connection, one after the other.
    pub async fn commit(&self, each: usize) -> Result<Laps> {
        let begun = Instant::now();
        let mut callers = JoinSet::new();
        for (row, client) in (0_i64..).zip(self.0.iter().cloned()) {
            callers.spawn(async move {
                let mut laps = Vec::with_capacity(each);
                for _ in 0..each {
                    let begun = Instant::now();
                    client.0.execute(&client.1, &[&row]).await?;
                    laps.push(begun.elapsed());
                }
                Ok(laps)
            });
        }
        let each: std::result::Result<Vec<_>, tokio_postgres::Error> = callers.join_all().await.into_iter().collect();
        Ok(Laps::new(each?.concat(), begun.elapsed()))
    }
}
