//! `cargo xtask environment`: the programs that tests start and that a fresh machine may lack.
//!
//! Root gets them installed by the machine's own package manager; an ordinary user gets the one command to run.
//! Rust itself and a C compiler are not here: nobody gets this far without them.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::checkout;

/// A program, what uses it, and the package that brings it (per [`PackageManager`], in its order).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tool {
    program: &'static str,
    used_by: &'static str,
    apt: &'static str,
    dnf: &'static str,
    apk: &'static str,
    pacman: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "git",
        used_by: "the checks, which judge the files that are tracked",
        apt: "git",
        dnf: "git",
        apk: "git",
        pacman: "git",
    },
    Tool {
        program: "pip3",
        used_by: "the validator of the Kubernetes example",
        apt: "python3-pip",
        dnf: "python3-pip",
        apk: "py3-pip",
        pacman: "python-pip",
    },
    Tool {
        program: "python3",
        used_by: "the report example and runtime detection",
        apt: "python3",
        dnf: "python3",
        apk: "python3",
        pacman: "python",
    },
    Tool {
        program: "node",
        used_by: "runtime detection",
        apt: "nodejs",
        dnf: "nodejs",
        apk: "nodejs",
        pacman: "nodejs",
    },
    Tool {
        program: "ip",
        used_by: "the second machine, a network namespace",
        apt: "iproute2",
        dnf: "iproute",
        apk: "iproute2",
        pacman: "iproute2",
    },
    Tool {
        program: "tc",
        used_by: "a wire that delays",
        apt: "iproute2",
        dnf: "iproute-tc",
        apk: "iproute2",
        pacman: "iproute2",
    },
    Tool {
        program: "faketime",
        used_by: "wall clocks that jump",
        apt: "faketime",
        dnf: "libfaketime",
        apk: "libfaketime",
        pacman: "libfaketime",
    },
    Tool {
        program: "setsid",
        used_by: "jobs that leave their session",
        apt: "util-linux",
        dnf: "util-linux",
        apk: "util-linux",
        pacman: "util-linux",
    },
    Tool {
        program: "curl",
        used_by: "raw requests to the worker ingress",
        apt: "curl",
        dnf: "curl",
        apk: "curl",
        pacman: "curl",
    },
    Tool {
        program: "unshare",
        used_by: "a reboot, a boot id of its own",
        apt: "util-linux",
        dnf: "util-linux",
        apk: "util-linux",
        pacman: "util-linux",
    },
    Tool {
        program: "postgres",
        used_by: "the store on PostgreSQL",
        apt: "postgresql",
        dnf: "postgresql-server",
        apk: "postgresql",
        pacman: "postgresql",
    },
    Tool {
        program: "haproxy",
        used_by: "replicas behind a load balancer",
        apt: "haproxy",
        dnf: "haproxy",
        apk: "haproxy",
        pacman: "haproxy",
    },
    Tool {
        program: "systemd-analyze",
        used_by: "the unit files",
        apt: "systemd",
        dnf: "systemd",
        // Alpine has none; the one test that wants it says so.
        apk: "",
        pacman: "systemd",
    },
];

/// A package manager we know how to drive without a question asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PackageManager {
    Apt,
    Dnf,
    Apk,
    Pacman,
}

impl PackageManager {
    const ALL: [Self; 4] = [Self::Apt, Self::Dnf, Self::Apk, Self::Pacman];

    fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Apk => "apk",
            Self::Pacman => "pacman",
        }
    }

    /// What must run first so that packages are found.
    fn refresh(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Apt | Self::Apk => Some(&["update"]),
            Self::Dnf => None,
            Self::Pacman => Some(&["-Sy"]),
        }
    }

    fn install(self) -> &'static [&'static str] {
        match self {
            Self::Apt => &["install", "-y", "--no-install-recommends"],
            Self::Dnf => &["install", "-y"],
            Self::Apk => &["add"],
            Self::Pacman => &["-S", "--noconfirm"],
        }
    }

    fn package(self, tool: &Tool) -> &'static str {
        match self {
            Self::Apt => tool.apt,
            Self::Dnf => tool.dnf,
            Self::Apk => tool.apk,
            Self::Pacman => tool.pacman,
        }
    }

    /// The commands that install these tools, each a program with its arguments.
    fn commands(self, missing: &[Tool]) -> Vec<Vec<String>> {
        let line = |arguments: &[&str]| -> Vec<String> {
            std::iter::once(self.program()).chain(arguments.iter().copied()).map(str::to_owned).collect()
        };
        let mut install = line(self.install());
        for tool in missing {
            let package = self.package(tool).to_owned();
            if !install.contains(&package) {
                install.push(package);
            }
        }
        self.refresh().map(line).into_iter().chain([install]).collect()
    }
}

