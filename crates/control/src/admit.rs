//! A run is submitted: what can be refused before it waits is refused here, with the field that is wrong.
//!
//! A revision is valid by construction; this adds what depends on the installation. With an idempotency key the same
//! request gives the same run, however often it arrives. (Product, *The command line*; control design, *Store*.)

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::{AttemptId, ProjectName, RunId, TaskName};
use leasehold_core::limits;
use leasehold_core::revision::{Revision, Variable};
use leasehold_store::call::{AdmitRun, Keyed};
use leasehold_store::outcome::Outcome;
use leasehold_store::view::RunView;

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::hints::Topic;
use crate::plane::ControlPlane;
use crate::principal::Caller;

/// A run as it is asked for.
#[derive(Debug, Clone)]
pub struct Submit {
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task, if of one; where none is said, of the one that the revision has the name of.
    pub task: Option<TaskName>,
    /// What to execute.
    pub revision: Revision,
    /// What its parameters say this time.
    pub parameters: BTreeMap<String, String>,
    /// The caller's key: the same key with the same request gives the same run.
    pub idempotency_key: Option<String>,
}

/// A run that waits, or that an earlier request with the same key had submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The run.
    pub run: RunView,
    /// Whether an earlier request with the same key submitted it.
    pub replayed: bool,
}

/// The longest idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_BYTES: usize = limits::NAME_BYTES;

impl ControlPlane {
    /// Submits a run: it waits for a worker, with attempt 1.
    pub async fn admit(&self, caller: &Caller, submit: Submit) -> OperatorResult<Admitted> {
        self.admit_of(caller, submit, None, None).await
    }

    /// Submits a run that was made from a task's revision `of`; the task must have it still. `asked` is the digest of what
    /// was asked, where that is not the whole submission.
    pub(crate) async fn admit_of(
        &self,
        caller: &Caller,
        submit: Submit,
        of: Option<RevisionNumber>,
        asked: Option<Digest>,
    ) -> OperatorResult<Admitted> {
        let Submit { project, task, revision, parameters, idempotency_key } = submit;
        let said = revision.with_parameters(&parameters);
        let revision = said.map_err(|errors| ServiceError::Refused(Denied::Mistakes(errors)))?;
        // What has a task's name is a run of that task, however it was submitted.
        let task = task.or_else(|| revision.name().cloned());
        check(&revision, task.as_ref(), idempotency_key.as_deref()).map_err(ServiceError::Refused)?;
        if of.is_none() && !revision.triggers().is_empty() {
            return Err(ServiceError::Refused(Denied::Invalid {
                field: "trigger".to_owned(),
                got: "a trigger, in a run".to_owned(),
                allowed: "it in a task that is applied (`leasehold task apply`): a run is started once, now".to_owned(),
            }));
        }
        if of.is_none() {
            check_alone(&revision).map_err(ServiceError::Refused)?;
        }
        if !self.room().takes_work() {
            return Err(ServiceError::Refused(Denied::DiskFull));
        }
        let said = task.iter().map(|task| ("task", Value::text(task.as_str())));
        let whole = [("revision", Value::text(revision.digest().to_string()))].into_iter().chain(said);
        let whole = Digest::of(Domain::Request, &Value::map(whole).to_bytes());
        let now = self.utc();
        let run = RunId::new(now, self.entropy());
        let call = AdmitRun {
            actor: caller.actor.clone(),
            run,
            attempt: AttemptId::new(now, self.entropy()),
            project,
            task,
            of,
            idempotency_key: idempotency_key.map(|key| Keyed { key, asked: asked.unwrap_or(whole) }),
            revision,
        };
        let (view, replayed) = match self.store().admit_run(call).await? {
            Outcome::Applied(view) => (view, false),
            Outcome::Replayed(view) => (view, true),
            Outcome::Refused(unmet) => return Err(ServiceError::Refused(Denied::of(&unmet, &run))),
        };
        tracing::info!(run.id = %view.run.id, actor = %caller.actor, origin = %caller.origin, replayed, "run submitted");
        self.hints().changed(&Topic::Run(view.run.id));
        self.hints().dispatch();
        Ok(Admitted { run: view, replayed })
    }
}

fn check(revision: &Revision, task: Option<&TaskName>, key: Option<&str>) -> Result<(), Denied> {
    if let Some(key) = key {
        check_key(key)?;
    }
    if let (Some(limit), None) = (revision.limits().concurrency, task) {
        return Err(Denied::Invalid {
            field: "limits.concurrency".to_owned(),
            got: format!("{limit}, in a run of no task"),
            allowed: "it in a run of a task, whose runs it counts: give the specification a `name`".to_owned(),
        });
    }
    built(revision)
}

