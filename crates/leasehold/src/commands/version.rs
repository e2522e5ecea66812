//! `leasehold version`: of this program, and of the control plane where one is reached.

use clap::Args;
use leasehold_wire::api::{route, version};
use serde::Serialize;

use super::connected::Connected;
use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold version
  leasehold version -o json
  LEASEHOLD_ADDR=https://host:7440 leasehold version";

/// Prints versions.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Version {
    #[command(flatten)]
    connected: Connected,
}

#[derive(Debug, Serialize)]
struct Answer {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_plane: Option<version::Version>,
}

impl Version {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let version = env!("CARGO_PKG_VERSION");
        // Without a control plane there is still a version to tell; one that was named and does not answer is an error.
        let named = self.connected.target.addr.is_some() || self.connected.target.data.is_some();
        let control_plane = match self.connected.client() {
            Ok(client) => Some(client.get::<version::Version>(route::VERSION).await?),
            Err(error) if named => return Err(error),
            Err(_) => None,
        };
        let answer = Answer { version, control_plane };
        self.connected.output.one(&answer, version, |out| {
            writeln!(out, "leasehold {version}")?;
            match &answer.control_plane {
                Some(it) => writeln!(
                    out,
                    "control plane {} (worker protocol {} to {})",
                    it.version, it.protocol_min, it.protocol_max
                ),
                None => Ok(()),
            }
        })?;
        Ok(Exit::Done)
    }
}
