//! `leasehold openapi`: the API's description, as every control plane of this version serves it.

use clap::Args;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold openapi > leasehold.json
  leasehold openapi | jq -r '.paths | keys[]'
  curl https://host:7440/api/v1/openapi.json        the same, of a control plane

OpenAPI 3.1: every route with its parameters, bodies, answers and the role it
needs.";

/// Prints the API's description.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct OpenApi {}

impl OpenApi {
    #[expect(clippy::unused_self, reason = "every verb is carried out by its value")]
    pub(crate) fn execute(&self) -> anyhow::Result<Exit> {
        super::print_json(&leasehold_server::openapi())
    }
}
