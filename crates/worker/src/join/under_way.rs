//! `joining.json`: the key of an enrollment whose answer has not come, or is not written yet.
//!
//! Durable before the token is spent, so that a lost answer is asked for again with the same key: the control plane repeats
//! an enrollment to the same public key only. Gone once the identity is written. (Protocol, *Sessions*, `enroll`.)

use data_encoding::BASE64;
use leasehold_core::crypto::{Digest, EnrollmentToken};
use leasehold_core::limits::KIB;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::JoinError;
use crate::durable::Dir;
use crate::fault::steps::file;
use crate::state::{StateError, StateFile};

const SCHEMA: &str = "leasehold/worker-joining/v1";

/// A key, and the enrollment it is for.
struct UnderWay {
    /// The digest of the token; the token itself is never kept.
    token: Digest,
    /// PKCS#8, DER.
    key: Zeroizing<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    token_sha256: String,
    key: Zeroizing<String>,
}

impl StateFile for UnderWay {
    type Kind = file::Joining;
    const NAME: &'static str = "joining.json";
    const LIMIT: usize = 4 * KIB;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let file = File {
            schema: SCHEMA.to_owned(),
            token_sha256: self.token.to_string(),
            key: Zeroizing::new(BASE64.encode(&self.key)),
        };
        serde_json::to_vec(&file).map_err(|_| StateError::damaged(Self::NAME, "cannot be spelled"))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        // What is damaged is not repeated: it holds the key.
        let damaged = |why: &str| StateError::damaged(Self::NAME, why);
        let file: File = serde_json::from_slice(bytes).map_err(|_| damaged("not the expected JSON"))?;
        if file.schema != SCHEMA {
            return Err(damaged("another schema"));
        }
        Ok(Self {
            token: file.token_sha256.parse().map_err(|_| damaged("token_sha256"))?,
            key: Zeroizing::new(BASE64.decode(file.key.as_bytes()).map_err(|_| damaged("key"))?),
        })
    }
}

/// The key to enroll with: the one that this token was tried with before, or a new one; on disk in either case.
pub(super) fn key(dir: &Dir, token: &EnrollmentToken) -> Result<KeyPair, JoinError> {
    let key_error = |error: rcgen::Error| JoinError::Key(error.to_string());
    let token = token.digest();
    // A file that cannot be read is worth no more than none: at worst the control plane asks for a new token.
    if let Ok(Some(known)) = UnderWay::read(dir)
        && known.token == token
        && let Ok(key) = KeyPair::try_from(known.key.as_slice())
    {
        return Ok(key);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(key_error)?;
    UnderWay { token, key: Zeroizing::new(key.serialize_der()) }.write(dir)?;
    Ok(key)
}

/// The identity holds the key now.
pub(super) fn done(dir: &Dir) -> Result<(), StateError> {
    Ok(dir.remove::<file::Joining>(UnderWay::NAME)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_its_key_until_joining_is_done() {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::create(&parent.path().join("state")).unwrap();
        let (token, other) = (EnrollmentToken::from_bytes([1; 32]), EnrollmentToken::from_bytes([2; 32]));
        let first = key(&dir, &token).unwrap().serialize_der();
        assert_eq!(key(&dir, &token).unwrap().serialize_der(), first);
        let second = key(&dir, &other).unwrap().serialize_der();
        assert_ne!(second, first, "another token, another key");
        assert_ne!(key(&dir, &token).unwrap().serialize_der(), first, "one enrollment at a time");
        done(&dir).unwrap();
        assert!(UnderWay::read(&dir).unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_is_replaced_and_its_content_never_repeated() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let dir = Dir::create(&path).unwrap();
        let token = EnrollmentToken::from_bytes([1; 32]);
        let known = key(&dir, &token).unwrap().serialize_der();
        let text = std::fs::read_to_string(path.join(UnderWay::NAME)).unwrap();
        assert!(!text.contains(&token.reveal()));
        for damaged in [text.replace("/v1", "/v2"), text.replace("\"key\":\"", "\"key\":\"!"), "{".to_owned()] {
            let error = UnderWay::from_bytes(damaged.as_bytes()).err().unwrap().to_string();
            assert!(!error.contains(&BASE64.encode(&known)), "{error}");
            std::fs::write(path.join(UnderWay::NAME), damaged).unwrap();
            assert_ne!(key(&dir, &token).unwrap().serialize_der(), known);
        }
    }
}
