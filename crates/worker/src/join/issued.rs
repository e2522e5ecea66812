//! Whether what an enrollment answered is what was asked for: a certificate of our key, under our name, from the pinned CA.
//!
//! The connection was vouched for already; this keeps a confused control plane from leaving an identity that fails at its
//! first use, when the token is long spent.

use std::sync::Arc;

use leasehold_core::crypto::Digest;
use leasehold_core::id::TrustDomain;
use leasehold_core::join::public_key_digest;
use leasehold_wire::v1::enroll::EnrollAnswer;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What the answer must fit.
pub(super) struct Asked<'a> {
    /// Our public key, a DER `SubjectPublicKeyInfo`.
    pub(super) public_key: &'a [u8],
    /// The pin.
    pub(super) ca: Digest,
    /// The control plane's own domain.
    pub(super) domain: &'a TrustDomain,
    /// The time that TLS goes by.
    pub(super) now: UnixTime,
}

/// Says what is wrong with the answer.
pub(super) fn check(answer: &EnrollAnswer, asked: &Asked<'_>) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    let mut pinned = false;
    for der in &answer.trust_bundle {
        pinned |= public_key(der).is_some_and(|key| public_key_digest(&key) == asked.ca);
        roots
            .add(CertificateDer::from(der.as_slice()).into_owned())
            .map_err(|error| format!("trust bundle: {error}"))?;
    }
    if !pinned {
        return Err("the trust bundle lacks the CA that the token pins".to_owned());
    }
    let mut chain = answer.certificates.iter().map(|der| CertificateDer::from(der.as_slice()));
    let leaf = chain.next().ok_or("no certificate")?;
    if public_key(&leaf).as_deref() != Some(asked.public_key) {
        return Err("the certificate is of another key".to_owned());
    }
    let name = asked.domain.worker_uri(&answer.worker_id);
    if !is_named(&leaf, &name) {
        return Err(format!("the certificate does not name {name}"));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("trust bundle: {error}"))?;
    let intermediates: Vec<_> = chain.collect();
    match verifier.verify_client_cert(&leaf, &intermediates, asked.now) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the certificate is not good: {error}")),
    }
}

fn public_key(der: &[u8]) -> Option<Vec<u8>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate.public_key().raw.to_vec())
}

fn is_named(leaf: &[u8], name: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|known| matches!(known, GeneralName::URI(uri) if *uri == name))
}
