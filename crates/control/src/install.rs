//! The installation: its trust domain, CA and ticket key, made once at first start and loaded ever after.
//!
//! The CA's key and the ticket key are in the store only sealed under the master key. The first admin token is returned
//! once and kept as a digest; no route can make another installation of the same store. Private keys come from the
//! cryptographic provider's own generator. (Control design, *Security*; decisions, *How a new machine trusts the server*.)

use std::net::IpAddr;
use std::sync::Arc;

use leasehold_core::crypto::{ApiToken, Digest};
use leasehold_core::id::{ApiTokenId, TrustDomain, WorkerId};
use leasehold_core::join::public_key_digest;
use leasehold_core::limits;
use leasehold_core::role::Role;
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::{Clock, Entropy, Millis, UtcMillis};
use leasehold_store::call::{Installation, NewApiToken};
use leasehold_store::outcome::{Outcome, StoreError};
use leasehold_store::port::{Store, Unmet};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use zeroize::Zeroizing;

use crate::seal::{MasterKey, Sealed};

/// How long the CA lives.
const CA_TTL: Millis = Millis::from_secs(30 * 365 * 24 * 60 * 60);
/// How long a control plane's own certificate lives; each process makes a new one when it starts.
const CONTROL_TTL: Millis = Millis::from_secs(2 * 365 * 24 * 60 * 60);
/// How far a certificate's beginning is put back, for machines whose clock is behind.
const BACKDATE: Millis = Millis::from_secs(24 * 60 * 60);
/// The name of the first admin token.
const FIRST_TOKEN: &str = "first-admin";

