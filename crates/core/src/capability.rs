//! What a worker can do: detected at its start, declared at registration, matched by [`crate::placement`].
//!
//! A value exists only if it is within every limit, so nothing that holds one checks again. Its canonical bytes
//! and digest make an unchanged worker recognisable. (Control design, *Placement*; worker design,
//! *Capabilities*; ADR-0012 §4.)

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::Value;
use crate::crypto::{Digest, Domain};
use crate::device::DeviceId;
use crate::limits::{CAPABILITIES_BYTES, COLLECTION, FEATURES, GPUS, LABELS, NAME_BYTES, SIZE_MIB};
use crate::shape::{Field, Report, ShapeError, ShapeErrorKind};
use crate::version::Version;

/// One GPU of a worker; claimed as a device, not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Which device on this machine.
    pub id: DeviceId,
    /// Who made it, such as `nvidia`.
    pub vendor: String,
    /// What it is, as its driver says.
    pub model: String,
    /// Its own memory.
    pub memory_mib: u64,
}

/// Capabilities as somebody claims them, not checked yet: see [`Capabilities::new`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Operating system, such as `linux`.
    pub os: String,
    /// How it can run things: `process`.
    pub executors: BTreeSet<String>,
    /// Language runtimes and tools with their versions.
    pub runtimes: BTreeMap<String, Version>,
    /// What its owner says about it.
    pub labels: BTreeMap<String, String>,
    /// Memory of the machine.
    pub memory_mib: u64,
    /// Disk of the state directory.
    pub disk_mib: u64,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// What its kernel and configuration allow, such as `cgroup-kill`.
    pub features: BTreeSet<String>,
}

/// Checked capabilities: within every limit, with at least one executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities(Claimed);

const KEYS: [&str; 9] = ["arch", "disk_mib", "executors", "features", "gpus", "labels", "memory_mib", "os", "runtimes"];

impl Capabilities {
    /// Checks every limit; answers every mistake.
    pub fn new(claimed: Claimed) -> Result<Self, Vec<ShapeError>> {
        Self::from_value(&Self(claimed).to_value())
    }

    /// Reads the form that [`Self::to_value`] writes.
    pub fn from_value(value: &Value) -> Result<Self, Vec<ShapeError>> {
        let report = Report::new();
        let field = report.root(value);
        let capabilities = read(&field).map(Self).filter(|capabilities| {
            let size = capabilities.to_canonical_bytes().len();
            if size > CAPABILITIES_BYTES {
                let allowed = format!("at most {CAPABILITIES_BYTES} bytes of canonical JSON");
                field.refuse(ShapeErrorKind::Limit, format!("{size} bytes"), allowed);
            }
            true
        });
        report.finish(capabilities)?.ok_or_else(Vec::new)
    }

    /// Reads canonical bytes; refuses every other spelling.
    pub fn from_canonical_bytes(bytes: &[u8]) -> Result<Self, Vec<ShapeError>> {
        let value = Value::parse_canonical(bytes, CAPABILITIES_BYTES)
            .map_err(|error| vec![ShapeError::new("", ShapeErrorKind::Value, error.to_string(), "canonical JSON")])?;
        Self::from_value(&value)
    }

    /// The one form of these capabilities.
    pub fn to_value(&self) -> Value {
        let gpu = |gpu: &Gpu| {
            Value::map([
                ("id", Value::text(gpu.id.as_str())),
                ("memory_mib", Value::number(gpu.memory_mib)),
                ("model", Value::text(&gpu.model)),
                ("vendor", Value::text(&gpu.vendor)),
            ])
        };
        let claimed = &self.0;
        Value::map([
            ("arch", Value::text(&claimed.arch)),
            ("disk_mib", Value::number(claimed.disk_mib)),
            ("executors", Value::texts(&claimed.executors)),
            ("features", Value::texts(&claimed.features)),
            ("gpus", Value::List(claimed.gpus.iter().map(gpu).collect())),
            ("labels", Value::map(claimed.labels.iter().map(|(key, text)| (key, Value::text(text))))),
            ("memory_mib", Value::number(claimed.memory_mib)),
            ("os", Value::text(&claimed.os)),
            ("runtimes", Value::map(claimed.runtimes.iter().map(|(name, v)| (name, Value::text(v.to_string()))))),
        ])
    }

    /// The canonical bytes.
    pub fn to_canonical_bytes(&self) -> Vec<u8> {
        self.to_value().to_bytes()
    }

    /// These capabilities with the labels that the worker was enrolled with. Those win over the machine's own of
    /// the same name, and where both together are over a limit: what an administrator said is never dropped.
    #[must_use]
    pub fn with_labels(&self, enrolled: &BTreeMap<String, String>) -> Self {
        let mut whole = self.clone();
        let own = std::mem::replace(&mut whole.0.labels, enrolled.clone());
        for (key, text) in own {
            if whole.0.labels.contains_key(&key) || whole.0.labels.len() >= LABELS {
                continue;
            }
            whole.0.labels.insert(key.clone(), text);
            if whole.to_canonical_bytes().len() > CAPABILITIES_BYTES {
                whole.0.labels.remove(&key);
            }
        }
        whole
    }

