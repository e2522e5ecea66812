//! The jobs of a chaos run: what each one does, and how it is submitted. Everything is drawn from the run's seed and the
//! job's number.

use std::path::Path;

use serde_json::{Value, json};

use crate::seed::Seed;

mod output;
mod program;

pub(crate) use output::{Stream, output};
pub(crate) use program::run;

/// Between two lines of a job that lives, in milliseconds.
pub(crate) const BEAT: u64 = 200;
/// The run lease of a drawn job: the shortest that is allowed, so that losses happen within a run.
const SHORT_LEASE: u64 = 25_000;
/// The run lease of a brief job: none may be lost, however long a busy machine takes for what goes wrong on purpose.
const LONG_LEASE: u64 = 120_000;
/// Between SIGTERM and SIGKILL, in milliseconds.
pub(crate) const GRACE: u64 = 1_000;

/// How a job treats those who want to stop it, and what it leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ends when it is told to.
    Plain,
    /// Ignores SIGTERM.
    Stubborn,
    /// Starts a daemon in a session of its own, which outlives it unless somebody stops it.
    Daemon,
    /// Both.
    StubbornDaemon,
}

impl Kind {
    const fn leaves_a_daemon(self) -> bool {
        matches!(self, Self::Daemon | Self::StubbornDaemon)
    }

    const fn is_stubborn(self) -> bool {
        matches!(self, Self::Stubborn | Self::StubbornDaemon)
    }
}

/// What its author says of a lost contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// The question stays open.
    Hold,
    /// The run failed.
    Fail,
    /// It may be started again: it says that it is idempotent.
    Retry,
}

/// What a person says of a run that is lost, in the product's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Wait,
    Retry,
    MarkFailed,
    MarkSucceeded,
}

impl Verb {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Retry => "retry",
            Self::MarkFailed => "mark-failed",
            Self::MarkSucceeded => "mark-succeeded",
        }
    }
}

