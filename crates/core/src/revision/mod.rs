//! The execution revision: everything that decides how a run is executed, immutable, with one canonical form.
//!
//! It has the shape of a task file; a run that belongs to no task has one too. Defaults are applied when it is
//! read, so the canonical form is total: a later default never changes what an old revision means, and the digest
//! (`leasehold/revision/v1`) never changes. A worker recomputes it. A revision exists only if it is valid.
//! (Product, *A task file*; protocol, *Asks and offers*.)

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::Value;
use crate::crypto::{Digest, Domain};
use crate::id::{SecretName, TaskName};
use crate::limits::{DESCRIPTION_BYTES, FEATURES, NAME_BYTES, PREDECESSORS, PRIORITY, REVISION_BYTES};
use crate::placement::Placement;
use crate::run::Policy;
use crate::shape::{self, Field, Report, ShapeError, ShapeErrorKind};

mod artifact;
mod bounds;
mod command;
mod environment;
mod notify;
mod retry;
mod trigger;

pub use artifact::Input;
pub use bounds::{Cpu, CpuError, Limits, OnLeaseLoss};
pub use command::{Command, Program};
pub use environment::{PARAMETER_PREFIX, Parameter, RESERVED_PREFIX, Variable};
pub use notify::{Channel, Notify, NotifyOn};
pub use retry::{Retry, RetryOn, Safety};
pub use trigger::{CatchUp, Overlap, Schedule, Source, Trigger};

/// What a run executes and how: valid, and never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    name: Option<TaskName>,
    description: Option<String>,
    command: Command,
    env: BTreeMap<String, Variable>,
    params: BTreeMap<String, Parameter>,
    placement: Placement,
    limits: Limits,
    retry: Retry,
    priority: i8,
    triggers: Vec<Trigger>,
    after: BTreeSet<TaskName>,
    inputs: BTreeMap<String, Input>,
    artifacts: BTreeSet<String>,
    notify: Option<Notify>,
}

const KEYS: [&str; 14] = [
    "after",
    "artifacts",
    "command",
    "description",
    "env",
    "inputs",
    "limits",
    "name",
    "notify",
    "params",
    "placement",
    "priority",
    "retry",
    "trigger",
];

impl Revision {
    /// A program with its arguments, and every default.
    pub fn of_argv(argv: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Vec<ShapeError>> {
        let command = Command::of(argv.into_iter().map(Into::into).collect());
        Self::from_value(&Value::map([("command", command.to_value())]))
    }

    /// Reads the shape of a task file; answers every mistake.
    pub fn from_value(value: &Value) -> Result<Self, Vec<ShapeError>> {
        let report = Report::new();
        let revision = read(&report.root(value));
        report.finish(revision)?.ok_or_else(Vec::new)
    }

    /// Reads canonical bytes; refuses every other spelling, so that what was digested is what is read.
    pub fn from_canonical_bytes(bytes: &[u8]) -> Result<Self, Vec<ShapeError>> {
        let refused = |got: &str| vec![ShapeError::new("", ShapeErrorKind::Value, got, "a canonical revision")];
        let value =
            Value::parse_canonical(bytes, REVISION_BYTES).map_err(|error| refused(error.to_string().as_str()))?;
        let revision = Self::from_value(&value)?;
        if revision.to_canonical_bytes() == bytes {
            Ok(revision)
        } else {
            Err(refused("a revision in another than its canonical form"))
        }
    }

    /// The one form of this revision, with every default written out.
    pub fn to_value(&self) -> Value {
        let artifacts = Value::map([("collect", Value::texts(&self.artifacts))]);
        let mut entries = vec![
            ("after", Value::texts(self.after.iter().map(TaskName::as_str))),
            ("artifacts", artifacts),
            ("command", self.command.to_value()),
            ("env", Value::map(self.env.iter().map(|(name, variable)| (name, variable.to_value())))),
            ("inputs", Value::map(self.inputs.iter().map(|(path, input)| (path, input.to_value())))),
            ("limits", self.limits.to_value()),
            ("params", Value::map(self.params.iter().map(|(name, parameter)| (name, parameter.to_value())))),
            ("placement", self.placement.to_value()),
            ("priority", Value::Int(self.priority.into())),
            ("retry", self.retry.to_value()),
            ("trigger", Value::List(self.triggers.iter().map(Trigger::to_value).collect())),
        ];
        if let Some(name) = &self.name {
            entries.push(("name", Value::text(name.as_str())));
        }
        if let Some(description) = &self.description {
            entries.push(("description", Value::text(description)));
        }
        if let Some(notify) = &self.notify {
            entries.push(("notify", notify.to_value()));
        }
        Value::map(entries)
    }

    /// The canonical bytes.
    pub fn to_canonical_bytes(&self) -> Vec<u8> {
        self.to_value().to_bytes()
    }

    /// The digest of the canonical bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(Domain::Revision, &self.to_canonical_bytes())
    }

