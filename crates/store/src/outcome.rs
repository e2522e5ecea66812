//! What a caller may conclude from a store's answer: done, certainly not done, or unknown.

/// What became of a transaction that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T, R> {
    /// It changed something.
    Applied(T),
    /// The same call had been applied before; nothing changed now.
    Replayed(T),
    /// It was refused; nothing changed but, at most, an event or an audit row that says so.
    Refused(R),
}

impl<T, R> Outcome<T, R> {
    /// The answer, applied or replayed; a refusal as the error.
    pub fn into_result(self) -> Result<T, R> {
        match self {
            Self::Applied(answer) | Self::Replayed(answer) => Ok(answer),
            Self::Refused(refusal) => Err(refusal),
        }
    }

    /// Whether it changed something now.
    pub const fn is_applied(&self) -> bool {
        matches!(self, Self::Applied(_))
    }
}

/// A transaction that could not be decided or whose fate is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Certainly not done: it may be tried again as it was.
    #[error("the store did not do it: {reason}")]
    NotDone {
        /// What the adapter saw, for the log; never a secret.
        reason: String,
    },
    /// Certainly not done: the store's own user may not do it, until a person has granted what is missing.
    #[error("the store may not do it: {reason}")]
    NotAllowed {
        /// What the adapter saw, for the log: what is missing, where that is known; never a secret.
        reason: String,
    },
    /// It may have been done or not: only a replay of the same call tells.
    #[error("whether the store did it is unknown: {reason}")]
    Unknown {
        /// What the adapter saw, for the log; never a secret.
        reason: String,
    },
    /// A stored row contradicts its own rules; nothing was done, and trying again will not help.
    #[error("a stored row is damaged: {reason}")]
    Damaged {
        /// Which row and how, for the log; never a secret.
        reason: String,
    },
}

/// What a method of the port returns.
pub type Stored<T, R = std::convert::Infallible> = Result<Outcome<T, R>, StoreError>;
