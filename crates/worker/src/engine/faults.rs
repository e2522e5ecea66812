//! What keeps this machine from doing its part, as far as its agent knows now: said aloud once, and told to the control
//! plane with the next beat; never a decision about a run.
//!
//! The list is told whole, in a session's first beat and whenever it has changed since the last answer, so that a lost
//! answer is simply told again. (Protocol, *heartbeat*; [`leasehold_core::fault`].)

use std::collections::BTreeMap;

use leasehold_core::fault::{Fault, FaultKind};
use leasehold_core::id::AttemptId;
use leasehold_core::limits::{CLOCK_SKEW, FAULT_DETAIL_BYTES, FAULTS};
use leasehold_core::time::UtcMillis;

use super::Engine;
use super::port::Level;

#[derive(Debug, Default)]
pub(super) struct Faults {
    current: BTreeMap<(FaultKind, Option<AttemptId>), Fault>,
    /// What this session's control plane knows, once it was told.
    told: Option<Vec<Fault>>,
    /// What the beat under way says.
    telling: Option<Vec<Fault>>,
}

impl Faults {
    /// The longest standing, as many as a beat may name.
    fn list(&self) -> Vec<Fault> {
        let mut faults: Vec<_> = self.current.values().cloned().collect();
        faults.sort_by_key(|fault| fault.since);
        faults.truncate(FAULTS);
        faults
    }

    /// What the next beat says, if anything changed.
    pub(super) fn tell(&mut self) -> Option<Vec<Fault>> {
        let faults = self.list();
        self.telling = (self.told.as_ref() != Some(&faults)).then_some(faults);
        self.telling.clone()
    }

    /// The beat was answered.
    pub(super) fn told(&mut self) {
        if let Some(told) = self.telling.take() {
            self.told = Some(told);
        }
    }

    /// Another session: nobody was told anything.
    pub(super) fn session_began(&mut self) {
        self.told = None;
        self.telling = None;
    }

    /// Sets a fault; answers whether that is news.
    fn set(&mut self, kind: FaultKind, attempt: Option<AttemptId>, detail: &str, now: UtcMillis) -> bool {
        let detail = shortened(detail);
        let since = self.current.get(&(kind, attempt)).map_or(now, |known| known.since);
        let fault = Fault { kind, attempt, detail, since };
        self.current.insert((kind, attempt), fault.clone()).as_ref() != Some(&fault)
    }
}

/// One line that fits into a beat.
fn shortened(detail: &str) -> String {
    let mut line: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > FAULT_DETAIL_BYTES {
        let end = (0..=FAULT_DETAIL_BYTES - '…'.len_utf8()).rev().find(|end| line.is_char_boundary(*end));
        line.truncate(end.unwrap_or_default());
        line.push('…');
    }
    line
}

impl Engine {
    /// Something is wrong that a person should look at; said aloud when it is news.
    pub(super) fn fault(&mut self, kind: FaultKind, attempt: Option<AttemptId>, detail: impl Into<String>) {
        let detail = detail.into();
        if self.faults.set(kind, attempt, &detail, self.now.utc) {
            self.report(Level::Fault, attempt, detail);
        }
    }

    /// It is no longer so.
    pub(super) fn fault_over(&mut self, kind: FaultKind, attempt: Option<AttemptId>) {
        self.faults.current.remove(&(kind, attempt));
    }

    /// Nothing about this attempt matters any more.
    pub(super) fn faults_over(&mut self, attempt: AttemptId) {
        self.faults.current.retain(|(_, of), _| *of != Some(attempt));
    }

    /// The control plane said what time it has.
    pub(super) fn compare_clocks(&mut self, theirs: UtcMillis) {
        let ours = self.now.utc;
        let (skew, side) =
            if ours > theirs { (ours.since(theirs), "ahead of") } else { (theirs.since(ours), "behind") };
        if skew <= CLOCK_SKEW {
            return self.fault_over(FaultKind::Clock, None);
        }
        // To the minute: a clock that drifts is one fault, not one per beat.
        let minutes = skew.get() / 60_000;
        let text = format!(
            "this machine's wall clock is {minutes} min {side} the control plane's: times in logs and events are off by \
             that, and certificates may not count; set it, or let it be synchronised"
        );
        self.fault(FaultKind::Clock, None, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_until_a_beat_that_said_it_was_answered() {
        let mut faults = Faults::default();
        assert_eq!(faults.tell(), Some(vec![]), "a new session forgets what the last one said");
        assert_eq!(faults.tell(), Some(vec![]), "the answer was lost");
        faults.told();
        assert_eq!(faults.tell(), None);
        let now = UtcMillis::new(5);
        assert!(faults.set(FaultKind::DiskLow, None, "12 MiB left", now));
        assert!(!faults.set(FaultKind::DiskLow, None, "12 MiB left", UtcMillis::new(9)), "no news");
        let told = faults.tell().unwrap();
        assert_eq!((told.len(), told[0].since), (1, now));
        // It changes while the beat is under way: the answer is to what was said.
        assert!(faults.set(FaultKind::DiskLow, None, "11 MiB left", now));
        faults.told();
        assert_eq!(faults.tell().unwrap()[0].detail, "11 MiB left");
        faults.told();
        faults.session_began();
        assert_eq!(faults.tell().unwrap().len(), 1);
    }

    #[test]
    fn a_beat_names_the_longest_standing_and_every_word_fits() {
        let mut faults = Faults::default();
        for n in 0..40_u8 {
            let attempt = format!("01900000-0000-7000-8000-0000000000{n:02x}").parse().ok();
            let now = UtcMillis::new(100 - i64::from(n));
            faults.set(FaultKind::Refused, attempt, &"é\n".repeat(200), now);
        }
        let told = faults.tell().unwrap();
        assert_eq!((told.len(), told[0].since), (FAULTS, UtcMillis::new(61)));
        assert!(told.iter().all(|fault| fault.detail.len() <= FAULT_DETAIL_BYTES && fault.detail.ends_with('…')));
        assert!(!told[0].detail.contains('\n'));
    }
}