/// Why the installation cannot be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The store did not answer as it should.
    #[error("the store of the installation cannot be used")]
    Store(#[from] StoreError),
    /// The master key is another one.
    #[error("the master key does not open this installation: use the key that was made with it")]
    MasterKey,
    /// A key or certificate cannot be made or read.
    #[error("a key or certificate of the installation cannot be made or read")]
    Certificate(#[from] rcgen::Error),
    /// A key that was sealed is not the key it should be.
    #[error("the sealed {0} is damaged")]
    Damaged(&'static str),
}

/// A loaded installation.
#[derive(Debug)]
pub struct Opened {
    /// Its keys.
    pub keys: Keys,
    /// The first admin token, if the installation was made just now: shown once, by the caller.
    pub first_token: Option<ApiToken>,
}

/// Loads the installation of `store`, or makes it, with `domain` as its trust domain or one of chance.
pub async fn open(
    store: &dyn Store,
    master: &MasterKey,
    domain: Option<TrustDomain>,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<Opened, InstallError> {
    if let Some(known) = store.installation().await? {
        return Ok(Opened { keys: Keys::load(&known, master)?, first_token: None });
    }
    let domain = domain.unwrap_or_else(|| domain_of_chance(entropy));
    let installation = make(domain, master, clock.utc(), entropy)?;
    let keys = Keys::load(&installation, master)?;
    let token = ApiToken::new(entropy);
    let first = NewApiToken {
        id: ApiTokenId::new(clock.utc(), entropy),
        name: FIRST_TOKEN.to_owned(),
        role: Role::Admin,
        digest: token.digest(),
        created_at: clock.utc(),
        expires_at: None,
    };
    match store.create_installation(installation.clone(), first).await {
        // Also when another process was first, or the answer was lost: what is stored tells which.
        Ok(Outcome::Applied(()) | Outcome::Replayed(()) | Outcome::Refused(Unmet::AlreadyInstalled))
        | Err(StoreError::Unknown { .. }) => {}
        Ok(Outcome::Refused(_)) => return Err(InstallError::Damaged("installation")),
        Err(error) => return Err(error.into()),
    }
    let Some(stored) = store.installation().await? else {
        let reason = "the installation was not stored".to_owned();
        return Err(StoreError::NotDone { reason }.into());
    };
    if stored.ca_certificate == installation.ca_certificate {
        return Ok(Opened { keys, first_token: Some(token) });
    }
    Ok(Opened { keys: Keys::load(&stored, master)?, first_token: None })
}

/// Refuses a master key that does not open an installation.
pub fn check(installation: &Installation, master: &MasterKey) -> Result<(), InstallError> {
    Keys::load(installation, master).map(|_| ())
}

/// The same installation, its keys sealed under `to` where `from` opened them.
pub fn reseal(
    installation: &Installation,
    from: &MasterKey,
    to: &MasterKey,
    entropy: &dyn Entropy,
) -> Result<Installation, InstallError> {
    check(installation, from)?;
    let domain = &installation.trust_domain;
    let again = |what: Sealed, sealed: &[u8]| {
        let secret = from.open(what, domain, sealed).map_err(|_| InstallError::MasterKey)?;
        Ok::<_, InstallError>(to.seal(what, domain, &secret, entropy))
    };
    let ca_key = again(Sealed::CaKey, &installation.ca_key)?;
    let ticket_key = again(Sealed::TicketKey, &installation.ticket_key)?;
    Ok(Installation { ca_key, ticket_key, ..installation.clone() })
}

/// Two installations whose machines meet must not share a trust domain.
fn domain_of_chance(entropy: &dyn Entropy) -> TrustDomain {
    let mut bytes = [0; 6];
    entropy.fill(&mut bytes);
    let chance = data_encoding::HEXLOWER.encode(&bytes);
    format!("leasehold-{chance}.internal").parse().expect("hexadecimal characters make a DNS label")
}

fn make(
    domain: TrustDomain,
    master: &MasterKey,
    now: UtcMillis,
    entropy: &dyn Entropy,
) -> Result<Installation, InstallError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(format!("Leasehold CA of {domain}"), now, CA_TTL, entropy);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    let secret = Zeroizing::new(key.serialize_der());
    Ok(Installation {
        ca_certificate: certificate.der().to_vec(),
        ca_key: master.seal(Sealed::CaKey, &domain, &secret, entropy),
        ticket_key: master.seal(Sealed::TicketKey, &domain, TicketKey::new(entropy).as_bytes(), entropy),
        trust_domain: domain,
        created_at: now,
    })
}

/// What every certificate of the installation has.
fn params(name: String, now: UtcMillis, ttl: Millis, entropy: &dyn Entropy) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |instant: UtcMillis| epoch + Millis::new(u64::try_from(instant.get()).unwrap_or(0)).to_std();
    params.not_before = at(now.minus(BACKDATE));
    params.not_after = at(now.plus(ttl));
    let mut serial = [0; 16];
    entropy.fill(&mut serial);
    // A serial number is positive, and its first byte is not redundant.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

/// The keys of a loaded installation: what signs, what tickets are derived from, and what workers pin.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
}

struct Inner {
    domain: TrustDomain,
    ca_certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
    pin: Digest,
    tickets: TicketKey,
}

/// A certificate with its private key, for a TLS listener.
pub struct ServerIdentity {
    /// DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// PKCS #8, DER.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerIdentity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// A certificate request that is not signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestRefused {
    #[error("csr: cannot be read, or its signature does not prove that the sender has the key")]
    Unreadable,
    #[error("csr: its key is of another kind than ECDSA P-256, ECDSA P-384 or Ed25519")]
    Key,
}

/// A certificate request whose signature was checked: only its key is used, never what it says of itself.
pub(crate) struct CheckedRequest(CertificateSigningRequestParams);

impl CheckedRequest {
    pub(crate) fn read(der: &[u8]) -> Result<Self, RequestRefused> {
        let request = CertificateSigningRequestParams::from_der(&der.into()).map_err(|_| RequestRefused::Unreadable)?;
        let kind = request.public_key.algorithm();
        let known = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
        if known.contains(&kind) { Ok(Self(request)) } else { Err(RequestRefused::Key) }
    }

    pub(crate) fn public_key(&self) -> Digest {
        public_key_digest(&self.0.public_key.subject_public_key_info())
    }
}

impl Keys {
    fn load(installation: &Installation, master: &MasterKey) -> Result<Self, InstallError> {
        let domain = &installation.trust_domain;
        let opened = |what, sealed: &[u8]| master.open(what, domain, sealed).map_err(|_| InstallError::MasterKey);
        let ca_key = opened(Sealed::CaKey, &installation.ca_key)?;
        let ticket_key = opened(Sealed::TicketKey, &installation.ticket_key)?;
        let ticket_key =
            <[u8; 32]>::try_from(ticket_key.as_slice()).map_err(|_| InstallError::Damaged("ticket key"))?;
        let key = KeyPair::try_from(ca_key.as_slice())?;
        let pin = public_key_digest(&key.subject_public_key_info());
        let issuer = Issuer::from_ca_cert_der(&installation.ca_certificate.as_slice().into(), key)?;
        let inner = Inner {
            domain: domain.clone(),
            ca_certificate: installation.ca_certificate.clone(),
            issuer,
            pin,
            tickets: TicketKey::from_bytes(ticket_key),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name in every certificate.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.inner.domain
    }

    /// The CA's certificate, DER: what listeners verify workers by, and what workers verify the control plane by.
    pub fn ca_certificate(&self) -> &[u8] {
        &self.inner.ca_certificate
    }

    /// What a join token pins: see [`public_key_digest`].
    pub fn ca_pin(&self) -> Digest {
        self.inner.pin
    }

    /// A certificate of the control plane with a new key, for `names`: host names and IP addresses.
    pub fn control_identity(
        &self,
        names: &[String],
        now: UtcMillis,
        entropy: &dyn Entropy,
    ) -> Result<ServerIdentity, InstallError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let mut params = params("Leasehold control plane".to_owned(), now, CONTROL_TTL, entropy);
        params.subject_alt_names = vec![SanType::URI(self.inner.domain.control_uri().try_into()?)];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        let certificate = self.sign(params, ExtendedKeyUsagePurpose::ServerAuth, &key)?;
        // The CA goes along: a machine that joins knows only the digest of its key.
        let chain = vec![certificate, self.inner.ca_certificate.clone()];
        Ok(ServerIdentity { chain, key: Zeroizing::new(key.serialize_der()) })
    }

    /// A certificate that makes the holder of the request's key `worker`, and when it ends.
    pub(crate) fn worker_certificate(
        &self,
        worker: &WorkerId,
        request: &CheckedRequest,
        now: UtcMillis,
        entropy: &dyn Entropy,
    ) -> Result<(Vec<u8>, UtcMillis), rcgen::Error> {
        let mut params = params(worker.to_string(), now, limits::CERTIFICATE_TTL, entropy);
        params.subject_alt_names = vec![SanType::URI(self.inner.domain.worker_uri(worker).try_into()?)];
        let certificate = self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, &request.0.public_key)?;
        Ok((certificate, now.plus(limits::CERTIFICATE_TTL)))
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
        key: &impl PublicKeyData,
    ) -> Result<Vec<u8>, rcgen::Error> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.inner.issuer)?.der().to_vec())
    }

    pub(crate) fn tickets(&self) -> &TicketKey {
        &self.inner.tickets
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("trust_domain", &self.inner.domain.as_str()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::model::ModelStore;

    use super::*;
    use crate::fixture::{Numbered, StoppedClock};

    struct Machine {
        store: ModelStore,
        clock: Arc<StoppedClock>,
        entropy: Numbered,
    }

    impl Machine {
        fn new() -> Self {
            let clock = Arc::new(StoppedClock::new());
            Self { store: ModelStore::new(clock.clone()), clock, entropy: Numbered::default() }
        }

        async fn open(&self, master: &MasterKey) -> Result<Opened, InstallError> {
            open(&self.store, master, None, &*self.clock, &self.entropy).await
        }
    }

    #[tokio::test]
    async fn the_first_start_makes_it_and_every_other_loads_it() {
        let machine = Machine::new();
        let master = MasterKey::new(&machine.entropy);
        let first = machine.open(&master).await.unwrap();
        let token = first.first_token.unwrap();
        let known = machine.store.find_api_token(token.digest()).await.unwrap().unwrap();
        assert_eq!((known.role, known.name.as_str()), (Role::Admin, FIRST_TOKEN));

        let second = machine.open(&master).await.unwrap();
        assert!(second.first_token.is_none(), "shown once");
        assert_eq!(second.keys.ca_certificate(), first.keys.ca_certificate());
        assert_eq!(second.keys.ca_pin(), first.keys.ca_pin());
        assert_eq!(second.keys.trust_domain(), first.keys.trust_domain());
        let ticket = |keys: &Keys| {
            keys.tickets()
                .first(&"nas".parse().unwrap(), leasehold_core::id::EnrollmentId::new(UtcMillis::new(1), &StillNumbers))
        };
        assert_eq!(ticket(&second.keys), ticket(&first.keys));
    }

    struct StillNumbers;
    impl Entropy for StillNumbers {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(3);
        }
    }

    #[tokio::test]
    async fn another_master_key_opens_nothing_and_makes_nothing() {
        let machine = Machine::new();
        machine.open(&MasterKey::new(&machine.entropy)).await.unwrap();
        let before = machine.store.dump();
        let other = machine.open(&MasterKey::new(&StillNumbers)).await;
        assert!(matches!(other, Err(InstallError::MasterKey)), "{other:?}");
        assert_eq!(machine.store.dump(), before);
    }

    #[tokio::test]
    async fn an_installation_that_is_sealed_anew_has_the_same_keys() {
        let machine = Machine::new();
        let (old, new) = (MasterKey::new(&machine.entropy), MasterKey::new(&StillNumbers));
        let before = machine.open(&old).await.unwrap().keys;
        let stored = machine.store.installation().await.unwrap().unwrap();
        let moved = reseal(&stored, &old, &new, &machine.entropy).unwrap();
        let after = Keys::load(&moved, &new).unwrap();
        assert_eq!(after.ca_pin(), before.ca_pin());
        assert_eq!(after.inner.tickets.as_bytes(), before.inner.tickets.as_bytes());
        assert!(matches!(check(&moved, &old), Err(InstallError::MasterKey)));
        assert!(matches!(reseal(&stored, &new, &old, &machine.entropy), Err(InstallError::MasterKey)));
    }

    #[tokio::test]
    async fn no_secret_of_the_installation_is_in_the_store_in_clear() {
        let machine = Machine::new();
        let opened = machine.open(&MasterKey::new(&machine.entropy)).await.unwrap();
        let stored = machine.store.installation().await.unwrap().unwrap();
        let whole = [stored.ca_key, stored.ticket_key, stored.ca_certificate].concat();
        // Of the PKCS #8 document of a P-256 key, the private number; the rest is no secret.
        let key = opened.keys.inner.issuer.key().serialize_der();
        for secret in [&key[36..68], &opened.keys.tickets().as_bytes()[..]] {
            assert!(!whole.windows(secret.len()).any(|window| window == secret));
        }
    }
}
