//! What a person pastes on a new machine: the enrollment token, and the pin of the control plane's CA.
//!
//! The worker trusts the CA whose public key has this digest, and then the control plane's SAN URI; no host name.
//! The text begins with `lhj1_`, so that no command line takes it for a flag and no scanner misses it in a leak.
//! (Small decisions, *How a new machine trusts the server*.)

use leasehold_core::crypto::{Digest, EnrollmentToken};
use zeroize::Zeroizing;

use crate::error::WireError;

const PREFIX: &str = "lhj1_";

/// An enrollment token together with the CA it leads to. A secret: it has no `Display` and its `Debug` shows no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Lets one machine enroll once.
    pub token: EnrollmentToken,
    /// The digest of the CA's public key (its DER `SubjectPublicKeyInfo`, in the domain `leasehold/public-key/v1`).
    pub ca: Digest,
}

impl JoinToken {
    /// The text to paste: `lhj1_<token>.<CA digest>`.
    pub fn reveal(&self) -> String {
        let token = Zeroizing::new(self.token.reveal());
        format!("{PREFIX}{}.{}", *token, self.ca)
    }

    /// The parts of a pasted text.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        let refused = || {
            WireError::invalid(
                "token",
                "this is not a whole join token",
                "the text that `leasehold worker enroll` printed after `--token`, beginning with lhj1_",
            )
        };
        let (token, ca) = text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')).ok_or_else(refused)?;
        let token = EnrollmentToken::parse(token).map_err(|_| refused())?;
        Ok(Self { token, ca: ca.parse().map_err(|_| refused())? })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::Domain;

    use super::*;

    #[test]
    fn a_join_token_survives_the_paste_and_is_never_debug_printed() {
        let join =
            JoinToken { token: EnrollmentToken::from_bytes([0xfb; 32]), ca: Digest::of(Domain::PublicKey, b"a key") };
        let text = join.reveal();
        assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(join.clone()));
        assert!(text.starts_with("lhj1_"));
        assert!(!format!("{join:?}").contains(&join.token.reveal()));
    }

    #[test]
    fn half_a_join_token_is_refused_without_repeating_it() {
        let secret = EnrollmentToken::from_bytes([9; 32]).reveal();
        for text in ["", "lhj1_", &secret, &format!("lhj1_{secret}"), &format!("lhj1_{secret}.abc")] {
            let error = JoinToken::parse(text).unwrap_err().to_string();
            assert!(!error.contains(&secret), "{error}");
        }
    }
}
