//! What the process is told: public variables, names of secrets, parameters.
//!
//! A secret's value is never here, only its name; so a revision may be stored, shown, sent and digested.

use std::collections::BTreeMap;

use super::command::is_variable;
use crate::canonical::Value;
use crate::id::SecretName;
use crate::limits::{ARGUMENT_BYTES, DESCRIPTION_BYTES, NAME_BYTES, PARAMETERS, VARIABLES};
use crate::shape::{Field, ShapeErrorKind, Table};

/// Variables that the product sets begin with this; nobody else's do.
pub const RESERVED_PREFIX: &str = "LEASEHOLD_";
/// The variable of a parameter: this and the parameter's name.
pub const PARAMETER_PREFIX: &str = "PARAM_";

/// What an environment variable says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// A text that everybody may see.
    Public(String),
    /// A secret of the project, resolved when the attempt starts.
    Secret {
        /// Which secret.
        name: SecretName,
        /// Whether the variable holds the path of a file with the secret, instead of the secret.
        file: bool,
    },
}

/// What may be said when a run is submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The value if nothing else is said; none: something must be said.
    pub default: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Whether the variable holds the path of a file with the value, instead of the value.
    pub file: bool,
}

pub(super) fn read_environment(field: &Field<'_>) -> BTreeMap<String, Variable> {
    let mut variables = BTreeMap::new();
    for (key, entry) in field.entries(VARIABLES) {
        if !is_variable(key) || key.starts_with(RESERVED_PREFIX) {
            let allowed = "a variable's name: letters, digits and _, not beginning with a digit or LEASEHOLD_";
            entry.refuse(ShapeErrorKind::Value, format!("the name `{key}`"), allowed);
            continue;
        }
        let variable = match entry.value() {
            Value::Map(_) => read_secret(&entry).map(|(name, file)| Variable::Secret { name, file }),
            _ => entry.any_text(ARGUMENT_BYTES).map(|text| Variable::Public(text.to_owned())),
        };
        if let Some(variable) = variable {
            variables.insert(key.to_owned(), variable);
        }
    }
    variables
}

fn read_secret(field: &Field<'_>) -> Option<(SecretName, bool)> {
    let table = field.table(&["file", "secret"])?;
    let file = table.optional("file").and_then(|f| f.boolean()).unwrap_or(false);
    Some((read_secret_name(&table)?, file))
}

pub(super) fn read_secret_name(table: &Table<'_>) -> Option<SecretName> {
    table.required("secret", "the name of a secret")?.parsed(NAME_BYTES)
}

pub(super) fn read_parameters(field: &Field<'_>) -> BTreeMap<String, Parameter> {
    let mut parameters = BTreeMap::new();
    for (key, entry) in field.entries(PARAMETERS) {
        if !is_variable(key) {
            let allowed = "a parameter's name: letters, digits and _, not beginning with a digit";
            entry.refuse(ShapeErrorKind::Value, format!("the name `{key}`"), allowed);
            continue;
        }
        let Some(table) = entry.table(&["default", "description", "file"]) else { continue };
        let text = |key: &str, limit: usize| table.optional(key).and_then(|f| f.any_text(limit).map(str::to_owned));
        let parameter = Parameter {
            default: text("default", ARGUMENT_BYTES),
            description: text("description", DESCRIPTION_BYTES),
            file: table.optional("file").and_then(|f| f.boolean()).unwrap_or(false),
        };
        parameters.insert(key.to_owned(), parameter);
    }
    parameters
}

impl Variable {
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Public(text) => Value::text(text),
            Self::Secret { name, file } => {
                Value::map([("file", Value::Bool(*file)), ("secret", Value::text(name.as_str()))])
            }
        }
    }
}

impl Parameter {
    pub(super) fn to_value(&self) -> Value {
        let mut entries = vec![("file", Value::Bool(self.file))];
        if let Some(text) = &self.default {
            entries.push(("default", Value::text(text)));
        }
        if let Some(text) = &self.description {
            entries.push(("description", Value::text(text)));
        }
        Value::map(entries)
    }
}
