//! `enroll`: a machine becomes a worker. The only call without a client certificate; the enrollment token is its proof.

use leasehold_core::crypto::{EnrollmentToken, Ticket};
use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_core::time::UtcMillis;
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::field;
use crate::parse::Message;

/// Most certificates in a chain or in the trust bundle.
pub const CERTIFICATES: usize = 8;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The token that an administrator made; single use.
    #[serde(with = "field::token")]
    pub token: EnrollmentToken,
    /// The certificate signing request, DER; its subject is ignored.
    #[serde(with = "field::binary")]
    pub csr: Vec<u8>,
}

impl Message for EnrollRequest {
    const SCHEMA: &'static str = "leasehold/enroll/v1";
    const LIMIT: usize = limits::JSON_BODY;

    fn check(&self) -> Result<(), WireError> {
        let size = self.csr.len();
        if size > limits::CSR_BYTES {
            let allowed = format!("at most {} bytes", limits::CSR_BYTES);
            return Err(WireError::limit("csr", format!("{size} bytes"), allowed));
        }
        Ok(())
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollAnswer {
    /// The worker that the machine now is.
    #[serde(with = "field::text")]
    pub worker_id: WorkerId,
    /// Its certificate chain, DER, leaf first.
    #[serde(with = "field::binary::list")]
    pub certificates: Vec<Vec<u8>>,
    /// The CA certificates to trust from now on, DER.
    #[serde(with = "field::binary::list")]
    pub trust_bundle: Vec<Vec<u8>>,
    /// The ticket for the first registration.
    #[serde(with = "field::token")]
    pub ticket: Ticket,
    /// When the certificate ends.
    #[serde(with = "field::utc")]
    pub expires_at_ms: UtcMillis,
}

impl Message for EnrollAnswer {
    const SCHEMA: &'static str = "leasehold/enroll-answer/v1";
    const LIMIT: usize = limits::JSON_BODY * 2;

    fn check(&self) -> Result<(), WireError> {
        for (field, list) in [("certificates", &self.certificates), ("trust_bundle", &self.trust_bundle)] {
            WireError::check_count(field, list.len(), CERTIFICATES)?;
            if list.is_empty() {
                return Err(WireError::invalid(field, "an empty list", "at least one certificate"));
            }
        }
        Ok(())
    }
}
