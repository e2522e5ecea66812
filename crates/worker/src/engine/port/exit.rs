//! Why the agent is done, and what its process ends with.

/// Why the agent is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// In an orderly way.
    Done,
    /// To begin again by the start path, with the launchers untouched: to look at the machine again.
    StartOver,
    /// The same because the session's lease has ended: as long as no new one beats, no lease here is renewed, so the
    /// machine is taken to be what it was.
    Expired,
    /// Another session took its place: never register again by itself.
    Fenced,
    /// The worker's identity was revoked.
    Revoked,
    /// The server does not speak this protocol.
    ProtocolRefused,
    /// The drain timed out, or the control plane did not confirm that the worker is offline.
    DrainTimedOut,
    /// The registration ticket was spent by another.
    TicketSpent,
    /// The disk does not take what must be durable.
    Error,
}

impl Exit {
    /// Whether this very process takes the start path again.
    pub const fn begins_again(self) -> bool {
        matches!(self, Self::StartOver | Self::Expired)
    }

    /// The exit code of the process; none where it begins again.
    pub const fn code(self) -> Option<u8> {
        match self {
            Self::Done => Some(0),
            Self::StartOver | Self::Expired => None,
            Self::Error => Some(1),
            Self::Fenced => Some(20),
            Self::Revoked => Some(21),
            Self::ProtocolRefused => Some(22),
            Self::DrainTimedOut => Some(23),
            Self::TicketSpent => Some(25),
        }
    }
}
