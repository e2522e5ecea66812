//! Why a run is still pending, for people: the sentence, then every worker with what is wanted and what it has.

use std::io::{self, Write};

use leasehold_wire::api::explanation::{Explanation, Limit};

use crate::times::TimeArgs;

/// Writes an explanation.
pub(crate) fn write(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let nearest = if explanation.nearest.is_empty() { &explanation.outlook } else { &explanation.nearest };
    writeln!(out, "{nearest}")?;
    for worker in &explanation.workers {
        if worker.mismatches.is_empty() {
            writeln!(out, "  {}: can take it", worker.worker)?;
            continue;
        }
        writeln!(out, "  {}:", worker.worker)?;
        for mismatch in &worker.mismatches {
            writeln!(out, "    {}: wants {}, has {}", mismatch.class, mismatch.wanted, mismatch.have)?;
        }
    }
    if explanation.workers.len() > 1 && !explanation.classes.is_empty() {
        let counts: Vec<_> = explanation.classes.iter().map(|(class, workers)| format!("{class} {workers}")).collect();
        writeln!(out, "  of {} workers, kept back by: {}", explanation.workers.len(), counts.join(", "))?;
    }
    if explanation.truncated {
        writeln!(out, "  (more workers were not looked at)")?;
    }
    Ok(())
}

/// Writes who holds the places of the limits that are full.
pub(crate) fn write_holders(out: &mut dyn Write, limits: &[Limit], times: TimeArgs) -> io::Result<()> {
    for limit in limits.iter().filter(|limit| limit.occupied >= limit.limit && !limit.holders.is_empty()) {
        writeln!(out, "Places of {} {}, {} of {} held:", limit.of, limit.name, limit.occupied, limit.limit)?;
        for holder in &limit.holders {
            let on = holder.worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default();
            let why = match holder.hold.as_str() {
                "in_question" => ", lost: until its question is closed",
                "may_live" => ", something of it may still live",
                _ => "",
            };
            writeln!(out, "  {} {}{on} since {}{why}", holder.run_id, holder.name, times.show(holder.since.0))?;
        }
        match usize::try_from(limit.occupied).unwrap_or(usize::MAX).saturating_sub(limit.holders.len()) {
            0 => {}
            more => writeln!(out, "  (and {more} more)")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::UtcMillis;
    use leasehold_wire::api::explanation::{Holder, Mismatch, WorkerExplanation};

    use super::*;

    #[test]
    fn every_worker_is_shown_with_wanted_and_have() {
        let mismatch = Mismatch { class: "label".into(), wanted: "site=office".into(), have: "site=home".into() };
        let explanation = Explanation {
            outlook: "never".into(),
            nearest: "no registered worker can ever run this".into(),
            leading: None,
            classes: [("label".to_owned(), 1)].into(),
            workers: vec![
                WorkerExplanation {
                    worker: "far".parse().unwrap(),
                    capable: true,
                    score: None,
                    mismatches: Vec::new(),
                },
                WorkerExplanation {
                    worker: "near".parse().unwrap(),
                    capable: false,
                    score: None,
                    mismatches: vec![mismatch],
                },
            ],
            truncated: false,
        };
        let mut text = Vec::new();
        write(&mut text, &explanation).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "no registered worker can ever run this\n  far: can take it\n  near:\n    label: wants site=office, has \
             site=home\n  of 2 workers, kept back by: label 1\n"
        );
    }

    #[test]
    fn whoever_holds_the_places_of_a_full_limit_is_named() {
        let holder = |hold: &str| Holder {
            run_id: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
            name: "report".into(),
            attempt: 1,
            hold: hold.into(),
            worker: Some("nas".parse().unwrap()),
            since: UtcMillis::new(1_800_000_000_000).into(),
        };
        let limit = |limit, holders| Limit { of: "task".into(), name: "report".into(), limit, occupied: 3, holders };
        let limits = [limit(4, vec![holder("live")]), limit(3, vec![holder("live"), holder("in_question")])];
        let mut text = Vec::new();
        write_holders(&mut text, &limits, TimeArgs { utc: true }).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Places of task report, 3 of 3 held:\n  01900000-0000-7000-8000-000000000001 report on nas since \
             2027-01-15T08:00:00Z\n  01900000-0000-7000-8000-000000000001 report on nas since 2027-01-15T08:00:00Z, lost: \
             until its question is closed\n  (and 1 more)\n"
        );
    }
}
