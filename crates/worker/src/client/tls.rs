//! TLS 1.3 to the control plane: its certificate is judged by the CA and its SAN URI, never by a host name.
//!
//! (Decisions, *How a new machine trusts the server*; protocol, *Identity*.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::crypto::Digest;
use leasehold_core::id::TrustDomain;
use leasehold_core::join::public_key_digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::identity::Identity;

/// The TLS of an enrolled worker.
pub fn worker_config(identity: &Identity) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    for der in &identity.trust_bundle {
        roots.add(CertificateDer::from(der.clone()))?;
    }
    let chain = identity.certificates.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivatePkcs8KeyDer::from(identity.key.to_vec());
    let trusted = Trusted::Bundle { roots, domain: identity.trust_domain.clone() };
    let mut config = builder(trusted)?.0.with_client_auth_cert(chain, key.into())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The TLS of a machine that joins: it knows the digest of the CA's key and nothing else. What it then learns is kept
/// beside it.
pub fn join_config(ca: Digest) -> Result<(ClientConfig, Arc<Learned>), Error> {
    let (builder, verifier) = builder(Trusted::Pin(ca))?;
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((config, Arc::clone(&verifier.learned)))
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn builder(trusted: Trusted) -> Result<(Builder, Arc<ControlPlane>), Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        Arc::new(ControlPlane { trusted, provider: Arc::clone(&provider), learned: Arc::new(Learned::default()) });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>);
    Ok((builder, verifier))
}

/// What a joining machine learned from the certificate it was shown.
#[derive(Debug, Default)]
pub struct Learned {
    domain: Mutex<Option<TrustDomain>>,
    stranger: AtomicBool,
}

impl Learned {
    /// The trust domain of the control plane.
    pub fn trust_domain(&self) -> Option<TrustDomain> {
        self.domain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether somebody answered whom the pin does not vouch for.
    pub fn is_stranger(&self) -> bool {
        self.stranger.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Trusted {
    Bundle { roots: RootCertStore, domain: TrustDomain },
    Pin(Digest),
}

#[derive(Debug)]
struct ControlPlane {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
    learned: Arc<Learned>,
}

impl ControlPlane {
    fn roots(&self, intermediates: &[CertificateDer<'_>]) -> Result<RootCertStore, Error> {
        match &self.trusted {
            Trusted::Bundle { roots, .. } => Ok(roots.clone()),
            Trusted::Pin(pin) => {
                let pinned = intermediates.iter().find(|der| {
                    X509Certificate::from_der(der)
                        .is_ok_and(|(_, ca)| ca.is_ca() && public_key_digest(ca.public_key().raw) == *pin)
                });
                let ca = pinned.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
                let mut roots = RootCertStore::empty();
                roots.add(ca.clone().into_owned())?;
                Ok(roots)
            }
        }
    }
}

impl ControlPlane {
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let roots = self.roots(intermediates)?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)?;
        let domain = control_domain(leaf).ok_or(Error::InvalidCertificate(CertificateError::NotValidForName))?;
        match &self.trusted {
            Trusted::Bundle { domain: expected, .. } if domain != *expected => {
                return Err(Error::InvalidCertificate(CertificateError::NotValidForName));
            }
            Trusted::Bundle { .. } => {}
            Trusted::Pin(_) => {
                *self.learned.domain.lock().unwrap_or_else(PoisonError::into_inner) = Some(domain);
            }
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for ControlPlane {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.judge(leaf, intermediates, now);
        self.learned.stranger.store(judged.is_err(), Ordering::Relaxed);
        judged
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The trust domain whose control plane a certificate names, by exactly one SAN URI.
fn control_domain(leaf: &[u8]) -> Option<TrustDomain> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let (uri, None) = (uris.next()?, uris.next()) else { return None };
    let domain: TrustDomain = uri.strip_prefix("spiffe://")?.strip_suffix("/control")?.parse().ok()?;
    (domain.control_uri() == uri).then_some(domain)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
        PublicKeyData, SanType,
    };

    use super::*;

    struct Ca {
        der: CertificateDer<'static>,
        pin: Digest,
        issuer: Issuer<'static, KeyPair>,
    }

    fn ca() -> Ca {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let pin = public_key_digest(&key.subject_public_key_info());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Ca { der, pin, issuer: Issuer::new(params, key) }
    }

    fn leaf(ca: &Ca, uris: &[&str]) -> CertificateDer<'static> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.signed_by(&key, &ca.issuer).unwrap().der().clone()
    }

    fn verify(
        trusted: Trusted,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
    ) -> Result<Option<TrustDomain>, Error> {
        let (_, verifier) = builder(trusted).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_hours(500_000));
        verifier.verify_server_cert(leaf, chain, &name, &[], now).map(|_| verifier.learned.trust_domain())
    }

    fn bundle(ca: &Ca, domain: &str) -> Trusted {
        let mut roots = RootCertStore::empty();
        roots.add(ca.der.clone()).unwrap();
        Trusted::Bundle { roots, domain: domain.parse().unwrap() }
    }

    #[test]
    fn an_enrolled_worker_talks_only_to_the_control_plane_of_its_domain() {
        let (ours, other) = (ca(), ca());
        let control = leaf(&ours, &["spiffe://home.example/control"]);
        assert!(verify(bundle(&ours, "home.example"), &control, &[]).is_ok(), "whatever the host is called");
        assert!(verify(bundle(&ours, "else.example"), &control, &[]).is_err(), "another domain");
        assert!(
            verify(bundle(&other, "home.example"), &control, std::slice::from_ref(&ours.der)).is_err(),
            "another CA"
        );
        for uris in [
            &["spiffe://home.example/worker/nas"][..],
            &["spiffe://home.example/control", "spiffe://home.example/worker/nas"],
            &["https://home.example/control"],
            &[],
        ] {
            assert!(verify(bundle(&ours, "home.example"), &leaf(&ours, uris), &[]).is_err(), "{uris:?}");
        }
    }

    #[test]
    fn a_joining_machine_trusts_the_key_that_was_pasted_and_learns_the_domain() {
        let (ours, other) = (ca(), ca());
        let control = leaf(&ours, &["spiffe://home.example/control"]);
        let chain = [ours.der.clone()];
        let learned = verify(Trusted::Pin(ours.pin), &control, &chain).unwrap();
        assert_eq!(learned, Some("home.example".parse().unwrap()));
        assert!(verify(Trusted::Pin(other.pin), &control, &chain).is_err());
        assert!(verify(Trusted::Pin(ours.pin), &control, &[]).is_err(), "the CA must be shown");
        let forged = leaf(&other, &["spiffe://home.example/control"]);
        assert!(verify(Trusted::Pin(ours.pin), &forged, &chain).is_err(), "shown, but not the issuer");
    }
}
