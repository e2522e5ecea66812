//! Tasks: planned, applied, shown, run, deleted.

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits::{APPLY_BODY, APPLY_TASKS, ARGUMENT_BYTES, PARAMETERS, REVISION_BODY};
use leasehold_core::revision::Revision;
use leasehold_core::shape::{ERRORS, Field, ShapeError, ShapeErrorKind};
use leasehold_core::task::{Plan, Planned, Task, Undeletable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::schedule::PauseItem;
use super::schema;
use super::time::Time;
use crate::document::Document;
use crate::field;

/// The tasks of a project as a person wants them.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ApplyTasks {
    /// The revision of each, each under its own name.
    #[schemars(with = "Vec<schema::TaskShape>", length(max = APPLY_TASKS))]
    pub tasks: BTreeMap<TaskName, Revision>,
    /// Whether what is not named goes.
    #[schemars(default)]
    pub prune: bool,
    /// Whether what goes takes its runs with it.
    #[schemars(default)]
    pub cascade: bool,
    /// The plan that was shown: no other is carried out.
    #[schemars(with = "Option<schema::Sha256>")]
    pub plan: Option<Digest>,
}

/// A digest in hex.
const DIGEST_BYTES: usize = 64;

const APPLY_KEYS: [&str; 4] = ["cascade", "plan", "prune", "tasks"];

asked!(ApplyTasks, APPLY_BODY);

impl ApplyTasks {
    /// Reads a body; answers every mistake. The tasks are read one by one: as one value they would take many times the
    /// body's memory.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        let mut said = Said::default();
        let value = request::value_apart(body, APPLY_BODY, "tasks", |task| said.add(&task))?;
        request::table(&value, &APPLY_KEYS, |table, report| {
            let prune = table.optional("prune").and_then(|f| f.boolean()).unwrap_or_default();
            let cascade = table.optional("cascade").and_then(|f| f.boolean()).unwrap_or_default();
            let plan = table.optional("plan").and_then(|f| f.parsed(DIGEST_BYTES));
            let field = table.required("tasks", "a list of tasks, each in the shape of a task file")?;
            // Its members were handed over.
            field.list(0);
            if said.members > APPLY_TASKS {
                let (got, allowed) = (format!("{} members", said.members), format!("at most {APPLY_TASKS}"));
                field.refuse(ShapeErrorKind::Limit, got, allowed);
                return None;
            }
            said.mistakes.into_iter().for_each(|error| report.add(error));
            Some(Self { tasks: said.tasks, prune, cascade, plan })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let mut entries = vec![("cascade", Value::Bool(self.cascade)), ("prune", Value::Bool(self.prune))];
        if let Some(plan) = self.plan {
            entries.push(("plan", Value::text(plan.to_string())));
        }
        // Task by task, for the reason they are read so.
        let mut body = Value::map(entries).to_bytes();
        body.pop();
        body.extend_from_slice(b",\"tasks\":[");
        for (index, revision) in self.tasks.values().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            body.append(&mut revision.to_canonical_bytes());
        }
        body.extend_from_slice(b"]}");
        body
    }
}

/// What the tasks of a body say.
#[derive(Default)]
struct Said {
    members: usize,
    tasks: BTreeMap<TaskName, Revision>,
    mistakes: Vec<ShapeError>,
}

impl Said {
    fn add(&mut self, task: &Value) {
        let at = format!("tasks[{}]", self.members);
        self.members += 1;
        // What is refused anyway is not read.
        if self.members > APPLY_TASKS || self.mistakes.len() >= ERRORS {
            return;
        }
        let (kind, got, allowed) = match Revision::from_value(task) {
            Err(errors) => {
                self.mistakes.extend(request::at(&at, errors));
                return;
            }
            Ok(revision) => match revision.name().cloned() {
                None => {
                    (ShapeErrorKind::Missing, "a task without a name".to_owned(), "`name`: what the task is called")
                }
                Some(name) if self.tasks.contains_key(&name) => {
                    (ShapeErrorKind::Value, format!("the task `{name}` twice"), "each task once")
                }
                Some(name) => {
                    self.tasks.insert(name, revision);
                    return;
                }
            },
        };
        self.mistakes.push(ShapeError::new(at, kind, got, allowed));
    }
}

/// One task, in the shape of its file; its name is the path's.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct PutTask(#[schemars(with = "schema::TaskShape")] pub Revision);

asked!(PutTask, REVISION_BODY);

impl PutTask {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        Revision::from_value(&request::value(body, REVISION_BODY)?).map(Self)
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        self.0.to_value().to_bytes()
    }

    /// The revision of the task `name`; refuses one that says another name.
    pub fn of(self, name: &TaskName) -> Result<Revision, Vec<ShapeError>> {
        match self.0.name() {
            Some(said) if said == name => Ok(self.0),
            Some(said) => {
                let allowed = format!("`{name}`, as in the path, or no name");
                Err(vec![ShapeError::new("name", ShapeErrorKind::Conflict, format!("`{said}`"), allowed)])
            }
            None => {
                let Value::Map(mut entries) = self.0.to_value() else { return Ok(self.0) };
                entries.insert("name".to_owned(), Value::text(name.as_str()));
                Revision::from_value(&Value::Map(entries))
            }
        }
    }
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanLine {
    /// Which task.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub name: TaskName,
    /// `create`, `update`, `keep` or `remove`.
    pub step: String,
    /// The digest of its revision before; missing where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The digest of its revision afterwards; missing where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why it may not go: applying would be refused, as things are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl PlanLine {
    fn new(line: &Planned, refused: Option<&Undeletable>) -> Self {
        let text = |digest: Option<Digest>| digest.map(|digest| digest.to_string());
        let Planned { name, step, before, after } = line;
        Self {
            name: name.clone(),
            step: step.to_string(),
            before: text(*before),
            after: text(*after),
            refused: refused.map(ToString::to_string),
        }
    }
}

