//! What is executed: a program with its arguments, or a script with its interpreter.

use crate::canonical::Value;
use crate::limits::{ARGUMENT_BYTES, ARGUMENTS, NAME_BYTES, PATH_BYTES, SCRIPT_BYTES};
use crate::shape::{Field, ShapeErrorKind};

/// What is executed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program.
    pub program: Program,
    /// Where it runs; none: a fresh private directory for the attempt.
    pub working_dir: Option<String>,
    /// Whether stdout and stderr share one pipe, which makes their order exact.
    pub merge_streams: bool,
    /// As which user of the machine; none: as the worker's own.
    pub run_as: Option<String>,
}

/// Exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The program and its arguments.
    Argv(Vec<String>),
    /// A text for an interpreter.
    Script {
        /// The text.
        script: String,
        /// The interpreter and its arguments.
        interpreter: Vec<String>,
    },
}

/// What reads a script that names nothing else.
const INTERPRETER: [&str; 2] = ["sh", "-eu"];

impl Command {
    /// A program with its arguments, and every default.
    pub(super) fn of(argv: Vec<String>) -> Self {
        Self { program: Program::Argv(argv), working_dir: None, merge_streams: false, run_as: None }
    }

    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let table = field.table(&["argv", "interpreter", "merge_streams", "run_as", "script", "working_dir"])?;
        let argv = table.optional("argv").map(|f| read_arguments(&f));
        let interpreter = table.optional("interpreter").map(|f| read_arguments(&f));
        let script = table.optional("script").map(|f| read_script(&f));
        let program = match (argv, script) {
            (Some(argv), None) => {
                if interpreter.is_some() {
                    table.conflict("interpreter", "an interpreter with `argv`", "`interpreter` only with `script`");
                }
                Program::Argv(argv)
            }
            (None, Some(script)) => Program::Script {
                script,
                interpreter: interpreter.unwrap_or_else(|| INTERPRETER.map(str::to_owned).to_vec()),
            },
            (None, _) if table.is_misspelled("argv") || table.is_misspelled("script") => return None,
            (both, _) => {
                let got = if both.is_some() { "both `argv` and `script`" } else { "neither `argv` nor `script`" };
                table.conflict("", got, "exactly one of them");
                return None;
            }
        };
        Some(Self {
            program,
            working_dir: table.optional("working_dir").and_then(|f| read_directory(&f)),
            merge_streams: table.optional("merge_streams").and_then(|f| f.boolean()).unwrap_or(false),
            run_as: table.optional("run_as").and_then(|f| f.name().map(str::to_owned)),
        })
    }

    pub(super) fn to_value(&self) -> Value {
        let mut entries = vec![("merge_streams", Value::Bool(self.merge_streams))];
        match &self.program {
            Program::Argv(argv) => entries.push(("argv", Value::texts(argv))),
            Program::Script { script, interpreter } => {
                entries.push(("interpreter", Value::texts(interpreter)));
                entries.push(("script", Value::text(script)));
            }
        }
        if let Some(directory) = &self.working_dir {
            entries.push(("working_dir", Value::text(directory)));
        }
        if let Some(user) = &self.run_as {
            entries.push(("run_as", Value::text(user)));
        }
        Value::map(entries)
    }
}

fn read_arguments(field: &Field<'_>) -> Vec<String> {
    let members = field.list(ARGUMENTS);
    if *field.value() == Value::List(Vec::new()) {
        field.refuse(ShapeErrorKind::Value, "an empty list", "a program and its arguments");
    }
    if let Some(program) = members.first()
        && *program.value() == Value::text("")
    {
        program.refuse(ShapeErrorKind::Value, "an empty text", "the name or path of a program");
    }
    members.iter().filter_map(|member| member.any_text(ARGUMENT_BYTES).map(str::to_owned)).collect()
}

fn read_script(field: &Field<'_>) -> String {
    let script = field.any_text(SCRIPT_BYTES).unwrap_or_default();
    if field.value() == &Value::text("") {
        field.refuse(ShapeErrorKind::Value, "an empty text", "a script");
    }
    script.to_owned()
}

fn read_directory(field: &Field<'_>) -> Option<String> {
    let path = field.any_text(PATH_BYTES)?;
    if !path.starts_with('/') {
        field.refuse(ShapeErrorKind::Value, format!("`{path}`"), "an absolute path on the worker");
        return None;
    }
    Some(path.to_owned())
}

/// A path below a directory: relative, without `..`, of 1 to 1024 bytes.
pub(super) fn read_relative_path(field: &Field<'_>) -> Option<String> {
    let path = field.line(PATH_BYTES)?;
    let inside = !path.starts_with('/') && path.split('/').all(|part| !part.is_empty() && part != ".." && part != ".");
    if !inside {
        field.refuse(ShapeErrorKind::Value, format!("`{path}`"), "a relative path without `.` and `..`");
        return None;
    }
    Some(path.to_owned())
}

/// Is `key` the name of an environment variable: letters, digits and `_`, not beginning with a digit?
pub(super) fn is_variable(key: &str) -> bool {
    key.len() <= NAME_BYTES
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
