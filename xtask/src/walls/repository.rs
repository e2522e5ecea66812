//! Walls of the whole repository: names of files, what text may mention, which lint table a crate uses.

use super::Violation;
use crate::checkout::TextFile;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "shared", "stuff"];

/// Every file that breaks a wall of the repository.
pub(super) fn violations(files: &[TextFile]) -> Vec<Violation> {
    files
        .iter()
        .flat_map(|file| empty_name(file).into_iter().chain(machine_paths(file)).chain(own_lints(file)))
        .collect()
}

/// A file, or a folder of sources, is named after its concept.
fn empty_name(file: &TextFile) -> Vec<Violation> {
    let parts = file.path.split('/');
    let named = parts.into_iter().find(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        EMPTY_NAMES.contains(&stem)
    });
    named
        .map(|part| Violation::new(&file.path, format!("`{part}` says nothing: name it after its concept")))
        .into_iter()
        .collect()
}

/// Text that only means something on the machine where it was written.
fn machine_paths(file: &TextFile) -> Vec<Violation> {
    // Put together here, or this file would be its own first finding.
    let forbidden =
        [concat!("/wo", "rk/"), concat!("/tmp/", "target"), concat!("/ro", "ot/.cargo"), concat!("/ro", "ot/.rustup")];
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for path in forbidden {
            let begins_a_path = line.match_indices(path).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-/}>~*".contains(c))
            });
            if begins_a_path {
                found.push(Violation::new(
                    format!("{}:{}", file.path, index + 1),
                    format!("mentions `{path}`, a path of one machine"),
                ));
            }
        }
    }
    found
}

/// Every crate is under the workspace's lint table.
fn own_lints(file: &TextFile) -> Option<Violation> {
    let is_manifest = file.path.ends_with("/Cargo.toml");
    let inherits = file.text.lines().skip_while(|line| line.trim() != "[lints]").nth(1).map(str::trim);
    (is_manifest && inherits != Some("workspace = true"))
        .then(|| Violation::new(&file.path, "is not under the workspace's lint table: add `[lints] workspace = true`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        violations(&[TextFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_name_that_says_nothing_is_refused() {
        for (path, refused) in [
            ("crates/worker/src/utils.rs", true),
            ("crates/worker/src/common/mod.rs", true),
            ("docs/helpers.md", true),
            ("crates/core/src/lease.rs", false),
            ("crates/core/src/utility_curve.rs", false),
        ] {
            assert_eq!(found(path, "") > 0, refused, "{path}");
        }
    }

    #[test]
    fn a_path_of_one_machine_is_refused() {
        let path = concat!("/wo", "rk/main");
        assert_eq!(found("README.md", &format!("cd {path}\n")), 1);
        assert_eq!(found("README.md", &format!("see `{path}`\n")), 1);
        assert_eq!(found("README.md", &format!("attempts/x{path}\n")), 0);
        assert_eq!(found("README.md", "frame/work/unit\n"), 0);
    }

    #[test]
    fn a_crate_outside_the_lint_table_is_refused() {
        assert_eq!(found("crates/x/Cargo.toml", "[package]\nname = \"x\"\n"), 1);
        assert_eq!(found("crates/x/Cargo.toml", "[lints]\nworkspace = true\n"), 0);
        assert_eq!(found("Cargo.toml", "[workspace]\n"), 0);
    }
}
