//! Hashes, keyed hashes, sealing, tokens and constant-time compares: the one module of `core` that names the provider.
//!
//! A *token* is always a secret: 32 random bytes, base64url on the wire, never stored but as a [`Digest`],
//! never printed. Every digest carries a domain-separating prefix, so that a digest of one kind of thing can
//! never be taken for another's.

use std::fmt;

use aws_lc_rs::{aead, constant_time, digest, hmac};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::time::Entropy;

/// A text is not the digest or token it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// A digest is 64 lower-case hexadecimal characters.
    #[error("not a digest: expected 64 lower-case hexadecimal characters")]
    NotDigest,
    /// A token is 43 characters of base64url. (The text itself is never repeated in a message.)
    #[error("not a token: expected 43 characters of base64url")]
    NotToken,
}

/// What a digest is of; the name is part of what is hashed (`leasehold/<what>/v1\0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Canonical capabilities of a worker.
    Capabilities,
    /// Canonical placement of a revision.
    Placement,
    /// Canonical execution revision.
    Revision,
    /// Canonical body of a registration.
    Registration,
    /// A lease token.
    LeaseToken,
    /// A completion token.
    CompletionToken,
    /// An enrollment token.
    EnrollmentToken,
    /// An API token.
    ApiToken,
    /// The token of a webhook.
    WebhookToken,
    /// A registration ticket.
    Ticket,
    /// A public key that a worker enrolls with.
    PublicKey,
    /// The body of a refused or late call, for telling repeats apart.
    Body,
    /// Bytes of a log.
    Log,
    /// The text of a migration of a store's schema.
    Migration,
    /// What a trigger is known by: its project, its task and its name.
    Trigger,
    /// What a run follows: its project, its task, and the runs that succeeded before it.
    Chain,
    /// The rows of a table that is moved to another store.
    Rows,
    /// What applying tasks would do.
    Plan,
    /// What a request with an idempotency key asks for.
    Request,
}

impl Domain {
    fn prefix(self) -> &'static str {
        match self {
            Self::Capabilities => "leasehold/capabilities/v1\0",
            Self::Placement => "leasehold/placement/v1\0",
            Self::Revision => "leasehold/revision/v1\0",
            Self::Registration => "leasehold/registration/v1\0",
            Self::LeaseToken => "leasehold/lease-token/v1\0",
            Self::CompletionToken => "leasehold/completion-token/v1\0",
            Self::EnrollmentToken => "leasehold/enrollment-token/v1\0",
            Self::ApiToken => "leasehold/api-token/v1\0",
            Self::WebhookToken => "leasehold/webhook-token/v1\0",
            Self::Ticket => "leasehold/ticket/v1\0",
            Self::PublicKey => "leasehold/public-key/v1\0",
            Self::Body => "leasehold/body/v1\0",
            Self::Log => "leasehold/log/v1\0",
            Self::Migration => "leasehold/migration/v1\0",
            Self::Trigger => "leasehold/trigger/v1\0",
            Self::Chain => "leasehold/chain/v1\0",
            Self::Rows => "leasehold/rows/v1\0",
            Self::Plan => "leasehold/plan/v1\0",
            Self::Request => "leasehold/request/v1\0",
        }
    }
}

/// A SHA-256 digest under a domain prefix; lower-case hex in text. Equality takes the same time wherever the
/// difference is, so a digest of a token may be compared with `==`.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes` as a `domain`.
    pub fn of(domain: Domain, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(domain);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest of 32 stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes, for storage.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Digest {}

impl std::hash::Hash for Digest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl std::str::FromStr for Digest {
    type Err = CryptoError;

    fn from_str(text: &str) -> Result<Self, CryptoError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| CryptoError::NotDigest)?;
        bytes.try_into().map(Self).map_err(|_| CryptoError::NotDigest)
    }
}

/// A digest of bytes that arrive in pieces, such as a log.
pub struct Hasher(digest::Context);

impl Hasher {
    /// Begins a digest of a `domain`.
    pub fn new(domain: Domain) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(domain.prefix().as_bytes());
        Self(context)
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added so far; adding may go on.
    pub fn so_far(&self) -> Digest {
        Self(self.0.clone()).finish()
    }

    /// The digest of everything added.
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// 32 secret bytes, wiped when dropped. `K` says which kind, so that a lease token is never taken for a
/// completion token. No `Debug` that shows it, no serialization: [`Token::reveal`] is the only way out.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Token<K: TokenKind> {
    bytes: [u8; 32],
    #[zeroize(skip)]
    kind: std::marker::PhantomData<K>,
}

/// Marks a kind of token and names the domain of its digest.
pub trait TokenKind {
    /// The domain of the digest.
    const DOMAIN: Domain;
}

