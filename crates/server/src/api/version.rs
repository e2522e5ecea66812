//! `GET /api/v1/version`: what the control plane is and speaks.

use leasehold_control::sessions::PROTOCOLS;
use leasehold_wire::api::version::Version;

use super::answer::Json;

pub(super) async fn version() -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_min: *PROTOCOLS.start(),
        protocol_max: *PROTOCOLS.end(),
    })
}
