//! Every key of `worker.toml`, once: its name, what outweighs it, what it may be, and what it means.
//!
//! The commented default file is made from this table, and so are the errors; a key that is not here does not exist.

use std::fmt::Write as _;

/// What a key is when nobody says anything.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unset {
    /// This value, as TOML spells it.
    Is(&'static str),
    /// Something that depends on the machine: in words, and an example as TOML spells it.
    DependsOn(&'static str, &'static str),
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// In the file.
    pub(super) name: &'static str,
    /// The variable that outweighs it.
    pub(super) variable: &'static str,
    /// The flag of `leasehold-worker run` that outweighs both; not every key has one.
    pub(super) flag: Option<&'static str>,
    /// What it may be, after "expected".
    pub(super) allowed: &'static str,
    pub(super) unset: Unset,
    /// What it means, in lines for a file.
    pub(super) about: &'static [&'static str],
}

pub(super) const KEYS: &[Key] = &[
    Key {
        name: "state_dir",
        variable: "LEASEHOLD_WORKER_STATE_DIR",
        flag: Some("--state-dir"),
        allowed: "an absolute path",
        unset: Unset::DependsOn(
            "/var/lib/leasehold-worker for root, ~/.local/state/leasehold-worker for others",
            "\"/var/lib/leasehold-worker\"",
        ),
        about: &[
            "Where the identity, the inbox and the attempts are kept; 0700, on a local disk, for this machine only.",
        ],
    },
    Key {
        name: "server",
        variable: "LEASEHOLD_WORKER_SERVER",
        flag: Some("--server"),
        allowed: "the URL of a control plane, https://HOST:7443",
        unset: Unset::DependsOn("where `join` went", "\"https://control.example:7443\""),
        about: &["Where the control plane is now, if it moved. Its certificate is what it is believed by."],
    },
    Key {
        name: "slots",
        variable: "LEASEHOLD_WORKER_SLOTS",
        flag: Some("--slots"),
        allowed: "a whole number from 1 to 256",
        unset: Unset::DependsOn("one per core", "4"),
        about: &["How many runs this machine takes at once."],
    },
    Key {
        name: "labels",
        variable: "LEASEHOLD_WORKER_LABELS",
        flag: Some("--label"),
        allowed: "texts by name: a table, or in the environment `k=v,k=v`",
        unset: Unset::Is("{}"),
        about: &[
            "What a placement may ask for, such as { site = \"office\", disk = \"ssd\" }.",
            "Variables and flags add to these, name by name.",
        ],
    },
    Key {
        name: "run_as",
        variable: "LEASEHOLD_WORKER_RUN_AS",
        flag: Some("--run-as"),
        allowed: "names of users: a list of texts, or in the environment `ann,bob`",
        unset: Unset::Is("[]"),
        about: &[
            "Users that jobs may run as. For a worker that root runs, the first is whom jobs run as that name nobody;",
            "with none, root needs `allow_root`.",
        ],
    },
    Key {
        name: "allow_root",
        variable: "LEASEHOLD_WORKER_ALLOW_ROOT",
        flag: Some("--allow-root"),
        allowed: "true or false (in the environment also 1 or 0)",
        unset: Unset::Is("false"),
        about: &["Whether jobs may run as root."],
    },
    Key {
        name: "detect_runtimes",
        variable: "LEASEHOLD_WORKER_DETECT_RUNTIMES",
        flag: None,
        allowed: "true or false (in the environment also 1 or 0)",
        unset: Unset::Is("true"),
        about: &[
            "Whether bash, python, node, java, docker and the like are asked for their versions at the start (at most 5 s).",
            "Without it, a run that requires a runtime is not placed here.",
        ],
    },
    Key {
        name: "gpus",
        variable: "LEASEHOLD_WORKER_GPUS",
        flag: None,
        allowed: "auto, off or a list of { id, vendor, model, memory_mib }",
        unset: Unset::Is("\"auto\""),
        about: &[
            "Which GPUs runs may have for themselves: auto are those that nvidia-smi and the kernel name, or a list such as",
            "[{ id = \"0\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }]. The id is what",
            "CUDA_VISIBLE_DEVICES is to say: the number or the UUID that nvidia-smi -L shows.",
        ],
    },
    Key {
        name: "drain_timeout",
        variable: "LEASEHOLD_WORKER_DRAIN_TIMEOUT",
        flag: Some("--drain-timeout"),
        allowed: "a duration such as 10m",
        unset: Unset::Is("\"10m\""),
        about: &[
            "How long running jobs may take to finish after SIGTERM. What is not done by then stays with its launcher,",
            "the exit code is 23, and the next start carries it on.",
        ],
    },
    Key {
        name: "inbox_records",
        variable: "LEASEHOLD_WORKER_INBOX_RECORDS",
        flag: None,
        allowed: "a whole number from 64 to 1024",
        unset: Unset::Is("64"),
        about: &[
            "How many offers may be on this machine at once, those included whose end or log nobody has taken yet.",
            "Never less than twice the slots.",
        ],
    },
    Key {
        name: "cgroup",
        variable: "LEASEHOLD_WORKER_CGROUP",
        flag: None,
        allowed: "auto, off or the absolute path of a cgroup2 directory",
        unset: Unset::Is("\"auto\""),
        about: &[
            "Where the control groups of jobs are made: auto is beside the worker's own group, if that is called `agent`,",
            "or below it. Limits of memory, cpu and pids need the controllers handed down to that directory.",
        ],
    },
    Key {
        name: "log_level",
        variable: "LEASEHOLD_WORKER_LOG_LEVEL",
        flag: None,
        allowed: "error, warn, info, debug or trace",
        unset: Unset::Is("\"info\""),
        about: &["What is said on stderr. `run -q` says no more than warnings."],
    },
    Key {
        name: "log_format",
        variable: "LEASEHOLD_WORKER_LOG_FORMAT",
        flag: None,
        allowed: "text or json",
        unset: Unset::Is("\"text\""),
        about: &["How a line on stderr is spelled."],
    },
];

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A `worker.toml` that changes nothing: every key with its meaning, commented out.
pub fn default_file() -> String {
    let mut text = format!(
        "\
# Leasehold worker {version}. Every key, with its default; uncomment what you change.
# Environment variables outweigh this file, flags of `leasehold-worker run` outweigh both.
# This file is read from {file}, or from --config FILE (LEASEHOLD_WORKER_CONFIG).
# `leasehold-worker config show` says what holds and where it comes from.
",
        version = env!("CARGO_PKG_VERSION"),
        file = super::FILE,
    );
    for key in KEYS {
        text.push('\n');
        for line in key.about {
            let _ = writeln!(text, "# {line}");
        }
        let flag = key.flag.map_or_else(String::new, |flag| format!(" or {flag}"));
        let _ = writeln!(text, "# Allowed: {}.\n# Outweighed by {}{flag}.", key.allowed, key.variable);
        let value = match key.unset {
            Unset::Is(value) => value,
            Unset::DependsOn(what, example) => {
                let _ = writeln!(text, "# Default: {what}.");
                example
            }
        };
        let _ = writeln!(text, "#{} = {value}", key.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_told_once() {
        let file = default_file();
        for key in KEYS {
            let settings = file.lines().filter(|line| line.starts_with(&format!("#{} = ", key.name)));
            assert_eq!(settings.count(), 1, "{}", key.name);
            assert_eq!(file.matches(key.variable).count(), 1, "{}", key.variable);
            assert!(!key.about.is_empty(), "{}", key.name);
            assert_eq!(KEYS.iter().filter(|other| other.name == key.name).count(), 1, "{}", key.name);
        }
        assert!(file.lines().all(|line| line.is_empty() || line.starts_with('#')), "it changes nothing");
        assert!(file.lines().all(|line| line.chars().count() <= 120), "it can be read");
    }
}
