//! Every message against its committed bytes: a change of the protocol shows as a change of a file.
//!
//! After a deliberate change: `cargo test -p leasehold-wire --test v1 -- --ignored write_the_golden_files`.

use std::path::PathBuf;

use leasehold_core::canonical::Value;
use leasehold_wire::{Message, WireError, encode, parse};

use crate::messages as m;

/// A message without its type.
pub(crate) struct Example {
    /// The file's name.
    pub(crate) name: &'static str,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Its limit.
    pub(crate) limit: usize,
    /// Its tag.
    pub(crate) schema: &'static str,
    /// Reads a body as this message and answers it as bytes again.
    pub(crate) read: fn(&[u8]) -> Result<Vec<u8>, WireError>,
}

fn example<T: Message>(name: &'static str, message: &T) -> Example {
    Example {
        name,
        body: encode(message),
        limit: T::LIMIT,
        schema: T::SCHEMA,
        read: |bytes| parse::<T>(bytes).map(|message| encode(&message)),
    }
}

/// Every message, request and answer.
pub(crate) fn examples() -> Vec<Example> {
    vec![
        example("enroll", &m::enroll()),
        example("enroll-answer", &m::enroll_answer()),
        example("register", &m::register()),
        example("register-answer", &m::register_answer()),
        example("heartbeat", &m::heartbeat()),
        example("heartbeat-answer", &m::heartbeat_answer()),
        example("drain", &m::drain()),
        example("drain-answer", &m::drain_answer()),
        example("offline", &m::offline()),
        example("offline-answer", &m::offline_answer()),
        example("pull", &m::pull()),
        example("pull-answer", &m::pull_answer()),
        example("starting", &m::starting()),
        example("starting-answer", &m::starting_answer()),
        example("starting-answer-stopped", &m::starting_answer_stopped()),
        example("running", &m::running_request()),
        example("running-answer", &m::running_answer()),
        example("release", &m::release()),
        example("release-answer", &m::release_answer()),
        example("logs-answer", &m::logs_answer()),
        example("end-exited", &m::end_exited()),
        example("end-stopped", &m::end_stopped()),
        example("end-rejected", &m::end_rejected()),
        example("end-never-spawned", &m::end_never_spawned()),
        example("end-lost", &m::end_lost()),
        example("end-answer", &m::end_answer()),
        example("problem", &m::problem()),
        example("problem-waiting", &m::problem_waiting()),
        example("problem-unknown", &m::problem_unknown()),
    ]
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn pretty(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    format!("{value:#}\n")
}

#[test]
fn every_message_is_what_its_golden_file_says() {
    for Example { name, body, read, .. } in examples() {
        let path = directory().join(format!("{name}.json"));
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(pretty(&body), golden, "{name}: what is written differs from the file");
        let again = read(golden.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(again, body, "{name}: what is read from the file differs from what was written");
    }
}

#[test]
fn every_golden_file_belongs_to_a_message() {
    let known: Vec<_> = examples().iter().map(|example| format!("{}.json", example.name)).collect();
    for entry in std::fs::read_dir(directory()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name}");
    }
}

#[test]
#[ignore = "writes the files that the other tests read: `cargo xtask golden`, after a deliberate change of the protocol"]
fn write_the_golden_files() {
    for Example { name, body, .. } in examples() {
        std::fs::write(directory().join(format!("{name}.json")), pretty(&body)).unwrap();
    }
}

#[test]
fn every_body_is_far_below_its_limit_and_carries_its_tag() {
    for Example { name, body, limit, schema, .. } in examples() {
        assert!(body.len() < limit, "{name}");
        let Value::Map(entries) = m::value(&body) else { panic!("{name}") };
        assert_eq!(entries.get("schema"), Some(&Value::text(schema)), "{name}");
    }
}
