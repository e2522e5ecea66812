//! A person's drain: told by a directive, obeyed until another one ends it.
//!
//! Slots 0 and nothing new; what runs goes on, and what an earlier life may have begun is carried on. The wish itself stands
//! at the control plane, which claims nothing meanwhile whether this process has heard of it or not: so it is kept in memory
//! alone, and a new process is told again. (Worker design, *Leases*: directives; protocol, *heartbeat*.)

use super::Engine;
use super::port::Level;

#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// A person drains this worker.
    drain: bool,
    /// Since then a pull without wait has settled the asks that were out.
    pub(super) settled: bool,
}

impl Ordered {
    pub(super) const fn is_draining(&self) -> bool {
        self.drain
    }
}

impl Engine {
    /// Whether nothing new is taken: by a person's wish, or because this process is about to leave.
    pub(super) fn takes_nothing_new(&self) -> bool {
        self.ordered.drain || self.shutdown.is_draining()
    }

    pub(super) fn told_to_drain(&mut self) {
        if !self.ordered.drain {
            self.ordered = Ordered { drain: true, settled: false };
            let open = self.occupied();
            let text = format!("drained by an operator: nothing new is taken, {open} attempts go on");
            self.report(Level::Info, None, text);
            self.beat.now();
        }
    }

    pub(super) fn told_to_resume(&mut self) {
        if self.ordered.drain {
            self.ordered = Ordered::default();
            self.report(Level::Info, None, "resumed by an operator: taking work again");
            self.beat.now();
        }
    }
}
