//! Which licences a dependency may carry, so that Leasehold stays Apache-2.0 for whoever ships it.
//!
//! Every package of the lock file is judged, also those only a test or another platform uses. A package that no
//! accepted licence covers needs an exception with a reason, and an exception nobody needs is refused as well.

use anyhow::{Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::checkout::root;
use crate::spdx::Expression;

/// A licence and why it may be used here.
const ACCEPTED: &[(&str, &str)] = &[
    ("Apache-2.0", "our own"),
    ("MIT", "permissive, attribution only"),
    ("MIT-0", "permissive, no condition"),
    ("BSD-2-Clause", "permissive, attribution only"),
    ("BSD-3-Clause", "permissive, attribution only"),
    ("ISC", "permissive, attribution only"),
    ("Zlib", "permissive, no attribution in binaries"),
    ("0BSD", "permissive, no condition"),
    ("Unlicense", "public domain"),
    ("CC0-1.0", "public domain"),
    ("Unicode-3.0", "permissive, for the Unicode tables"),
];

/// A package, the licence accepted for it alone, and why.
struct Exception {
    package: &'static str,
    licence: &'static str,
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[];

/// What the lock file says of one package.
#[derive(Debug, Clone)]
struct Licensed {
    name: String,
    version: String,
    licence: Option<String>,
}

/// Judges every package of the workspace's graph.
pub(crate) fn check() -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(root()).other_options(vec!["--locked".to_owned()]).exec()?;
    let packages = licensed(&metadata);
    let problems = judge(&packages, EXCEPTIONS);
    if problems.is_empty() {
        println!("{} packages, every licence accepted ({} licences known)", packages.len(), ACCEPTED.len());
        return Ok(());
    }
    bail!("{}", problems.join("\n"))
}

fn licensed(metadata: &Metadata) -> Vec<Licensed> {
    metadata
        .packages
        .iter()
        .map(|package| Licensed {
            name: package.name.to_string(),
            version: package.version.to_string(),
            licence: package.license.clone(),
        })
        .collect()
}

fn judge(packages: &[Licensed], exceptions: &[Exception]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for package in packages {
        let Licensed { name, version, licence } = package;
        let Some(licence) = licence else {
            problems.push(format!("{name} {version} names no licence: choose another crate"));
            continue;
        };
        let expression = match Expression::parse(licence) {
            Ok(expression) => expression,
            Err(reason) => {
                problems.push(format!("{name} {version}: `{licence}` is not an SPDX expression: {reason}"));
                continue;
            }
        };
        if expression.is_satisfied_by(&|name| ACCEPTED.iter().any(|(accepted, _)| *accepted == name)) {
            continue;
        }
        let excepted = exceptions.iter().position(|exception| {
            exception.package == name
                && expression.is_satisfied_by(&|licence| {
                    exception.licence == licence || ACCEPTED.iter().any(|(accepted, _)| *accepted == licence)
                })
        });
        match excepted {
            Some(index) => used[index] = true,
            None => problems.push(format!(
                "{name} {version} is under `{licence}`, which is not accepted: choose another crate, or add an \
                 exception with its reason to xtask/src/licences.rs"
            )),
        }
    }
    for (exception, used) in exceptions.iter().zip(used) {
        if !used {
            problems.push(format!(
                "the exception for {} ({}: {}) is needed by nobody: remove it",
                exception.package, exception.licence, exception.reason
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: Option<&str>) -> Licensed {
        Licensed { name: name.to_owned(), version: "1.0.0".to_owned(), licence: licence.map(str::to_owned) }
    }

    #[test]
    fn an_accepted_licence_passes() {
        assert!(judge(&[package("a", Some("MIT OR GPL-3.0-only"))], &[]).is_empty());
    }

    #[test]
    fn the_offending_crate_is_named() {
        let problems = judge(&[package("a", Some("MIT")), package("copyleft", Some("AGPL-3.0-only"))], &[]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("copyleft 1.0.0") && problems[0].contains("AGPL-3.0-only"), "{}", problems[0]);
    }

    #[test]
    fn a_missing_or_unreadable_licence_is_refused() {
        assert_eq!(judge(&[package("none", None), package("odd", Some("MIT Apache"))], &[]).len(), 2);
    }

    #[test]
    fn an_exception_covers_its_own_package_only_and_must_be_needed() {
        let exceptions = [Exception { package: "a", licence: "MPL-2.0", reason: "build only" }];
        assert!(judge(&[package("a", Some("MPL-2.0"))], &exceptions).is_empty());
        assert_eq!(judge(&[package("a", Some("MPL-2.0")), package("b", Some("MPL-2.0"))], &exceptions).len(), 1);
        let unneeded = judge(&[package("a", Some("MIT"))], &exceptions);
        assert!(unneeded[0].contains("needed by nobody"), "{unneeded:?}");
    }
}
