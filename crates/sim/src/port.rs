//! Ports that a test's processes may listen on for as long as the test lives, restarts included.
//!
//! A port that was free a moment ago is anybody's: another test may get it, or the kernel may give it to a connection.
//! These lie below the kernel's range, and each is held by a lock on a file of its number, which every test process of
//! this machine asks for and which the end of the process gives back.

use std::fs::{self, File};
use std::net::TcpListener;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};

/// Where no kernel's default range for connections begins, and few services listen.
const OF_TESTS: RangeInclusive<u16> = 20_000..=29_999;

/// A port of this test alone, until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: File,
}

impl Port {
    /// A port of `host`, an address of this machine, that no other test has and nobody listens on.
    pub fn take(host: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join("leasehold-ports");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        // Each process begins somewhere else, or the first thousand would be asked for again and again.
        let begin = u16::try_from(std::process::id() % 10_000).unwrap_or_default();
        let (before, after) = OF_TESTS.partition::<Vec<_>, _>(|number| number - OF_TESTS.start() < begin);
        for number in after.into_iter().chain(before) {
            let file = directory.join(number.to_string());
            let held = File::options().create(true).append(true).open(&file);
            let held = held.with_context(|| format!("cannot open {}", file.display()))?;
            if flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()
                && TcpListener::bind((host, number)).is_ok()
            {
                return Ok(Self { number, _held: held });
            }
        }
        anyhow::bail!("every port from {} to {} is taken", OF_TESTS.start(), OF_TESTS.end())
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_nobody_elses_and_free_to_listen_on() {
        let first = Port::take("127.0.0.1").unwrap();
        let second = Port::take("127.0.0.1").unwrap();
        assert_ne!(first.number(), second.number());
        let listener = TcpListener::bind(("127.0.0.1", first.number())).unwrap();
        drop((first, listener));
    }
}
