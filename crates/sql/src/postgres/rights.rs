//! What a user may do in the schema, looked at before anything is entrusted to the database.
//!
//! A right that is missing would else be found by the first call that needs it, which fails then, and again whenever it is
//! sent: nobody is told that a person is wanted. Nothing is granted here; `deploy/postgresql/roles.sql` does that.

use tokio_postgres::Client;

use super::open::OpenError;

/// Names that a message holds; more of them say nothing new.
const NAMED: usize = 8;

/// Refuses a schema of ours that the user may not even look into.
pub(super) async fn refuse_closed(client: &Client, schema: &str) -> Result<(), OpenError> {
    let sql = "SELECT has_schema_privilege(schemaname, 'USAGE') FROM pg_tables \
               WHERE schemaname = $1 AND tablename = 'schema_migration'";
    let row = client.query_opt(sql, &[&schema]).await.map_err(failed)?;
    if row.is_none_or(|row| row.get(0)) {
        return Ok(());
    }
    Err(OpenError::NoRights { action: "look into its schema", said: format!("no USAGE on {schema}") })
}

/// Refuses a schema whose rows the user may not read and write, all that its owner keeps there.
pub(super) async fn refuse_missing(client: &Client, schema: &str) -> Result<(), OpenError> {
    // It is an error to ask for the rights to a sequence of what is none: only a CASE makes sure that nobody does.
    let sql = "WITH ours AS ( \
                 SELECT oid, relname, relkind FROM pg_class \
                 WHERE (relnamespace, relowner) = ( \
                   SELECT relnamespace, relowner FROM pg_class \
                   WHERE relname = 'schema_migration' \
                     AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) \
                 ) \
               ) \
               SELECT wanted || ' on ' || relname \
               FROM ours, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted \
               WHERE relkind = 'r' AND relname <> 'schema_migration' AND NOT has_table_privilege(ours.oid, wanted) \
               UNION ALL \
               SELECT 'USAGE on ' || relname FROM ours \
               WHERE CASE relkind WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END \
               ORDER BY 1";
    let rows = client.query(sql, &[&schema]).await.map_err(failed)?;
    if rows.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = rows.iter().take(NAMED).map(|row| row.get(0)).collect();
    let more = rows.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(OpenError::NoRights { action: "read and write its rows", said: format!("no {}{more}", names.join(", ")) })
}

fn failed(source: tokio_postgres::Error) -> OpenError {
    OpenError::asked("look at its rights", source)
}
