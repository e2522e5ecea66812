//! A task: a name in a project, and the revision that its next run executes.
//!
//! Applying is declarative: what is said is compared with what is there, and the difference is the plan. A revision
//! that a task had stays in its history; a run keeps the one it was submitted with. A deleted task leaves its row, so
//! that the same call again is told the same and its history goes on where it comes back. (Product, *A task file*.)

use std::collections::BTreeMap;
use std::fmt;

use crate::canonical::Value;
use crate::counter::RevisionNumber;
use crate::crypto::{Digest, Domain};
use crate::id::{ProjectName, TaskName};
use crate::limits::CASCADE_RUNS;
use crate::time::UtcMillis;
use crate::trigger::Pause;

/// A task as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Whose namespace.
    pub project: ProjectName,
    /// Its name.
    pub name: TaskName,
    /// What its next run executes.
    pub revision: Digest,
    /// Which of its revisions that is.
    pub number: RevisionNumber,
    /// When it came to be, or came back.
    pub created_at: UtcMillis,
    /// When its revision changed last.
    pub changed_at: UtcMillis,
    /// When a person deleted it, if one did.
    pub deleted_at: Option<UtcMillis>,
    /// A person's word that none of its triggers starts anything; a run by hand is started still.
    pub pause: Option<Pause>,
}

impl Task {
    /// The task that is here now: none of a deleted one.
    pub fn living(self) -> Option<Self> {
        self.deleted_at.is_none().then_some(self)
    }
}

/// What applying does to one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It comes to be.
    Create,
    /// It gets another revision.
    Update,
    /// It is there just so.
    Keep,
    /// It is deleted: nobody names it any more.
    Remove,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Keep, Self::Remove];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Keep => "keep",
            Self::Remove => "remove",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Which task.
    pub name: TaskName,
    /// What happens to it.
    pub step: Step,
    /// Its revision before; none where it is not there.
    pub before: Option<Digest>,
    /// Its revision afterwards; none where it goes.
    pub after: Option<Digest>,
}

/// What applying would do, in the order of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan(pub Vec<Planned>);

impl Plan {
    /// Compares `wanted` with the tasks that are `known`, deleted ones too; with `prune`, what nobody wants goes.
    pub fn of(known: &BTreeMap<TaskName, Task>, wanted: &BTreeMap<TaskName, Digest>, prune: bool) -> Self {
        let there =
            |name: &TaskName| known.get(name).filter(|task| task.deleted_at.is_none()).map(|task| task.revision);
        let said = wanted.iter().map(|(name, revision)| {
            let before = there(name);
            let step = match before {
                None => Step::Create,
                Some(before) if before == *revision => Step::Keep,
                Some(_) => Step::Update,
            };
            Planned { name: name.clone(), step, before, after: Some(*revision) }
        });
        let unsaid = known.keys().filter(|name| prune && !wanted.contains_key(name)).filter_map(|name| {
            Some(Planned { name: name.clone(), step: Step::Remove, before: Some(there(name)?), after: None })
        });
        let mut lines: Vec<_> = said.chain(unsaid).collect();
        lines.sort_by(|one, other| one.name.cmp(&other.name));
        Self(lines)
    }

    /// Whether there is nothing to do.
    pub fn is_settled(&self) -> bool {
        self.0.iter().all(|line| line.step == Step::Keep)
    }

    /// What tells this plan from every other: a person who was shown it applies it and no other.
    pub fn digest(&self) -> Digest {
        let digest = |digest: Option<Digest>| Value::text(digest.map_or_else(String::new, |digest| digest.to_string()));
        let lines = self
            .0
            .iter()
            .map(|line| Value::List(vec![Value::text(line.name.as_str()), digest(line.before), digest(line.after)]));
        Digest::of(Domain::Plan, &Value::List(lines.collect()).to_bytes())
    }
}

/// The task `name` with `revision`, where `known` is what is known of it; none if it is there just so.
pub fn applied(
    known: Option<&Task>,
    project: &ProjectName,
    name: &TaskName,
    revision: Digest,
    now: UtcMillis,
) -> Option<Task> {
    match known {
        Some(task) if task.deleted_at.is_none() && task.revision == revision => None,
        Some(task) => Some(Task {
            revision,
            number: task.number.next(),
            created_at: if task.deleted_at.is_some() { now } else { task.created_at },
            changed_at: now,
            deleted_at: None,
            pause: task.pause.clone().filter(|_| task.deleted_at.is_none()),
            ..task.clone()
        }),
        None => Some(Task {
            project: project.clone(),
            name: name.clone(),
            revision,
            number: RevisionNumber::FIRST,
            created_at: now,
            changed_at: now,
            deleted_at: None,
            pause: None,
        }),
    }
}

/// The runs of a task that have not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Those that a cancel ends or stops.
    pub stoppable: usize,
    /// Those whose end nobody knows.
    pub lost: usize,
}

/// Open runs that are read of a task before it is deleted: one more than it may take with it tells that it may not.
pub const OPEN_RUNS: usize = CASCADE_RUNS + 1;

/// Why a run ends that its task takes with it.
pub const CASCADE: &str = "its task is deleted";

/// Why a task is not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undeletable {
    /// Runs of it have not ended, and nobody said that they should.
    #[error("runs of it have not ended ({0})")]
    InUse(usize),
    /// A cancel says nothing about a lost run: the question stays, and its answer may be another attempt.
    #[error("runs of it are lost ({0})")]
    Lost(usize),
    /// More than one transaction may change.
    #[error("more than {CASCADE_RUNS} runs of it have not ended")]
    TooMany,
}

