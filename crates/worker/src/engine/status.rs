//! What the agent does, told to a person: a view, from which nothing follows.

use std::collections::BTreeMap;

use leasehold_core::time::BootInstant;

use super::held::{Held, Known};
use super::{Barred, Engine};
use crate::logging::rfc3339;
use crate::status::{Agent, Attempt, Session};

impl Engine {
    /// One sentence; it changes only when something changes.
    pub fn summary(&self) -> String {
        let attempts = match self.occupied() {
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
        } else if self.ordered.is_drained_here() {
            format!("drained by a person at this machine; {attempts}")
        } else if self.ordered.is_draining() {
            format!("drained by an operator; {attempts}")
        } else {
            format!("taking work, {} slots; {attempts}", self.config.max_runs)
        }
    }

    /// Attempts that are not settled, and claims that are being given back.
    pub fn open(&self) -> usize {
        self.occupied()
    }

    /// Everything of it, as it is at this instant of the boot-time clock. What the process itself is, its driver adds.
    pub fn status(&self, now: BootInstant) -> Agent {
        let mut inbox = BTreeMap::new();
        for held in self.records.values() {
            *inbox.entry(held.record.state().to_string()).or_insert(0) += 1;
        }
        Agent {
            pid: 0,
            software: self.config.software.clone(),
            summary: self.summary(),
            leaving: self.shutdown.is_draining(),
            drained_here: self.ordered.is_drained_here(),
            drained_by_operator: self.ordered.is_draining(),
            session: self.live.as_ref().map(|live| Session {
                id: live.numbers.session.to_string(),
                generation: live.numbers.generation.get(),
                version: live.version.get(),
            }),
            max_runs: self.config.max_runs,
            free_slots: self.free_slots(),
            open: self.open(),
            last_contact_at: self.beat.last_contact.map(|moment| rfc3339(moment.utc)),
            silent_ms: self.beat.last_contact.map(|moment| now.since(moment.boot).get()),
            attempts: self.records.values().map(|held| attempt(held, now)).collect(),
            inbox,
            features: self.config.capabilities.features.iter().cloned().collect(),
            faults: Vec::new(),
        }
    }
}

fn attempt(held: &Held, now: BootInstant) -> Attempt {
    let record = &held.record;
    let settled = record.state().is_settled();
    let left = |at: Option<BootInstant>| at.filter(|_| !settled).map(|at| at.since(now).get());
    Attempt {
        run: record.offer.run.to_string(),
        attempt: record.attempt().to_string(),
        number: record.offer.number.get(),
        task: record.offer.task.as_ref().map(ToString::to_string),
        state: record.state().to_string(),
        job: if settled { "over" } else { job(&held.known) }.to_owned(),
        lease_ends_in_ms: left(held.lease.deadline),
        times_out_in_ms: left(held.timeout_at),
        stopping: held.stop.filter(|_| !settled).map(|reason| reason.to_string()),
    }
}

const fn job(known: &Known) -> &'static str {
    match known {
        Known::Nothing => "being looked at",
        Known::Here => "not started yet",
        Known::Detached => "runs, launcher not attached yet",
        Known::Attached => "runs",
        Known::Orphaned => "its launcher died; what is left is being stopped",
        Known::Damaged => "its record is damaged; what is left is being stopped",
        Known::NotStarted { .. } => "did not start",
        Known::Lost(_) => "over, nobody saw its end",
        Known::Ended(_) => "ended, to be reported",
    }
}
