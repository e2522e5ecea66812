//! A trigger as the control plane keeps it: what it waits for, how far it has come, and when it is looked at again.
//!
//! Its times and rules stand in the revision that its task has, and nowhere else; only its progress is a row. What fires
//! and what becomes of it is decided in [`crate::schedule`]. (Control design, *Triggers*.)

use crate::crypto::{Digest, Domain};
use crate::id::{AttemptId, ProjectName, RunId, TaskName, TriggerName};
use crate::revision::Source;
use crate::schedule::Progress;
use crate::time::{Entropy, UtcMillis};

#[cfg(feature = "schedule")]
mod edit;
#[cfg(feature = "schedule")]
mod timed;
pub mod webhook;

#[cfg(feature = "schedule")]
pub use edit::{Edited, edited};
#[cfg(feature = "schedule")]
pub use timed::{Moved, NotTimed, Timed, Wish};

/// What a trigger is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerKey {
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task.
    pub task: TaskName,
    /// Its name in the task.
    pub name: TriggerName,
}

impl TriggerKey {
    /// The ids of the run for the instant `nominal`, admitted at `now`: the same on every replica, so that no two of them
    /// could ever store two.
    pub fn ids(&self, nominal: UtcMillis, now: UtcMillis) -> (RunId, AttemptId) {
        let drawn = |what: &str| {
            let Self { project, task, name } = self;
            let text = format!("{project}/{task}/{name}/{}/{}/{what}", nominal.get(), now.get());
            Drawn(Digest::of(Domain::Trigger, text.as_bytes()))
        };
        (RunId::new(now, &drawn("run")), AttemptId::new(now, &drawn("attempt")))
    }
}

/// Bytes of a digest in the place of randomness: for ids, never for keys or tokens.
struct Drawn(Digest);

impl Entropy for Drawn {
    fn fill(&self, bytes: &mut [u8]) {
        for (byte, drawn) in bytes.iter_mut().zip(self.0.as_bytes().iter().cycle()) {
            *byte = *drawn;
        }
    }
}

names! {
    /// What a trigger waits for.
    pub enum Kind as "kind of a trigger" {
        /// Times.
        Cron = "cron",
        /// Calls.
        Webhook = "webhook",
    }
}

impl Kind {
    /// Of what a revision says.
    pub const fn of(source: &Source) -> Self {
        match source {
            Source::Cron(_) => Self::Cron,
            Source::Webhook => Self::Webhook,
        }
    }
}

/// A person's word that something starts nothing by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who said so.
    pub by: String,
    /// Their words.
    pub why: Option<String>,
    /// When.
    pub at: UtcMillis,
}

/// A trigger of a task, as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptTrigger {
    /// Which one.
    pub key: TriggerKey,
    /// What it waits for.
    pub kind: Kind,
    /// How far it has come. It is paused while the trigger or its task is.
    pub progress: Progress,
    /// When it is to be looked at; none: not before a person or the end of a run changes something.
    pub look_at: Option<UtcMillis>,
    /// A person's pause of this trigger; a pause of its task stands there.
    pub pause: Option<Pause>,
}

impl KeptTrigger {
    /// One that waits for calls, from now on paused or not: it has no times that could pass.
    #[must_use]
    pub fn turned(self, paused: bool) -> Self {
        Self { progress: Progress { paused, ..self.progress }, ..self }
    }
}

/// The instant of a trigger that a run was admitted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// The trigger's name in its task.
    pub trigger: TriggerName,
    /// The nominal time.
    pub at: UtcMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_an_instant_are_its_own() {
        let key = |name: &str| TriggerKey {
            project: ProjectName::default(),
            task: "report".parse().unwrap(),
            name: name.parse().unwrap(),
        };
        let (nominal, now) = (UtcMillis::new(1_800_000_000_000), UtcMillis::new(1_800_000_000_250));
        let (run, attempt) = key("cron").ids(nominal, now);
        assert_eq!((run, attempt), key("cron").ids(nominal, now));
        assert_ne!(run.as_bytes(), attempt.as_bytes());
        assert_ne!(run, key("other").ids(nominal, now).0);
        assert_ne!(run, key("cron").ids(now, now).0, "another instant");
        assert!(run > key("cron").ids(nominal, nominal).0, "later ones sort later");
    }
}
