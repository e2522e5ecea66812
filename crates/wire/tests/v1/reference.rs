//! The protocol reference against the protocol: its examples are the golden files, and it leaves nothing out.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::refusal::RefusalCode;
use leasehold_wire::route;

use crate::golden::examples;

fn reference() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_example_of_the_reference_is_its_golden_file() {
    let text = reference();
    let mut shown = BTreeSet::new();
    for part in text.split("<!-- golden: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n```json\n").expect("an example is a block of JSON");
        let (block, _) = rest.split_once("\n```").expect("a block ends");
        let examples = examples();
        let example = examples.iter().find(|example| example.name == name).unwrap_or_else(|| panic!("no {name}"));
        let said: serde_json::Value = serde_json::from_str(block).unwrap_or_else(|error| panic!("{name}: {error}"));
        let is: serde_json::Value = serde_json::from_slice(&example.body).unwrap();
        assert_eq!(said, is, "{name}");
        shown.insert(name.to_owned());
    }
    for example in examples() {
        assert!(shown.contains(example.name), "{} has no example in the reference", example.name);
    }
}

#[test]
fn the_reference_names_every_route_and_every_code() {
    let text = reference();
    for (method, path) in route::ALL {
        assert!(text.contains(&format!("`{method} {path}")), "{method} {path}");
    }
    for code in RefusalCode::ALL {
        assert!(text.contains(&format!("`{code}`")), "{code}");
    }
}
