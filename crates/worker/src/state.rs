//! The state directory's own small files: one owner, 0700 and 0600, written durably and read whole.
//!
//! (Worker design, *Inbox* and *One start path*.)

use crate::durable::{Dir, DurableError};
use crate::fault::steps::Replaced;

/// A state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// It does not hold what it should. (Its content may be secret and is not repeated.)
    #[error("{name} is damaged: {why}")]
    Damaged {
        /// Which file.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl StateError {
    /// Whether the disk is what failed: the same may work later, without a person.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Durable(error) if error.may_pass())
    }

    /// The file `name` does not hold what it should.
    pub fn damaged(name: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Damaged { name, why: why.to_string() }
    }
}

/// A file of the state directory with one value in it.
pub trait StateFile: Sized {
    /// Its kind among the fault points.
    type Kind: Replaced;
    /// Its name.
    const NAME: &'static str;
    /// The most bytes it may have.
    const LIMIT: usize;

    /// What is written.
    fn to_bytes(&self) -> Result<Vec<u8>, StateError>;

    /// What was written; refuses anything else.
    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError>;

    /// Reads the file, `None` if there is none.
    fn read(dir: &Dir) -> Result<Option<Self>, StateError> {
        match dir.read(Self::NAME, Self::LIMIT)? {
            Some(bytes) => Self::from_bytes(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Writes the file; the old version or the new one is there afterwards, and the new one once this returned.
    fn write(&self, dir: &Dir) -> Result<(), StateError> {
        let bytes = self.to_bytes()?;
        if bytes.len() > Self::LIMIT {
            return Err(StateError::damaged(Self::NAME, format!("{} bytes, at most {} fit", bytes.len(), Self::LIMIT)));
        }
        Ok(dir.replace::<Self::Kind>(Self::NAME, &bytes)?)
    }
}
