//! Chains: what succeeded and is followed, and the runs that it becomes.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::admission::{self, Submission};
use leasehold_core::chain::{self, Arrival, Edges};
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::run::{Run, RunState};

use super::{Transaction, tasks};
use crate::outcome::StoreError;
use crate::view::Chained;

/// A run becomes `run`: where it succeeds, that is kept for every task that follows its own.
pub(super) fn arrive(tx: &mut Transaction<'_>, run: &Run) {
    let before = tx.state.runs.get(&run.id).map(|run| run.state);
    let (Some(task), Some(closing)) = (&run.task, &run.closing) else { return };
    if run.state != RunState::Succeeded || before == Some(RunState::Succeeded) {
        return;
    }
    let followers = tx.state.edges.iter().filter(|(project, _, on)| (project, on) == (&run.project, task));
    let followers: Vec<_> = followers.map(|(_, follower, _)| follower.clone()).collect();
    for follower in followers {
        let arrival = Arrival { at: closing.at, run: run.id, predecessor: task.clone() };
        tx.state.arrivals.insert((run.project.clone(), follower, arrival), false);
    }
}

/// The edges of a project.
pub(super) fn edges(tx: &Transaction<'_>, project: &ProjectName) -> Edges {
    let living = tx.state.tasks.values().filter(|task| task.project == *project && task.deleted_at.is_none());
    let edges = tx.state.edges.iter().filter(|(of, ..)| of == project);
    Edges::of(living.map(|task| task.name.clone()), edges.map(|(_, task, on)| (task.clone(), on.clone())))
}

/// A task follows these from now on; what it has of others goes, and what is left is looked at anew.
pub(super) fn follow(tx: &mut Transaction<'_>, project: &ProjectName, task: &TaskName, after: &BTreeSet<TaskName>) {
    tx.state.edges.retain(|(of, follower, _)| (of, follower) != (project, task));
    tx.state.edges.extend(after.iter().map(|on| (project.clone(), task.clone(), on.clone())));
    let own = |(of, follower, _): &(ProjectName, TaskName, Arrival)| (of, follower) == (project, task);
    tx.state.arrivals.retain(|key, _| !own(key) || after.contains(&key.2.predecessor));
    look_again(tx, project, task);
}

/// What a task has is looked at anew.
pub(super) fn look_again(tx: &mut Transaction<'_>, project: &ProjectName, task: &TaskName) {
    let own = |(of, follower, _): &(ProjectName, TaskName, Arrival)| (of, follower) == (project, task);
    for (_, seen) in tx.state.arrivals.iter_mut().filter(|(key, _)| own(key)) {
        *seen = false;
    }
}

pub(super) fn settle(tx: &mut Transaction<'_>, limit: usize) -> Result<Chained, StoreError> {
    let mut new: Vec<_> = tx.state.arrivals.iter().filter(|(_, seen)| !**seen).map(|(key, _)| key.clone()).collect();
    new.sort_by(|one, other| (&one.2, &one.1).cmp(&(&other.2, &other.1)));
    let mut chained = Chained { more: new.len() > limit, ..Chained::default() };
    let page: BTreeSet<_> = new.into_iter().take(limit).map(|(project, task, _)| (project, task)).collect();
    for (project, follower) in page {
        let Some(task) = tasks::living(tx, &project, &follower) else { continue };
        let paused = task.pause.is_some();
        let revision = tasks::stored(tx, task.revision)?;
        let arrivals: BTreeMap<Arrival, bool> = tx
            .state
            .arrivals
            .iter()
            .filter(|((of, task, _), _)| (of, task) == (&project, &follower))
            .map(|((.., arrival), seen)| (arrival.clone(), *seen))
            .collect();
        let left = limit.saturating_sub(chained.runs.len());
        let settled = chain::settle(revision.after(), arrivals.into_keys(), paused, left);
        chained.more |= settled.more;
        for (place, after) in settled.admits.iter().enumerate() {
            let (run, attempt) = after.ids(&project, &follower, place, tx.now.utc);
            let submission =
                Submission { project: &project, task: Some(&follower), scheduled: None, revision: &revision };
            tx.apply(admission::follow(submission, after, run, attempt, tx.now))?;
            chained.runs.push(run);
        }
        let own = |(of, task, _): &(ProjectName, TaskName, Arrival)| (of, task) == (&project, &follower);
        tx.state.arrivals.retain(|key, _| !own(key) || !settled.gone.contains(&key.2.run));
        for (key, seen) in tx.state.arrivals.iter_mut().filter(|(key, _)| own(key)) {
            *seen |= settled.waiting.contains(&key.2.run);
        }
    }
    Ok(chained)
}
