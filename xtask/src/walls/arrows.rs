//! Arrows go down only: which crate may depend on which, and which outside crates have one home.
//!
//! Read from the manifests (`cargo metadata`), so that a forbidden dependency fails before anybody uses it.

use cargo_metadata::{DependencyKind, Metadata};

use super::Violation;

/// One crate of ours and what its manifest names.
#[derive(Debug, Clone)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) dependencies: Vec<Dependency>,
}

/// One line of a manifest.
#[derive(Debug, Clone)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) for_tests: bool,
}

/// What a crate of ours may depend on among our own. Tests of a crate may reach further, except the worker's.
const ARROWS: &[(&str, &[&str])] = &[
    ("leasehold-core", &[]),
    ("leasehold-wire", &["leasehold-core"]),
    ("leasehold-store", &["leasehold-core"]),
    ("leasehold-sql", &["leasehold-core", "leasehold-store"]),
    ("leasehold-control", &["leasehold-core", "leasehold-store"]),
    ("leasehold-server", &["leasehold-core", "leasehold-wire", "leasehold-control"]),
    ("leasehold-worker", &["leasehold-core", "leasehold-wire"]),
    (
        "leasehold",
        &[
            "leasehold-core",
            "leasehold-wire",
            "leasehold-store",
            "leasehold-sql",
            "leasehold-control",
            "leasehold-server",
            "leasehold-worker",
        ],
    ),
];

/// Crates that never ship and may depend on everything.
const NEVER_SHIPPED: &[&str] = &["leasehold-sim", "xtask"];

/// Crates that speak SQL.
pub(super) const SQL_DRIVERS: &[&str] = &[
    "rusqlite",
    "libsqlite3-sys",
    "sqlite",
    "sqlx",
    "sqlx-core",
    "diesel",
    "tokio-postgres",
    "postgres",
    "deadpool-postgres",
    "mysql",
    "mysql_async",
];

/// What `leasehold-core` may not have: it decides, and does nothing else.
const NOT_IN_CORE: &[&str] =
    &["serde", "serde_json", "tokio", "async-trait", "futures-util", "rustix", "libc", "tracing"];

/// What `leasehold-control` may not have: it never sees HTTP.
const NOT_IN_CONTROL: &[&str] =
    &["axum", "hyper", "hyper-util", "http", "http-body-util", "tower", "reqwest", "tokio-rustls"];

/// The crates of the workspace, from its metadata.
pub(super) fn crates(metadata: &Metadata) -> Vec<Crate> {
    metadata
        .workspace_packages()
        .into_iter()
        .map(|package| Crate {
            name: package.name.to_string(),
            dependencies: package
                .dependencies
                .iter()
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    for_tests: dependency.kind == DependencyKind::Development,
                })
                .collect(),
        })
        .collect()
}

/// Every manifest line that breaks a wall.
pub(super) fn violations(crates: &[Crate]) -> Vec<Violation> {
    let mut found = Vec::new();
    for member in crates {
        let name = member.name.as_str();
        let arrows = ARROWS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, allowed)| *allowed);
        if arrows.is_none() && !NEVER_SHIPPED.contains(&name) {
            found.push(Violation::new(name, "is not in the table of arrows: add it to xtask/src/walls/arrows.rs"));
        }
        for dependency in &member.dependencies {
            if let Some(sentence) = refusal(member, dependency, arrows, crates) {
                found.push(Violation::new(name, sentence));
            }
        }
    }
    found
}

fn refusal(member: &Crate, dependency: &Dependency, arrows: Option<&[&str]>, crates: &[Crate]) -> Option<String> {
    let (name, on) = (member.name.as_str(), dependency.name.as_str());
    let is_ours = crates.iter().any(|other| other.name == on);
    let strict = !dependency.for_tests || name == "leasehold-worker";
    if is_ours && strict && arrows.is_some_and(|allowed| !allowed.contains(&on)) {
        return Some(format!("may not depend on {on}: arrows go down only"));
    }
    if SQL_DRIVERS.contains(&on) && name != "leasehold-sql" {
        return Some(format!("may not depend on {on}: only leasehold-sql speaks SQL"));
    }
    if name == "leasehold-core" && NOT_IN_CORE.contains(&on) {
        return Some(format!("may not depend on {on}: decisions have no I/O, no async and no serialisation"));
    }
    if name == "leasehold-control" && NOT_IN_CONTROL.contains(&on) {
        return Some(format!("may not depend on {on}: services never see HTTP"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str, on: &str, for_tests: bool) -> Vec<Crate> {
        let mut crates: Vec<Crate> = ARROWS
            .iter()
            .map(|(crate_name, _)| (*crate_name).to_owned())
            .chain(NEVER_SHIPPED.iter().map(|crate_name| (*crate_name).to_owned()))
            .map(|name| Crate { name, dependencies: Vec::new() })
            .collect();
        let dependency = Dependency { name: on.to_owned(), for_tests };
        match crates.iter_mut().find(|member| member.name == name) {
            Some(member) => member.dependencies.push(dependency),
            None => crates.push(Crate { name: name.to_owned(), dependencies: vec![dependency] }),
        }
        crates
    }

    #[test]
    fn arrows_go_down_only() {
        let cases = [
            ("leasehold-core", "leasehold-wire", false, true),
            ("leasehold-wire", "leasehold-core", false, false),
            ("leasehold-control", "leasehold-wire", false, true),
            ("leasehold-control", "leasehold-sql", false, true),
            ("leasehold-control", "leasehold-sql", true, false),
            ("leasehold-server", "leasehold-store", false, true),
            ("leasehold-worker", "leasehold-control", false, true),
            ("leasehold-worker", "leasehold-store", true, true),
            ("leasehold", "leasehold-sql", false, false),
            ("leasehold-sim", "leasehold-sql", false, false),
        ];
        for (name, on, for_tests, refused) in cases {
            let found = violations(&workspace(name, on, for_tests));
            assert_eq!(!found.is_empty(), refused, "{name} on {on} (tests: {for_tests}): {found:?}");
        }
    }

    #[test]
    fn outside_crates_have_one_home() {
        let cases = [
            ("leasehold-sql", "rusqlite", false),
            ("leasehold", "rusqlite", true),
            ("leasehold-sim", "rusqlite", true),
            ("leasehold-core", "serde", true),
            ("leasehold-wire", "serde", false),
            ("leasehold-control", "axum", true),
            ("leasehold-server", "axum", false),
        ];
        for (name, on, refused) in cases {
            let found = violations(&workspace(name, on, false));
            assert_eq!(!found.is_empty(), refused, "{name} on {on}: {found:?}");
        }
    }

    #[test]
    fn a_new_crate_must_take_its_place() {
        assert_eq!(violations(&workspace("leasehold-extra", "anyhow", false)).len(), 1);
    }
}
