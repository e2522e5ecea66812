//! Exit codes: what a script may conclude from how a command ended. (Product, *The command line*.)

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Something went wrong.
    Error,
    /// The command line is wrong.
    Usage,
    /// There is no such thing.
    NotFound,
    /// The caller may not do this.
    NotAllowed,
    /// The run failed.
    RunFailed,
    /// The run was cancelled.
    Cancelled,
    /// The run timed out.
    TimedOut,
    /// The run is lost, or what became of it is unknown.
    Lost,
    /// The run was still pending when `--wait-timeout` ended.
    StillPending,
    /// The request conflicts with how things are.
    Conflict,
    /// Interrupted by the person.
    Interrupted,
    /// The command's own code, where it was asked for.
    OfCommand(u8),
}

impl Exit {
    /// The number a shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::NotAllowed => 4,
            Self::RunFailed => 5,
            Self::Cancelled => 6,
            Self::TimedOut => 7,
            Self::Lost => 8,
            Self::StillPending => 9,
            Self::Conflict => 10,
            Self::Interrupted => 130,
            Self::OfCommand(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
