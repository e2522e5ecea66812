//! Which history of the database a connection stands in, and who judges it: whoever remembers what was seen before.
//!
//! Asked of every new connection, since behind one address there may be another server after a failover. The rule is
//! [`leasehold_core::database::trust`]; the memory is outside the database, or it would go back with it.

use leasehold_core::database::{ClusterId, History, Timeline};
use tokio_postgres::Client;

use super::open::OpenError;
use crate::sqlite::Place;

/// Remembers the histories of a database.
pub trait Witness: Send + Sync {
    /// Lets a connection be used; where it refuses, it says why and what to do. What it lets in is remembered before it
    /// returns.
    fn admits(&self, history: History) -> Result<(), String>;
}

/// Asks a connection to a primary which history it stands in.
pub(super) async fn of(client: &Client) -> Result<History, OpenError> {
    // The name of the file that is written now begins with its timeline, in hexadecimal; the control file's timeline may be
    // a checkpoint behind.
    let sql = "SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) FROM pg_control_system()";
    let failed = |source| OpenError::asked("ask the server for its timeline", source);
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    let cluster: i64 = row.try_get(0).map_err(failed)?;
    let timeline: String = row.try_get(1).map_err(failed)?;
    let timeline = u32::from_str_radix(&timeline, 16)
        .map_err(|_| OpenError::History(format!("the server names its timeline `{timeline}`, which is no number")))?;
    // PostgreSQL shows the identifier as signed in SQL and as unsigned everywhere else.
    Ok(History { cluster: ClusterId::new(cluster.cast_unsigned()), timeline: Timeline::new(timeline) })
}

/// Which database a connection leads to, which people call `told`, with everything in `schema`.
pub(super) async fn place(client: &Client, told: &str, schema: &str) -> Result<Place, OpenError> {
    let sql = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()";
    let asked = client.query_one(sql, &[]).await.and_then(|row| row.try_get::<_, i64>(0));
    let number = asked.map_err(|source| OpenError::asked("ask which database it is", source))?;
    let database = u32::try_from(number).unwrap_or_default();
    Ok(Place { url: told.to_owned(), history: of(client).await?, database, schema: schema.to_owned() })
}
