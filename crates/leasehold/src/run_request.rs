//! A run from what was typed: a specification file, or none, and flags that weigh more. The shape is judged by `core`
//! once, on the whole, so a flag and a file are refused in the same words. (Product, *The command line*, *A task file*.)

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use leasehold_core::canonical::Value;
use leasehold_core::placement::{Placement, parse_preference, parse_requirement};
use leasehold_core::revision::Revision;
use leasehold_core::shape::ShapeError;
use leasehold_core::time::Millis;

use crate::failure::UsageError;
use crate::pairs::pairs;
use crate::spec::Spec;

/// What to run, where and under which limits.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What and where")]
pub(crate) struct RunRequest {
    /// A specification, TOML in the shape of a task file; `-` reads stdin. Flags weigh more
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,

    /// What the worker must have, such as 'runtime.python>=3.11', label.site=office or memory>=512MiB; repeatable
    #[arg(long, value_name = "EXPR")]
    pub require: Vec<String>,

    /// What the worker should rather have, such as label.disk=ssd:10; repeatable
    #[arg(long, value_name = "EXPR:WEIGHT")]
    pub prefer: Vec<String>,

    /// An environment variable; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// Where it runs, an absolute path on the worker [default: a fresh private directory]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,

    /// How long it may run
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Millis>,

    /// Between SIGTERM and SIGKILL [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<Millis>,

    /// How long the machine may be out of reach before the run is lost [default: 10m, with --on-lost retry 60s]
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<Millis>,

    /// What follows when contact is lost: hold, fail or retry [default: hold]
    #[arg(long, value_name = "POLICY")]
    pub on_lost: Option<String>,

    /// What a second start may do: none, idempotent or deduplicated [default: none]
    #[arg(long, value_name = "SAFETY")]
    pub safety: Option<String>,

    /// How many attempts there may be in all when it fails [default: 1]
    #[arg(long, value_name = "N")]
    pub retry: Option<u32>,

    /// From -100 to 100; higher goes first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i64>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = "Arguments")]
    pub command: Vec<String>,
}

impl RunRequest {
    /// The revision that these flags make, on top of the specification or of the revision of an earlier run.
    pub(crate) fn revision(&self, earlier: Option<&Value>) -> anyhow::Result<Revision> {
        if self.spec.is_none() && earlier.is_none() && self.command.is_empty() {
            let text = "nothing to run: write the command after `--`, such as `leasehold run -- make test`, or name a \
                        specification with --spec FILE, or an earlier run with --again RUN";
            return Err(UsageError(text.to_owned()).into());
        }
        let spec = self.spec.as_deref().map(Spec::read).transpose()?;
        let mut draft = Draft::of(spec.as_ref().map(Spec::value).or(earlier))?;
        self.apply(&mut draft)?;
        match Revision::from_value(&Value::Map(draft.root)) {
            Ok(revision) => Ok(revision),
            Err(errors) => Err(told(&errors, &draft.flags, spec.as_ref())),
        }
    }

    fn apply(&self, draft: &mut Draft) -> anyhow::Result<()> {
        if !self.command.is_empty() {
            for key in ["script", "interpreter"] {
                draft.remove("command", key);
            }
            draft.set("the command after `--`", "command", "argv", Value::texts(&self.command));
        }
        if let Some(cwd) = &self.cwd {
            draft.set("--cwd", "command", "working_dir", Value::text(cwd));
        }
        let durations = [
            ("--timeout", "timeout", self.timeout),
            ("--grace", "grace", self.grace),
            ("--lease", "lease", self.lease),
        ];
        for (flag, key, span) in durations {
            if let Some(span) = span {
                draft.set(flag, "limits", key, Value::text(span.to_string()));
            }
        }
        for (flag, key, text) in [("--on-lost", "on_lost", &self.on_lost), ("--safety", "safety", &self.safety)] {
            if let Some(text) = text {
                draft.set(flag, "retry", key, Value::text(text));
            }
        }
        if let Some(attempts) = self.retry {
            draft.set("--retry", "retry", "max_attempts", Value::Int(attempts.into()));
        }
        if let Some(priority) = self.priority {
            draft.flags.insert("priority".to_owned(), "--priority");
            draft.root.insert("priority".to_owned(), Value::Int(priority));
        }
        for (name, value) in pairs("--env", "NAME=VALUE", &self.env)? {
            draft.set("--env", "env", &name, Value::text(value));
        }
        self.apply_placement(draft)
    }

    fn apply_placement(&self, draft: &mut Draft) -> anyhow::Result<()> {
        if self.require.is_empty() && self.prefer.is_empty() {
            return Ok(());
        }
        // The mistakes of a file's own placement are found, and located, when the whole is read.
        let from_file = draft.root.get("placement").map(Placement::from_value);
        let (mut require, mut prefer) = match from_file {
            None => Default::default(),
            Some(Ok(placement)) => (placement.require().clone(), placement.prefer().to_vec()),
            Some(Err(_)) => return Ok(()),
        };
        for text in &self.require {
            parse_requirement(text, &mut require).map_err(|error| UsageError(format!("--require: {error}")))?;
        }
        for text in &self.prefer {
            prefer.push(parse_preference(text).map_err(|error| UsageError(format!("--prefer: {error}")))?);
        }
        let placement = Placement::new(require, prefer).map_err(|errors| {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            UsageError(format!("--require, --prefer: {}", all.join("; ")))
        })?;
        draft.root.insert("placement".to_owned(), placement.to_value());
        Ok(())
    }
}

/// A revision in the making, and which flag set which field.
struct Draft {
    root: BTreeMap<String, Value>,
    flags: BTreeMap<String, &'static str>,
}

