//! Why a run is still pending, for people: the sentence, then every worker with what is wanted and what it has.

use std::io::{self, Write};

use leasehold_wire::api::explanation::Explanation;

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
    if explanation.truncated {
        writeln!(out, "  (more workers were not looked at)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_wire::api::explanation::{Mismatch, WorkerExplanation};

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
             site=home\n"
        );
    }
}
