//! What the agent does now, in one sentence for people who look at the service.

use super::{Barred, Engine};

impl Engine {
    /// One sentence; it changes only when something changes.
    pub fn summary(&self) -> String {
        let open = self.occupied();
        let attempts = match open {
            0 => "nothing runs".to_owned(),
            1 => "1 attempt is open".to_owned(),
            open => format!("{open} attempts are open"),
        };
        match self.barred {
            Some(Barred::Revoked) => return format!("this worker was revoked; {attempts}"),
            Some(Barred::Unauthenticated) => {
                return format!("the control plane does not accept this worker's certificate; {attempts}");
            }
            None => {}
        }
        if self.shutdown.is_draining() {
            format!("stopping; {attempts}")
        } else if !self.can_call() {
            format!("waiting for the control plane; {attempts}")
        } else if self.ordered.is_draining() {
            format!("drained by an operator; {attempts}")
        } else {
            format!("taking work, {} slots; {attempts}", self.config.max_runs)
        }
    }
}