/// What applying would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanAnswer {
    /// What tells this plan from every other.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Sha256")]
    pub plan: Digest,
    /// Its lines, in the order of names.
    pub tasks: Vec<PlanLine>,
}

impl PlanAnswer {
    /// The plan as it is shown, with the tasks that would go and may not.
    pub fn new(plan: &Plan, refused: &BTreeMap<TaskName, Undeletable>) -> Self {
        let line = |line: &Planned| PlanLine::new(line, refused.get(&line.name));
        Self { plan: plan.digest(), tasks: plan.0.iter().map(line).collect() }
    }
}

/// The answer to what changes tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TasksAnswer {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskItem {
    /// Whose namespace.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub project: ProjectName,
    /// Its name.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub name: TaskName,
    /// What it is for, in its author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Which of its revisions it has.
    pub number: u64,
    /// The digest of that revision.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Sha256")]
    pub revision_digest: Digest,
    /// When it came to be, or came back.
    pub created_at: Time,
    /// When its revision changed last.
    pub changed_at: Time,
    /// Whether a person paused it: none of its triggers starts anything.
    #[serde(default)]
    pub paused: bool,
}

impl TaskItem {
    /// A task with what it executes.
    pub fn new(task: &Task, revision: &Revision) -> Self {
        Self {
            project: task.project.clone(),
            name: task.name.clone(),
            description: revision.description().map(str::to_owned),
            number: task.number.get(),
            revision_digest: task.revision,
            created_at: task.created_at.into(),
            changed_at: task.changed_at.into(),
            paused: task.pause.is_some(),
        }
    }
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub item: TaskItem,
    /// The pause that it is under as a whole; its triggers may have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseItem>,
    /// What its next run executes, with every default.
    #[schemars(with = "schema::TaskShape")]
    pub revision: Document,
}

impl TaskDetail {
    /// A task with all that it executes.
    pub fn new(task: &Task, revision: &Revision) -> Self {
        Self {
            item: TaskItem::new(task, revision),
            pause: task.pause.as_ref().map(PauseItem::of_task),
            revision: Document(revision.to_value()),
        }
    }
}

/// One of the revisions that a task had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRevisionItem {
    /// Which.
    pub number: u64,
    /// Its digest.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Sha256")]
    pub revision_digest: Digest,
    /// Since when.
    pub applied_at: Time,
    /// Who applied it.
    pub applied_by: String,
}

/// One of the revisions that a task had, with all it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRevisionDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub item: TaskRevisionItem,
    /// All it says, with every default.
    #[schemars(with = "schema::TaskShape")]
    pub revision: Document,
}

impl TaskRevisionDetail {
    /// One of a task's revisions with all that it says.
    pub fn new(item: TaskRevisionItem, revision: &Revision) -> Self {
        Self { item, revision: Document(revision.to_value()) }
    }
}

/// A run of a task as it is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RunTask {
    /// What its parameters say this time.
    #[schemars(default)]
    pub params: BTreeMap<String, String>,
}

asked!(RunTask, REVISION_BODY);

impl RunTask {
    /// Reads a body; answers every mistake. An empty body says no parameter.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        request::read(body, REVISION_BODY, &["params"], |table, _| {
            let params = table.optional("params").map(|field| {
                let text =
                    |(name, f): (&str, Field<'_>)| Some((name.to_owned(), f.any_text(ARGUMENT_BYTES)?.to_owned()));
                field.entries(PARAMETERS).into_iter().filter_map(text).collect()
            });
            Some(Self { params: params.unwrap_or_default() })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let params = Value::map(self.params.iter().map(|(name, text)| (name, Value::text(text))));
        Value::map([("params", params)]).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_come_back_as_they_were_written() {
        let revision = |name: &str| {
            let command = Value::map([("argv", Value::texts(["true"]))]);
            Revision::from_value(&Value::map([("name", Value::text(name)), ("command", command)])).unwrap()
        };
        let tasks = ["a", "b"].map(|name| (name.parse().unwrap(), revision(name))).into();
        let plan = Some(Plan::default().digest());
        let apply = ApplyTasks { tasks, prune: true, cascade: true, plan };
        assert_eq!(ApplyTasks::parse(&apply.to_body()), Ok(apply));
        let run = RunTask { params: [("DAY".to_owned(), "today".to_owned())].into() };
        assert_eq!(RunTask::parse(&run.to_body()), Ok(run));
    }

    #[test]
    fn every_mistake_of_every_task_is_told_at_its_place() {
        let body = br#"{"tasks":[{"command":{"argv":["true"]}},{"name":"a","comand":{}},
            {"name":"b","command":{"argv":["true"]}},{"name":"b","command":{"argv":["false"]}}],"purge":true}"#;
        let errors = ApplyTasks::parse(body).unwrap_err();
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let has = |part: &str| assert!(told.iter().any(|error| error.contains(part)), "{part}: {told:#?}");
        has("tasks[0]");
        has("tasks[1].comand");
        has("the task `b` twice");
        has("purge");
    }
}
