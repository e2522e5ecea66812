//! Sealing: secrets of the installation, kept in the store only under the master key.
//!
//! The master key comes from a file or the environment and never enters the store. What a sealed thing is, and of which
//! installation, is authenticated with it, so no sealed thing is ever taken for another. (Control design, *Logs,
//! artifacts, secrets*.)

use data_encoding::BASE64URL_NOPAD;
use leasehold_core::crypto::{NotOpened, open, seal};
use leasehold_core::id::TrustDomain;
use leasehold_core::time::Entropy;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The key that everything secret in the store is sealed under. Never printed, never stored.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; 32]);

/// A text is not a master key. (The text itself is never repeated in a message.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a master key: expected 43 characters of base64url, as `serve` wrote them at its first start")]
pub struct MasterKeyError;

impl MasterKey {
    /// A new key.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// The key of its text.
    pub fn parse(text: &str) -> Result<Self, MasterKeyError> {
        let bytes = Zeroizing::new(BASE64URL_NOPAD.decode(text.trim().as_bytes()).map_err(|_| MasterKeyError)?);
        <[u8; 32]>::try_from(bytes.as_slice()).map(Self).map_err(|_| MasterKeyError)
    }

    /// The text, for the file that keeps it.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64URL_NOPAD.encode(&self.0))
    }

    pub(crate) fn seal(&self, what: Sealed, domain: &TrustDomain, secret: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
        seal(&self.0, &what.context(domain), secret, entropy)
    }

    pub(crate) fn open(
        &self,
        what: Sealed,
        domain: &TrustDomain,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
        open(&self.0, &what.context(domain), sealed).map(Zeroizing::new)
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// What is sealed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sealed {
    /// The CA's private key, PKCS #8.
    CaKey,
    /// The key of registration tickets.
    TicketKey,
}

impl Sealed {
    fn context(self, domain: &TrustDomain) -> Vec<u8> {
        let what = match self {
            Self::CaKey => "ca-key",
            Self::TicketKey => "ticket-key",
        };
        format!("leasehold/sealed/{what}/v1\0{domain}").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nines;
    impl Entropy for Nines {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(9);
        }
    }

    #[test]
    fn a_master_key_survives_its_text_and_is_never_printed() {
        let key = MasterKey::new(&Nines);
        let text = key.reveal();
        assert_eq!(MasterKey::parse(&format!("{}\n", *text)).unwrap().0, key.0);
        assert!(MasterKey::parse(&text[1..]).is_err());
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }

    #[test]
    fn one_sealed_thing_is_never_taken_for_another() {
        let key = MasterKey::new(&Nines);
        let home: TrustDomain = "home.example".parse().unwrap();
        let sealed = key.seal(Sealed::CaKey, &home, b"secret", &Nines);
        assert_eq!(key.open(Sealed::CaKey, &home, &sealed).unwrap().as_slice(), b"secret");
        assert!(key.open(Sealed::TicketKey, &home, &sealed).is_err());
        assert!(key.open(Sealed::CaKey, &"other.example".parse().unwrap(), &sealed).is_err());
    }
}