    /// The same revision with `values` said for its parameters: what one run executes. A value nobody asked for, and
    /// a parameter without a value, are mistakes.
    pub fn with_parameters(&self, values: &BTreeMap<String, String>) -> Result<Self, Vec<ShapeError>> {
        let mut revision = self.clone();
        let mut errors = Vec::new();
        for (name, value) in values {
            if let Some(parameter) = revision.params.get_mut(name) {
                parameter.default = Some(value.clone());
                continue;
            }
            let known = self.params.keys().map(String::as_str);
            let allowed = known.clone().collect::<Vec<_>>().join(", ");
            let nearest = shape::nearest(name, known).map(str::to_owned);
            let path = shape::join("params", name);
            errors.push(ShapeError { nearest, ..ShapeError::new(path, ShapeErrorKind::Unknown, name, allowed) });
        }
        for (name, _) in revision.params.iter().filter(|(_, parameter)| parameter.default.is_none()) {
            let (path, wanted) = (shape::join("params", name), "a value, since the parameter has no default");
            errors.push(ShapeError::new(path, ShapeErrorKind::Missing, "nothing", wanted));
        }
        if errors.is_empty() { Self::from_value(&revision.to_value()) } else { Err(errors) }
    }

    /// The task's name, in a revision of a task.
    pub fn name(&self) -> Option<&TaskName> {
        self.name.as_ref()
    }

    /// For people.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// What is executed.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Environment variables by name.
    pub fn env(&self) -> &BTreeMap<String, Variable> {
        &self.env
    }

    /// Parameters by name.
    pub fn params(&self) -> &BTreeMap<String, Parameter> {
        &self.params
    }

    /// Where it may run; holds what the limits imply.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How long, how much, how many.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When an attempt that ended badly is followed by another.
    pub fn retry(&self) -> &Retry {
        &self.retry
    }

    /// From −100 to 100; higher is served first.
    pub fn priority(&self) -> i8 {
        self.priority
    }

    /// What starts runs by itself, by name.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Tasks that must all have succeeded first.
    pub fn after(&self) -> &BTreeSet<TaskName> {
        &self.after
    }

    /// Input artifacts by the relative path that the run finds them at.
    pub fn inputs(&self) -> &BTreeMap<String, Input> {
        &self.inputs
    }

    /// Patterns of the files that become artifacts.
    pub fn artifacts(&self) -> &BTreeSet<String> {
        &self.artifacts
    }

    /// Who is told what.
    pub fn notify(&self) -> Option<&Notify> {
        self.notify.as_ref()
    }

    /// The part that decisions about runs read.
    pub fn policy(&self) -> Policy {
        Policy {
            lease: self.limits.lease,
            start: self.limits.start,
            timeout: self.limits.timeout,
            max_attempts: self.retry.max_attempts,
            retry_failed: self.retry.on.contains(&RetryOn::Failed),
            retry_timed_out: self.retry.on.contains(&RetryOn::TimedOut),
            on_lost: self.retry.on_lost,
            concurrency: self.limits.concurrency,
            mutex: self.limits.mutex,
            backoff_initial: self.retry.backoff_initial,
            backoff_max: self.retry.backoff_max,
        }
    }

