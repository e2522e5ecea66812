//! Connections: what each one is set to, and what a server must be before anything is entrusted to it.
//!
//! Every new connection is looked at, not the first alone: a setting can change under a running replica, and behind one
//! address there may be another server now. A server that may lose what it acknowledged is refused.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Socket};

use super::history::{self, Witness};
use super::open::{OpenError, said};
use super::tls::{Encrypted, Tls};

/// How long one server may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The oldest version that is supported.
const OLDEST: i32 = 14;

/// How connections are made.
#[derive(Debug, Clone)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
}

impl Address {
    /// What `url` names.
    pub(super) fn of(url: &str) -> Result<Self, OpenError> {
        // The driver would take what follows the first for the server, and every message names that.
        if url
            .split_once('@')
            .is_some_and(|(_, after)| after.split('?').next().is_some_and(|place| place.contains('@')))
        {
            let told =
                "there is a second `@` in it: in a user's name or a password write %40 instead (and %25 for a `%`)";
            return Err(OpenError::Url(told.to_owned()));
        }
        let (tls, url) = Tls::of(url).map_err(OpenError::Url)?;
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            use std::error::Error as _;
            OpenError::Url(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            return Err(OpenError::Url("it names no server: postgres://user@host/database".to_owned()));
        }
        config.ssl_mode(tls.driver_mode());
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        config.connect_timeout(CONNECT);
        // A server that went away without a word is noticed.
        config.keepalives(true).keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(20));
        Ok(Self { config, tls })
    }

    /// What makes connections to it for a pool.
    pub(super) fn manager(&self, config: ManagerConfig) -> Manager {
        Manager::from_config(self.config.clone(), self.tls.clone(), config)
    }

    /// What went wrong with a connection to it, as far as that can be told.
    pub(super) fn refusal(&self, source: &tokio_postgres::Error) -> OpenError {
        let (server, told) = (self.servers(), said(source));
        let name = |name: Option<&str>| name.unwrap_or("that of the system's user").to_owned();
        let user = || name(self.config.get_user());
        if let Some(code) = source.code() {
            return if *code == SqlState::INVALID_CATALOG_NAME {
                OpenError::NoDatabase { database: name(self.config.get_dbname().or(self.config.get_user())) }
            } else if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
                OpenError::Refused { server, user: user(), said: told }
            } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
                OpenError::NoRights { action: "connect to the database", said: told }
            } else {
                OpenError::Unreachable { server, said: told }
            };
        }
        // The driver tells these apart by their words alone.
        match (source.to_string().as_str(), told.as_str()) {
            (_, "password missing") => OpenError::NoPassword { server, user: user() },
            ("authentication error", _) => OpenError::Refused { server, user: user(), said: told },
            (_, "server does not support TLS") => OpenError::NoTls { server },
            ("error performing TLS handshake", _) => OpenError::Handshake { server, said: told },
            _ => OpenError::Unreachable { server, said: told },
        }
    }

    /// `host:port` of every server that it names.
    fn servers(&self) -> String {
        let ports = self.config.get_ports();
        let one = |(at, host): (usize, &Host)| match host {
            Host::Tcp(host) => {
                format!("{host}:{}", ports.get(at).or(ports.first()).copied().unwrap_or(5432))
            }
            Host::Unix(directory) => directory.display().to_string(),
        };
        self.config.get_hosts().iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// A connection of its own, for what is done once.
pub(super) async fn single(address: &Address) -> Result<Client, OpenError> {
    let made = address.config.connect(address.tls.clone()).await;
    let (client, connection) = made.map_err(|source| address.refusal(&source))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL broke");
        }
    });
    Ok(client)
}

/// A connection of its own, for what the server says by itself: its caller carries it.
pub(super) async fn listening(address: &Address) -> Result<(Client, Connection<Socket, Encrypted<Socket>>), OpenError> {
    address.config.connect(address.tls.clone()).await.map_err(|source| address.refusal(&source))
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
    client.batch_execute(&settings).await.map_err(|source| OpenError::asked("set a connection up", source))
}

/// Lets a connection be used: to a server that keeps what it acknowledges, and of a history that `witness` trusts.
pub(super) async fn admit(client: &Client, witness: Option<&dyn Witness>) -> Result<(), OpenError> {
    refuse_unsafe(client).await?;
    match witness {
        Some(witness) => witness.admits(history::of(client).await?).map_err(OpenError::History),
        None => Ok(()),
    }
}

/// Refuses a server that may lose what it acknowledged, or that cannot carry the schema.
pub(super) async fn refuse_unsafe(client: &Client) -> Result<(), OpenError> {
    Server::of(client).await?.judged()
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub(super) struct Server {
    version: i32,
    encoding: String,
    standby: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standbys: String,
}

impl Server {
    /// Asks it.
    pub(super) async fn of(client: &Client) -> Result<Self, OpenError> {
        let row = client
            .query_one(
                "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'), \
                 pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'), \
                 current_setting('synchronous_commit'), current_setting('synchronous_standby_names')",
                &[],
            )
            .await
            .map_err(|source| OpenError::asked("ask the server for its settings", source))?;
        let text = |at: usize| row.try_get::<_, String>(at).unwrap_or_default();
        Ok(Server {
            version: row.try_get(0).unwrap_or_default(),
            encoding: text(1),
            standby: row.try_get(2).unwrap_or_default(),
            fsync: text(3),
            full_page_writes: text(4),
            synchronous_commit: text(5),
            standbys: text(6),
        })
    }

    /// Whether it follows another one.
    pub(super) fn is_standby(&self) -> bool {
        self.standby
    }

    /// The standbys that each commit waits for; none, where a failover may lose what was acknowledged.
    pub(super) fn waits_for(&self) -> Option<String> {
        (!self.standbys.is_empty() && self.synchronous_commit != "local").then(|| self.standbys.clone())
    }

    /// Refuses what may lose something.
    pub(super) fn judged(&self) -> Result<(), OpenError> {
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
            ("postgres://h/d?sslmode=on", "sslmode"),
            ("postgres:///d", "names no server"),
            ("postgres://h:port/d", "port"),
            ("postgres://u:se@cret@h/d", "write %40"),
            ("postgres://u:p@se/w#rd@h/d", "write %40"),
        ] {
            let sentence = Address::of(url).unwrap_err().to_string();
            assert!(sentence.contains(word), "{url}: {sentence}");
        }
        Address::of("postgres://leasehold@db.example/leasehold?sslmode=require").unwrap();
    }

    #[test]
    fn a_name_is_quoted_whatever_it_is() {
        assert_eq!(quoted("lease\"hold"), "\"lease\"\"hold\"");
    }
}
