//! Connections: what each one is set to, and what a server must be before anything is entrusted to it.
//!
//! Every new connection is looked at, not the first alone: a setting can change under a running replica, and behind one
//! address there may be another server now. A server that may lose what it acknowledged is refused.

use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};

use super::open::{OpenError, PostgresOptions};

/// How long a connection may take to be made, or to become free.
const CONNECT: Duration = Duration::from_secs(5);

/// The oldest version that is supported.
const OLDEST: i32 = 14;

/// What is said of a URL that asks for something else than can be had.
const TLS: &str = "connections to PostgreSQL are not encrypted by this version: use a local socket, a private network or a \
                   tunnel, and sslmode=disable";

/// What `url` names.
pub(super) fn config(url: &str) -> Result<Config, OpenError> {
    // `verify-ca` and `verify-full` are not known to the driver: its words would not help.
    if url.contains("sslmode=verify") {
        return Err(OpenError::Url(TLS.to_owned()));
    }
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        use std::error::Error as _;
        OpenError::Url(error.source().map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(OpenError::Url(TLS.to_owned()));
    }
    if config.get_hosts().is_empty() {
        return Err(OpenError::Url("it names no server: postgres://user@host/database".to_owned()));
    }
    config.ssl_mode(SslMode::Disable);
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    config.connect_timeout(CONNECT);
    // A server that went away without a word is noticed.
    config.keepalives(true).keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(20));
    Ok(config)
}

/// A connection of its own, for what is done once.
pub(super) async fn single(config: &Config) -> Result<Client, OpenError> {
    let unreachable = |source| OpenError::Unreachable { source };
    let (client, connection) = config.connect(NoTls).await.map_err(unreachable)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL broke");
        }
    });
    Ok(client)
}

/// A connection of its own, for what the server says by itself: its caller carries it.
pub(super) async fn listening(config: &Config) -> Result<(Client, Connection<Socket, NoTlsStream>), OpenError> {
    config.connect(NoTls).await.map_err(|source| OpenError::Unreachable { source })
}

/// The pool of a store.
pub(super) fn pool(config: Config, options: &PostgresOptions) -> Result<Pool, OpenError> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let schema = options.schema.clone();
    let prepare = Hook::async_fn(move |client, _| {
        let schema = schema.clone();
        Box::pin(async move {
            let prepared = async {
                refuse_unsafe(client).await?;
                set_up(client, &schema).await
            };
            prepared.await.map_err(|error| HookError::message(error.to_string()))
        })
    });
    Pool::builder(Manager::from_config(config, NoTls, manager))
        .max_size(options.connections.max(1))
        .wait_timeout(Some(CONNECT))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(CONNECT))
        .runtime(Runtime::Tokio1)
        .post_create(prepare)
        .build()
        .map_err(|error| OpenError::Pool(error.to_string()))
}

/// A name as it stands in a statement.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Sets a connection to what every call relies on.
pub(super) async fn set_up(client: &Client, schema: &str) -> Result<(), OpenError> {
    let settings = format!(
        "SET search_path TO {}; \
         SET default_transaction_isolation TO 'read committed'; \
         SET statement_timeout TO '15s'; \
         SET lock_timeout TO '5s'; \
         SET idle_in_transaction_session_timeout TO '15s'; \
         SET jit TO off",
        quoted(schema)
    );
    client
        .batch_execute(&settings)
        .await
        .map_err(|source| OpenError::Postgres { action: "set a connection up", source })
}

/// Refuses a server that may lose what it acknowledged, or that cannot carry the schema.
pub(super) async fn refuse_unsafe(client: &Client) -> Result<(), OpenError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'), \
             pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), \
             current_setting('synchronous_commit'), current_setting('synchronous_standby_names')",
            &[],
        )
        .await
        .map_err(|source| OpenError::Postgres { action: "ask the server for its settings", source })?;
    let text = |at: usize| row.try_get::<_, String>(at).unwrap_or_default();
    let found = Server {
        version: row.try_get(0).unwrap_or_default(),
        encoding: text(1),
        standby: row.try_get(2).unwrap_or_default(),
        fsync: text(3),
        full_page_writes: text(4),
        synchronous_commit: text(5),
        standbys: text(6),
    };
    found.judged()
}