impl Draft {
    fn of(base: Option<&Value>) -> anyhow::Result<Self> {
        let root = match base {
            None => BTreeMap::new(),
            Some(Value::Map(root)) => root.clone(),
            Some(other) => return Err(UsageError(format!("a specification is a table, not {}", other.kind())).into()),
        };
        Ok(Self { root, flags: BTreeMap::new() })
    }

    fn set(&mut self, flag: &'static str, table: &str, key: &str, value: Value) {
        let entry = self.root.entry(table.to_owned()).or_insert_with(|| Value::Map(BTreeMap::new()));
        // A file that has something else than a table there is told so when the whole is read.
        if let Value::Map(entries) = entry {
            entries.insert(key.to_owned(), value);
            self.flags.insert(format!("{table}.{key}"), flag);
        }
    }

    fn remove(&mut self, table: &str, key: &str) {
        if let Some(Value::Map(entries)) = self.root.get_mut(table) {
            entries.remove(key);
        }
    }
}

/// Every mistake: with its flag if one set the field, else at its place in the file.
fn told(errors: &[ShapeError], flags: &BTreeMap<String, &'static str>, spec: Option<&Spec>) -> anyhow::Error {
    let flag_of = |error: &ShapeError| {
        let under = |path: &str| {
            error.path == path || error.path.strip_prefix(path).is_some_and(|rest| rest.starts_with(['[', '.']))
        };
        flags.iter().find(|(path, _)| under(path)).map(|(_, flag)| *flag)
    };
    let (of_flags, of_file): (Vec<_>, Vec<_>) = errors.iter().partition(|error| flag_of(error).is_some());
    let mut lines: Vec<String> =
        of_flags.into_iter().map(|error| format!("{}: {error}", flag_of(error).unwrap_or_default())).collect();
    let of_file: Vec<ShapeError> = of_file.into_iter().cloned().collect();
    match spec {
        Some(spec) if !of_file.is_empty() => lines.push(spec.locate(&of_file).to_string()),
        _ => lines.extend(of_file.iter().map(ToString::to_string)),
    }
    UsageError(lines.join("\n")).into()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use leasehold_core::revision::Program;

    use super::*;

    fn spec(text: &str) -> (tempfile::NamedTempFile, PathBuf) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().to_owned();
        (file, path)
    }

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn flags_weigh_more_than_the_specification() {
        let (_file, path) = spec(
            "priority = 1\n[command]\nscript = 'true'\ninterpreter = ['bash']\nworking_dir = '/a'\n[env]\nA = '1'\nB = '2'\n\
             [limits]\ntimeout = '1m'\ngrace = '1s'\n[placement.require]\nlabels = { site = 'office' }\n",
        );
        let request = RunRequest {
            spec: Some(path),
            command: command(&["echo", "hi"]),
            env: vec!["B=3".to_owned()],
            timeout: Some(Millis::from_secs(5)),
            require: vec!["runtime.python>=3.11".to_owned()],
            priority: Some(-7),
            ..RunRequest::default()
        };
        let revision = request.revision(None).unwrap();
        assert_eq!(revision.command().program, Program::Argv(command(&["echo", "hi"])));
        assert_eq!(revision.command().working_dir.as_deref(), Some("/a"));
        assert_eq!(revision.public_variables()["A"], "1");
        assert_eq!(revision.public_variables()["B"], "3");
        assert_eq!(revision.limits().timeout, Some(Millis::from_secs(5)));
        assert_eq!(revision.limits().grace, Millis::from_secs(1));
        assert_eq!(revision.priority(), -7);
        assert_eq!(revision.placement().require().labels["site"], "office");
        assert!(revision.placement().require().runtimes.contains_key("python"));
    }

    #[test]
    fn an_earlier_run_is_asked_for_again_as_it_was_or_with_flags_on_top() {
        let (_file, path) =
            spec("name = 'nightly'\n[command]\nargv = ['true']\n[limits]\ntimeout = '1m'\nlog_mib = 7\n");
        let first = RunRequest { spec: Some(path), ..RunRequest::default() }.revision(None).unwrap();
        let earlier = first.to_value();
        assert_eq!(RunRequest::default().revision(Some(&earlier)).unwrap().digest(), first.digest());
        let longer = RunRequest { timeout: Some(Millis::from_secs(120)), ..RunRequest::default() };
        let longer = longer.revision(Some(&earlier)).unwrap();
        assert_eq!((longer.limits().timeout, longer.limits().log_mib), (Some(Millis::from_secs(120)), 7));
    }

    #[test]
    fn mistakes_name_the_flag_or_the_place_in_the_file() {
        let (_file, path) = spec("[command]\nargv = ['true']\n[limits]\ngrace = 'soon'\n");
        let request = RunRequest {
            spec: Some(path),
            cwd: Some("relative".to_owned()),
            on_lost: Some("explode".to_owned()),
            ..RunRequest::default()
        };
        let told = request.revision(None).unwrap_err().to_string();
        assert!(told.contains("--cwd: "), "{told}");
        assert!(told.contains("--on-lost: "), "{told}");
        assert!(told.contains(":4:1: "), "{told}");
    }

    #[test]
    fn what_is_no_expression_is_a_usage_error() {
        for request in [
            RunRequest { require: vec!["pyton>=3".to_owned()], ..RunRequest::default() },
            RunRequest { prefer: vec!["label.disk=ssd".to_owned()], ..RunRequest::default() },
            RunRequest { env: vec!["JUST_A_NAME".to_owned()], ..RunRequest::default() },
        ] {
            let request = RunRequest { command: command(&["true"]), ..request };
            let error = request.revision(None).unwrap_err();
            assert!(error.is::<UsageError>(), "{error}");
        }
        let nothing = RunRequest::default().revision(None).unwrap_err().to_string();
        assert!(nothing.contains("`--`"), "{nothing}");
    }
}
