//! The flags of every command that talks to a control plane and prints an answer.

use clap::Args;

use crate::client::Client;
use crate::output::OutputArgs;
use crate::target::TargetArgs;
use crate::times::TimeArgs;

/// Where to ask and how to print.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connected {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) times: TimeArgs,
}

impl Connected {
    /// A client of the control plane that these flags name.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.target.resolve()?)?)
    }
}
