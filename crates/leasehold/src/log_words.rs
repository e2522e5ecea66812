//! The state of a log in words: on a run's page, and after the output itself when something of it is missing.

use leasehold_core::log::LogState;
use leasehold_wire::api::run::Log;

/// One line about a log.
pub(crate) fn line(log: &Log) -> String {
    let received = log.received;
    match (log.state, log.length) {
        (LogState::Open, _) => format!("{received} bytes so far, still open"),
        (LogState::Complete, _) => format!("{received} bytes, complete{}", after(missing(log), "; ")),
        (LogState::Partial, length) => {
            let of = length.map_or_else(String::new, |length| format!(" of {length}"));
            format!("{received}{of} bytes, partial: the rest has not come from its worker{}", after(missing(log), "; "))
        }
        (LogState::Incomplete, _) => {
            let reason = log.reason.as_deref().unwrap_or("unknown reason");
            format!("{received} bytes, incomplete ({reason}){}", after(Some(why_incomplete(log)), ": "))
        }
    }
}

/// What a reader of the output must know at its end; none where it read all there is.
pub(crate) fn note(log: &Log) -> Option<String> {
    match log.state {
        LogState::Open | LogState::Complete => None,
        LogState::Partial => Some("the rest of the output has not come from its worker; it may come later".to_owned()),
        LogState::Incomplete => Some(format!("the output is incomplete: {}", why_incomplete(log))),
    }
}

fn why_incomplete(log: &Log) -> String {
    match (log.reason.as_deref(), missing(log)) {
        (Some("disk_full" | "write_failed"), Some(missing)) => missing,
        (Some("launcher_died"), _) => "its launcher died, and what it had not written yet is gone".to_owned(),
        (Some("end_unknown"), _) => "nobody saw its end, so how much is missing is not known".to_owned(),
        (reason, _) => reason.unwrap_or("nobody said why").to_owned(),
    }
}

fn missing(log: &Log) -> Option<String> {
    let cut = log.cut.as_ref()?;
    let bytes = cut.stdout.saturating_add(cut.stderr);
    Some(format!("{bytes} bytes of output are missing: {}", why_cut(&cut.reason)))
}

/// Why output was cut, in words.
pub(crate) fn why_cut(reason: &str) -> &str {
    match reason {
        "quota" => "the log reached its limit (limits.log_mib)",
        "disk_full" => "the worker's disk was full",
        "write_failed" => "the worker's disk could not be written",
        other => other,
    }
}

fn after(text: Option<String>, mark: &str) -> String {
    text.map_or_else(String::new, |text| format!("{mark}{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(json: &str) -> Log {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn each_state_is_told_with_what_is_missing_and_why() {
        for (json, told, noted) in [
            (r#"{"state":"open","received":7}"#, "7 bytes so far, still open", None),
            (r#"{"state":"complete","received":7,"length":7}"#, "7 bytes, complete", None),
            (
                r#"{"state":"complete","received":7,"length":7,"cut":{"reason":"quota","stdout":2,"stderr":1}}"#,
                "7 bytes, complete; 3 bytes of output are missing: the log reached its limit (limits.log_mib)",
                None,
            ),
            (
                r#"{"state":"partial","received":3,"length":7}"#,
                "3 of 7 bytes, partial: the rest has not come from its worker",
                Some("the rest of the output has not come from its worker; it may come later"),
            ),
            (
                r#"{"state":"incomplete","reason":"disk_full","received":7,"length":7,
                    "cut":{"reason":"disk_full","stdout":2,"stderr":0}}"#,
                "7 bytes, incomplete (disk_full): 2 bytes of output are missing: the worker's disk was full",
                Some("the output is incomplete: 2 bytes of output are missing: the worker's disk was full"),
            ),
            (
                r#"{"state":"incomplete","reason":"end_unknown","received":7}"#,
                "7 bytes, incomplete (end_unknown): nobody saw its end, so how much is missing is not known",
                Some("the output is incomplete: nobody saw its end, so how much is missing is not known"),
            ),
            (
                r#"{"state":"incomplete","reason":"a_new_one","received":7}"#,
                "7 bytes, incomplete (a_new_one): a_new_one",
                Some("the output is incomplete: a_new_one"),
            ),
        ] {
            let log = log(json);
            assert_eq!((line(&log).as_str(), note(&log).as_deref()), (told, noted));
        }
    }
}
