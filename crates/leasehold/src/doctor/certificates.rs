//! Certificates: the CA's, and the workers' that end soon.

use leasehold_control::principal::certificate_end;
use leasehold_core::id::WorkerId;
use leasehold_core::limits::{CA_WARNING, CERTIFICATE_WARNING};
use leasehold_core::time::UtcMillis;
use leasehold_wire::api::time::Time;

use super::{Finding, few};

/// The CA's certificate (DER) and those of the workers, the earliest end first.
pub(crate) fn certificates(ca: &[u8], workers: &[(WorkerId, UtcMillis)], now: UtcMillis) -> Vec<Finding> {
    let ca = match certificate_end(ca) {
        None => Finding::problem("ca_certificate", "the stored certificate is none", "restore the data from a backup"),
        Some(end) => {
            let text = format!("until {}", Time(end));
            if end <= now {
                let advice = "look at this machine's clock first; if it is right, make a new installation and enroll every worker again";
                Finding::problem("ca_certificate", format!("ended: {text}"), advice)
            } else if end.since(now) < CA_WARNING {
                Finding::warning(
                    "ca_certificate",
                    text,
                    "plan a new installation before then: every worker enrolls again",
                )
            } else {
                Finding::ok("ca_certificate", text)
            }
        }
    };
    let named = |of: &dyn Fn(UtcMillis) -> bool| -> Vec<String> {
        let of = workers.iter().filter(|(_, end)| of(*end));
        of.map(|(worker, end)| format!("{worker} ({})", Time(*end))).collect()
    };
    let ended = named(&|end| end <= now);
    let soon = named(&|end| end > now && end.since(now) < CERTIFICATE_WARNING);
    let advice = "enroll each again under its name: `leasehold worker enroll --name NAME`, and paste the line there";
    let workers = if !ended.is_empty() {
        Finding::problem("worker_certificates", format!("ended: {}", few(&ended)), advice)
    } else if !soon.is_empty() {
        Finding::warning("worker_certificates", format!("end soon: {}", few(&soon)), advice)
    } else {
        let first =
            workers.first().map_or_else(|| "no worker".to_owned(), |(_, end)| format!("the first ends {}", Time(*end)));
        Finding::ok("worker_certificates", first)
    };
    vec![ca, workers]
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Millis;

    use super::super::Status;
    use super::*;

    #[test]
    fn a_certificate_is_told_before_it_ends_and_named_when_it_has() {
        let now = UtcMillis::new(1_800_000_000_000);
        let worker = |name: &str, end| (name.parse().unwrap(), end);
        let day = Millis::from_secs(24 * 60 * 60);
        let verdict = |workers: &[(WorkerId, UtcMillis)]| certificates(b"none", workers, now)[1].clone();
        assert_eq!(verdict(&[]).status, Status::Ok);
        assert_eq!(verdict(&[worker("nas", now.plus(day.times(60)))]).status, Status::Ok);
        let soon = verdict(&[worker("nas", now.plus(day.times(3)))]);
        assert_eq!(soon.status, Status::Warning);
        let ended = verdict(&[worker("old", now.minus(day)), worker("nas", now.plus(day.times(3)))]);
        assert_eq!(ended.status, Status::Problem);
        assert!(ended.detail.contains("old") && !ended.detail.contains("nas"), "{}", ended.detail);
        assert_eq!(certificates(b"none", &[], now)[0].status, Status::Problem, "bytes that are no certificate");
    }
}
