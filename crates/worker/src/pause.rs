//! `pause.json`: that a person drained this worker at its own machine. It outlives the agent, a reboot and an upgrade,
//! because whoever takes a machine out of rotation expects it to stay out until they say otherwise.

use leasehold_core::limits::KIB;
use serde::{Deserialize, Serialize};

use crate::fault::steps::file;
use crate::state::{StateError, StateFile};

const SCHEMA: &str = "leasehold/worker-pause/v1";
const FILE_NAME: &str = "pause.json";

/// What the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Whether it is drained.
    pub on: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    drained: bool,
}

impl StateFile for Pause {
    type Kind = file::Pause;
    const NAME: &'static str = FILE_NAME;
    const LIMIT: usize = KIB;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let file = File { schema: SCHEMA.to_owned(), drained: self.on };
        serde_json::to_vec(&file).map_err(|error| StateError::damaged(FILE_NAME, error))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let file: File = serde_json::from_slice(bytes).map_err(|error| StateError::damaged(FILE_NAME, error))?;
        if file.schema == SCHEMA {
            Ok(Self { on: file.drained })
        } else {
            Err(StateError::damaged(FILE_NAME, "another schema"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_survives_its_bytes_and_another_shape_is_refused() {
        for on in [true, false] {
            assert_eq!(Pause::from_bytes(&Pause { on }.to_bytes().unwrap()).unwrap(), Pause { on });
        }
        assert!(Pause::from_bytes(br#"{"schema":"leasehold/worker-pause/v2","drained":true}"#).is_err());
        assert!(Pause::from_bytes(br#"{"schema":"leasehold/worker-pause/v1"}"#).is_err());
    }
}
