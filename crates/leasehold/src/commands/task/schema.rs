//! `leasehold task schema`: what an editor needs to know of task files.

use clap::Args;
use leasehold_wire::api::task_schema;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold task schema > leasehold-task.schema.json

An editor that knows TOML then completes keys and marks mistakes. With Taplo
(also the VS Code extension Even Better TOML), the first line of a task file
names the schema:
  #:schema ./leasehold-task.schema.json

`leasehold task apply --dry-run` judges what a schema cannot: fields that depend
on each other.";

/// Prints the JSON Schema of a task file.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Schema {}

impl Schema {
    #[expect(clippy::unused_self, reason = "every verb is carried out by its value")]
    pub(crate) fn execute(&self) -> anyhow::Result<Exit> {
        crate::commands::print_json(&task_schema::of_files())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use leasehold_wire::document::Document;

    use super::*;
    use crate::spec::Spec;

    fn mistakes(file: &Path, text: String) -> Vec<String> {
        let validator = jsonschema::draft202012::options().build(&task_schema::of_files()).unwrap();
        let spec = Spec::parse(file, text).unwrap();
        let value = serde_json::to_value(Document(spec.value().clone())).unwrap();
        validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    #[test]
    fn every_example_and_a_task_with_everything_is_one_by_the_schema() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut seen = 0;
        for entry in std::fs::read_dir(examples).unwrap() {
            let file = entry.unwrap().path().join("job.toml");
            if let Ok(text) = std::fs::read_to_string(&file) {
                seen += 1;
                assert_eq!(mistakes(&file, text), Vec::<String>::new(), "{}", file.display());
            }
        }
        assert!(seen >= 3, "{seen}");
        let whole = "name = 'a'\nafter = ['b']\n[command]\nscript = 'x'\n[env]\nA = 'x'\nB = { secret = 's', file = true }\n\
                     [limits]\ncpu = 1.5\nlease = '1h30m'\n[[placement.prefer]]\nlabel = 'disk=ssd'\nweight = -10\n\
                     [[trigger]]\ncron = '0 3 * * *'\ntime_zone = 'Europe/Berlin'\n[notify]\nmail = { secret = 'm' }\n";
        assert_eq!(mistakes(Path::new("a.toml"), whole.to_owned()), Vec::<String>::new());
    }

    #[test]
    fn a_slip_is_a_mistake_by_the_schema_too() {
        for (text, part) in [
            ("[command]\nargv = ['true']\n", "name"),
            ("name = 'a'\n[comand]\nargv = ['true']\n", "comand"),
            ("name = 'a'\n[command]\nargv = ['true']\nscript = 'x'\n", "/command"),
            ("name = 'a'\n[command]\nargv = ['true']\n[limits]\ntimeout = 30\n", "/limits/timeout"),
            ("name = 'a'\npriority = 101\n[command]\nargv = ['true']\n", "/priority"),
            ("name = 'a'\n[command]\nargv = ['true']\n[retry]\non_lost = 'again'\n", "/retry/on_lost"),
        ] {
            let found = mistakes(Path::new("a.toml"), text.to_owned());
            assert!(found.iter().any(|mistake| mistake.contains(part)), "{text}: {found:?}");
        }
    }
}
