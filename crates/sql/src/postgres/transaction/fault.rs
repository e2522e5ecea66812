//! Why a call of the port was not carried out, and what may be done about it.

use leasehold_store::outcome::StoreError;
use tokio_postgres::error::SqlState;

use crate::postgres::rows::Damaged;

/// Why a call of the port was not carried out. Everything it wrote is undone.
#[derive(Debug)]
pub(crate) enum Fault {
    /// PostgreSQL refused a statement, or the connection broke.
    Postgres(tokio_postgres::Error),
    /// A stored row contradicts its own rules.
    Damaged(String),
    /// It took longer than any call may.
    TooSlow,
    /// The database's clock stepped since it was read last: nothing is decided on it before the ends are moved.
    ClockStepped,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<Damaged> for Fault {
    fn from(Damaged(reason): Damaged) -> Self {
        Self::Damaged(reason)
    }
}

/// Whether a call that was certainly not done may be decided once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum Again {
    /// Another transaction took a unique value first: once.
    Raced,
    /// Another transaction was in the way, or the connection broke: a few times.
    Collided,
    /// Once the ends that were fixed before the clock stepped are moved.
    Stepped,
    /// It would fail again.
    Never,
}

impl Fault {
    /// What may be done after this fault, all of whose transaction is undone.
    pub(in crate::postgres) fn again(&self) -> Again {
        let error = match self {
            Self::Postgres(error) => error,
            Self::ClockStepped => return Again::Stepped,
            Self::Damaged(_) | Self::TooSlow => return Again::Never,
        };
        let Some(state) = error.code() else {
            return if error.is_closed() || error.to_string().contains("communicating with the server") {
                Again::Collided
            } else {
                Again::Never
            };
        };
        if *state == SqlState::UNIQUE_VIOLATION {
            return Again::Raced;
        }
        let collided = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            // A statement that was sent behind the one that failed.
            SqlState::IN_FAILED_SQL_TRANSACTION,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
        ];
        if collided.contains(state) { Again::Collided } else { Again::Never }
    }

    /// Whether this answer to COMMIT says that nothing was committed. Everything else leaves it open: a server that goes
    /// down may have committed first.
    pub(in crate::postgres) fn refused_to_commit(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        let class = error.code().map(|state| state.code().get(..2));
        matches!(class.flatten(), Some("23" | "40" | "P0"))
    }

    /// Whether a right that is missing may be the cause: nothing is found in a schema that its user may not look into.
    pub(in crate::postgres) fn may_be_of_rights(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        let codes = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION];
        error.code().is_some_and(|code| codes.contains(code))
    }

    pub(in crate::postgres) fn reason(&self) -> String {
        match self {
            Self::Damaged(reason) => reason.clone(),
            Self::TooSlow => "the database did not answer in time".to_owned(),
            Self::ClockStepped => "the database's clock stepped".to_owned(),
            Self::Postgres(error) => {
                use std::error::Error as _;
                if let Some(error) = error.as_db_error() {
                    // Message and code alone: a detail may show values of rows.
                    return format!("{} ({})", error.message(), error.code().code());
                }
                let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
                format!("{error}{cause}")
            }
        }
    }
}

impl From<Fault> for StoreError {
    /// What a caller may conclude: nothing was committed, so it is certainly not done.
    fn from(fault: Fault) -> Self {
        let reason = fault.reason();
        match &fault {
            Fault::Damaged(_) => Self::Damaged { reason },
            Fault::Postgres(error)
                if matches!(error.code(), Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED)) =>
            {
                Self::Damaged { reason }
            }
            Fault::Postgres(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                Self::NotAllowed { reason }
            }
            Fault::Postgres(_) | Fault::TooSlow | Fault::ClockStepped => Self::NotDone { reason },
        }
    }
}

/// A try of a call that did not end with a commit that was answered.
#[derive(Debug)]
pub(in crate::postgres) enum Undone {
    /// Nothing was committed.
    Certainly(Fault),
    /// Whether it was committed is not known.
    Unknown(String),
}
