//! What `leasehold doctor` looks at: everything that a control plane needs, each with a verdict and what to do about it.
//!
//! Works beside a control plane that runs and without one, and changes nothing. A check that cannot be made says so
//! instead of passing. (Control design, *Operating it*.)

mod certificates;
mod database;
mod files;
mod installation;
mod postgres;
mod process;

use serde::Serialize;

pub(crate) use certificates::certificates;
pub(crate) use database::{database, lease_clock, runs, unread, wall_clock, workers};
pub(crate) use files::{directory, odd, room};
pub(crate) use installation::{Installed, ca_file, master_key};
pub(crate) use postgres::{database_clock, postgres};
pub(crate) use process::{control_plane, listener, uptime};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// As it should be.
    Ok,
    /// It does not apply now; the detail says why.
    Skipped,
    /// It works, and somebody should look.
    Warning,
    /// It does not work, or will not for long.
    Problem,
}

impl Status {
    /// Its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Which check: a stable name.
    pub(crate) check: &'static str,
    /// How it ended.
    pub(crate) status: Status,
    /// What was found.
    pub(crate) detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, detail: detail.into(), advice: None }
    }

    pub(crate) fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, status: Status::Skipped, detail: why.into(), advice: None }
    }

    pub(crate) fn warning(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, status: Status::Warning, detail: detail.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn problem(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, status: Status::Problem, detail: detail.into(), advice: Some(advice.into()) }
    }
}

/// Everything that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// The worst of it.
    pub(crate) status: Status,
    /// In the order in which it was looked at.
    pub(crate) checks: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(checks: Vec<Finding>) -> Self {
        let worst = checks.iter().map(|finding| finding.status).filter(|status| *status != Status::Skipped).max();
        Self { status: worst.unwrap_or(Status::Ok), checks }
    }
}

/// The first few names of a list, and how many more there are.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A size as people say it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes / 1024;
    let mut unit = 0;
    while value >= 10_240 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_as_bad_as_its_worst_check() {
        let ok = Finding::ok("a", "fine");
        let skipped = Finding::skipped("b", "nothing runs");
        assert_eq!(Report::new(vec![]).status, Status::Ok);
        assert_eq!(Report::new(vec![ok.clone(), skipped.clone()]).status, Status::Ok);
        let warning = Finding::warning("c", "late", "look");
        assert_eq!(Report::new(vec![warning.clone(), ok, skipped]).status, Status::Warning);
        assert_eq!(Report::new(vec![Finding::problem("d", "gone", "put it back"), warning]).status, Status::Problem);
    }

    #[test]
    fn sizes_and_lists_are_short() {
        assert_eq!((size(0), size(9 << 30), size(300 << 20)), ("0 KiB".into(), "9216 MiB".into(), "300 MiB".into()));
        let names: Vec<String> = (1..=7).map(|number| format!("w{number}")).collect();
        assert_eq!(few(&names), "w1, w2, w3, w4, w5 and 2 more");
        assert_eq!(few(&names[..2]), "w1, w2");
    }
}
