//! Files in and out: artifacts of other tasks that a run reads, and patterns of what it leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::command::read_relative_path;
use crate::canonical::Value;
use crate::id::TaskName;
use crate::limits::{ARTIFACT_PATTERNS, INPUTS, NAME_BYTES};
use crate::shape::{Field, ShapeErrorKind};

/// An artifact of another task's last successful run, or of the run that this one follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Whose artifact.
    pub task: TaskName,
    /// Its name there.
    pub artifact: String,
}

/// The inputs by the relative path that the run finds them at.
pub(super) fn read_inputs(field: &Field<'_>) -> BTreeMap<String, Input> {
    let mut inputs = BTreeMap::new();
    for (path, entry) in field.entries(INPUTS) {
        if !is_relative(path) {
            entry.refuse(ShapeErrorKind::Value, format!("the path `{path}`"), "a relative path without `.` and `..`");
            continue;
        }
        let Some(table) = entry.table(&["artifact", "task"]) else { continue };
        let task = table.required("task", "the name of a task").and_then(|f| f.parsed(NAME_BYTES));
        let artifact = table.required("artifact", "the name of an artifact").and_then(|f| read_relative_path(&f));
        if let (Some(task), Some(artifact)) = (task, artifact) {
            inputs.insert(path.to_owned(), Input { task, artifact });
        }
    }
    inputs
}

fn is_relative(path: &str) -> bool {
    path.len() <= crate::limits::PATH_BYTES
        && !path.chars().any(char::is_control)
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// The patterns of `artifacts.collect`.
pub(super) fn read_artifacts(field: &Field<'_>) -> BTreeSet<String> {
    let table = field.table(&["collect"]);
    let collect = table.and_then(|table| table.optional("collect"));
    collect.map(|f| f.set(ARTIFACT_PATTERNS, read_relative_path)).unwrap_or_default()
}

impl Input {
    pub(super) fn to_value(&self) -> Value {
        Value::map([("artifact", Value::text(&self.artifact)), ("task", Value::text(self.task.as_str()))])
    }
}
