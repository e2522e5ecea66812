//! The join token: what a person pastes on a new machine so that it can enroll, and can trust whom it enrolls with.
//!
//! It is the enrollment token, which is the secret, and the digest of the CA's public key, which is not: the new machine
//! knows no certificate yet, so what it pastes pins the one it may talk to. The text begins with `lhj1_`, so that no
//! command line takes it for a flag and no scanner misses it in a leak. (Decisions, *How a new machine trusts the
//! server*.)

use crate::crypto::{CryptoError, Digest, Domain, EnrollmentToken};

/// A text is not a join token. (The text itself is never repeated in a message.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a whole join token: expected the text that `leasehold worker enroll` printed after `--token`, beginning with lhj1_"
)]
pub struct JoinTokenError;

const PREFIX: &str = "lhj1_";

/// An enrollment token with the CA that it was made under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Lets one machine enroll once.
    pub token: EnrollmentToken,
    /// The pin: [`public_key_digest`] of the CA that signs the control plane's certificate.
    pub ca: Digest,
}

/// The digest of a public key, a DER `SubjectPublicKeyInfo`: a CA's is what a join token pins.
pub fn public_key_digest(public_key: &[u8]) -> Digest {
    Digest::of(Domain::PublicKey, public_key)
}

impl JoinToken {
    /// The join token of its text.
    pub fn parse(text: &str) -> Result<Self, JoinTokenError> {
        let (token, ca) =
            text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')).ok_or(JoinTokenError)?;
        let refused = |_: CryptoError| JoinTokenError;
        Ok(Self { token: EnrollmentToken::parse(token).map_err(refused)?, ca: ca.parse().map_err(refused)? })
    }

    /// The text, for the line that a person pastes: `lhj1_<token>.<CA digest>`.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}.{}", self.token.reveal(), self.ca)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> JoinToken {
        JoinToken { token: EnrollmentToken::from_bytes([7; 32]), ca: public_key_digest(b"a public key") }
    }

    #[test]
    fn a_join_token_survives_its_text() {
        assert_eq!(JoinToken::parse(&token().reveal()), Ok(token()));
        assert_eq!(JoinToken::parse(&format!(" {}\n", token().reveal())), Ok(token()), "as it is pasted");
    }

    #[test]
    fn half_a_join_token_is_refused_without_repeating_it() {
        let text = token().reveal();
        for bad in ["", "lhj1_.", &text[..48], &text[..100], &text[5..], &text.replace('.', ":")] {
            assert_eq!(JoinToken::parse(bad), Err(JoinTokenError), "{bad}");
        }
        assert!(!JoinTokenError.to_string().contains(&text[5..13]));
    }

    #[test]
    fn the_secret_half_is_never_printed_by_accident() {
        assert!(!format!("{:?}", token()).contains(&token().token.reveal()));
    }
}