    /// The variables that need no secret and no file: public ones, and parameters under their prefix.
    pub fn public_variables(&self) -> BTreeMap<String, String> {
        let public = self.env.iter().filter_map(|(name, variable)| match variable {
            Variable::Public(text) => Some((name.clone(), text.clone())),
            Variable::Secret { .. } => None,
        });
        let said =
            self.params.iter().filter(|(_, parameter)| !parameter.file).filter_map(|(name, parameter)| {
                Some((format!("{PARAMETER_PREFIX}{name}"), parameter.default.clone()?))
            });
        public.chain(said).collect()
    }

    /// The secrets that an attempt needs before it starts; those of notifications never leave the control plane.
    pub fn secrets(&self) -> BTreeSet<&SecretName> {
        let secrets = self.env.values().filter_map(|variable| match variable {
            Variable::Secret { name, .. } => Some(name),
            Variable::Public(_) => None,
        });
        secrets.collect()
    }

    /// Must a worker fetch materials before it starts an attempt?
    pub fn needs_materials(&self) -> bool {
        !self.inputs.is_empty() || !self.secrets().is_empty()
    }
}

fn read(field: &Field<'_>) -> Option<Revision> {
    let table = field.table(&KEYS)?;
    let command = table.required("command", "a table with `argv` or `script`").and_then(|f| Command::read(&f));
    let env = table.optional("env").map(|f| environment::read_environment(&f)).unwrap_or_default();
    let params = table.optional("params").map(|f| environment::read_parameters(&f)).unwrap_or_default();
    for name in params.keys().map(|name| format!("{PARAMETER_PREFIX}{name}")).filter(|name| env.contains_key(name)) {
        table.conflict("env", format!("`{name}` and a parameter of that name"), "one of them");
    }
    let retry = table.optional("retry").map(|f| Retry::read(&f)).unwrap_or_default();
    let limits = match table.optional("limits") {
        Some(limits) => Limits::read(&limits, retry.on_lost),
        None => Limits::of(retry.on_lost),
    };
    let placement = table.optional("placement").map(|f| Placement::read(&f)).unwrap_or_default();
    let priority = table.optional("priority").and_then(|f| f.integer(-PRIORITY..=PRIORITY)).unwrap_or(0);
    let description = table.optional("description").and_then(|f| f.any_text(DESCRIPTION_BYTES));
    let placement = placement.with_features(limits.features());
    if placement.require().features.len() > FEATURES {
        table.conflict("placement", "too many features with those that limits imply", format!("at most {FEATURES}"));
    }
    let revision = Revision {
        name: table.optional("name").and_then(|f| f.parsed(NAME_BYTES)),
        description: description.map(str::to_owned),
        env,
        params,
        placement,
        limits,
        retry,
        priority: i8::try_from(priority).unwrap_or(0),
        triggers: table.optional("trigger").map(|f| trigger::read_triggers(&f)).unwrap_or_default(),
        after: table.optional("after").map(|f| f.set(PREDECESSORS, |f| f.parsed(NAME_BYTES))).unwrap_or_default(),
        inputs: table.optional("inputs").map(|f| artifact::read_inputs(&f)).unwrap_or_default(),
        artifacts: table.optional("artifacts").map(|f| artifact::read_artifacts(&f)).unwrap_or_default(),
        notify: table.optional("notify").and_then(|f| Notify::read(&f)),
        // Last: without one, the mistakes of everything else are still told.
        command: command?,
    };
    let size = revision.to_canonical_bytes().len();
    if size > REVISION_BYTES {
        let allowed = format!("at most {REVISION_BYTES} bytes of canonical JSON");
        field.refuse(ShapeErrorKind::Limit, format!("{size} bytes"), allowed);
    }
    Some(revision)
}

#[cfg(test)]
mod tests;
