//! The GPUs that an owner declares: for a machine whose tools cannot be asked, for the parts of a divided card, or to keep
//! some of its cards back.

use leasehold_core::capability::Gpu;
use leasehold_core::limits::{GPUS, NAME_BYTES, SIZE_MIB};
use leasehold_core::shape::{NAME_RULE, is_name, nearest};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::GpuSetting;

const KEYS: [&str; 4] = ["id", "vendor", "model", "memory_mib"];

/// Where something is wrong, and what.
type Problem = (usize, String);

/// Reads a list of the configuration file.
pub(super) fn read(list: &DeArray<'_>) -> Result<GpuSetting, Problem> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for member in list {
        let start = member.span().start;
        let DeValue::Table(table) = member.get_ref() else {
            return Err((
                start,
                "gpus: every member is a table such as { id = \"0\", vendor = \"nvidia\" }".to_owned(),
            ));
        };
        let gpu = read_gpu(table, start)?;
        if gpus.iter().any(|other| other.id == gpu.id) {
            return Err((start, format!("gpus: the device `{}` stands there twice", gpu.id)));
        }
        gpus.push(gpu);
    }
    if gpus.len() > GPUS {
        return Err((list.first().map_or(0, |first| first.span().start), format!("gpus: at most {GPUS} are allowed")));
    }
    Ok(GpuSetting::Declared(gpus))
}

fn read_gpu(table: &DeTable<'_>, start: usize) -> Result<Gpu, Problem> {
    let (mut id, mut vendor, mut model, mut memory_mib) = (None, None, "unknown".to_owned(), 0);
    for (key, value) in table {
        let at = key.span().start;
        let name = key.get_ref().as_ref();
        match (name, value.get_ref()) {
            ("id", DeValue::String(text)) => {
                id = Some(text.parse().map_err(|_| (at, format!("gpus: the id of a device is {NAME_RULE}")))?);
            }
            ("vendor", DeValue::String(text)) if is_name(text) => vendor = Some(text.clone().into_owned()),
            ("model", DeValue::String(text)) if is_line(text) => model = text.clone().into_owned(),
            ("memory_mib", DeValue::Integer(number)) => {
                memory_mib =
                    size(number.as_str()).ok_or((at, "gpus: memory_mib is a whole number of MiB".to_owned()))?;
            }
            (known, _) if KEYS.contains(&known) => {
                return Err((at, format!("gpus: `{known}` cannot be that, expected a text (of memory_mib a number)")));
            }
            (unknown, _) => {
                let hint = nearest(unknown, KEYS)
                    .map_or_else(|| format!("known are {}", KEYS.join(", ")), |near| format!("did you mean `{near}`?"));
                return Err((at, format!("gpus: unknown key, {hint}")));
            }
        }
    }
    let missing = |what: &str| (start, format!("gpus: a device needs `{what}`"));
    Ok(Gpu { id: id.ok_or(missing("id"))?, vendor: vendor.ok_or(missing("vendor"))?, model, memory_mib })
}

fn is_line(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES && !text.contains(char::is_control)
}

fn size(text: &str) -> Option<u64> {
    let size: i64 = text.parse().ok()?;
    (0..=SIZE_MIB).contains(&size).then(|| size.unsigned_abs())
}

/// Reads what a variable says: `auto`, `off`, or a list as the file spells it.
pub(super) fn of_text(text: &str) -> Result<GpuSetting, String> {
    match text {
        "auto" => return Ok(GpuSetting::Auto),
        "off" => return Ok(GpuSetting::Off),
        _ => {}
    }
    let expected = || "gpus: expected auto, off or a list such as [{ id = \"0\", vendor = \"nvidia\" }]".to_owned();
    let file = format!("gpus = {text}");
    let table = DeTable::parse(&file).map_err(|_| expected())?;
    let members: Vec<&Spanned<DeValue<'_>>> = table.get_ref().iter().map(|(_, value)| value).collect();
    match members.as_slice() {
        [value] => match value.get_ref() {
            DeValue::Array(list) => read(list).map_err(|(_, problem)| problem),
            _ => Err(expected()),
        },
        _ => Err(expected()),
    }
}

/// As the file spells it.
pub(super) fn to_text(setting: &GpuSetting) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    match setting {
        GpuSetting::Auto => quoted("auto"),
        GpuSetting::Off => quoted("off"),
        GpuSetting::Declared(gpus) => {
            let gpu = |gpu: &Gpu| {
                format!(
                    "{{ id = {}, vendor = {}, model = {}, memory_mib = {} }}",
                    quoted(gpu.id.as_str()),
                    quoted(&gpu.vendor),
                    quoted(&gpu.model),
                    gpu.memory_mib
                )
            };
            format!("[{}]", gpus.iter().map(gpu).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_declared_as_the_file_spells_them() {
        let declared = "[{ id = \"0\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }, \
                        { id = \"MIG-8f1c0c52\", vendor = \"nvidia\", model = \"unknown\", memory_mib = 0 }]";
        for text in [declared, "[]"] {
            assert_eq!(to_text(&of_text(text).unwrap()), text);
        }
        let short = of_text("[{ vendor = \"nvidia\", id = \"MIG-8f1c0c52\" }]").unwrap();
        let GpuSetting::Declared(gpus) = short else { panic!("{short:?}") };
        assert_eq!((gpus[0].model.as_str(), gpus[0].memory_mib), ("unknown", 0));
        assert_eq!((of_text("auto"), of_text("off")), (Ok(GpuSetting::Auto), Ok(GpuSetting::Off)));
    }

    #[test]
    fn what_is_wrong_with_a_declared_device_is_named() {
        let many: Vec<_> = (0..17).map(|n| format!("{{ id = \"{n}\", vendor = \"v\" }}")).collect();
        let many = format!("[{}]", many.join(", "));
        for (text, expected) in [
            ("yes", "expected auto, off or a list"),
            ("\"0\"", "expected auto, off or a list"),
            ("[]\nslots = 4", "expected auto, off or a list"),
            ("[\"0\"]", "every member is a table"),
            ("[{ id = \"0\" }]", "needs `vendor`"),
            ("[{ vendor = \"nvidia\" }]", "needs `id`"),
            ("[{ id = \"0,1\", vendor = \"nvidia\" }]", "the id of a device is"),
            ("[{ id = 0, vendor = \"nvidia\" }]", "`id` cannot be that"),
            ("[{ id = \"0\", vendor = \"n v\" }]", "`vendor` cannot be that"),
            ("[{ id = \"0\", vendor = \"v\", memory = 1 }]", "did you mean `memory_mib`?"),
            ("[{ id = \"0\", vendor = \"v\", memory_mib = -1 }]", "a whole number of MiB"),
            ("[{ id = \"0\", vendor = \"v\" }, { id = \"0\", vendor = \"v\" }]", "twice"),
            (many.as_str(), "at most 16"),
        ] {
            let problem = of_text(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
