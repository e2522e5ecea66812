//! The status as a person reads it: what matters first, and what to do about it.

use std::fmt;

use leasehold_core::time::Millis;

use super::{Attempt, Status};

/// A span as people say it: to the second.
fn span(millis: u64) -> String {
    Millis::from_secs(millis / 1000).to_string()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, text: &str| writeln!(f, "{what:<12}{text}");
        line("worker", &format!("{} of {}", self.worker, self.trust_domain))?;
        line("control", &self.server)?;
        line("state", &self.state_dir)?;
        match (&self.agent, &self.unheard) {
            (Some(agent), _) => {
                line("agent", &format!("process {}, version {}: {}", agent.pid, agent.software, agent.summary))?;
                if let Some(session) = &agent.session {
                    line("session", &format!("{}, generation {}", session.id, session.generation))?;
                }
                let heard = match agent.silent_ms {
                    Some(millis) => format!("{} ago", span(millis)),
                    None => "never in this life".to_owned(),
                };
                line("answered", &heard)?;
                line("slots", &format!("{}, {} free", agent.max_runs, agent.free_slots))?;
            }
            (None, Some(_)) => line("agent", "one runs and does not answer; what follows is what its directory says")?,
            (None, None) => line("agent", "none runs: start it with `leasehold-worker run`, or its service")?,
        }
        if let Some(stopped) = &self.stopped {
            let text = format!("{stopped}: it never registers again by itself; enroll this machine anew");
            line("stopped", &text)?;
        }
        if self.drained_here {
            line("drained", "by a person, here: it takes nothing new until `leasehold-worker resume`")?;
        }
        let states: Vec<String> = self.inbox.iter().map(|(state, count)| format!("{count} {state}")).collect();
        line("inbox", &if states.is_empty() { "empty".to_owned() } else { states.join(", ") })?;
        if !self.quarantine.is_empty() || !self.orphans.is_empty() {
            let text = format!(
                "{} files in quarantine, {} attempts without a record: `leasehold-worker quarantine` says which",
                self.quarantine.len(),
                self.orphans.len()
            );
            line("untrusted", &text)?;
        }
        self.attempts(f)?;
        for fault in self.agent.iter().flat_map(|agent| &agent.faults) {
            let of = fault.attempt.as_ref().map_or_else(String::new, |attempt| format!(" ({attempt})"));
            writeln!(f, "fault       {} {}{of}", fault.at, fault.text)?;
        }
        Ok(())
    }
}

impl Status {
    fn attempts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempts.is_empty() {
            return Ok(());
        }
        let head = ["RUN", "ATTEMPT", "STATE", "JOB", "LEASE ENDS", "TIMES OUT"].map(str::to_owned);
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(self.attempts.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        writeln!(f)?;
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn row(attempt: &Attempt) -> [String; 6] {
    let left = |millis: Option<u64>| millis.map_or_else(|| "-".to_owned(), span);
    let job = match &attempt.stopping {
        Some(reason) => format!("{}, being stopped ({reason})", attempt.job),
        None => attempt.job.clone(),
    };
    [
        attempt.run.clone(),
        attempt.number.to_string(),
        attempt.state.clone(),
        job,
        left(attempt.lease_ends_in_ms),
        left(attempt.times_out_in_ms),
    ]
}
