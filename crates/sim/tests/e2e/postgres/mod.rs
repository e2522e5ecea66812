//! Control planes whose state is in PostgreSQL: replicas that come and go, a database that is killed, one that fails over.

mod clock_steps;
mod doctor;
mod failover;
mod killed;
mod migrate_store;
mod replicas;
mod rights;
mod rolling_upgrade;
mod schedules;
mod starting;

use leasehold_sql::test_server::TestServer;

/// A server of this test alone, since it is stopped and killed; none, where PostgreSQL is not installed.
fn own_server(test: &str) -> anyhow::Result<Option<TestServer>> {
    if !TestServer::is_there_or_skip(test) {
        return Ok(None);
    }
    Ok(Some(TestServer::start()?))
}
