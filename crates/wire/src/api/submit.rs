//! Submitting a run: a full revision, what its parameters say this time, project and task.
//!
//! The idempotency key is a header: it belongs to the request, not to what is asked for.

use std::collections::BTreeMap;

use leasehold_core::canonical::Value;
use leasehold_core::id::{ProjectName, TaskName};
use leasehold_core::limits::{ARGUMENT_BYTES, NAME_BYTES, PARAMETERS, REVISION_BODY};
use leasehold_core::revision::Revision;
use leasehold_core::shape::ShapeError;
use schemars::JsonSchema;

use super::request::{self, asked};
use super::schema;

/// A run as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SubmitRun {
    /// Whose namespace.
    #[schemars(with = "Option<schema::Name>")]
    pub project: ProjectName,
    /// Of which task, if of one.
    #[schemars(with = "Option<schema::Name>")]
    pub task: Option<TaskName>,
    /// What to execute.
    #[schemars(with = "schema::TaskShape")]
    pub revision: Revision,
    /// What its parameters say this time.
    #[schemars(default)]
    pub params: BTreeMap<String, String>,
}

const KEYS: [&str; 4] = ["params", "project", "revision", "task"];

asked!(SubmitRun, REVISION_BODY);

impl SubmitRun {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        request::read(body, REVISION_BODY, &KEYS, |table, report| {
            let project =
                table.optional("project").map_or_else(|| Some(ProjectName::default()), |f| f.parsed(NAME_BYTES));
            let task = table.optional("task").map(|f| f.parsed(NAME_BYTES));
            let params = table.optional("params").map(|field| {
                let entries = field.entries(PARAMETERS).into_iter();
                let text = |(name, f): (&str, leasehold_core::shape::Field<'_>)| {
                    Some((name.to_owned(), f.any_text(ARGUMENT_BYTES)?.to_owned()))
                };
                entries.filter_map(text).collect()
            });
            let revision = table.required("revision", "what to execute, in the shape of a task file")?;
            let revision = match Revision::from_value(revision.value()) {
                Ok(revision) => revision,
                Err(errors) => {
                    request::at("revision", errors).for_each(|error| report.add(error));
                    return None;
                }
            };
            let task = match task {
                Some(task) => Some(task?),
                None => None,
            };
            Some(Self { project: project?, task, revision, params: params.unwrap_or_default() })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let mut entries = vec![("project", Value::text(self.project.as_str())), ("revision", self.revision.to_value())];
        if let Some(task) = &self.task {
            entries.push(("task", Value::text(task.as_str())));
        }
        if !self.params.is_empty() {
            entries.push(("params", Value::map(self.params.iter().map(|(name, text)| (name, Value::text(text))))));
        }
        Value::map(entries).to_bytes()
    }
}