/// What a caller's key may be.
pub(crate) fn check_key(key: &str) -> Result<(), Denied> {
    if (1..=IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(Denied::Invalid {
        field: "Idempotency-Key".to_owned(),
        got: format!("{} bytes", key.len()),
        allowed: format!("1 to {IDEMPOTENCY_KEY_BYTES} printable ASCII characters without blanks"),
    })
}

/// What only a task can ask for: nothing makes a run of a specification that was submitted by itself wait for others.
fn check_alone(revision: &Revision) -> Result<(), Denied> {
    let Some(task) = revision.after().first() else { return Ok(()) };
    Err(Denied::Invalid {
        field: "after".to_owned(),
        got: format!("`{task}`, in a run that is submitted by itself"),
        allowed: "it in a task: apply it as one (`leasehold task apply`), or leave `after` out to run it now"
            .to_owned(),
    })
}

/// What this installation can carry out of a revision, of a run's and of a task's.
pub(crate) fn built(revision: &Revision) -> Result<(), Denied> {
    // A run that waits for what this installation cannot hand out would fail on its worker, not here.
    if let Some((name, _)) = revision.env().iter().find(|(_, variable)| matches!(variable, Variable::Secret { .. })) {
        return Err(Denied::Invalid {
            field: format!("env.{name}"),
            got: "a secret".to_owned(),
            allowed: "a value: this control plane keeps no secrets".to_owned(),
        });
    }
    if let Some(path) = revision.inputs().keys().next() {
        return Err(Denied::Invalid {
            field: format!("inputs.{path}"),
            got: "an input artifact".to_owned(),
            allowed: "no inputs: this control plane keeps no artifacts".to_owned(),
        });
    }
    // To drop silently what a person asked for would be a lie about the run.
    let not_built = [
        (
            "artifacts.collect",
            !revision.artifacts().is_empty(),
            "files to keep",
            "none: collecting files is not built yet",
        ),
        ("notify", revision.notify().is_some(), "a notification", "none: notifications are not built yet"),
    ];
    match not_built.into_iter().find(|(_, asked, ..)| *asked) {
        Some((field, _, got, allowed)) => {
            Err(Denied::Invalid { field: field.to_owned(), got: got.to_owned(), allowed: allowed.to_owned() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::run::RunState;

    use super::*;
    use crate::fixture::{World, caller, plain, revision};

    fn submit(revision: Revision, key: Option<&str>) -> Submit {
        Submit {
            project: ProjectName::default(),
            task: None,
            revision,
            parameters: BTreeMap::new(),
            idempotency_key: key.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn a_key_gives_the_same_run_for_the_same_request_and_is_refused_for_another() {
        let world = World::new().await;
        let first = world.plane.admit(&caller(), submit(plain(), Some("key-1"))).await.unwrap();
        assert_eq!((first.replayed, first.run.run.state, first.run.attempts.len()), (false, RunState::Pending, 1));
        let again = world.plane.admit(&caller(), submit(plain(), Some("key-1"))).await.unwrap();
        assert_eq!((again.replayed, again.run.run.id), (true, first.run.run.id));
        let other = revision([("priority", Value::Int(3))]);
        let refused = world.plane.admit(&caller(), submit(other, Some("key-1"))).await;
        assert_eq!(refused, Err(ServiceError::Refused(Denied::KeyReused)));
    }

    #[tokio::test]
    async fn what_this_installation_cannot_run_is_refused_with_the_field_and_nothing_is_stored() {
        let world = World::new().await;
        let before = world.store.dump();
        let secret = Value::map([("DB_PASSWORD", Value::map([("secret", Value::text("reports-db"))]))]);
        let day = Value::map([("DAY", Value::map([("description", Value::text("which day"))]))]);
        let collect = Value::map([("collect", Value::texts(["report.csv"]))]);
        let channel = Value::map([("webhook", Value::map([("secret", Value::text("team-webhook"))]))]);
        let concurrency = Value::map([("concurrency", Value::Int(1))]);
        let nightly = Value::map([("cron", Value::text("0 3 * * *"))]);
        let cases = [
            ("artifacts.collect", submit(revision([("artifacts", collect)]), None)),
            ("notify", submit(revision([("notify", channel)]), None)),
            ("after", submit(revision([("after", Value::texts(["build"]))]), None)),
            ("trigger", submit(revision([("trigger", Value::List(vec![nightly]))]), None)),
            ("limits.concurrency", submit(revision([("limits", concurrency)]), None)),
            ("env.DB_PASSWORD", submit(revision([("env", secret)]), None)),
            ("params.DAY", submit(revision([("params", day)]), None)),
            ("Idempotency-Key", submit(plain(), Some(""))),
            ("Idempotency-Key", submit(plain(), Some("two words"))),
            ("Idempotency-Key", submit(plain(), Some(&"k".repeat(IDEMPOTENCY_KEY_BYTES + 1)))),
        ];
        for (expected, submit) in cases {
            match world.plane.admit(&caller(), submit).await {
                Err(ServiceError::Refused(Denied::Invalid { field, .. })) => assert_eq!(field, expected),
                Err(ServiceError::Refused(Denied::Mistakes(errors))) => assert_eq!(errors[0].path, expected),
                other => panic!("not refused: {other:?}"),
            }
        }
        assert_eq!(world.store.dump(), before);
    }

    #[tokio::test]
    async fn what_has_a_tasks_name_is_a_run_of_that_task() {
        let world = World::new().await;
        let named =
            || revision([("name", Value::text("report")), ("limits", Value::map([("concurrency", Value::Int(1))]))]);
        let admitted = world.plane.admit(&caller(), submit(named(), None)).await.unwrap();
        assert_eq!(admitted.run.run.task.as_ref().map(TaskName::as_str), Some("report"));
        let said = Submit { task: Some("photos".parse().unwrap()), ..submit(named(), None) };
        let admitted = world.plane.admit(&caller(), said).await.unwrap();
        assert_eq!(admitted.run.run.task.as_ref().map(TaskName::as_str), Some("photos"));
    }
}
