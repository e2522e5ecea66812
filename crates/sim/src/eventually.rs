//! Waiting for a fact that nobody announces.
//!
//! Where a process or a channel tells, tests wait on it; this is for the rest: a state in an answer, a file, a
//! process that goes. The one place of the test suite that sleeps, and only between two looks.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a fact may take on a slow machine before a test gives up. Never the time a test normally needs.
pub const PATIENCE: Duration = Duration::from_mins(1);

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks until the answer is there; fails with what was awaited and what was seen last.
///
/// `look` answers `Ok(value)` when the fact holds, `Err(sight)` with what it saw instead.
pub fn eventually<T>(awaited: &str, look: impl FnMut() -> Result<T, String>) -> Result<T> {
    within(PATIENCE, awaited, look)
}

/// Looks until the answer is there, for no longer than the product promises that it takes.
#[expect(clippy::disallowed_methods, reason = "the pause between two looks, and the end of patience")]
pub fn within<T>(span: Duration, awaited: &str, mut look: impl FnMut() -> Result<T, String>) -> Result<T> {
    let begin = Instant::now();
    loop {
        match look() {
            Ok(fact) => return Ok(fact),
            Err(sight) if begin.elapsed() > span => {
                bail!("waited {} s for {awaited}; last seen: {sight}", span.as_secs())
            }
            Err(_) => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_comes_later_is_found() {
        let mut looks = 0;
        let found = eventually("the third look", || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(looks.to_string()) }
        });
        assert_eq!(found.unwrap(), 3);
    }
}
