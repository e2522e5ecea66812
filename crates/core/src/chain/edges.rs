//! The edges of a project: who follows whom, and why some of them cannot be.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TaskName;
use crate::revision::Revision;
use crate::task::{Plan, Step};

/// The tasks that are there, each with those that it follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edges(BTreeMap<TaskName, BTreeSet<TaskName>>);

/// Why tasks cannot follow each other so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It follows a task that is not there.
    #[error(
        "task {task} runs after {missing}, and there is no such task: apply it with this one, or name another in `after`"
    )]
    Missing {
        /// Who follows.
        task: TaskName,
        /// Whom.
        missing: TaskName,
    },
    /// Tasks that wait for each other in a circle.
    #[error("tasks wait for each other: {}", circle(.0))]
    Cycle(Vec<TaskName>),
    /// It goes, and others follow it.
    #[error("{} after task {task}", named(.followers))]
    Followed {
        /// What is to go.
        task: TaskName,
        /// Who follows it.
        followers: Vec<TaskName>,
    },
}

/// Followers that a sentence names; the others are counted.
const NAMED: usize = 8;

fn circle(tasks: &[TaskName]) -> String {
    let names: Vec<&str> = tasks.iter().chain(tasks.first()).map(TaskName::as_str).collect();
    names.join(" after ")
}

fn named(tasks: &[TaskName]) -> String {
    let names: Vec<&str> = tasks.iter().take(NAMED).map(TaskName::as_str).collect();
    let verb = if tasks.len() == 1 { "runs" } else { "run" };
    match tasks.len().saturating_sub(NAMED) {
        0 => format!("{} {verb}", names.join(", ")),
        more => format!("{} and {more} others {verb}", names.join(", ")),
    }
}

impl Edges {
    /// The edges between `tasks`, which are there.
    pub fn of(
        tasks: impl IntoIterator<Item = TaskName>,
        edges: impl IntoIterator<Item = (TaskName, TaskName)>,
    ) -> Self {
        let mut all: BTreeMap<TaskName, BTreeSet<TaskName>> =
            tasks.into_iter().map(|task| (task, BTreeSet::new())).collect();
        for (task, predecessor) in edges {
            all.entry(task).or_default().insert(predecessor);
        }
        Self(all)
    }

    /// Whether `task` follows any other.
    pub fn follows(&self, task: &TaskName) -> bool {
        self.0.get(task).is_some_and(|after| !after.is_empty())
    }

    /// Who follows `task`, in the order of names.
    pub fn followers(&self, task: &TaskName) -> Vec<TaskName> {
        self.0.iter().filter(|(_, after)| after.contains(task)).map(|(task, _)| task.clone()).collect()
    }

    /// The edges once `plan` is carried out, where they can be.
    pub fn planned(mut self, plan: &Plan, wanted: &BTreeMap<TaskName, Revision>) -> Result<Self, Broken> {
        let mut changed = Vec::new();
        for line in &plan.0 {
            match (line.step, wanted.get(&line.name)) {
                (Step::Remove, _) => drop(self.0.remove(&line.name)),
                (Step::Create | Step::Update, Some(revision)) => {
                    self.0.insert(line.name.clone(), revision.after().clone());
                    changed.push(&line.name);
                }
                _ => {}
            }
        }
        let removed = plan.0.iter().filter(|line| line.step == Step::Remove).map(|line| &line.name);
        let removed: BTreeSet<&TaskName> = removed.collect();
        if let Some(task) = self.0.values().flatten().filter(|on| removed.contains(on)).min() {
            return Err(Broken::Followed { task: task.clone(), followers: self.followers(task) });
        }
        for task in &changed {
            let after = self.0.get(*task).into_iter().flatten();
            if let Some(missing) = after.filter(|name| !self.0.contains_key(*name)).min() {
                return Err(Broken::Missing { task: (*task).clone(), missing: missing.clone() });
            }
        }
        // What was there before waits for nothing of its own: a new circle goes through what changed.
        match self.circle(changed) {
            Some(circle) => Err(Broken::Cycle(circle)),
            None => Ok(self),
        }
    }

    /// The first circle that is found from one of `tasks`, beginning with its least name.
    fn circle<'t>(&'t self, tasks: impl IntoIterator<Item = &'t TaskName>) -> Option<Vec<TaskName>> {
        let mut done: BTreeSet<&TaskName> = BTreeSet::new();
        for task in tasks {
            // A walk in depth without recursion: chains may be as long as a project has tasks.
            let mut path: Vec<(&TaskName, Vec<&TaskName>)> = Vec::new();
            let mut on_path: BTreeSet<&TaskName> = BTreeSet::new();
            let mut next = Some(task);
            loop {
                if let Some(task) = next.take() {
                    if on_path.contains(task) {
                        let from = path.iter().position(|(on, _)| *on == task)?;
                        let names = path.get(from..)?.iter().map(|(on, _)| (*on).clone());
                        return Some(from_least(names.collect()));
                    }
                    if done.insert(task) {
                        on_path.insert(task);
                        path.push((task, self.0.get(task).into_iter().flatten().rev().collect()));
                    }
                }
                let Some((on, left)) = path.last_mut() else { break };
                next = left.pop();
                if next.is_none() {
                    on_path.remove(*on);
                    path.pop();
                }
            }
        }
        None
    }
}