    /// The digest of the canonical bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(Domain::Capabilities, &self.to_canonical_bytes())
    }
}

/// Read access to what was claimed and checked.
impl std::ops::Deref for Capabilities {
    type Target = Claimed;

    fn deref(&self) -> &Claimed {
        &self.0
    }
}

fn read(field: &Field<'_>) -> Option<Claimed> {
    let table = field.table(&KEYS)?;
    let name = |key: &str, what: &str| table.required(key, what).and_then(|f| f.name().map(str::to_owned));
    let size = |key: &str| {
        let size = table.required(key, "a size in MiB").and_then(|f| f.integer(0..=SIZE_MIB));
        size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
    };
    let names = |key: &str, limit: usize| {
        let field = table.required(key, "a list of names");
        field.map(|f| f.set(limit, |f| f.name().map(str::to_owned))).unwrap_or_default()
    };
    let claimed = Claimed {
        arch: name("arch", "the processor architecture").unwrap_or_default(),
        os: name("os", "the operating system").unwrap_or_default(),
        executors: names("executors", COLLECTION),
        runtimes: table.required("runtimes", "a table of versions").map(|f| runtimes(&f)).unwrap_or_default(),
        labels: table.required("labels", "a table of texts").map(|f| labels(&f)).unwrap_or_default(),
        memory_mib: size("memory_mib"),
        disk_mib: size("disk_mib"),
        gpus: table.required("gpus", "a list of GPUs").map(|f| gpus(&f)).unwrap_or_default(),
        features: names("features", FEATURES),
    };
    if let Some(executors) = table.optional("executors")
        && *executors.value() == Value::List(Vec::new())
    {
        let allowed = "at least one executor such as `process`: this worker could never take work";
        executors.refuse(ShapeErrorKind::Value, "an empty list", allowed);
    }
    Some(claimed)
}

fn runtimes(field: &Field<'_>) -> BTreeMap<String, Version> {
    let entries = field.entries(COLLECTION).into_iter().filter(|(key, entry)| entry.key_is_name(key));
    entries.filter_map(|(key, entry)| Some((key.to_owned(), entry.parsed(NAME_BYTES)?))).collect()
}

/// Labels: names to texts of 1 to 128 bytes. Shared with placement, which asks for them.
pub(crate) fn labels(field: &Field<'_>) -> BTreeMap<String, String> {
    let entries = field.entries(LABELS).into_iter().filter(|(key, entry)| entry.key_is_name(key));
    entries.filter_map(|(key, entry)| Some((key.to_owned(), entry.line(NAME_BYTES)?.to_owned()))).collect()
}

