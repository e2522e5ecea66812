//! Nothing new is taken because a person said so: an operator, told by a directive, or whoever is at the machine.
//!
//! Slots 0 and nothing new; what runs goes on, and what an earlier life may have begun is carried on. An operator's wish
//! stands at the control plane, which claims nothing meanwhile whether this process has heard of it or not: so it is kept in
//! memory alone, and a new process is told again. The wish of a person here stands on disk ([`crate::pause`]) before it is
//! said to the engine. Each ends by its own word; the worker takes work again when neither holds. (Worker design, *Leases*:
//! directives; protocol, *heartbeat*; product, *The command line*.)

use super::Engine;
use super::port::Level;

#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// An operator drains this worker.
    drain: bool,
    /// A person at this machine does.
    here: bool,
    /// Since then a pull without wait has settled the asks that were out.
    pub(super) settled: bool,
}

impl Ordered {
    /// As an earlier life left it.
    pub(super) const fn recovered(here: bool) -> Self {
        Self { drain: false, here, settled: false }
    }

    /// Whether an operator's wish is obeyed.
    pub(super) const fn is_draining(&self) -> bool {
        self.drain
    }

    /// Whether a person at this machine wishes it.
    pub(super) const fn is_drained_here(&self) -> bool {
        self.here
    }

    const fn any(&self) -> bool {
        self.drain || self.here
    }
}

impl Engine {
    /// Whether nothing new is taken: by a person's wish, or because this process is about to leave.
    pub(super) fn takes_nothing_new(&self) -> bool {
        self.ordered.any() || self.shutdown.is_draining()
    }

    pub(super) fn told_to_drain(&mut self) {
        if !self.ordered.drain {
            self.ordered.drain = true;
            self.ordered.settled = false;
            let open = self.occupied();
            let text = format!("drained by an operator: nothing new is taken, {open} attempts go on");
            self.report(Level::Info, None, text);
            self.beat.now();
        }
    }

    pub(super) fn told_to_resume(&mut self) {
        if self.ordered.drain {
            self.ordered.drain = false;
            let text = if self.ordered.here {
                "resumed by an operator; still drained by a person at this machine"
            } else {
                "resumed by an operator: taking work again"
            };
            self.report(Level::Info, None, text);
            self.beat.now();
        }
    }

    /// What a person at this machine wishes; durable already.
    pub(super) fn told_here(&mut self, drain: bool) {
        if self.ordered.here == drain {
            return;
        }
        self.ordered.here = drain;
        self.ordered.settled &= !drain;
        let open = self.occupied();
        let text = match (drain, self.ordered.drain) {
            (true, _) => format!("drained by a person at this machine: nothing new is taken, {open} attempts go on"),
            (false, true) => "resumed by a person at this machine; still drained by an operator".to_owned(),
            (false, false) => "resumed by a person at this machine: taking work again".to_owned(),
        };
        self.report(Level::Info, None, text);
        // The slots that it says are others now.
        self.beat.now();
    }
}