fn from_least(mut circle: Vec<TaskName>) -> Vec<TaskName> {
    if let Some(least) = (0..circle.len()).min_by_key(|at| circle.get(*at)) {
        circle.rotate_left(least);
    }
    circle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Value;
    use crate::id::ProjectName;
    use crate::task::{Task, applied};
    use crate::time::UtcMillis;

    fn name(name: &str) -> TaskName {
        name.parse().unwrap()
    }

    fn revision(of: &str, after: &[&str]) -> Revision {
        let command = Value::map([("argv", Value::texts(["true"]))]);
        Revision::from_value(&Value::map([
            ("name", Value::text(of)),
            ("command", command),
            ("after", Value::texts(after.iter().copied())),
        ]))
        .unwrap()
    }

    /// What becomes of a project with the edges `there` (each task with what it follows) where `wanted` is applied.
    fn planned(there: &[(&str, &[&str])], wanted: &[(&str, &[&str])], prune: bool) -> Result<Edges, String> {
        let task = |of: &str, after: &[&str]| -> Task {
            applied(None, &ProjectName::default(), &name(of), revision(of, after).digest(), UtcMillis::new(1)).unwrap()
        };
        let known = there.iter().map(|(of, after)| (name(of), task(of, after))).collect();
        let wanted: BTreeMap<_, _> = wanted.iter().map(|(of, after)| (name(of), revision(of, after))).collect();
        let plan = Plan::of(&known, &wanted.iter().map(|(of, to)| (of.clone(), to.digest())).collect(), prune);
        let edges = there.iter().flat_map(|(of, after)| after.iter().map(|on| (name(of), name(on))));
        Edges::of(known.into_keys(), edges).planned(&plan, &wanted).map_err(|broken| broken.to_string())
    }

    #[test]
    fn tasks_follow_what_is_there_or_comes_with_them() {
        assert!(planned(&[], &[("b", &["a"]), ("a", &[])], false).is_ok());
        assert!(planned(&[("a", &[])], &[("b", &["a"]), ("c", &["a", "b"])], false).is_ok());
        let missing = planned(&[("a", &[])], &[("b", &["a", "x", "w"])], false).unwrap_err();
        assert!(missing.starts_with("task b runs after w, and there is no such task"), "{missing}");
    }

    #[test]
    fn a_circle_is_told_by_its_names() {
        let circle = |there: &[_], wanted: &[_]| planned(there, wanted, false).unwrap_err();
        assert_eq!(circle(&[], &[("a", &["a"])]), "tasks wait for each other: a after a");
        assert_eq!(
            circle(&[("a", &[]), ("b", &["a"])], &[("a", &["b"])]),
            "tasks wait for each other: a after b after a"
        );
        let there: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a", "b"]), ("d", &["c"])];
        assert_eq!(circle(there, &[("a", &["d"])]), "tasks wait for each other: a after d after c after a");
        assert!(planned(there, &[("d", &["a", "b", "c"])], false).is_ok(), "two ways to one task are no circle");
    }

    #[test]
    fn what_others_follow_stays_unless_they_go_or_change_too() {
        let there: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a"])];
        let refused = planned(there, &[("b", &["a"]), ("c", &["a"])], true).unwrap_err();
        assert_eq!(refused, "b, c run after task a");
        assert_eq!(planned(there, &[("c", &["a"])], true).unwrap_err(), "c runs after task a");
        assert!(planned(there, &[("c", &[])], true).is_ok());
        assert!(planned(there, &[], true).is_ok(), "all of them go");
    }

    #[test]
    fn a_chain_of_every_task_of_a_project_is_walked() {
        let names: Vec<TaskName> = (0..crate::limits::APPLY_TASKS).map(|at| name(&format!("t{at}"))).collect();
        let edges = names.windows(2).map(|pair| (pair[1].clone(), pair[0].clone()));
        let all = Edges::of(names.iter().cloned(), edges);
        assert_eq!(all.circle(&names), None);
        let round =
            all.clone().0.into_iter().flat_map(|(task, after)| after.into_iter().map(move |on| (task.clone(), on)));
        let round = Edges::of(names.iter().cloned(), round.chain([(names[0].clone(), names[names.len() - 1].clone())]));
        assert_eq!(round.circle(&names).unwrap().len(), names.len());
    }
}
