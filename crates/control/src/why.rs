//! A person's words beside what they do: bounded, for events, the audit and pages.

use leasehold_core::limits;

use crate::error::Denied;

/// Whether `why` fits where it is kept.
pub(crate) fn check(why: Option<&str>) -> Result<(), Denied> {
    match why {
        Some(why) if why.len() > limits::WHY_BYTES => Err(Denied::Invalid {
            field: "why".to_owned(),
            got: format!("{} bytes", why.len()),
            allowed: format!("at most {} bytes", limits::WHY_BYTES),
        }),
        _ => Ok(()),
    }
}
