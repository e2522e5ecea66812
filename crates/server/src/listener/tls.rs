//! TLS 1.3 and nothing older, by one provider; the chain of a client is verified here, its expiry per request.
//!
//! A connection may outlive a certificate, so the handshake asks *whose* and each request asks *still*: an expired worker
//! is told `unauthenticated` in words instead of being cut off by an alert. (Protocol, *Errors*, last paragraph.)

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::time::Clock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The TLS of the worker ingress: a client certificate is asked for, and verified against `ca` if one is shown.
pub(crate) fn ingress_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    ca: CertificateDer<'static>,
    clock: Arc<dyn Clock>,
) -> Result<ServerConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(Time(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(ExpiryPerRequest(verifier)))
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    no_resumption(&mut config);
    Ok(config)
}

/// The TLS of the operator API: nobody is asked for a certificate.
pub(crate) fn api_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clock: Arc<dyn Clock>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(Time(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    no_resumption(&mut config);
    Ok(config)
}

/// Every connection proves its certificate anew: a resumed one would carry the proof of an earlier day.
fn no_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// The control plane's clock, as TLS asks for it.
struct Time(Arc<dyn Clock>);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = u64::try_from(self.0.utc().get()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

impl std::fmt::Debug for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Time")
    }
}

/// Verifies chain, purpose and signature as of the time at which the certificate was last valid.
#[derive(Debug)]
struct ExpiryPerRequest(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ExpiryPerRequest {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let (_, certificate) = X509Certificate::from_der(leaf)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let until = u64::try_from(certificate.validity().not_after.timestamp())
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::Expired))?;
        let as_of = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs().min(until)));
        self.0.verify_client_cert(leaf, intermediates, as_of)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
