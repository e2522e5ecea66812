//! The refusal codes and their HTTP status, one table for both sides. (Protocol, *Errors*.)

use leasehold_core::refusal::RefusalCode;

/// The HTTP status that carries `code`.
pub const fn status(code: RefusalCode) -> u16 {
    match code {
        RefusalCode::InvalidRequest | RefusalCode::UnknownField => 400,
        RefusalCode::Unauthenticated => 401,
        RefusalCode::Revoked => 403,
        RefusalCode::TicketSpent
        | RefusalCode::SessionLive
        | RefusalCode::SessionExpired
        | RefusalCode::SessionFenced
        | RefusalCode::LeaseFenced
        | RefusalCode::LeaseExpired
        | RefusalCode::VersionConflict
        | RefusalCode::ConflictReplay => 409,
        RefusalCode::LimitExceeded => 413,
        RefusalCode::UnsupportedProtocol => 426,
        RefusalCode::RateLimited => 429,
        RefusalCode::Overloaded => 503,
    }
}

/// The short title of `code`, for people; the same for every occurrence.
pub const fn title(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::InvalidRequest => "The request cannot be read",
        RefusalCode::UnknownField => "The request names a field that this version does not know",
        RefusalCode::LimitExceeded => "The request is over a limit",
        RefusalCode::Unauthenticated => "No valid certificate or enrollment token",
        RefusalCode::Revoked => "This worker's identity was revoked",
        RefusalCode::TicketSpent => "The registration ticket was spent by another session",
        RefusalCode::SessionLive => "Another session of this worker is live",
        RefusalCode::SessionExpired => "The session's lease has ended",
        RefusalCode::SessionFenced => "The session was replaced, is offline, or never was",
        RefusalCode::LeaseFenced => "The lease is not the caller's",
        RefusalCode::LeaseExpired => "The lease ran out",
        RefusalCode::VersionConflict => "The named version is not the current one",
        RefusalCode::ConflictReplay => "The same id came with other content before",
        RefusalCode::UnsupportedProtocol => "This protocol version is not spoken here",
        RefusalCode::RateLimited => "Too many requests",
        RefusalCode::Overloaded => "The control plane cannot take this now",
    }
}
