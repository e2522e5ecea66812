//! A control plane in this process: opened, bound, run and drained, the same for `serve` and `up`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use leasehold_control::Settings;
use leasehold_core::crypto::ApiToken;
use leasehold_core::registration::Cadence;
use leasehold_server::{BindError, Bound, Ports, Server, ServerConfig, admin_socket_path};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::advertise;
use crate::compose::{Composed, StoreArgs, open, refuse_held};
use crate::data_directory::DataDirectory;
use crate::interrupt::Interrupts;
use crate::system::{SystemClock, SystemEntropy};

/// Where a control plane is asked to listen, and to whom how often.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    /// The operator API.
    pub api: SocketAddr,
    /// The worker ingress.
    pub ingress: SocketAddr,
    /// The host that others reach it by.
    pub advertised: Option<String>,
    /// Whether a busy port gives way to one that is free.
    pub any_port: bool,
    /// How often workers are asked to beat.
    pub cadence: Cadence,
}

/// A control plane that answers.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where.
    pub(crate) bound: Bound,
    /// Its data directory.
    pub(crate) data: DataDirectory,
    shutdown: watch::Sender<bool>,
    tasks: JoinSet<()>,
    composed: Composed,
}

/// Takes the ports, opens `data` and begins to answer. `first_token` gets the first admin token of an installation that was made
/// just now, before anything else can fail: nobody else will ever see it.
pub(crate) async fn start(
    data: &Path,
    store: &StoreArgs,
    listen: &Listen,
    first_token: impl FnOnce(&DataDirectory, ApiToken) -> anyhow::Result<()>,
) -> anyhow::Result<Running> {
    let (ports, config) = match take_ports(listen) {
        Ok(taken) => taken,
        Err(error) => {
            // Whose control plane it is that listens there says more.
            if let Ok(there) = DataDirectory::existing(data) {
                refuse_held(&there)?;
            }
            return Err(error);
        }
    };
    let data = DataDirectory::prepare(data)?;
    let config = ServerConfig { admin_socket: Some(admin_socket_path(data.path())), ..config };
    let settings = Settings { cadence: listen.cadence, ..Settings::default() };
    let mut composed = open(&data, store, settings).await?;
    let shown = composed.first_token.take().map_or(Ok(()), |token| first_token(&data, token));
    let bound = match shown {
        Ok(()) => {
            let control = composed.control.clone();
            let server = Server::bind(ports, control, Arc::new(SystemClock), &SystemEntropy, &config).await;
            server.map_err(anyhow::Error::from)
        }
        Err(error) => Err(error),
    };
    let server = match bound {
        Ok(server) => server,
        Err(error) => {
            composed.close().await;
            return Err(error);
        }
    };
    let bound = server.bound();
    let (shutdown, _) = watch::channel(false);
    let told = |mut shutdown: watch::Receiver<bool>| async move {
        // That the sender is gone ends us as well.
        let _ = shutdown.wait_for(|shutdown| *shutdown).await;
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run(told(shutdown.subscribe())));
    let control = composed.control.clone();
    let stop = told(shutdown.subscribe());
    tasks.spawn(async move { control.run(stop).await });
    Ok(Running { bound, data, shutdown, tasks, composed })
}

/// Takes the ports before anything is made: who cannot have them must not be left with an installation, and a token that was
/// shown once.
fn take_ports(listen: &Listen) -> anyhow::Result<(Ports, ServerConfig)> {
    let config = |api: SocketAddr, ingress: SocketAddr| ServerConfig {
        names: advertise::names(api, listen.advertised.as_deref()),
        ingress_url: advertise::ingress_url(ingress, listen.advertised.as_deref()),
        ..ServerConfig::default()
    };
    match Ports::take(listen.api, listen.ingress) {
        Err(BindError::InUse { .. }) if listen.any_port => {
            let free = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
            let (api, ingress) = (free(listen.api), free(listen.ingress));
            Ok((Ports::take(api, ingress)?, config(api, ingress)))
        }
        Err(
            error @ (BindError::InUse { what, .. }
            | BindError::NoSuchAddress { what, .. }
            | BindError::NotAllowed { what, .. }),
        ) => {
            let flag = if what.contains("ingress") { "--worker-listen" } else { "--listen" };
            anyhow::bail!("{error} with {flag}")
        }
        other => Ok((other?, config(listen.api, listen.ingress))),
    }
}

impl Running {
    /// Ready when a part of it ended although nobody asked: that is a defect. May be dropped and called again.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Err(error)) => anyhow::Error::new(error).context("the control plane stopped by itself"),
            Some(Ok(())) | None => anyhow::anyhow!("the control plane stopped by itself"),
        }
    }

    /// Drains and closes, unless a further signal comes meanwhile: whoever sends it wants an end at once, as a crash would
    /// make one. Whether it stopped in order.
    pub(crate) async fn stop_unless(self, interrupts: &mut Interrupts) -> anyhow::Result<bool> {
        tokio::select! {
            stopped = self.stop() => stopped.map(|()| true),
            () = interrupts.next() => Ok(false),
        }
    }

    /// Drains and closes: requests finish, then the store is closed; within [`leasehold_core::limits::CONTROL_DRAIN`].
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.shutdown.send_replace(true);
        let mut stopped = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            stopped = stopped.and(ended);
        }
        self.composed.close().await;
        stopped.context("the control plane did not stop in order")
    }
}
