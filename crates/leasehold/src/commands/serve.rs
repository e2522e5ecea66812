//! `leasehold serve`: a control plane alone, for machines whose workers are elsewhere.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use leasehold_core::crypto::ApiToken;
use leasehold_core::limits::{HEARTBEAT_INTERVAL_MAX, HEARTBEAT_INTERVAL_MIN};
use leasehold_core::registration::Cadence;
use leasehold_core::time::{DurationError, Millis};
use leasehold_server::{API_PORT, INGRESS_PORT};
use zeroize::Zeroizing;

use crate::compose::{self, StoreArgs};
use crate::control_plane::{self, Listen};
use crate::data_directory::DataDirectory;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::logging::{self, LogFormat};
use crate::service_manager;
use crate::system;
use crate::target::DATA_DIRECTORY;

const AFTER_HELP: &str = "\
Examples:
  leasehold serve      on loopback, data in ./leasehold-data
  leasehold serve --data /var/lib/leasehold \\
    --listen 0.0.0.0:7440 --worker-listen 0.0.0.0:7443
  leasehold serve --worker-listen 0.0.0.0:7443 --advertise control.example
  leasehold serve --database postgres://leasehold@db.example/leasehold

The API speaks plain HTTP on loopback and TLS everywhere else; remote command
lines need ca.pem from the data directory. SIGTERM and Ctrl-C finish what is
being answered, within 10 s; a second one ends at once, which loses nothing that
was answered. As a service: deploy/systemd/leasehold.service.

On PostgreSQL every replica needs a data directory of its own, and all need the
same master key: the first start makes master.key, the others get a copy. See
docs/operating-postgresql.md.

Exit codes:
  0 stopped in order · 1 it could not start · 130 ended at once";

/// The default address of the operator API.
pub(crate) const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), API_PORT);
/// The default address of the worker ingress.
pub(crate) const INGRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), INGRESS_PORT);

/// Starts a control plane.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Serve {
    /// Where the operator API listens
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDR", default_value_t = API)]
    listen: SocketAddr,

    /// Where workers come in
    #[arg(long, env = "LEASEHOLD_WORKER_LISTEN", value_name = "ADDR", default_value_t = INGRESS)]
    worker_listen: SocketAddr,

    /// What others reach this control plane by, or its load balancer: for the certificate and the enroll line. The port is
    /// that of the worker ingress, where it is not the same there
    #[arg(long, env = "LEASEHOLD_ADVERTISE", value_name = "HOST[:PORT]")]
    advertise: Option<String>,

    /// The data directory
    #[arg(long, env = "LEASEHOLD_DATA", value_name = "DIR", default_value = DATA_DIRECTORY)]
    data: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    /// Bring the schema of the database up to date, as its owner, and stop
    #[arg(long)]
    migrate_only: bool,

    /// How often workers report, from 5s to 5m; a session ends after three times this without a word
    #[arg(long, env = "LEASEHOLD_HEARTBEAT", value_name = "DURATION", default_value = "15s", value_parser = cadence)]
    heartbeat: Cadence,

    #[arg(long, env = "LEASEHOLD_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    #[arg(help = "The form of log lines on stderr; LEASEHOLD_LOG chooses which, such as debug")]
    log_format: LogFormat,
}

impl Serve {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        logging::start(self.log_format, "info");
        system::raise_open_files();
        if self.migrate_only {
            compose::migrate(&self.data, &self.store).await?;
            tracing::info!("the schema is up to date");
            return Ok(Exit::Done);
        }
        let mut interrupts = Interrupts::listen()?;
        let listen = Listen {
            api: self.listen,
            ingress: self.worker_listen,
            advertised: self.advertise,
            any_port: false,
            cadence: self.heartbeat,
        };
        let starting = control_plane::start(&self.data, &self.store, &listen, |data, token| {
            if service_manager::keeps_stderr() {
                let path = data.keep_first_token(&token)?;
                tracing::info!("the first admin token is in {}: keep it elsewhere and remove the file", path.display());
                return Ok(());
            }
            show_first_token(data, &token)
        });
        let mut running = starting.await?;
        tracing::info!(
            api = %running.bound.api,
            ingress = %running.bound.ingress,
            data = %running.data.path().display(),
            version = env!("CARGO_PKG_VERSION"),
            "the control plane is up"
        );
        service_manager::ready();
        tokio::select! {
            () = interrupts.next() => {}
            error = running.failed() => return Err(error),
        }
        service_manager::stopping();
        if running.stop_unless(&mut interrupts).await? {
            tracing::info!("stopped");
            return Ok(Exit::Done);
        }
        tracing::warn!("told again: ended at once");
        Ok(Exit::Interrupted)
    }
}

/// The cadence of a heartbeat as it was typed.
fn cadence(text: &str) -> Result<Cadence, String> {
    let interval: Millis = text.parse().map_err(|error: DurationError| error.to_string())?;
    Cadence::every(interval)
        .ok_or_else(|| format!("{interval} is not between {HEARTBEAT_INTERVAL_MIN} and {HEARTBEAT_INTERVAL_MAX}"))
}

/// The one time that the first admin token is shown. Never through the log, which is kept. Where nobody can read it, it is left
/// in the data directory.
pub(crate) fn show_first_token(data: &DataDirectory, token: &ApiToken) -> anyhow::Result<()> {
    let token_in_words = Zeroizing::new(token.reveal());
    let words = "first admin token, shown this once (LEASEHOLD_TOKEN)";
    if writeln!(io::stderr().lock(), "{words}: {}", *token_in_words).is_err() {
        data.keep_first_token(token)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_held_to_its_bounds_and_a_session_survives_two_that_are_lost() {
        let beaten = cadence("5s").unwrap();
        assert_eq!((beaten.interval, beaten.lease), (Millis::from_secs(5), Millis::from_secs(15)));
        assert_eq!(cadence("15s").unwrap(), Cadence::default());
        assert!(cadence("4s").unwrap_err().contains("between 5s and 5m"));
        assert!(cadence("5").unwrap_err().contains("duration"));
    }
}
