//! Projects: made, limited, deleted, shown.

use leasehold_core::canonical::Value;
use leasehold_core::id::ProjectName;
use leasehold_core::limits::{CONCURRENCY_MAX, JSON_BODY, NAME_BYTES};
use leasehold_core::project::Project;
use leasehold_core::shape::{ShapeError, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{self, asked};
use super::schema;
use super::time::Time;
use crate::field;

/// A project that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CreateProject {
    /// Its name.
    #[schemars(with = "schema::Name")]
    pub name: ProjectName,
    /// How many of its runs may hold a place at once; none: any number.
    #[schemars(range(min = 1, max = CONCURRENCY_MAX))]
    pub concurrency: Option<u32>,
}

asked!(CreateProject, JSON_BODY);

impl CreateProject {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        request::read(body, JSON_BODY, &["concurrency", "name"], |table, _| {
            let concurrency = concurrency(table);
            let name = table.required("name", "the name of the project")?;
            Some(Self { name: name.parsed(NAME_BYTES)?, concurrency })
        })
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        let limit = self.concurrency.map(|limit| ("concurrency", Value::Int(limit.into())));
        Value::map([("name", Value::text(self.name.as_str()))].into_iter().chain(limit)).to_bytes()
    }
}

/// A project's settings, whole: what is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SetProject {
    /// How many of its runs may hold a place at once; none: any number.
    #[schemars(range(min = 1, max = CONCURRENCY_MAX))]
    pub concurrency: Option<u32>,
}

asked!(SetProject, JSON_BODY);

impl SetProject {
    /// Reads a body; answers every mistake.
    pub fn parse(body: &[u8]) -> Result<Self, Vec<ShapeError>> {
        request::read(body, JSON_BODY, &["concurrency"], |table, _| Some(Self { concurrency: concurrency(table) }))
    }

    /// The body.
    pub fn to_body(&self) -> Vec<u8> {
        Value::map(self.concurrency.iter().map(|limit| ("concurrency", Value::Int((*limit).into())))).to_bytes()
    }
}

fn concurrency(table: &Table<'_>) -> Option<u32> {
    table.optional("concurrency").and_then(|field| field.unsigned(1..=CONCURRENCY_MAX))
}

/// A project as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectItem {
    /// Its name.
    #[serde(with = "field::text")]
    #[schemars(with = "schema::Name")]
    pub name: ProjectName,
    /// How many of its runs may hold a place at once; missing: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many of its runs hold a place.
    pub occupied: u32,
    /// When it came to be.
    pub created_at: Time,
}

impl ProjectItem {
    /// A project of which `occupied` runs hold a place.
    pub fn new(project: &Project, occupied: u32) -> Self {
        let Project { name, concurrency, created_at, .. } = project;
        Self { name: name.clone(), concurrency: *concurrency, occupied, created_at: (*created_at).into() }
    }
}

/// The answer to what makes or changes a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectAnswer {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
    /// The project as it is then.
    pub project: ProjectItem,
}

/// The answer to a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteProjectAnswer {
    /// Whether it changed anything; otherwise it had been deleted before.
    pub changed: bool,
}
