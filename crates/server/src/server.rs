//! The server: bound once, run once, drained once.

use std::sync::Arc;

use leasehold_control::ControlPlane;
use leasehold_core::time::{Clock, Entropy};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::api::{self, Api};
use crate::bind::BindError;
use crate::config::{Bound, ServerConfig};
use crate::drain::DrainSwitch;
use crate::ingress::{self, Ingress};
use crate::listener::{AdminSocket, Places, Secured, TcpPort, api_config, ingress_config, serve_admin};
use crate::ports::Ports;
use crate::rates::Rates;

/// Listeners that are bound: nobody is answered before [`Server::run`].
pub struct Server {
    control: ControlPlane,
    clock: Arc<dyn Clock>,
    api: TcpPort,
    ingress: TcpPort,
    ingress_url: Arc<str>,
    admin: Option<AdminSocket>,
}

impl Server {
    /// Makes listeners of `ports` and the admin socket of `config`, with a new certificate of the installation.
    pub async fn bind(
        ports: Ports,
        control: ControlPlane,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        config: &ServerConfig,
    ) -> Result<Self, BindError> {
        let keys = control.keys();
        let identity = keys
            .control_identity(&config.names, clock.utc(), entropy)
            .map_err(|error| BindError::Certificate { reason: error.to_string() })?;
        let chain: Vec<CertificateDer<'static>> = identity.chain.iter().cloned().map(Into::into).collect();
        let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.to_vec()));
        let ca = CertificateDer::from(keys.ca_certificate().to_vec());
        let workers = ingress_config(chain.clone(), key(), ca, Arc::clone(&clock))?;
        let operators = api_config(chain, key(), Arc::clone(&clock))?;

        let admin = match &config.admin_socket {
            Some(path) => Some(AdminSocket::bind(path).await?),
            None => None,
        };
        let secured = Secured::Operators { tls: TlsAcceptor::from(Arc::new(operators)) };
        let places = Places::for_operators(config.connections, config.operators_per_address);
        let api = TcpPort::on(ports.api, secured, places)?;
        let secured =
            Secured::Workers { tls: TlsAcceptor::from(Arc::new(workers)), domain: keys.trust_domain().clone() };
        let places = Places::for_workers(config.connections, config.strangers_per_address);
        let ingress = TcpPort::on(ports.ingress, secured, places)?;
        let ingress_url = match &config.ingress_url {
            Some(url) => url.as_str().into(),
            None => format!("https://{}", ingress.address()).into(),
        };
        Ok(Self { control, clock, api, ingress, ingress_url, admin })
    }

    /// Where it listens, with the ports that were chosen where none was named.
    pub fn bound(&self) -> Bound {
        Bound {
            api: self.api.address(),
            ingress: self.ingress.address(),
            admin_socket: self.admin.as_ref().map(|socket| socket.path().to_owned()),
        }
    }

    /// Answers until `shutdown` is ready; then stops accepting, finishes what is being answered, and returns, at the
    /// latest after [`leasehold_core::limits::CONTROL_DRAIN_REQUESTS`].
    ///
    /// Open pulls and followers end when the control plane drains: give [`ControlPlane::run`] the same signal.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { control, clock, api, ingress, ingress_url, admin } = self;
        let switch = DrainSwitch::new();
        let rates = Arc::new(Rates::new(Arc::clone(&clock)));
        let operators = api::router(Api { control: control.clone(), ingress_url, rates, drain: switch.drain() });
        let workers = ingress::router(Ingress::new(control, clock));
        let begin_drain = async {
            shutdown.await;
            tracing::info!("draining");
            switch.begin();
        };
        let admin = async {
            if let Some(socket) = admin {
                serve_admin(socket, operators.clone(), switch.drain()).await;
            }
        };
        tokio::join!(
            begin_drain,
            api.serve(operators.clone(), switch.drain()),
            ingress.serve(workers, switch.drain()),
            admin,
        );
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("bound", &self.bound()).finish_non_exhaustive()
    }
}