fn gpus(field: &Field<'_>) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for member in field.list(GPUS) {
        let Some(table) = member.table(&["id", "memory_mib", "model", "vendor"]) else { continue };
        let id = table.required("id", "the device's name").and_then(|f| f.parsed(NAME_BYTES));
        let vendor = table.required("vendor", "who made it").and_then(|f| f.name());
        let model = table.required("model", "what it is").and_then(|f| f.line(NAME_BYTES));
        let memory = table.required("memory_mib", "a size in MiB").and_then(|f| f.integer(0..=SIZE_MIB));
        let (Some(id), Some(vendor), Some(model), Some(memory)) = (id, vendor, model, memory) else { continue };
        if gpus.iter().any(|gpu| gpu.id == id) {
            member.refuse(ShapeErrorKind::Value, format!("the device `{id}` twice"), "every device once");
        }
        gpus.push(Gpu {
            id,
            vendor: vendor.to_owned(),
            model: model.to_owned(),
            memory_mib: u64::try_from(memory).unwrap_or(0),
        });
    }
    gpus.sort_by(|a, b| a.id.cmp(&b.id));
    gpus
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small machine: one of everything.
    pub(crate) fn machine() -> Claimed {
        Claimed {
            arch: "x86_64".to_owned(),
            os: "linux".to_owned(),
            executors: BTreeSet::from(["process".to_owned()]),
            runtimes: BTreeMap::from([("python".to_owned(), "3.11.7".parse().unwrap())]),
            labels: BTreeMap::from([("site".to_owned(), "office".to_owned())]),
            memory_mib: 2048,
            disk_mib: 10_000,
            gpus: vec![Gpu {
                id: "gpu-0".parse().unwrap(),
                vendor: "nvidia".into(),
                model: "T4".into(),
                memory_mib: 16_000,
            }],
            features: BTreeSet::from(["cgroup-kill".to_owned()]),
        }
    }

    fn mistakes(change: impl FnOnce(&mut Claimed)) -> String {
        let mut claimed = machine();
        change(&mut claimed);
        let errors = Capabilities::new(claimed).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_canonical_form_and_its_digest_are_stable() {
        let capabilities = Capabilities::new(machine()).unwrap();
        assert_eq!(
            capabilities.to_value().to_canonical_text(),
            concat!(
                r#"{"arch":"x86_64","disk_mib":10000,"executors":["process"],"features":["cgroup-kill"],"#,
                r#""gpus":[{"id":"gpu-0","memory_mib":16000,"model":"T4","vendor":"nvidia"}],"labels":{"site":"office"},"#,
                r#""memory_mib":2048,"os":"linux","runtimes":{"python":"3.11.7"}}"#
            )
        );
        assert_eq!(
            capabilities.digest().to_string(),
            // printf 'leasehold/capabilities/v1\0…' | sha256sum
            "5152a229ee2f87f773fd9c8b6b6b1652500760accdecaa51135285ad05297880"
        );
        assert_eq!(Capabilities::from_canonical_bytes(&capabilities.to_canonical_bytes()), Ok(capabilities));
    }

    #[test]
    fn the_order_in_which_gpus_were_found_does_not_matter() {
        let second =
            Gpu { id: "gpu-1".parse().unwrap(), vendor: "amd".into(), model: "W6600".into(), memory_mib: 8000 };
        let mut forward = machine();
        forward.gpus.push(second.clone());
        let mut backward = machine();
        backward.gpus.insert(0, second);
        let digest = |claimed| Capabilities::new(claimed).unwrap().digest();
        assert_eq!(digest(forward), digest(backward));
    }

    #[test]
    fn a_worker_that_could_never_take_work_is_refused() {
        assert!(mistakes(|c| c.executors.clear()).contains("could never take work"));
    }

    #[test]
    fn every_limit_is_enforced() {
        let names = |count: usize| (0..count).map(|n| format!("n{n}"));
        let texts = |count: usize| names(count).map(|name| (name, "x".to_owned())).collect::<BTreeMap<_, _>>();
        let gpu = |n: usize| Gpu {
            id: format!("g{n}").parse().unwrap(),
            vendor: "v".into(),
            model: "m".into(),
            memory_mib: 1,
        };
        assert_eq!(mistakes(|c| c.labels = texts(LABELS)), "");
        assert_eq!(mistakes(|c| c.gpus = (0..GPUS).map(gpu).collect()), "");
        for (change, expected) in [
            (Box::new(|c: &mut Claimed| c.executors.extend(names(32))) as Box<dyn FnOnce(&mut Claimed)>, "at most 32"),
            (Box::new(|c| c.features.extend(names(64))), "at most 64"),
            (Box::new(|c| c.labels = texts(65)), "at most 64"),
            (Box::new(|c| c.gpus = (0..17).map(gpu).collect()), "at most 16"),
            (Box::new(|c| c.runtimes = names(33).map(|n| (n, "1".parse().unwrap())).collect()), "at most 32"),
            (Box::new(|c| c.arch = "x".repeat(129)), "at most 128 bytes"),
            (Box::new(|c| c.arch.clear()), "1 to 128 bytes"),
            (Box::new(|c| c.os = "li nux".to_owned()), "1 to 128 of"),
            (Box::new(|c| c.labels = BTreeMap::from([("a b".into(), "x".into())])), "the key"),
            (Box::new(|c| c.labels = BTreeMap::from([("a".into(), "x\u{7}".into())])), "control characters"),
            (Box::new(|c| c.gpus = vec![gpu(0), gpu(0)]), "every device once"),
            (Box::new(|c| c.memory_mib = u64::MAX), "a whole number"),
            (
                Box::new(|c| c.labels = names(64).map(|n| (format!("{n:x<128}"), "y".repeat(128))).collect()),
                "at most 16384 bytes of canonical JSON",
            ),
        ] {
            let got = mistakes(change);
            assert!(got.contains(expected), "{expected}: {got}");
        }
    }

    #[test]
    fn unknown_and_repeated_things_are_refused() {
        let text = Capabilities::new(machine()).unwrap().to_value().to_canonical_text();
        for (from, to) in [
            (r#""os":"#, r#""oss":1,"os":"#),
            (r#"["process"]"#, r#"["process","process"]"#),
            (r#""os":"linux","#, ""),
            (r#""vendor":"nvidia""#, r#""vendor":"nvidia","vram":1"#),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            let value = Value::parse(changed.as_bytes(), CAPABILITIES_BYTES).unwrap();
            assert!(Capabilities::from_value(&value).is_err(), "{changed}");
        }
    }

    #[test]
    fn labels_of_the_enrollment_win_and_are_never_dropped() {
        let enrolled = BTreeMap::from([("site".to_owned(), "home".to_owned())]);
        let whole = Capabilities::new(machine()).unwrap().with_labels(&enrolled);
        assert_eq!(whole.labels, enrolled);

        let mut crowded = machine();
        crowded.labels = (0..LABELS).map(|n| (format!("own{n}"), "x".to_owned())).collect();
        let whole = Capabilities::new(crowded).unwrap().with_labels(&enrolled);
        assert_eq!(whole.labels.len(), LABELS);
        assert_eq!(whole.labels["site"], "home");
        assert_eq!(Capabilities::from_value(&whole.to_value()), Ok(whole));
    }
}
