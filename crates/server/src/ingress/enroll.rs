//! `POST /worker/v1/enroll`: a machine becomes a worker. The only route without a certificate; its token is the proof.

use axum::Extension;
use axum::extract::State;
use leasehold_control::error::ServiceError;
use leasehold_core::actor::Origin;
use leasehold_core::time::UtcMillis;
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Ingress;
use super::request::{Answer, Answered, Said};

pub(super) async fn enroll(
    State(ingress): State<Ingress>,
    Extension(origin): Extension<Origin>,
    Said(said): Said<EnrollRequest>,
) -> Answered<EnrollAnswer> {
    let enrolled = ingress.control.enroll(&said.token, &said.csr, Some(origin)).await?;
    // A repeat hands out the first answer's certificate: its end is the certificate's own word.
    let expires_at_ms = enrolled.chain.first().and_then(|leaf| ends_at(leaf)).ok_or_else(|| ServiceError::Damaged {
        reason: format!("the stored certificate of worker {} cannot be read", enrolled.worker),
    })?;
    Ok(Answer(EnrollAnswer {
        worker_id: enrolled.worker,
        certificates: enrolled.chain,
        trust_bundle: enrolled.trust_bundle,
        ticket: enrolled.ticket,
        expires_at_ms,
    }))
}

fn ends_at(leaf: &[u8]) -> Option<UtcMillis> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    Some(UtcMillis::new(certificate.validity().not_after.timestamp().saturating_mul(1000)))
}
