//! The protocol reference against the protocol: its examples are the golden files, and it leaves nothing out.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::attempt::{AttemptState, EvidenceKind, LimitMeans, RejectReason, Resolution, StopReason};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::fault::FaultKind;
use leasehold_core::frame::CutReason;
use leasehold_core::log::{IncompleteReason, LogState};
use leasehold_core::placement::MismatchClass;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::session::SessionState;
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

#[test]
fn the_reference_names_every_word_that_crosses() {
    let text = reference();
    let mut missing = Vec::new();
    macro_rules! named {
        ($($set:ident),+) => { $(missing.extend(
            $set::ALL.iter().filter(|word| !text.contains(&format!("`{word}`"))).map(|word| format!("{} {word}", stringify!($set))),
        );)+ };
    }
    named!(
        AttemptState,
        CutReason,
        EvidenceKind,
        FaultKind,
        IncompleteReason,
        LimitMeans,
        LogState,
        MismatchClass,
        RejectReason,
        ReleaseReason,
        Resolution,
        RunState,
        SessionState,
        StopIntentReason,
        StopReason
    );
    assert!(missing.is_empty(), "the reference leaves out {missing:?}");
}

/// The rows of the table that begins with `head`: the states of its first cell, and those that its second names.
fn transitions(text: &str, head: &str) -> Vec<(String, BTreeSet<String>)> {
    let states = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let (_, rest) = text.split_once(head).unwrap_or_else(|| panic!("no table `{head}`"));
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches(['|', ' ']).split_once(" | ").expect("two cells"));
    cells.flat_map(|(from, to)| states(from).into_iter().map(move |from| (from, states(to)))).collect()
}

#[test]
fn the_tables_of_transitions_are_those_of_the_code() {
    let text = reference();
    macro_rules! same {
        ($set:ident, $head:literal) => {
            let told = transitions(&text, $head);
            assert_eq!(told.len(), $set::ALL.len(), "{}: every state has one row", stringify!($set));
            for (from, to) in told {
                let from: $set = from.parse().unwrap();
                let may = $set::ALL.iter().filter(|to| from.may_become(**to)).map(ToString::to_string).collect();
                assert_eq!(to, may, "{} {from}", stringify!($set));
            }
        };
    }
    same!(RunState, "| run from | to |");
    same!(AttemptState, "| attempt from | to |");
}