/// What a server says of itself.
#[derive(Debug, Clone)]
struct Server {
    version: i32,
    encoding: String,
    standby: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standbys: String,
}

impl Server {
    fn judged(&self) -> Result<(), OpenError> {
        let Self { version, encoding, standby, .. } = self;
        if version / 10_000 < OLDEST {
            return Err(OpenError::OldServer { found: version / 10_000, oldest: OLDEST });
        }
        if encoding != "UTF8" {
            return Err(OpenError::Encoding { found: encoding.clone() });
        }
        if *standby {
            return Err(OpenError::Standby);
        }
        let lossy = |name: &'static str, value: &str, loses: &'static str| {
            Err(OpenError::Lossy { name, value: value.to_owned(), loses })
        };
        if self.fsync == "off" {
            return lossy("fsync", "off", "a power failure loses or destroys what was acknowledged");
        }
        if self.full_page_writes == "off" {
            return lossy("full_page_writes", "off", "a power failure can destroy pages that were acknowledged");
        }
        match self.synchronous_commit.as_str() {
            "off" => lossy("synchronous_commit", "off", "a crash of the server loses what was acknowledged"),
            // Without standbys to wait for, the local disk is all there is, and `local` waits for it.
            "local" if !self.standbys.is_empty() => lossy(
                "synchronous_commit",
                "local",
                "the promotion of a standby loses what was acknowledged (synchronous_standby_names is set)",
            ),
            // Received by the standby, though not yet on its disk: lost only when both machines lose power at once.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: 150_004,
            encoding: "UTF8".to_owned(),
            standby: false,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            standbys: String::new(),
        }
    }

    #[test]
    fn a_server_that_keeps_what_it_acknowledged_is_taken() {
        server().judged().unwrap();
        for kept in ["on", "local", "remote_write", "remote_apply"] {
            Server { synchronous_commit: kept.to_owned(), ..server() }.judged().unwrap();
        }
        Server { standbys: "b".to_owned(), synchronous_commit: "remote_write".to_owned(), ..server() }
            .judged()
            .unwrap();
    }

    #[test]
    fn a_server_that_may_lose_something_is_refused_and_told_what_to_do() {
        let off = || "off".to_owned();
        let local = || "local".to_owned();
        for (unsafe_server, word) in [
            (Server { fsync: off(), ..server() }, "fsync"),
            (Server { full_page_writes: off(), ..server() }, "full_page_writes"),
            (Server { synchronous_commit: off(), ..server() }, "synchronous_commit"),
            (Server { synchronous_commit: local(), standbys: "b".to_owned(), ..server() }, "synchronous_commit"),
            (Server { standby: true, ..server() }, "standby"),
            (Server { encoding: "LATIN1".to_owned(), ..server() }, "UTF8"),
            (Server { version: 130_012, ..server() }, "14"),
        ] {
            let sentence = unsafe_server.judged().unwrap_err().to_string();
            assert!(sentence.contains(word), "{sentence}");
        }
    }

    #[test]
    fn a_url_is_refused_in_words_that_help() {
        for (url, word) in [
            ("postgres://h/d?sslmode=require", "not encrypted"),
            ("postgres://h/d?sslmode=verify-full", "not encrypted"),
            ("postgres:///d", "names no server"),
            ("postgres://h:port/d", "port"),
        ] {
            let sentence = config(url).unwrap_err().to_string();
            assert!(sentence.contains(word), "{url}: {sentence}");
        }
        config("postgres://leasehold@db.example/leasehold").unwrap();
    }

    #[test]
    fn a_name_is_quoted_whatever_it_is() {
        assert_eq!(quoted("lease\"hold"), "\"lease\"\"hold\"");
    }
}
