//! The published schema of a task file against the strict reader: the same keys in every table, and values of the same types.
#![cfg(feature = "api")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::collections::BTreeSet;

use leasehold_core::canonical;
use leasehold_core::revision::Revision;
use leasehold_core::shape::{ShapeError, ShapeErrorKind};
use leasehold_wire::api::task_schema::of_files;
use serde_json::{Value, json};

const STRANGE: &str = "zzz-not-a-key";

fn told(document: &Value) -> Vec<ShapeError> {
    let bytes = serde_json::to_vec(document).unwrap();
    let value = canonical::Value::parse(&bytes, 1 << 20).unwrap();
    Revision::from_value(&value).err().unwrap_or_default()
}

/// A value with what its table must have, so that the reader looks at all of it.
fn whole(schema: &Value) -> Value {
    let ways = [&schema["required"], &schema["oneOf"][0]["required"], &schema["anyOf"][0]["required"]];
    let keys = ways.into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let entries = keys.map(|key| (key.to_owned(), sample(&schema["properties"][key])));
    Value::Object(entries.collect())
}

/// The same, and `key` with this value.
fn with(schema: &Value, key: &str, value: Value) -> Value {
    let mut table = whole(schema);
    table[key] = value;
    table
}

/// Puts a value in its place into a task.
type Place<'a> = &'a dyn Fn(Value) -> Value;

/// Calls `look` for every schema below `schema`, with what puts a value in its place into a task.
fn walk(schema: &Value, place: Place<'_>, look: &mut dyn FnMut(&Value, Place<'_>)) {
    look(schema, place);
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(inner, &|value| place(with(schema, key, value)), look);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &|value| place(json!({ "KEY": value })), look);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &|value| place(json!([value])), look);
    }
    for inner in schema["oneOf"].as_array().into_iter().flatten().filter(|inner| inner["type"].is_string()) {
        walk(inner, place, look);
    }
}

#[test]
fn the_schema_and_the_reader_know_the_same_keys_in_every_table() {
    let mut tables = 0;
    walk(&of_files(), &|value| value, &mut |schema, place| {
        let Some(properties) = schema["properties"].as_object() else { return };
        tables += 1;
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        let document = place(with(schema, STRANGE, 1.into()));
        let errors = told(&document);
        let unknown = errors.iter().find(|error| error.kind == ShapeErrorKind::Unknown && error.got == STRANGE);
        let allowed =
            &unknown.unwrap_or_else(|| panic!("the reader does not look into {document}: {errors:?}")).allowed;
        let read: BTreeSet<&str> = allowed.split(", ").collect();
        assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), read, "{document}");
    });
    assert!(tables > 20, "{tables}");
}

fn sample(schema: &Value) -> Value {
    if let Some(one) = schema["enum"].get(0).or(schema["examples"].get(0)) {
        return one.clone();
    }
    let kind = schema["type"].as_str().or(schema["type"][0].as_str());
    match kind.or(schema["oneOf"][0]["type"].as_str()) {
        Some("integer") => schema["minimum"].clone(),
        Some("boolean") => true.into(),
        Some("array") => json!([sample(&schema["items"])]),
        Some("object") => whole(schema),
        Some("string") => "a=b".into(),
        other => panic!("{other:?}: {schema}"),
    }
}

#[test]
fn values_of_the_schemas_types_are_values_of_the_readers_types() {
    walk(&of_files(), &|value| value, &mut |schema, place| {
        let document = place(sample(schema));
        let wrong: Vec<_> = told(&document).into_iter().filter(|error| error.kind == ShapeErrorKind::Type).collect();
        assert!(wrong.is_empty(), "{document}: {wrong:?}");
        if schema["minimum"].is_number() {
            for (bound, step) in [("minimum", -1), ("maximum", 1)] {
                let edge = schema[bound].as_i64().unwrap();
                let over = |value: i64| told(&place(value.into())).iter().any(|e| e.kind == ShapeErrorKind::Limit);
                assert!(!over(edge) && over(edge + step), "{bound} of {document}");
            }
        }
    });
}