macro_rules! token_kind {
    ($(#[$doc:meta])* $alias:ident, $kind:ident, $domain:expr) => {
        #[doc = concat!("The kind of [`", stringify!($alias), "`].")]
        #[derive(Debug)]
        pub enum $kind {}
        impl TokenKind for $kind {
            const DOMAIN: Domain = $domain;
        }
        $(#[$doc])*
        pub type $alias = Token<$kind>;
    };
}

token_kind!(
    /// Proves that its holder may act on a lease. Chosen by the worker in its ask.
    LeaseToken, LeaseTokenKind, Domain::LeaseToken
);
token_kind!(
    /// Proves that a receipt or an end comes from the launch it names.
    CompletionToken, CompletionTokenKind, Domain::CompletionToken
);
token_kind!(
    /// Lets one machine enroll once.
    EnrollmentToken, EnrollmentTokenKind, Domain::EnrollmentToken
);
token_kind!(
    /// Lets a person or a program use the operator API.
    ApiToken, ApiTokenKind, Domain::ApiToken
);
token_kind!(
    /// Lets a program call one webhook.
    WebhookToken, WebhookTokenKind, Domain::WebhookToken
);
token_kind!(
    /// Lets a worker register once; derived by the control plane, see [`crate::ticket`].
    Ticket, TicketKind, Domain::Ticket
);

impl<K: TokenKind> Token<K> {
    /// A new token.
    pub fn new(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 32];
        entropy.fill(&mut bytes);
        Self::from_bytes(bytes)
    }

    /// The token of 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { bytes, kind: std::marker::PhantomData }
    }

    /// The secret bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The token of its base64url text.
    pub fn parse(text: &str) -> Result<Self, CryptoError> {
        let mut decoded = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| CryptoError::NotToken)?;
        let bytes = <[u8; 32]>::try_from(decoded.as_slice()).map_err(|_| CryptoError::NotToken);
        decoded.zeroize();
        bytes.map(Self::from_bytes)
    }

    /// The token as base64url text, for the message or file that is meant to carry it.
    pub fn reveal(&self) -> String {
        BASE64URL_NOPAD.encode(&self.bytes)
    }

    /// What may be stored of the token.
    pub fn digest(&self) -> Digest {
        Digest::of(K::DOMAIN, &self.bytes)
    }
}

impl<K: TokenKind> Clone for Token<K> {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes)
    }
}

impl<K: TokenKind> PartialEq for Token<K> {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.bytes, &other.bytes).is_ok()
    }
}

impl<K: TokenKind> Eq for Token<K> {}

impl<K: TokenKind> fmt::Debug for Token<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// HMAC-SHA-256 of `parts` under `key`, each part preceded by its length so that no two lists collide.
pub fn keyed(key: &[u8; 32], domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(domain.prefix().as_bytes());
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.sign().as_ref());
    bytes
}

/// Sealed bytes cannot be opened: another key, another context, or they were changed. Which of them is never told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes cannot be opened with this key")]
pub struct NotOpened;

/// Seals `secret` under `key` (AES-256-GCM): the nonce, the ciphertext and its tag. `context` is authenticated, not stored:
/// opening needs the same, so that a sealed thing is never taken for another. Nonces are random, so one key seals at most
/// 2³² things.
///
/// # Panics
///
/// Never: the provider refuses only keys of another length and secrets of more than 64 GiB.
pub fn seal(key: &[u8; 32], context: &[u8], secret: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
    let mut nonce = [0; aead::NONCE_LEN];
    entropy.fill(&mut nonce);
    let mut sealed = secret.to_vec();
    aead_key(key)
        .seal_in_place_append_tag(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::from(context), &mut sealed)
        .expect("AES-256-GCM seals anything that fits into memory");
    let mut whole = nonce.to_vec();
    whole.append(&mut sealed);
    whole
}

/// What [`seal`] sealed under `key` and `context`. The caller wipes it.
pub fn open(key: &[u8; 32], context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
    let (nonce, body) = sealed.split_at_checked(aead::NONCE_LEN).ok_or(NotOpened)?;
    let nonce = aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotOpened)?;
    let mut bytes = body.to_vec();
    match aead_key(key).open_in_place(nonce, aead::Aad::from(context), &mut bytes) {
        Ok(secret) => {
            let length = secret.len();
            bytes.truncate(length);
            Ok(bytes)
        }
        Err(_) => Err(NotOpened),
    }
}

fn aead_key(key: &[u8; 32]) -> aead::LessSafeKey {
    aead::LessSafeKey::new(
        aead::UnboundKey::new(&aead::AES_256_GCM, key).expect("a key of 32 bytes is a key of AES-256-GCM"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_its_domain() {
        let of = |domain| Digest::of(domain, b"same bytes");
        assert_ne!(of(Domain::LeaseToken), of(Domain::CompletionToken));
        assert_eq!(
            Digest::of(Domain::Log, b"").to_string(),
            // printf 'leasehold/log/v1\0' | sha256sum
            "c83221dd0f8d973ff268190e482ea2d25e28da14940563d7ac88ff05912d632c"
        );
    }

    #[test]
    fn a_digest_in_pieces_is_the_digest_of_the_whole() {
        let mut hasher = Hasher::new(Domain::Log);
        hasher.update(b"one");
        assert_eq!(hasher.so_far(), Digest::of(Domain::Log, b"one"));
        hasher.update(b"two");
        assert_eq!(hasher.finish(), Digest::of(Domain::Log, b"onetwo"));
    }

    #[test]
    fn a_token_is_never_shown_but_by_reveal() {
        let token = LeaseToken::from_bytes([7; 32]);
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert_eq!(LeaseToken::parse(&token.reveal()), Ok(token));
        for bad in ["", "AAAA", &"A".repeat(44), &"=".repeat(43)] {
            assert!(LeaseToken::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_a_keyed_hash_do_not_run_together() {
        let key = [1; 32];
        assert_ne!(keyed(&key, Domain::Ticket, &[b"ab", b"c"]), keyed(&key, Domain::Ticket, &[b"a", b"bc"]));
    }

    struct Sevens;
    impl Entropy for Sevens {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn what_is_sealed_opens_only_whole_with_its_key_and_its_context() {
        let sealed = seal(&[1; 32], b"context", b"secret", &Sevens);
        assert_eq!(open(&[1; 32], b"context", &sealed).as_deref(), Ok(&b"secret"[..]));
        assert_eq!(open(&[2; 32], b"context", &sealed), Err(NotOpened));
        assert_eq!(open(&[1; 32], b"another", &sealed), Err(NotOpened));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&[1; 32], b"context", &changed), Err(NotOpened), "byte {at}");
            assert_eq!(open(&[1; 32], b"context", &sealed[..at]), Err(NotOpened), "cut at {at}");
        }
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
    }
}