/// The task deleted; none if it was before. With `cascade`, the runs of it that have not ended are to be cancelled in the
/// same transaction.
pub fn deleted(task: &Task, open: Open, cascade: bool, now: UtcMillis) -> Result<Option<Task>, Undeletable> {
    if task.deleted_at.is_some() {
        return Ok(None);
    }
    let all = open.stoppable.saturating_add(open.lost);
    match open {
        _ if all > 0 && !cascade => Err(Undeletable::InUse(all)),
        Open { lost: 1.., .. } => Err(Undeletable::Lost(open.lost)),
        Open { stoppable, .. } if stoppable > CASCADE_RUNS => Err(Undeletable::TooMany),
        _ => Ok(Some(Task { deleted_at: Some(now), ..task.clone() })),
    }
}

/// What was applied is not what is there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tasks changed since the plan was made: look at the new plan, and apply again")]
pub struct PlanMoved;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UtcMillis = UtcMillis::new(1_800_000_000_000);
    const LATER: UtcMillis = UtcMillis::new(1_800_000_001_000);

    fn name(name: &str) -> TaskName {
        name.parse().unwrap()
    }

    fn digest(of: &str) -> Digest {
        Digest::of(Domain::Revision, of.as_bytes())
    }

    fn task(of: &str, revision: &str) -> Task {
        applied(None, &ProjectName::default(), &name(of), digest(revision), NOW).unwrap()
    }

    fn known(tasks: impl IntoIterator<Item = Task>) -> BTreeMap<TaskName, Task> {
        tasks.into_iter().map(|task| (task.name.clone(), task)).collect()
    }

    #[test]
    fn a_plan_is_what_differs() {
        let gone = deleted(&task("gone", "a"), Open::default(), false, LATER).unwrap().unwrap();
        let known = known([task("kept", "a"), task("edited", "a"), task("left", "a"), gone]);
        let wanted: BTreeMap<_, _> =
            [("kept", "a"), ("edited", "b"), ("new", "a"), ("gone", "a")].map(|(of, to)| (name(of), digest(to))).into();
        let steps = |prune| {
            let Plan(lines) = Plan::of(&known, &wanted, prune);
            lines.into_iter().map(|line| (line.name.to_string(), line.step)).collect::<Vec<_>>()
        };
        let said = [("edited", Step::Update), ("gone", Step::Create), ("kept", Step::Keep), ("new", Step::Create)];
        let said = said.map(|(name, step)| (name.to_owned(), step));
        assert_eq!(steps(false), said);
        let mut pruned = said.to_vec();
        pruned.insert(3, ("left".to_owned(), Step::Remove));
        assert_eq!(steps(true), pruned);
        assert!(!Plan::of(&known, &wanted, false).is_settled());
        let as_is: BTreeMap<_, _> = ["kept", "edited", "left"].map(|of| (name(of), digest("a"))).into();
        assert!(Plan::of(&known, &as_is, true).is_settled());
    }

    #[test]
    fn two_plans_have_one_digest_only_if_they_do_the_same() {
        let plan = |before: &str, after: &str| {
            let wanted = [(name("one"), digest(after))].into();
            Plan::of(&known([task("one", before)]), &wanted, false).digest()
        };
        assert_eq!(plan("a", "b"), plan("a", "b"));
        assert_ne!(plan("a", "b"), plan("c", "b"), "it was changed in between");
        assert_ne!(plan("a", "b"), plan("a", "c"));
        assert_ne!(Plan::default().digest(), plan("a", "a"));
    }

    #[test]
    fn each_new_revision_has_the_next_number_and_the_same_again_none() {
        let first = task("report", "a");
        assert_eq!(first.number, RevisionNumber::FIRST);
        let apply = |known: &Task, to: &str| applied(Some(known), &known.project, &known.name, digest(to), LATER);
        assert_eq!(apply(&first, "a"), None);
        let second = apply(&first, "b").unwrap();
        assert_eq!((second.number, second.created_at, second.changed_at), (first.number.next(), NOW, LATER));
        let gone = deleted(&second, Open::default(), false, LATER).unwrap().unwrap();
        let back = apply(&gone, "b").unwrap();
        assert_eq!((back.number, back.created_at, back.deleted_at), (second.number.next(), LATER, None));
    }

    #[test]
    fn a_task_goes_with_its_runs_only_if_that_was_said_and_never_with_a_question() {
        let task = task("report", "a");
        let delete = |stoppable, lost, cascade| deleted(&task, Open { stoppable, lost }, cascade, LATER);
        assert!(delete(0, 0, false).unwrap().is_some());
        assert_eq!(delete(2, 1, false), Err(Undeletable::InUse(3)));
        assert_eq!(delete(2, 1, true), Err(Undeletable::Lost(1)));
        assert!(delete(CASCADE_RUNS, 0, true).unwrap().is_some());
        assert_eq!(delete(CASCADE_RUNS + 1, 0, true), Err(Undeletable::TooMany));
        let gone = delete(0, 0, false).unwrap().unwrap();
        assert_eq!(deleted(&gone, Open { stoppable: 1, lost: 1 }, false, LATER), Ok(None), "once");
    }
}
