//! What went wrong in the life of an agent, kept for whoever asks at the machine.

use std::collections::VecDeque;

use leasehold_core::time::UtcMillis;

use crate::engine::port::{Level, Report};
use crate::logging::rfc3339;
use crate::status::Fault;

/// Faults that are kept; the oldest goes first.
const KEPT: usize = 32;

/// The newest last.
#[derive(Debug, Default)]
pub(super) struct Faults(VecDeque<Fault>);

impl Faults {
    /// Keeps a report that is a fault.
    pub(super) fn remember(&mut self, report: &Report, now: UtcMillis) {
        if report.level == Level::Fault {
            self.keep(Fault {
                at: rfc3339(now),
                attempt: report.attempt.map(|attempt| attempt.to_string()),
                text: report.text.clone(),
            });
        }
    }

    /// A start found this: said and kept.
    pub(super) fn found(&mut self, text: String, now: UtcMillis) {
        tracing::error!("{text}");
        self.keep(Fault { at: rfc3339(now), attempt: None, text });
    }

    fn keep(&mut self, fault: Fault) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(fault);
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<Fault> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_are_kept_and_the_oldest_goes() {
        let mut faults = Faults::default();
        let report = |level, text: usize| Report { level, attempt: None, text: text.to_string() };
        for n in 0..KEPT + 2 {
            faults.remember(&report(Level::Fault, n), UtcMillis::new(0));
            faults.remember(&report(Level::Warning, n), UtcMillis::new(0));
        }
        let texts: Vec<String> = faults.list().into_iter().map(|fault| fault.text).collect();
        assert_eq!((texts.len(), texts[0].as_str(), texts[KEPT - 1].as_str()), (KEPT, "2", "33"));
    }
}
