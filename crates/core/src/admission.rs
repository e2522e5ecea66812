//! A run is submitted: pending, with attempt 1, at the moment it is stored.
//!
//! The same submission again, by its idempotency key or its own id, is the same run; another under the same name is
//! refused. What is compared is what was asked, not what it became: a task that was edited since changes no request.
//! (Product, *The command line*; control design, *Store*.)

use crate::actor::Actor;
use crate::attempt::Attempt;
use crate::chain::After;
use crate::change::Change;
use crate::counter::{AttemptNumber, RunVersion};
use crate::crypto::Digest;
use crate::event::{EventKind, NewEvent};
use crate::id::{AttemptId, ProjectName, RunId, TaskName, TriggerName};
use crate::revision::Revision;
use crate::run::{Run, RunState};
use crate::time::Now;
use crate::trigger::Scheduled;

/// What is submitted.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    /// Whose namespace.
    pub project: &'a ProjectName,
    /// Of which task, if of one.
    pub task: Option<&'a TaskName>,
    /// The time of a trigger that it is for, if it is.
    pub scheduled: Option<&'a Scheduled>,
    /// What to execute.
    pub revision: &'a Revision,
}

/// The run `id` of a submission, with its first attempt.
pub fn admit(submission: Submission<'_>, id: RunId, attempt: AttemptId, actor: &Actor, now: Now) -> Change {
    let Submission { project, task, scheduled, revision } = submission;
    let run = Run {
        id,
        project: project.clone(),
        task: task.cloned(),
        scheduled: scheduled.cloned(),
        webhook: None,
        revision: revision.digest(),
        placement: revision.placement().digest(),
        priority: revision.priority().into(),
        state: RunState::Pending,
        version: RunVersion::FIRST,
        latest: AttemptNumber::FIRST,
        fence: None,
        intent: None,
        failures: 0,
        machinery_failures: 0,
        due: None,
        created_at: now.utc,
        started_at: None,
        closing: None,
        after: None,
    };
    let mut event = NewEvent::new(EventKind::RunAdmitted, id, Some(attempt), actor.clone());
    event = event.with("revision", run.revision);
    if let Some(Scheduled { trigger, at }) = scheduled {
        event = event.with("trigger", trigger).with("scheduled_at_ms", at.get());
    }
    Change {
        run: Some(run),
        attempt: Some(Attempt::pending(attempt, id, AttemptNumber::FIRST)),
        events: vec![event],
        ..Change::default()
    }
}

/// The run `id` of a task that runs after others, with the successes that it follows.
pub fn follow(submission: Submission<'_>, after: &After, id: RunId, attempt: AttemptId, now: Now) -> Change {
    let mut change = admit(submission, id, attempt, &Actor::System, now);
    if let Some(run) = &mut change.run {
        run.after = Some(after.clone());
    }
    change.events = change.events.into_iter().map(|event| event.with("after", after)).collect();
    change
}

/// The run `id` of a task whose webhook was called.
pub fn call(
    submission: Submission<'_>,
    webhook: &TriggerName,
    id: RunId,
    attempt: AttemptId,
    actor: &Actor,
    now: Now,
) -> Change {
    let mut change = admit(submission, id, attempt, actor, now);
    if let Some(run) = &mut change.run {
        run.webhook = Some(webhook.clone());
    }
    change.events = change.events.into_iter().map(|event| event.with("trigger", webhook)).collect();
    change
}

/// Whether `run` is what this submission made before. `kept` and `asked` are the digests of what was asked with its key then
/// and now, where both are known; of a key from before that was kept, and of an id, only what it became tells.
pub fn repeats(run: &Run, submission: Submission<'_>, kept: Option<Digest>, asked: Option<Digest>) -> bool {
    if let (Some(kept), Some(asked)) = (kept, asked) {
        return kept == asked;
    }
    run.project == *submission.project
        && run.task.as_ref() == submission.task
        && run.revision == submission.revision.digest()
}
