//! The tests that `ci` leaves out, each behind a verb of its own, so that `#[ignore]` never means *runs nowhere*.
//!
//! They are left out because they take minutes, measure, or write the files that other tests read. A verb only names
//! the test: what it does is told where it stands.

use anyhow::Result;

use crate::checkout::{cargo, run as run_command};

/// One such verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByHand {
    /// Garbage at both listeners, for minutes.
    Fuzz,
    /// Ten years of fire times in every zone, against the brute-force oracle.
    Schedules,
    /// A schedule that skips, on three replicas that are killed for minutes.
    Skips,
    /// Rewrites the golden messages after a deliberate change of the protocol or the API.
    Golden,
    /// Admissions, claims and ends per second at the port of the embedded store.
    BenchStore,
    /// What the binaries of a release write, kept for the builds that come after it.
    KeepRelease,
}

impl ByHand {
    /// What cargo is asked for, up to the options of the test itself.
    fn selects(self) -> &'static [&'static str] {
        match self {
            Self::Fuzz => &["--release", "--package", "leasehold-server", "--test", "server", "much_more_garbage"],
            // Only what is called a hundred million times is optimized; overflows are still found.
            Self::Schedules => &[
                "--config=profile.dev.package.leasehold-core.opt-level=3",
                "--config=profile.dev.package.jiff.opt-level=3",
                "--config=profile.dev.package.jiff-core.opt-level=3",
                "--package",
                "leasehold-core",
                "--test",
                "schedule",
                "ten_years",
            ],
            Self::Skips => &["--package", "leasehold-sim", "--test", "e2e", "replicas_that_are_killed_for_minutes"],
            Self::Golden => &["--package", "leasehold-wire", "--all-features", "write_the_golden_files"],
            Self::BenchStore => &["--release", "--package", "leasehold-sql", "--lib", "sqlite::tests::throughput"],
            Self::KeepRelease => &["--package", "leasehold-sim", "--test", "e2e", "keep_what_this_release_writes"],
        }
    }

    /// Runs it in sight: a measurement prints, and a fuzzer names its seed.
    pub(crate) fn run(self) -> Result<()> {
        run_command(cargo().args(["test", "--locked"]).args(self.selects()).args(["--", "--ignored", "--nocapture"]))
    }
}
