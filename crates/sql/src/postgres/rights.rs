//! What a user may do in the schema, looked at before anything is entrusted to the database.
//!
//! A right that is missing would else be found by the first call that needs it, which fails then, and again whenever it is
//! sent: nobody is told that a person is wanted. Nothing is granted here; `deploy/postgresql/roles.sql` does that.

use tokio_postgres::Client;

use super::open::OpenError;

/// Names that a message holds; more of them say nothing new.
const NAMED: usize = 8;

/// Refuses a schema in which the user may not do all that a replica does.
pub(super) async fn refuse(client: &Client, schema: &str) -> Result<(), OpenError> {
    refuse_closed(client, schema).await?;
    refuse_missing(client, schema).await
}

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
    // What was told is never told otherwise: nobody needs the right to. It is an error to ask for the rights to a sequence of
    // what is none: only a CASE makes sure that nobody does. A trigger's function is executed for whoever changes the row.
    let sql = "WITH migrated AS ( \
                 SELECT relnamespace AS schema, relowner AS owner FROM pg_class \
                 WHERE relname = 'schema_migration' \
                   AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) \
               ), ours AS ( \
                 SELECT oid, relname, relkind FROM pg_class, migrated \
                 WHERE relnamespace = migrated.schema AND relowner = migrated.owner \
               ) \
               SELECT wanted || ' on ' || relname \
               FROM ours, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted \
               WHERE relkind = 'r' AND relname <> 'schema_migration' \
                 AND NOT (relname IN ('audit', 'event') AND wanted IN ('UPDATE', 'DELETE')) \
                 AND NOT has_table_privilege(ours.oid, wanted) \
               UNION ALL \
               SELECT 'USAGE on ' || relname FROM ours \
               WHERE CASE relkind WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END \
               UNION ALL \
               SELECT DISTINCT 'EXECUTE on ' || proname FROM pg_proc, migrated \
               WHERE pronamespace = migrated.schema AND proowner = migrated.owner \
                 AND prorettype <> 'pg_catalog.trigger'::regtype AND NOT has_function_privilege(pg_proc.oid, 'EXECUTE') \
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