/// Says what is missing; fails when something is.
pub(crate) fn check() -> Result<()> {
    let directories = search_path();
    let missing = missing(&wanted(manager(&directories)), &|program| find(program, &directories).is_some());
    if missing.is_empty() {
        println!("nothing is missing: {}", TOOLS.iter().map(|tool| tool.program).collect::<Vec<_>>().join(", "));
        return Ok(());
    }
    bail!("{}", advice(&missing, manager(&directories)))
}

/// Installs what is missing when this is root, and fails with the command to run when it is not.
pub(crate) fn prepare() -> Result<()> {
    let directories = search_path();
    let missing = missing(&wanted(manager(&directories)), &|program| find(program, &directories).is_some());
    if missing.is_empty() {
        return check();
    }
    let manager = manager(&directories);
    let (Some(manager), true) = (manager, is_root()?) else { bail!("{}", advice(&missing, manager)) };
    for command in manager.commands(&missing) {
        eprintln!("+ {}", command.join(" "));
        let (program, arguments) = command.split_first().context("an empty command")?;
        checkout::run(Command::new(program).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    check()
}

/// The tools that this machine can have: a package manager without a package for one does without.
fn wanted(manager: Option<PackageManager>) -> Vec<Tool> {
    let has = |tool: &&Tool| manager.is_none_or(|manager| !manager.package(tool).is_empty());
    TOOLS.iter().filter(has).copied().collect()
}

fn missing(tools: &[Tool], is_here: &dyn Fn(&str) -> bool) -> Vec<Tool> {
    tools.iter().filter(|tool| !is_here(tool.program)).copied().collect()
}

fn advice(missing: &[Tool], manager: Option<PackageManager>) -> String {
    let mut text = String::from("the tests need programs that this machine lacks:\n");
    for tool in missing {
        let _ = writeln!(text, "  {} ({})", tool.program, tool.used_by);
    }
    match manager {
        Some(manager) => {
            let commands: Vec<String> =
                manager.commands(missing).iter().map(|command| format!("sudo {}", command.join(" "))).collect();
            let _ = write!(text, "run: {}", commands.join(" && "));
        }
        None => text.push_str("install them with the package manager of this machine, then try again"),
    }
    text
}

fn manager(directories: &[PathBuf]) -> Option<PackageManager> {
    PackageManager::ALL.into_iter().find(|manager| find(manager.program(), directories).is_some())
}

#[expect(clippy::disallowed_methods, reason = "a binary reads its own environment")]
fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // `ip` stands in /usr/sbin, which an ordinary user's path often leaves out, and Debian puts the programs of a PostgreSQL
    // server on no path.
    let apart = ["/usr/sbin", "/sbin"].map(PathBuf::from).into_iter().chain(postgres_directories());
    env::split_paths(&path).chain(apart).collect()
}

fn postgres_directories() -> Vec<PathBuf> {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    versions.flatten().map(|version| version.path().join("bin")).collect()
}

fn find(program: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(program)).find(|path| path.is_file())
}

fn is_root() -> Result<bool> {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).context("cannot read /proc/self/status")?;
    Ok(effective_uid(&status) == Some(0))
}

fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        let missing = missing(TOOLS, &|program| program != "node" && program != "ip");
        assert_eq!(missing.iter().map(|tool| tool.program).collect::<Vec<_>>(), ["node", "ip"]);
    }

    #[test]
    fn each_manager_gets_its_own_package_names() {
        let missing = missing(TOOLS, &|program| program != "ip" && program != "python3");
        let lines = |manager: PackageManager| -> Vec<String> {
            manager.commands(&missing).iter().map(|command| command.join(" ")).collect()
        };
        assert_eq!(
            lines(PackageManager::Apt),
            ["apt-get update", "apt-get install -y --no-install-recommends python3 iproute2"]
        );
        assert_eq!(lines(PackageManager::Dnf), ["dnf install -y python3 iproute"]);
        assert_eq!(lines(PackageManager::Pacman), ["pacman -Sy", "pacman -S --noconfirm python iproute2"]);
    }

    #[test]
    fn what_a_machine_cannot_have_is_not_asked_for() {
        let names = |manager| wanted(manager).iter().map(|tool| tool.program).collect::<Vec<_>>();
        assert!(names(Some(PackageManager::Apt)).contains(&"systemd-analyze"));
        assert!(!names(Some(PackageManager::Apk)).contains(&"systemd-analyze"));
        assert_eq!(names(None).len(), TOOLS.len());
    }

    #[test]
    fn an_ordinary_user_gets_one_command_to_run() {
        let missing = missing(TOOLS, &|program| program != "node");
        let text = advice(&missing, Some(PackageManager::Apt));
        assert!(
            text.ends_with("run: sudo apt-get update && sudo apt-get install -y --no-install-recommends nodejs"),
            "{text}"
        );
        assert!(text.contains("node (runtime detection)"), "{text}");
    }

    #[test]
    fn the_effective_uid_decides() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t0\t1000\t1000\n"), Some(0));
        assert_eq!(effective_uid("Name:\tx\nUid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_uid(""), None);
    }
}