/// Which places a job takes while it is under way: of its project, of its task, or of neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// A project, and how many of its runs may be under way at once.
    pub(crate) project: Option<(&'static str, u32)>,
    /// The same of a task.
    pub(crate) task: Option<(&'static str, u32)>,
    /// Whether it keeps its places while it is lost.
    pub(crate) mutex: bool,
}

impl Places {
    /// A project that holds two runs at once.
    pub(crate) const LAB: (&'static str, u32) = ("lab", 2);

    /// What it is counted under, and how many there may be.
    pub(crate) fn limits(&self) -> Vec<(String, usize)> {
        let project = self.project.map_or("default", |(name, _)| name);
        let of_task = self.task.map(|(name, limit)| (format!("task {project}/{name}"), limit));
        let of_project = self.project.map(|(name, limit)| (format!("project {name}"), limit));
        of_task.into_iter().chain(of_project).map(|(what, limit)| (what, limit as usize)).collect()
    }
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its place in the load.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// How long it works, in milliseconds.
    pub(crate) works_for: u64,
    /// What it ends with when nobody stops it.
    pub(crate) exit: u8,
    /// Lines of output in all.
    pub(crate) lines: u64,
    pub(crate) on_lost: OnLost,
    /// Attempts in all while it fails.
    pub(crate) attempts: u32,
    /// Its time limit, in milliseconds.
    pub(crate) timeout: Option<u64>,
    /// A person cancels it this long after it was submitted, in milliseconds.
    pub(crate) cancel_after: Option<u64>,
    /// What a person says when it is lost, this long after they saw that, in milliseconds.
    pub(crate) word: Option<(Verb, u64)>,
    /// Its run lease, in milliseconds.
    pub(crate) lease: u64,
    pub(crate) places: Places,
}

impl Job {
    /// The job of this number in the load of a seed.
    pub(crate) fn drawn(seed: u64, number: u64) -> Self {
        let mut seed = own_seed(seed, number);
        // Six in a row that live longer than a lease and what follows it, on every worker at once: so that leases are lost
        // while jobs live. Nothing else ends them. The first come when every slot has been taken once.
        let is_long = (9..15).contains(&(number % 60));
        let works_for = match seed.below(20) {
            _ if is_long => 50_000 + seed.below(15_000),
            0..9 => seed.below(400),
            9..15 => 1_000 + seed.below(3_000),
            _ => 4_000 + seed.below(12_000),
        };
        let kind = match seed.below(10) {
            0..6 => Kind::Plain,
            6 => Kind::Stubborn,
            7..9 => Kind::Daemon,
            _ => Kind::StubbornDaemon,
        };
        let on_lost = match seed.below(4) {
            0 => OnLost::Hold,
            1 => OnLost::Fail,
            _ => OnLost::Retry,
        };
        let lines = if seed.below(12) == 0 { 4_000 } else { seed.below(60) };
        let exit = if seed.below(5) == 0 { 1 + u8::try_from(seed.below(100)).unwrap_or(0) } else { 0 };
        let timeout = (seed.below(6) == 0).then(|| 1_000 + seed.below(4_000));
        let cancel_after = match seed.below(16) {
            0 => Some(seed.below(60)),
            1 => Some(seed.below(6_000)),
            _ => None,
        };
        // A long job that fails ends there, or a run would not settle for minutes.
        let attempts = if on_lost == OnLost::Retry && works_for < 5_000 { 3 } else { 1 };
        let verb = match seed.below(6) {
            0 => Some(Verb::Wait),
            1 | 2 => Some(Verb::Retry),
            3 => Some(Verb::MarkFailed),
            4 => Some(Verb::MarkSucceeded),
            _ => None,
        };
        let word = verb.filter(|_| on_lost == OnLost::Hold).map(|verb| (verb, seed.below(3_000)));
        let (lease, places) = (SHORT_LEASE, Places::default());
        let drawn = Self {
            number,
            kind,
            works_for,
            exit,
            lines,
            on_lost,
            attempts,
            timeout,
            cancel_after,
            word,
            lease,
            places,
        };
        if is_long { Self { exit: 0, timeout: None, cancel_after: None, ..drawn } } else { drawn }
    }

    /// The job of this number in a load of many that all succeed, of which nobody should have to say anything: most are over
    /// in a moment, some live through several faults, four in ten are under limits.
    pub(crate) fn brief(seed: u64, number: u64) -> Self {
        let mut seed = own_seed(seed, number);
        let (project, task) = match number % 10 {
            0 => (None, Some(("single", 1))),
            1 => (None, Some(("triple", 3))),
            2 => (Some(Places::LAB), None),
            3 => (Some(Places::LAB), Some(("single", 1))),
            _ => (None, None),
        };
        let is_limited = project.is_some() || task.is_some();
        let works_for = match seed.below(40) {
            _ if is_limited => seed.below(100),
            0 => 5_000 + seed.below(12_000),
            1..4 => 500 + seed.below(2_500),
            _ => seed.below(150),
        };
        let lines = if seed.below(20) == 0 { 1_000 } else { seed.below(20) };
        Self {
            number,
            kind: Kind::Plain,
            works_for,
            exit: 0,
            lines,
            on_lost: OnLost::Hold,
            attempts: 1,
            timeout: None,
            cancel_after: None,
            word: None,
            lease: LONG_LEASE,
            places: Places { project, task, mutex: is_limited && seed.below(2) == 0 },
        }
    }

    /// What a person says of an attempt of it that is lost, and after which time. A second loss is enough.
    pub(crate) fn word_about(&self, attempt: u64) -> Option<(Verb, u64)> {
        let (verb, after) = self.word?;
        Some((if verb == Verb::Retry && attempt > 1 { Verb::MarkFailed } else { verb }, after))
    }

    /// The body that submits it: executed by `program`, marks in `marks`.
    pub(crate) fn submission(&self, program: &Path, marks: &Path) -> Value {
        let mut argv = vec![
            program.display().to_string(),
            "job".to_owned(),
            "--marks".to_owned(),
            marks.display().to_string(),
            "--for".to_owned(),
            self.works_for.to_string(),
            "--exit".to_owned(),
            self.exit.to_string(),
            "--lines".to_owned(),
            self.lines.to_string(),
        ];
        if self.kind.leaves_a_daemon() {
            argv.push("--daemon".to_owned());
        }
        if self.kind.is_stubborn() {
            // What is ignored stays ignored across an exec.
            let ignoring = ["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""].map(str::to_owned);
            argv.splice(0..0, ignoring);
        }
        let mut limits = json!({ "lease": format!("{}ms", self.lease), "grace": format!("{GRACE}ms") });
        if let Some(timeout) = self.timeout {
            limits["timeout"] = json!(format!("{timeout}ms"));
        }
        let (on_lost, safety) = match self.on_lost {
            OnLost::Hold => ("hold", "none"),
            OnLost::Fail => ("fail", "none"),
            OnLost::Retry => ("retry", "idempotent"),
        };
        let retry = json!({
            "max_attempts": self.attempts,
            "on_lost": on_lost,
            "safety": safety,
            "backoff": { "initial": "500ms", "max": "2s" },
        });
        let priority = if self.works_for >= 50_000 { 50 } else { 0 };
        let command = json!({ "argv": argv });
        let Places { project, task, mutex } = self.places;
        if let Some((_, limit)) = task {
            limits["concurrency"] = json!(limit);
        }
        limits["mutex"] = json!(mutex);
        let mut revision = json!({ "command": command, "limits": limits, "retry": retry, "priority": priority });
        if let Some((name, _)) = task {
            revision["name"] = json!(name);
        }
        json!({ "project": project.map_or("default", |(name, _)| name), "revision": revision })
    }
}

/// What is drawn for the job of this number.
fn own_seed(seed: u64, number: u64) -> Seed {
    Seed::of(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_makes_the_same_job_again_and_the_load_has_every_kind() {
        let load: Vec<Job> = (0..400).map(|number| Job::drawn(7, number)).collect();
        assert_eq!(load, (0..400).map(|number| Job::drawn(7, number)).collect::<Vec<_>>());
        for kind in [Kind::Plain, Kind::Stubborn, Kind::Daemon, Kind::StubbornDaemon] {
            assert!(load.iter().any(|job| job.kind == kind), "{kind:?}");
        }
        for policy in [OnLost::Hold, OnLost::Fail, OnLost::Retry] {
            assert!(load.iter().any(|job| job.on_lost == policy), "{policy:?}");
        }
        assert_eq!(load.iter().filter(|job| job.works_for >= 50_000).count(), 6 * 6 + 6);
        assert!(load.iter().any(|job| job.timeout.is_some_and(|limit| limit < job.works_for)));
        assert!(load.iter().any(|job| job.cancel_after.is_some()) && load.iter().any(|job| job.exit != 0));
        for verb in [Verb::Wait, Verb::Retry, Verb::MarkFailed, Verb::MarkSucceeded] {
            assert!(load.iter().any(|job| job.word.is_some_and(|(drawn, _)| drawn == verb)), "{verb:?}");
        }
    }

    #[test]
    fn a_brief_load_has_long_jobs_and_every_kind_of_limit() {
        let load: Vec<Job> = (0..400).map(|number| Job::brief(7, number)).collect();
        assert_eq!(load, (0..400).map(|number| Job::brief(7, number)).collect::<Vec<_>>());
        assert!(load.iter().any(|job| job.works_for >= 5_000) && load.iter().all(|job| job.exit == 0));
        let limits: std::collections::BTreeSet<_> = load.iter().flat_map(|job| job.places.limits()).collect();
        let expected =
            [("project lab", 2), ("task default/single", 1), ("task default/triple", 3), ("task lab/single", 1)];
        assert_eq!(limits, expected.map(|(what, limit)| (what.to_owned(), limit)).into());
        assert!(load.iter().any(|job| job.places.mutex) && load.iter().any(|job| !job.places.mutex));
    }
}
