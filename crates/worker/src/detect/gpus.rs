//! The GPUs of this machine: NVIDIA's as their own tool names them, others as the kernel shows them.
//!
//! Each is known by the name that its driver keeps over reboots and changes of order, so that what an attempt was given is
//! what it sees. What the owner declares in `worker.toml` replaces all of this.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use leasehold_core::capability::Gpu;
use leasehold_core::limits::{GPUS, NAME_BYTES, SIZE_MIB};
use leasehold_core::time::Millis;

use super::probe::{Question, Stream, Until, ask, find};

/// How long the tool may take: without a daemon that keeps it ready, the driver wakes every card first.
pub(super) const PATIENCE: Millis = Millis::from_secs(10);

const FORMAT: &str = "--format=csv,noheader,nounits";
/// What is asked; drivers of before 2020 do not know the last field, and have no card that it matters for.
const QUERIES: [&str; 2] =
    ["--query-gpu=uuid,name,memory.total,mig.mode.current", "--query-gpu=uuid,name,memory.total"];

/// Looks on a thread of its own: a driver that hangs cannot be stopped, and is left behind.
pub(super) fn look(searched: &str) -> Option<Receiver<Vec<Gpu>>> {
    let (found, answer) = mpsc::channel();
    let searched = searched.to_owned();
    let looking = std::thread::Builder::new().name("detection".to_owned()).spawn(move || {
        let mut gpus = nvidia(&searched);
        gpus.extend(rendering(Path::new("/sys/class/drm"), Path::new("/dev/dri")));
        if gpus.len() > GPUS {
            tracing::warn!("{} GPUs were found, the first {GPUS} are offered", gpus.len());
            gpus.truncate(GPUS);
        }
        // Nobody listens any more: the start went on without.
        let _ = found.send(gpus);
    });
    match looking {
        Ok(_) => Some(answer),
        Err(error) => {
            tracing::warn!("this machine is not asked for GPUs: {error}");
            None
        }
    }
}

/// What `nvidia-smi` in a search path says.
fn nvidia(searched: &str) -> Vec<Gpu> {
    let Some(tool) = find("nvidia-smi", searched) else { return Vec::new() };
    for query in QUERIES {
        let question = Question { arguments: &[query, FORMAT], stream: Stream::Out, until: Until::End };
        let Some(said) = ask(&tool, question, searched, PATIENCE) else { break };
        if !said.contains("is not a valid field") {
            return read_nvidia(&said);
        }
    }
    tracing::warn!("{} does not say which GPUs there are: none of them is offered", tool.display());
    Vec::new()
}

/// Reads a line for each card: `GPU-8f1c0c52-…, NVIDIA A100-SXM4-80GB, 81920, Disabled`. What is not such a line is the tool's
/// complaint.
fn read_nvidia(said: &str) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [uuid, model, memory, rest @ ..] = fields.as_slice() else {
            tracing::warn!("nvidia-smi says: {}", shown(line));
            continue;
        };
        let Some(id) = uuid.starts_with("GPU-").then(|| uuid.parse().ok()).flatten() else {
            tracing::warn!("nvidia-smi says: {}", shown(line));
            continue;
        };
        if rest.first() == Some(&"Enabled") {
            tracing::warn!("{} is divided (MIG): it is not offered, declare its parts as `gpus` in worker.toml", uuid);
            continue;
        }
        if gpus.iter().any(|gpu| gpu.id == id) {
            continue;
        }
        let model = shown(model.strip_prefix("NVIDIA ").unwrap_or(model));
        // A card that shares the machine's memory says no size.
        let memory_mib = memory.parse().unwrap_or(0).min(u64::try_from(SIZE_MIB).unwrap_or(u64::MAX));
        gpus.push(Gpu { id, vendor: "nvidia".to_owned(), model, memory_mib });
    }
    gpus
}

/// Cards of other makers, by the device that programs render with, such as `renderD128`. `sys` is where the kernel describes
/// them, `dev` where they can be opened.
fn rendering(sys: &Path, dev: &Path) -> Vec<Gpu> {
    let mut names: Vec<String> = match std::fs::read_dir(sys) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect(),
        Err(_) => return Vec::new(),
    };
    names.retain(|name| name.starts_with("renderD") && dev.join(name).exists());
    names.sort();
    names.iter().filter_map(|name| of_kernel(name, &sys.join(name).join("device"))).collect()
}

fn of_kernel(name: &str, device: &Path) -> Option<Gpu> {
    let word = |file: &str| read_word(device.join(file));
    // Virtual cards compute nothing, and NVIDIA's are named by their own tool.
    let vendor = match word("vendor")?.as_str() {
        "0x1002" => "amd",
        "0x8086" => "intel",
        _ => return None,
    };
    let model = word("product_name").or_else(|| word("device")).unwrap_or_else(|| "unknown".to_owned());
    let memory = word("mem_info_vram_total").and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
    let memory_mib = memory / (1024 * 1024);
    Some(Gpu { id: name.parse().ok()?, vendor: vendor.to_owned(), model: shown(&model), memory_mib })
}

