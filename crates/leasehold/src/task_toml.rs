//! A revision as a task file: what a person would write, and what is written is read as the same revision.
//!
//! Values that equal their defaults are left out unless they are asked for. The text depends on the revision alone, so an
//! export of what was applied from an export is the same to the byte. (Product, *A task file*.)

use leasehold_core::canonical::Value;
use leasehold_core::revision::Revision;
use leasehold_wire::document::Document;

/// The task file of a canonical revision; with `full`, every default is written out.
pub(crate) fn write(revision: &Value, full: bool) -> anyhow::Result<String> {
    let short = if full { None } else { without_defaults(revision) };
    Ok(toml::to_string_pretty(&Document(short.unwrap_or_else(|| revision.clone())))?)
}

/// The revision without what it would have anyway; none if that said something else.
fn without_defaults(revision: &Value) -> Option<Value> {
    let default = Revision::of_argv(["true"]).ok()?.to_value();
    let Value::Map(mut short) = differing(revision, &default)? else { return None };
    // A program that happens to be the default's was left out with it.
    if let (Value::Map(whole), false) = (revision, short.contains_key("command")) {
        let Value::Map(command) = whole.get("command")? else { return None };
        let argv = command.get("argv")?.clone();
        short.insert("command".to_owned(), Value::map([("argv", argv)]));
    }
    let short = Value::Map(short);
    let same = |read: Revision| read.to_value() == *revision;
    Revision::from_value(&short).is_ok_and(same).then_some(short)
}

/// What `value` says beyond `default`; none if nothing.
fn differing(value: &Value, default: &Value) -> Option<Value> {
    match (value, default) {
        (Value::Map(value), Value::Map(default)) => {
            let said = value.iter().filter_map(|(key, inner)| {
                let kept = default.get(key).map_or_else(|| Some(inner.clone()), |default| differing(inner, default))?;
                Some((key.clone(), kept))
            });
            let said: std::collections::BTreeMap<_, _> = said.collect();
            (!said.is_empty()).then_some(Value::Map(said))
        }
        _ => (value != default).then(|| value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spec::Spec;

    fn read(text: &str) -> Revision {
        let spec = Spec::parse(Path::new("job.toml"), text.to_owned()).unwrap();
        Revision::from_value(spec.value()).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
    }

    #[test]
    fn a_file_is_short_and_reads_as_the_same_revision_to_the_byte() {
        let texts = [
            "name = 'a'\n[command]\nargv = ['true']\n",
            "name = 'a'\ndescription = \"a \\\"quote\\\" and '' and \\u00e9\"\n[command]\nscript = '''\nline \"one\"\n\\ two\\t\n'''\n",
            "name = 'a'\npriority = -3\n[command]\nargv = ['x', '']\n[env]\nTZ = 'UTC'\n[limits]\ntimeout = '30m'\ncpu = 1.5\n\
             memory_mib = 64\n[retry]\nmax_attempts = 3\non_lost = 'retry'\nsafety = 'idempotent'\n[params]\nDAY = { default = \
             'x', description = 'which' }\n[[placement.prefer]]\nlabel = 'disk=ssd'\nweight = 10\n[placement.require]\n\
             runtimes = { python = '>=3.11' }\nlabels = { site = 'office' }\n[[trigger]]\ncron = '0 3 * * *'\n",
        ];
        for text in texts {
            let revision = read(text);
            for full in [false, true] {
                let written = write(&revision.to_value(), full).unwrap();
                let again = read(&written);
                assert_eq!(again.digest(), revision.digest(), "{written}");
                assert_eq!(write(&again.to_value(), full).unwrap(), written);
            }
        }
        let short = write(&read(texts[0]).to_value(), false).unwrap();
        assert_eq!(short, "name = \"a\"\n\n[command]\nargv = [\"true\"]\n");
    }
}
