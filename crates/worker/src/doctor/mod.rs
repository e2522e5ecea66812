//! What may be wrong with this machine as a worker, and what to do about it: one finding a line, nothing changed.
//!
//! Each finding is a pure judgement of facts that [`crate::cli`] and the modules below gathered by looking. (Worker design,
//! *Capabilities and configuration*.)

pub mod machine;
pub mod network;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works; a person should know.
    Warning,
    /// It does not work, or soon will not.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// How bad.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(what: &'static str, seen: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, seen: seen.into(), advice: None }
    }

    /// It works; a person should know.
    pub fn warning(what: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Warning, seen: seen.into(), advice: Some(advice.into()) }
    }

    /// It does not work.
    pub fn problem(what: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Problem, seen: seen.into(), advice: Some(advice.into()) }
    }
}

/// The findings for people, one line each, the advice below it.
pub fn text(findings: &[Finding]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        };
        let _ = writeln!(text, "{verdict:<8} {:<16} {}", finding.what, finding.seen);
        if let Some(advice) = &finding.advice {
            let _ = writeln!(text, "{:<25} {advice}", "");
        }
    }
    text
}

/// Whether something does not work.
pub fn has_problem(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_its_advice_the_next() {
        let findings =
            [Finding::ok("identity", "nas"), Finding::problem("disk", "3 MiB are free", "remove what is not needed")];
        let lines: Vec<String> = text(&findings).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("ok       identity"), "{lines:?}");
        assert!(lines[2].trim_start().starts_with("remove what"), "{lines:?}");
        assert!(has_problem(&findings) && !has_problem(&findings[..1]));
    }
}
