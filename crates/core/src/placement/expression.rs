//! The short forms of the command line: `--require 'runtime.python>=3.11'`, `--prefer 'label.disk=ssd:10'`.

use std::collections::BTreeMap;

use super::{GpuRequirement, Preference, Requirements};
use crate::id::WorkerId;
use crate::limits::{NAME_BYTES, PREFERENCE_WEIGHT};
use crate::shape::{is_name, nearest};
use crate::version::VersionRange;

/// Why a short form is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}`: {problem}")]
pub struct ExpressionError {
    /// What was given.
    pub expression: String,
    /// What is wrong and how it is written.
    pub problem: String,
}

/// What may stand on the left side.
const SUBJECTS: [&str; 12] = [
    "arch",
    "os",
    "executor",
    "runtime.NAME",
    "label.KEY",
    "memory",
    "disk",
    "gpu",
    "gpu.vendor",
    "gpu.model",
    "feature",
    "worker",
];

/// Adds one requirement to `require`. Repeated `arch`, `os` and `worker` widen the choice; everything else narrows it.
pub fn parse_requirement(text: &str, require: &mut Requirements) -> Result<(), ExpressionError> {
    let refused = |problem: String| ExpressionError { expression: text.chars().take(128).collect(), problem };
    let split = text.find(['=', '<', '>', '^', '~']).unwrap_or(text.len());
    let (subject, rest) = (text[..split].trim(), text[split..].trim());
    let equal = || {
        let word = rest.strip_prefix('=').map(str::trim);
        word.filter(|word| !word.is_empty()).ok_or_else(|| refused(format!("write {subject}=VALUE")))
    };
    let names = |rule: &str| {
        let words: Vec<String> = equal()?.split(',').map(|word| word.trim().to_owned()).collect();
        match words.iter().find(|word| !is_name(word)) {
            Some(word) => Err(refused(format!("`{word}` is not {rule}"))),
            None => Ok(words),
        }
    };
    let size = || {
        let word = rest.strip_prefix(">=").ok_or_else(|| refused(format!("write {subject}>=512MiB")))?;
        parse_mib(word.trim(), subject.ends_with("_mib"))
            .ok_or_else(|| refused(format!("`{word}` is not a size: write 512MiB, 8GiB or 1TiB")))
    };
    match subject {
        "arch" => require.arch.extend(names("an architecture such as x86_64")?),
        "os" => require.os.extend(names("an operating system such as linux")?),
        "executor" => require.executors.extend(names("an executor such as process")?),
        "feature" => require.features.extend(names("a feature such as cgroup-kill")?),
        "worker" => {
            for word in equal()?.split(',') {
                let worker: WorkerId = word.trim().parse().map_err(|error| refused(format!("{error}")))?;
                require.worker_ids.insert(worker);
            }
        }
        "memory" | "memory_mib" => require.memory_mib = require.memory_mib.max(size()?),
        "disk" | "disk_mib" => require.disk_mib = require.disk_mib.max(size()?),
        "gpu" | "gpu.count" => {
            let count = if rest.is_empty() { Some("1") } else { rest.strip_prefix(">=").or(rest.strip_prefix('=')) };
            let count = count.and_then(|count| count.trim().parse().ok()).filter(|count| (1..=16).contains(count));
            let count = count.ok_or_else(|| refused("write gpu>=2, from 1 to 16".to_owned()))?;
            gpu(require).count = count;
        }
        "gpu.memory" | "gpu.memory_mib" => gpu(require).memory_mib = size()?,
        "gpu.vendor" => gpu(require).vendor = Some(equal()?.to_owned()),
        "gpu.model" => gpu(require).model = Some(equal()?.to_owned()),
        _ => match subject.split_once('.') {
            Some(("runtime", name)) if is_name(name) => {
                let range = if rest.is_empty() { Ok(VersionRange::any()) } else { rest.parse() };
                let range: VersionRange = range.map_err(|error| refused(error.to_string()))?;
                let both = match require.runtimes.get(name) {
                    Some(before) => before.and(&range).map_err(|error| refused(error.to_string()))?,
                    None => range,
                };
                require.runtimes.insert(name.to_owned(), both);
            }
            Some(("label", _)) => {
                let label = text.trim().strip_prefix("label.").and_then(split_label);
                let (key, value) = label.ok_or_else(|| refused("write label.KEY=VALUE".to_owned()))?;
                match require.labels.insert(key.clone(), value.clone()) {
                    Some(other) if other != value => {
                        return Err(refused(format!("the label {key} cannot be {other} and {value} at once")));
                    }
                    _ => {}
                }
            }
            _ => {
                let hint = nearest(subject, SUBJECTS).map(|near| format!("did you mean {near}? "));
                let known = SUBJECTS.join(", ");
                return Err(refused(format!("unknown requirement; {}known are {known}", hint.unwrap_or_default())));
            }
        },
    }
    Ok(())
}

fn gpu(require: &mut Requirements) -> &mut GpuRequirement {
    require.gpu.get_or_insert_with(GpuRequirement::default)
}

/// One preference: `label.disk=ssd:10`; several labels with commas: `label.disk=ssd,label.site=office:-5`.
pub fn parse_preference(text: &str) -> Result<Preference, ExpressionError> {
    let refused = |problem: &str| ExpressionError {
        expression: text.chars().take(128).collect(),
        problem: format!("{problem}; write label.KEY=VALUE:WEIGHT, such as label.disk=ssd:10"),
    };
    let (set, weight) = text.rsplit_once(':').ok_or_else(|| refused("the weight is missing"))?;
    let weight: Option<i8> = weight.trim().parse().ok();
    let bounds = -PREFERENCE_WEIGHT..=PREFERENCE_WEIGHT;
    let weight = weight.filter(|weight| bounds.contains(&i64::from(*weight)));
    let weight = weight.ok_or_else(|| refused("the weight is a whole number from -100 to 100"))?;
    let mut labels = BTreeMap::new();
    for part in set.split(',') {
        let label = part.trim().strip_prefix("label.").and_then(split_label);
        let (key, value) = label.ok_or_else(|| refused("this is not a label"))?;
        if labels.insert(key, value).is_some() {
            return Err(refused("the same label twice"));
        }
    }
    Ok(Preference { labels, weight })
}

/// `disk=ssd` as key and text.
pub(super) fn split_label(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let good = is_name(key) && !value.is_empty() && value.len() <= NAME_BYTES && !value.chars().any(char::is_control);
    good.then(|| (key.to_owned(), value.to_owned()))
}

/// A size in MiB: `512MiB`, `8GiB`, `1TiB`; a bare number only where the subject names the unit.
fn parse_mib(text: &str, bare: bool) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "MiB" | "Mi" => 1,
        "GiB" | "Gi" => 1024,
        "TiB" | "Ti" => 1024 * 1024,
        "" if bare => 1,
        _ => return None,
    };
    number.checked_mul(unit)
}
