//! A look at a database from outside, for `doctor`: what the server promises, which history it stands in, and what is in it.
//!
//! Changes nothing, and asks for no more than a replica's role may see. Rows are counted and named here, never judged.

use leasehold_core::clock_step::Step;
use leasehold_core::database::History;
use leasehold_core::id::WorkerId;
use leasehold_core::limits::{CLOCK_STEP_TOLD, PAGE};
use leasehold_core::time::{LeaseInstant, UtcMillis};
use tokio_postgres::Client;

use super::connect::{self, Address, Server};
use super::migrate::{MIGRATIONS, applied};
use super::open::{OpenError, PostgresOptions};
use super::rows::Columns;
use super::transaction::Fault;
use super::{PostgresStore, history, installation, rights};
use crate::sqlite::Contents;

/// A database as it was found.
#[derive(Debug)]
pub struct Inspection {
    /// The server's own name of its version.
    pub version: String,
    /// Which history it stands in; none for a server that cannot be written to.
    pub history: Option<History>,
    /// Why nothing may be entrusted to it.
    pub refused: Option<OpenError>,
    /// The standbys that a commit waits for, as the server is told to; none where it waits for none.
    pub standbys: Option<String>,
    /// How many steps of the schema were applied, and how many this program knows; or why that cannot be told.
    pub schema: Result<(usize, usize), OpenError>,
    /// What is in it, where its schema is one that this program can read.
    pub contents: Option<Contents>,
    /// What its clock did, where its schema is one that this program can read.
    pub clock: Option<ClockSteps>,
}

/// How often the clock stepped lately under the eyes of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSteps {
    /// Within the last day.
    pub lately: u64,
    /// The last of them.
    pub last: Option<Step>,
}

/// Looks at the database at `url`.
pub async fn inspect(url: &str) -> Result<Inspection, OpenError> {
    let schema = PostgresOptions::new().schema;
    let client = connect::single(&Address::of(url)?).await?;
    connect::set_up(&client, &schema).await?;
    let server = Server::of(&client).await?;
    let failed = |source| OpenError::asked("look at the database", source);
    let row = client.query_one("SELECT current_setting('server_version')", &[]).await.map_err(failed)?;
    let history = if server.is_standby() { None } else { Some(history::of(&client).await?) };
    let applied = readable(&client, &schema).await;
    let (contents, clock) = match applied {
        Ok((found, known)) if found == known => {
            let contents = contents(&client).await.map_err(|fault| match fault {
                Fault::Postgres(source) => failed(source),
                other => OpenError::Damaged(other.reason()),
            });
            (Some(contents?), Some(clock_steps(&client).await.map_err(failed)?))
        }
        _ => (None, None),
    };
    Ok(Inspection {
        version: row.try_get(0).map_err(failed)?,
        history,
        standbys: server.waits_for(),
        refused: server.judged().err(),
        schema: applied,
        contents,
        clock,
    })
}

/// The steps of the schema, where its rows can be read and written.
async fn readable(client: &Client, schema: &str) -> Result<(usize, usize), OpenError> {
    rights::refuse_closed(client, schema).await?;
    let steps = applied(client, schema, MIGRATIONS).await?;
    rights::refuse_missing(client, schema).await?;
    Ok(steps)
}

async fn clock_steps(client: &Client) -> Result<ClockSteps, tokio_postgres::Error> {
    let told = i64::try_from(CLOCK_STEP_TOLD.get()).unwrap_or(i64::MAX);
    let sql = "SELECT by_millis FROM clock_step WHERE at > clock_millis() - $1 ORDER BY id DESC";
    let steps = client.query(sql, &[&told]).await?;
    let last = steps.first().and_then(|row| Step::of(row.get(0)));
    Ok(ClockSteps { lately: u64::try_from(steps.len()).unwrap_or(u64::MAX), last })
}

async fn contents(client: &Client) -> Result<Contents, Fault> {
    let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let clock: i64 = client.query_one("SELECT clock_millis()", &[]).await?.try_get(0)?;
    let installation = client.query_opt(installation::INSTALLATION, &[]).await?;
    let installation = installation.map(|row| installation::of(&mut Columns::of(&row))).transpose()?;
    let latest = client.query_opt("SELECT created_at FROM run ORDER BY id DESC LIMIT 1", &[]).await?;
    let lost: i64 = client.query_one("SELECT count(*) FROM run WHERE state = 'lost'", &[]).await?.try_get(0)?;
    let silent = client
        .query(
            "SELECT worker.id FROM worker JOIN session ON session.id = worker.current_session \
             WHERE worker.state = 'active' AND session.state <> 'offline' AND session.expires_lease < $1 \
             ORDER BY worker.id LIMIT $2",
            &[&clock, &page],
        )
        .await?;
    let certificates = client
        .query(
            "SELECT id, certificate_expires_at FROM worker WHERE state = 'active' \
             ORDER BY certificate_expires_at, id LIMIT $1",
            &[&page],
        )
        .await?;
    // A name that is none is left to the check of rows that a control plane makes.
    let named = |name: &str| name.parse::<WorkerId>().ok();
    let certificate = |row: &tokio_postgres::Row| Some((named(row.get(0))?, UtcMillis::new(row.get(1))));
    Ok(Contents {
        installation,
        lease_clock: LeaseInstant::new(clock),
        latest_submission: latest.map(|row| UtcMillis::new(row.get(0))),
        lost_runs: u64::try_from(lost).unwrap_or(0),
        silent_workers: silent.iter().filter_map(|row| named(row.get(0))).collect(),
        certificates: certificates.iter().filter_map(certificate).collect(),
    })
}

impl PostgresStore {
    /// Whether a failover would lose what was acknowledged: no commit waits for a standby.
    pub(super) async fn loses_by_failover(&self) -> Option<bool> {
        let client = self.connect().await.ok()?;
        Some(Server::of(&client).await.ok()?.waits_for().is_none())
    }
}
