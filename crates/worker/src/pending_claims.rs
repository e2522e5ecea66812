//! `pending-claims.json`: the asks, durable before the first request that names them. At most 16.
//!
//! (Worker design, *Inbox*; protocol, *Asks and offers*.)

use leasehold_core::crypto::LeaseToken;
use leasehold_core::limits::{KIB, PULL_ASKS};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::durable::Dir;
use crate::engine::port::Ask;
use crate::fault::steps::file;
use crate::state::{StateError, StateFile};

const SCHEMA: &str = "leasehold/pending-claims/v1";
const FILE_NAME: &str = "pending-claims.json";

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingClaims(pub Vec<Ask>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    asks: Vec<FileAsk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAsk {
    offer: String,
    lease_token: Zeroizing<String>,
}

impl StateFile for PendingClaims {
    type Kind = file::Asks;
    const NAME: &'static str = FILE_NAME;
    const LIMIT: usize = 8 * KIB;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let ask = |ask: &Ask| FileAsk { offer: ask.offer.to_string(), lease_token: Zeroizing::new(ask.token.reveal()) };
        let file = File { schema: SCHEMA.to_owned(), asks: self.0.iter().map(ask).collect() };
        serde_json::to_vec(&file).map_err(|_| StateError::damaged(FILE_NAME, "cannot be spelled"))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        // What is damaged is not repeated: it holds tokens.
        let damaged = |why: &str| StateError::damaged(FILE_NAME, why);
        let file: File = serde_json::from_slice(bytes).map_err(|_| damaged("not the expected JSON"))?;
        if file.schema != SCHEMA {
            return Err(damaged("another schema"));
        }
        if file.asks.len() > PULL_ASKS {
            return Err(damaged("more asks than there may be"));
        }
        let ask = |ask: FileAsk| {
            Ok(Ask {
                offer: ask.offer.parse().map_err(|_| damaged("not an offer id"))?,
                token: LeaseToken::parse(&ask.lease_token).map_err(|_| damaged("not a token"))?,
            })
        };
        Ok(Self(file.asks.into_iter().map(ask).collect::<Result<_, StateError>>()?))
    }
}

impl PendingClaims {
    /// The asks, and what was wrong with a file that cannot be trusted: it was moved away. What was claimed with its
    /// asks runs out unstarted.
    pub fn read_or_quarantine(state: &Dir, quarantine: &Dir) -> Result<(Vec<Ask>, Option<String>), StateError> {
        match Self::read(state) {
            Ok(asks) => Ok((asks.unwrap_or_default().0, None)),
            Err(StateError::Durable(error)) if error.may_pass() => Err(error.into()),
            Err(error) => {
                let moved = state.quarantine::<file::Asks>(FILE_NAME, quarantine)?;
                Ok((Vec::new(), Some(format!("{FILE_NAME} was moved to quarantine/{moved}: {error}"))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_that_cannot_be_trusted_are_moved_away_and_never_thrown_away() {
        let parent = tempfile::tempdir().unwrap();
        let state = Dir::create(&parent.path().join("state")).unwrap();
        let quarantine = Dir::create(&parent.path().join("quarantine")).unwrap();
        assert_eq!(PendingClaims::read_or_quarantine(&state, &quarantine).unwrap(), (Vec::new(), None));
        state.replace::<file::Asks>(FILE_NAME, b"{").unwrap();
        let (asks, fault) = PendingClaims::read_or_quarantine(&state, &quarantine).unwrap();
        assert!(asks.is_empty() && fault.unwrap().contains("quarantine/pending-claims.json"));
        assert_eq!(quarantine.read(FILE_NAME, 8).unwrap().unwrap(), b"{");
        std::fs::create_dir(parent.path().join("state").join(FILE_NAME)).unwrap();
        assert!(PendingClaims::read_or_quarantine(&state, &quarantine).unwrap().1.is_some());
        // Nothing stands in the way of the next ones.
        PendingClaims(Vec::new()).write(&state).unwrap();
    }

    #[test]
    fn asks_survive_their_bytes_and_are_bounded() {
        let ask = Ask {
            offer: "01900000-0000-7000-8000-000000000000".parse().unwrap(),
            token: LeaseToken::from_bytes([4; 32]),
        };
        let claims = PendingClaims(vec![ask.clone(); PULL_ASKS]);
        let bytes = claims.to_bytes().unwrap();
        assert!(bytes.len() <= PendingClaims::LIMIT);
        assert_eq!(PendingClaims::from_bytes(&bytes).unwrap(), claims);
        let many = PendingClaims(vec![ask; PULL_ASKS + 1]).to_bytes().unwrap();
        assert!(PendingClaims::from_bytes(&many).is_err());
    }
}