fn read_word(file: PathBuf) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A text from outside, on one line and no longer than a capability may be.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if shown.len() + c.len_utf8() > NAME_BYTES {
            break;
        }
        shown.push(c);
    }
    if shown.is_empty() { "unknown".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::super::executable;
    use super::*;

    fn told(gpus: &[Gpu]) -> Vec<String> {
        gpus.iter().map(|gpu| format!("{} {} {} {}", gpu.id, gpu.vendor, gpu.model, gpu.memory_mib)).collect()
    }

    /// A tool that prints a recorded answer, whatever it is asked.
    fn tool(bin: &Path, script: &str) -> String {
        let file = bin.join("nvidia-smi");
        executable::write(&file, format!("#!/bin/sh\n{script}\n"));
        bin.to_str().unwrap().to_owned()
    }

    #[test]
    fn cards_are_named_as_their_driver_names_them() {
        let said = include_str!("fixtures/nvidia-smi-mixed.csv");
        assert_eq!(
            told(&read_nvidia(said)),
            [
                "GPU-5d4e2b0c-0d1c-9a3b-8f5e-64a3c7d1e2f0 nvidia GeForce RTX 3090 24576",
                "GPU-0f9a8b7c-6d5e-4f3a-2b1c-0d9e8f7a6b5c nvidia Tesla T4 15360",
                "GPU-3c2b1a09-8f7e-6d5c-4b3a-291807f6e5d4 nvidia GB10 0",
            ],
            "the divided one is not offered"
        );
    }

    #[test]
    fn complaints_of_the_tool_are_no_cards() {
        for said in [
            "No devices were found\n",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA \
             driver is installed and running.\n\n",
            "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n",
            "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n",
            "",
        ] {
            assert_eq!(read_nvidia(said), [], "{said}");
        }
        let long = format!("GPU-1, {}, 99999999999999999999999, [N/A]\nGPU-1, T4, 1, [N/A]\n", "é".repeat(300));
        let gpus = read_nvidia(&long);
        assert_eq!((gpus.len(), gpus[0].model.len(), gpus[0].memory_mib), (1, 128, 0));
    }

    #[test]
    fn the_tool_is_asked_in_the_search_path_and_an_old_one_in_its_own_words() {
        let bin = tempfile::tempdir().unwrap();
        assert_eq!(nvidia(bin.path().to_str().unwrap()), []);
        let path = tool(
            bin.path(),
            "case \"$1\" in *mig*) echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2;; esac\n\
             test \"$*\" = '--query-gpu=uuid,name,memory.total --format=csv,noheader,nounits' || exit 2\n\
             echo 'GPU-8f1c0c52-7ad3-4a3c-2d1f-0a5b8c9d0e1f, GeForce GTX 680, 2048'",
        );
        assert_eq!(told(&nvidia(&path)), ["GPU-8f1c0c52-7ad3-4a3c-2d1f-0a5b8c9d0e1f nvidia GeForce GTX 680 2048"]);
        let found = look(&path).unwrap().recv_timeout(PATIENCE.to_std()).unwrap();
        assert_eq!(found.iter().filter(|gpu| gpu.vendor == "nvidia").count(), 1);
        let path = tool(bin.path(), "exit 9");
        assert_eq!(nvidia(&path), []);
    }

    #[test]
    fn cards_of_other_makers_are_what_the_kernel_shows() {
        let (sys, dev) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, opens, files) in [
            ("renderD128", true, &[("vendor", "0x8086\n"), ("device", "0x4680\n")][..]),
            (
                "renderD129",
                true,
                &[("vendor", "0x1002\n"), ("device", "0x73bf\n"), ("mem_info_vram_total", "17163091968\n")],
            ),
            ("renderD130", true, &[("vendor", "0x10de\n"), ("device", "0x2204\n")]),
            ("renderD131", true, &[("vendor", "0x1af4\n"), ("device", "0x1050\n")]),
            ("renderD132", false, &[("vendor", "0x1002\n")]),
            ("card0", true, &[("vendor", "0x1002\n")]),
        ] {
            let device = sys.path().join(name).join("device");
            std::fs::create_dir_all(&device).unwrap();
            for (file, text) in files {
                std::fs::write(device.join(file), text).unwrap();
            }
            if opens {
                std::fs::write(dev.path().join(name), "").unwrap();
            }
        }
        assert_eq!(
            told(&rendering(sys.path(), dev.path())),
            ["renderD128 intel 0x4680 0", "renderD129 amd 0x73bf 16368"]
        );
        assert_eq!(rendering(Path::new("/nowhere"), dev.path()), []);
    }
}
