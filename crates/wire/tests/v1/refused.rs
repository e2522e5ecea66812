//! What is refused of each message, with code and field.

use leasehold_core::refusal::RefusalCode;
use leasehold_core::refusal::RefusalCode::{InvalidRequest, LimitExceeded, UnknownField, UnsupportedProtocol};
use leasehold_wire::WireError;
use serde_json::{Value, json};

use crate::golden::{Example, examples};

/// Documents whose inside core reads, and maps with free keys.
const FREE: [&str; 3] = ["capabilities", "revision", "counts"];

/// Every object of a body, as JSON pointers.
fn objects(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            out.push(at.to_owned());
            for (key, inner) in entries.iter().filter(|(key, _)| !FREE.contains(&key.as_str())) {
                objects(inner, &format!("{at}/{key}"), out);
            }
        }
        Value::Array(members) => {
            for (index, inner) in members.iter().enumerate() {
                objects(inner, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// The path of a field as an error names it.
fn dotted(pointer: &str) -> String {
    let mut out = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            out.extend(["[", part, "]"]);
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(part);
        }
    }
    out
}

fn refusal(example: &Example, body: &[u8]) -> WireError {
    match (example.read)(body) {
        Ok(_) => panic!("{}: accepted {}", example.name, String::from_utf8_lossy(body)),
        Err(error) => error,
    }
}

fn each(test: impl Fn(&Example, &Value)) {
    for example in examples() {
        let body = serde_json::from_slice(&example.body).unwrap();
        test(&example, &body);
    }
}

/// Whether an object at this pointer is a tagged choice: exactly one name, whose content is the choice's.
fn is_choice(pointer: &str) -> bool {
    let last = pointer.rsplit('/').next().unwrap_or("");
    let in_directives = pointer.contains("/directives/") && last.bytes().all(|b| b.is_ascii_digit());
    matches!(last, "verdict" | "ending" | "status") || in_directives
}

#[test]
fn an_unknown_field_anywhere_is_refused_by_its_path() {
    each(|example, body| {
        let mut pointers = Vec::new();
        objects(body, "", &mut pointers);
        for pointer in pointers {
            let mut changed = body.clone();
            changed.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().insert("surprise".to_owned(), json!(1));
            let error = refusal(example, changed.to_string().as_bytes());
            if is_choice(&pointer) {
                assert_eq!((error.code, error.field), (InvalidRequest, dotted(&pointer)), "{}", example.name);
            } else {
                let field = dotted(&format!("{pointer}/surprise"));
                assert_eq!((error.code, error.field), (UnknownField, field), "{}", example.name);
            }
        }
    });
}

#[test]
fn a_missing_field_anywhere_is_refused_by_its_path() {
    const OPTIONAL: [&str; 18] = [
        "draining",
        "faults",
        "attempt_id",
        "completion",
        "running",
        "log",
        "cut",
        "usage",
        "cancel_incomplete",
        "idle",
        "task",
        "scheduled_at_ms",
        "timeout_remaining_ms",
        "retry_after_ms",
        "session",
        "lease",
        "field",
        "done",
    ];
    each(|example, body| {
        let mut pointers = Vec::new();
        objects(body, "", &mut pointers);
        for pointer in pointers.into_iter().filter(|pointer| !is_choice(pointer)) {
            let keys: Vec<_> = body.pointer(&pointer).unwrap().as_object().unwrap().keys().cloned().collect();
            for key in keys {
                let mut changed = body.clone();
                changed.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().remove(&key);
                match (example.read)(changed.to_string().as_bytes()) {
                    Ok(_) => {
                        // A revision asks for all, some or none of the limits.
                        let optional = OPTIONAL.contains(&key.as_str()) || pointer == "/usage/limits";
                        assert!(optional, "{}: {pointer}/{key} was missing", example.name);
                    }
                    Err(error) => {
                        let field = dotted(&format!("{pointer}/{key}"));
                        assert_eq!((error.code, error.field), (InvalidRequest, field), "{}", example.name);
                    }
                }
            }
        }
    });
}

#[test]
fn a_value_of_another_kind_is_refused_by_its_path() {
    each(|example, body| {
        let mut pointers = Vec::new();
        objects(body, "", &mut pointers);
        for pointer in pointers {
            for (key, was) in body.pointer(&pointer).unwrap().as_object().unwrap() {
                if FREE.contains(&key.as_str()) {
                    continue;
                }
                let other = if was.is_boolean() { json!("true") } else { json!(true) };
                let mut changed = body.clone();
                changed.pointer_mut(&pointer).unwrap()[key] = other;
                let error = refusal(example, changed.to_string().as_bytes());
                let field = dotted(&format!("{pointer}/{key}"));
                assert_eq!((error.code, error.field), (InvalidRequest, field), "{}", example.name);
            }
        }
    });
}

#[test]
fn nulls_and_fractions_are_refused_everywhere() {
    each(|example, body| {
        for key in body.as_object().unwrap().keys() {
            for bad in [json!(null), json!(1.5), json!([null]), json!({"a": 0.5})] {
                let mut changed = body.clone();
                changed[key] = bad;
                assert_eq!(refusal(example, changed.to_string().as_bytes()).code, InvalidRequest, "{}", example.name);
            }
        }
    });
}

#[test]
fn a_body_that_is_not_one_json_object_is_refused() {
    each(|example, body| {
        let text = body.to_string();
        let inside = &text[1..];
        let deep = format!("{{\"deep\":{}{},{inside}", "[".repeat(40), "]".repeat(40));
        let twice = format!("{{\"schema\":\"{}\",{inside}", example.schema);
        let half = &text[..text.len() / 2];
        for bad in ["", "{}", "[]", "7", "null", half, &format!("{text}x"), &format!("{text}{text}"), &deep, &twice] {
            assert_eq!(refusal(example, bad.as_bytes()).code, InvalidRequest, "{}: {bad}", example.name);
        }
        assert_eq!(refusal(example, b"{\"schema\":\"\xff\"}").code, InvalidRequest, "{}", example.name);
    });
}

#[test]
fn a_body_over_its_limit_is_refused_before_it_is_read() {
    each(|example, body| {
        let text = body.to_string();
        let full = format!("{text}{}", " ".repeat(example.limit - text.len()));
        assert!((example.read)(full.as_bytes()).is_ok(), "{}", example.name);
        assert_eq!(refusal(example, format!("{full} ").as_bytes()).code, LimitExceeded, "{}", example.name);
        let garbage = vec![b'x'; example.limit + 1];
        assert_eq!(refusal(example, &garbage).code, LimitExceeded, "{}", example.name);
    });
}

#[test]
fn another_tag_is_refused_and_another_version_is_told_apart() {
    each(|example, body| {
        let with = |schema: Value| {
            let mut changed = body.clone();
            changed["schema"] = schema;
            let error = refusal(example, changed.to_string().as_bytes());
            assert_eq!(error.field, "schema", "{}", example.name);
            error.code
        };
        assert_eq!(with(json!("leasehold/something/v1")), InvalidRequest);
        assert_eq!(with(json!(1)), InvalidRequest);
        assert_eq!(with(json!(example.schema.replace("/v1", "/v2"))), UnsupportedProtocol);
    });
}

#[test]
fn each_message_refuses_what_its_fields_do_not_allow() {
    let id = "0198A3C1-0000-7000-8000-000000000001";
    let rows: Vec<(&str, &str, Value, RefusalCode)> = vec![
        ("enroll", "/token", json!("short"), InvalidRequest),
        ("enroll", "/csr", json!("not base64!"), InvalidRequest),
        ("enroll", "/csr", json!("A".repeat(8192)), LimitExceeded),
        ("enroll-answer", "/worker_id", json!("Not A Label"), InvalidRequest),
        ("enroll-answer", "/certificates", json!([]), InvalidRequest),
        (
            "enroll-answer",
            "/trust_bundle",
            json!(["AA", "AA", "AA", "AA", "AA", "AA", "AA", "AA", "AA"]),
            LimitExceeded,
        ),
        ("register", "/ticket", json!("=".repeat(43)), InvalidRequest),
        ("register", "/capabilities_digest", json!("ABCD"), InvalidRequest),
        ("register", "/max_runs", json!(0), InvalidRequest),
        ("register", "/max_runs", json!(257), InvalidRequest),
        ("register", "/max_runs", json!(70_000), InvalidRequest),
        ("register", "/slots", json!(1), InvalidRequest),
        ("register", "/boot_id", json!("two words"), InvalidRequest),
        ("register", "/software", json!(""), InvalidRequest),
        ("register", "/software", json!("v".repeat(65)), InvalidRequest),
        ("register", "/protocol", json!(2), UnsupportedProtocol),
        ("heartbeat", "/session_generation", json!(-1), InvalidRequest),
        ("heartbeat", "/slots", json!(300), InvalidRequest),
        ("heartbeat", "/faults/0/kind", json!("tired"), InvalidRequest),
        ("heartbeat", "/faults/0/detail", json!("x".repeat(201)), LimitExceeded),
        ("heartbeat", "/faults/0/detail", json!("two\nlines"), InvalidRequest),
        ("heartbeat", "/renewals/0/attempt_id", json!(id), InvalidRequest),
        ("heartbeat", "/renewals/0/lease/token", json!("A"), InvalidRequest),
        ("heartbeat", "/renewals/0/cancel_incomplete/count", json!(0), InvalidRequest),
        ("heartbeat", "/renewals/0/cancel_incomplete/pids", json!(vec![1; 17]), LimitExceeded),
        ("heartbeat-answer", "/session/state", json!("asleep"), InvalidRequest),
        ("heartbeat-answer", "/leases/1/verdict/refused/code", json!("because"), InvalidRequest),
        ("heartbeat-answer", "/directives/0/stop/reason", json!("boredom"), InvalidRequest),
        ("drain", "/session_version", json!("41"), InvalidRequest),
        ("offline", "/session_version", json!([41]), InvalidRequest),
        ("pull", "/wait_ms", json!(30_001), LimitExceeded),
        ("pull", "/asks/1/offer_id", json!("0198a3c1-0000-4000-8000-000000000101"), InvalidRequest),
        ("pull", "/asks/2/offer_id", json!("0198a3c1-0000-7000-8000-000000000101"), InvalidRequest),
        (
            "pull-answer",
            "/asks/0/verdict/granted/offer_id",
            json!("0198a3c1-0000-7000-8000-000000000102"),
            InvalidRequest,
        ),
        ("pull-answer", "/asks/0/verdict/granted/revision", json!({"a": "x".repeat(98_304)}), LimitExceeded),
        ("pull-answer", "/asks/1/verdict", json!("maybe"), InvalidRequest),
        ("pull-answer", "/idle/reason", json!("lunch"), InvalidRequest),
        ("pull-answer", "/idle/counts", json!({"luck": 1}), InvalidRequest),
        ("starting", "/lease/generation", json!(-1), InvalidRequest),
        ("starting-answer", "/verdict", json!("accepted"), InvalidRequest),
        ("running", "/running/handle/pid", json!(-4), InvalidRequest),
        ("running", "/running/callback/token_digest", json!("0".repeat(63)), InvalidRequest),
        ("release", "/reason", json!("no_mood"), InvalidRequest),
        ("logs-answer", "/durable", json!(-1), InvalidRequest),
        ("end-exited", "/ending/exited/status/code", json!(256), InvalidRequest),
        ("end-exited", "/completion/token", json!("A".repeat(44)), InvalidRequest),
        ("end-stopped", "/ending/stopped/status/signal", json!(65), InvalidRequest),
        ("end-stopped", "/ending/stopped/reason", json!("whim"), InvalidRequest),
        ("end-rejected", "/ending/rejected/detail", json!("x".repeat(513)), LimitExceeded),
        ("end-lost", "/ending/lost/evidence", json!("a_feeling"), InvalidRequest),
        ("end-lost", "/ending/lost/evidence", json!("destroyed"), InvalidRequest),
        ("end-stopped", "/cancel_incomplete/count", json!(1), InvalidRequest),
        ("end-stopped", "/cancel_incomplete/pids", json!(vec![1; 17]), LimitExceeded),
        ("end-never-spawned", "/ending", json!({"never_spawned": {}}), InvalidRequest),
        ("end-answer", "/run_state", json!("fine"), InvalidRequest),
        ("problem", "/code", json!("teapot"), InvalidRequest),
        ("problem-unknown", "/done", json!("perhaps"), InvalidRequest),
    ];
    let examples = examples();
    for (name, pointer, bad, code) in rows {
        let example = examples.iter().find(|example| example.name == name).unwrap();
        let mut body: Value = serde_json::from_slice(&example.body).unwrap();
        *body.pointer_mut(pointer).unwrap_or_else(|| panic!("{name}: no {pointer}")) = bad;
        let error = refusal(example, body.to_string().as_bytes());
        assert_eq!((error.code, error.field.as_str()), (code, dotted(pointer).as_str()), "{name}: {error}");
        assert!(error.code == UnsupportedProtocol || !error.to_string().is_empty(), "{name}");
    }
}

#[test]
fn longer_lists_than_allowed_are_refused() {
    let grow = |name: &str, pointer: &str, count: usize| {
        let examples = examples();
        let example = examples.iter().find(|example| example.name == name).unwrap();
        let mut body: Value = serde_json::from_slice(&example.body).unwrap();
        let list = body.pointer_mut(pointer).unwrap().as_array_mut().unwrap();
        let first = list[0].clone();
        *list = (0..count).map(|_| first.clone()).collect();
        let error = refusal(example, body.to_string().as_bytes());
        (error.code, error.field)
    };
    assert_eq!(grow("pull", "/asks", 17), (LimitExceeded, "asks".to_owned()));
    assert_eq!(grow("heartbeat", "/renewals", 257), (LimitExceeded, "renewals".to_owned()));
    assert_eq!(grow("heartbeat", "/renewals", 17), (LimitExceeded, "renewals.cancel_incomplete".to_owned()));
    assert_eq!(grow("heartbeat", "/faults", 17), (LimitExceeded, "faults".to_owned()));
    assert_eq!(grow("heartbeat-answer", "/directives", 257), (LimitExceeded, "directives".to_owned()));
    assert_eq!(grow("heartbeat", "/renewals", 2), (InvalidRequest, "renewals[1].attempt_id".to_owned()));
}

#[test]
fn a_refusal_says_what_is_allowed_and_never_repeats_a_token() {
    let secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA";
    let examples = examples();
    for (name, pointer) in [
        ("enroll", "/token"),
        ("register", "/ticket"),
        ("heartbeat", "/renewals/0/lease/token"),
        ("pull", "/asks/0/lease_token"),
        ("end-exited", "/completion/token"),
        // A token in the wrong place.
        ("heartbeat", "/session_generation"),
        ("heartbeat", "/renewals"),
        ("starting", "/lease"),
    ] {
        let example = examples.iter().find(|example| example.name == name).unwrap();
        let mut body: Value = serde_json::from_slice(&example.body).unwrap();
        *body.pointer_mut(pointer).unwrap() = json!(secret);
        let error = refusal(example, body.to_string().as_bytes()).to_string();
        assert!(!error.contains(secret), "{name}: {error}");
        assert!(error.contains("expected"), "{name}: {error}");
    }
}

#[test]
fn a_slip_of_the_finger_is_told_the_nearest_field() {
    let examples = examples();
    let example = examples.iter().find(|example| example.name == "pull").unwrap();
    let body = String::from_utf8(example.body.clone()).unwrap().replace("wait_ms", "wait_mss");
    let error = refusal(example, body.as_bytes());
    assert_eq!(
        error.to_string(),
        "`wait_mss`: unknown field, did you mean `wait_ms`?; expected session_generation, asks, wait_ms"
    );
}
