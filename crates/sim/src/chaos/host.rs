//! The machines of a chaos run: network namespaces with a wire between each worker and the control plane, wall clocks
//! that jump, boot ids that change.
//!
//! What runs in a namespace is found by the namespace, not by what it calls itself, so nothing hides. All of it is gone
//! when a host is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::eventually;
use crate::machine::ip;
use crate::wall_clock::WallClock;

/// The control plane's address, the same on every wire.
pub(crate) const CONTROL_ADDRESS: &str = "10.214.0.1";

/// A machine.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    namespace: String,
    /// The number in `/proc/<pid>/ns/net` of everything that runs here.
    inode: String,
    clock: WallClock,
    /// The control group that its processes live in, where it has any.
    group: Option<String>,
    directory: PathBuf,
    boots: u32,
}

/// A process of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

impl Host {
    /// Makes a machine whose clock and boot id are files in `directory`; with control groups of its own, where this one
    /// has any, if `has_groups`.
    pub(crate) fn create(name: &str, directory: &Path, has_groups: bool) -> Result<Self> {
        // First, for it may be missing, and a namespace would stay.
        let clock = WallClock::new(directory.join(format!("{name}-clock")))?;
        let namespace = format!("leasehold-{}-{name}", std::process::id());
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        let link = format!("/run/netns/{namespace}");
        let inode = format!("net:[{}]", std::os::unix::fs::MetadataExt::ino(&fs::metadata(&link).context(link)?));
        let group = has_groups.then(|| namespace.clone());
        let (name, directory) = (name.to_owned(), directory.to_owned());
        let mut host = Self { name, namespace, inode, clock, group, directory, boots: 0 };
        host.new_boot()?;
        Ok(host)
    }

    /// What starts from now on is of another boot.
    pub(crate) fn new_boot(&mut self) -> Result<()> {
        self.boots += 1;
        let digest = u64::from(std::process::id()) << 16 | u64::from(self.boots);
        let number = self.name.bytes().map(u64::from).sum::<u64>();
        fs::write(self.boot_id(), format!("{number:08x}-0000-4000-8000-{digest:012x}\n"))?;
        Ok(())
    }

    fn boot_id(&self) -> PathBuf {
        self.directory.join(format!("{}-boot-{}", self.name, self.boots))
    }

    /// Lets the wall clock of every process of this machine be so many seconds beside the truth.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<()> {
        self.clock.step(seconds)
    }

    /// A command on this machine, in its present boot, with its own wall clock.
    pub(crate) fn command(&self, program: &Path) -> Command {
        // The mounts are seen by this process and its children only, and go with the last of them. What makes the clock
        // jump counts its processes in /dev/shm, and whoever is killed leaves his count there.
        let script = "if [ -n \"$GROUP\" ] && mount -t cgroup2 cgroup2 /sys/fs/cgroup; then \
                      mkdir -p /sys/fs/cgroup/$GROUP/agent && echo $$ >/sys/fs/cgroup/$GROUP/agent/cgroup.procs; fi; \
                      mount --bind \"$0\" /proc/sys/kernel/random/boot_id && mount -t tmpfs tmpfs /dev/shm && \
                      export LD_PRELOAD=\"$CLOCK\" && exec \"$@\"";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "sh", "-c", script]).arg(self.boot_id()).arg(program);
        for (name, value) in self.clock.variables() {
            command.env(if name == "LD_PRELOAD" { "CLOCK".to_owned() } else { name }, value);
        }
        // The times of files stay true.
        command.env("NO_FAKE_STAT", "1").env("GROUP", self.group.as_deref().unwrap_or_default());
        command
    }

    /// The control groups of attempts that are still there; `remove` takes every group away, as a boot does.
    pub(crate) fn groups(&self, remove: bool) -> Result<Vec<String>> {
        let Some(group) = &self.group else { return Ok(Vec::new()) };
        let script = "mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null && cd /sys/fs/cgroup/$0 2>/dev/null || exit 0; \
                      find . -mindepth 2 -type d; [ -z \"$1\" ] || find . -depth -type d -exec rmdir {} +; \
                      [ -z \"$1\" ] || rmdir /sys/fs/cgroup/$0";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "sh", "-c", script, group]);
        command.arg(if remove { "remove" } else { "" });
        let output = command.output().context("cannot start `ip`")?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(|line| format!("{}: group {line}", self.name)).collect())
    }

    /// Everything that runs here.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A zombie has no namespace any more.
            let namespace = fs::read_link(entry.path().join("ns/net"));
            if namespace.is_ok_and(|link| link.to_str() == Some(&self.inode)) {
                let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&arguments).replace('\0', " ").trim_end().to_owned();
                found.push(Process { pid, command });
            }
        }
        found
    }

    /// Kills everything that runs here: agents before launchers before jobs, as one instant would look to each of them.
    pub(crate) fn kill_everything(&self) -> Result<()> {
        eventually(&format!("everything on {} to die", self.name), || {
            let mut found = self.processes();
            found.sort_by_key(|process| (process.command.contains(" job "), process.command.contains(" launcher ")));
            for process in &found {
                signal(process.pid, Signal::KILL);
            }
            if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.kill_everything();
        let _ = self.groups(true);
        if let Err(error) = ip(&format!("netns delete {}", self.namespace)) {
            eprintln!("{error:#}");
        }
    }
}

/// Sends a signal to what may have ended meanwhile.
pub(crate) fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// The wire between a worker's machine and the control plane's.
#[derive(Debug)]
pub(crate) struct Wire {
    control: End,
    worker: End,
}

#[derive(Debug)]
struct End {
    namespace: String,
    device: String,
    address: String,
}

impl End {
    fn run(&self, words: &str) -> Result<()> {
        ip(&format!("-n {} {words}", self.namespace))
    }

    fn tc(&self, words: &str) -> Result<()> {
        let line = format!("-n {} {words}", self.namespace);
        let output = Command::new("tc").args(line.split(' ')).output().context("cannot start `tc`")?;
        if !output.status.success() {
            bail!("`tc {line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// What is sent from here to the other end is addressed to a machine that does not exist.
    fn mislead(&self, peer: &Self) -> Result<()> {
        let (device, peer) = (&self.device, &peer.address);
        self.run(&format!("neigh replace {peer} lladdr 02:00:00:00:00:01 dev {device} nud permanent"))
    }

    fn lead_right(&self, peer: &Self) -> Result<()> {
        self.run(&format!("neigh del {} dev {}", peer.address, self.device))
    }
}

impl Wire {
    /// Connects two machines; `number` (1–250) differs between the wires of a run.
    pub(crate) fn connect(control: &Host, worker: &Host, number: usize) -> Result<Self> {
        let device = |side: &str| format!("lh{}{side}{number}", std::process::id());
        let end = |host: &Host, side: &str, last: u8| End {
            namespace: host.namespace.clone(),
            device: device(side),
            address: format!("10.214.{number}.{last}"),
        };
        let wire = Self { control: end(control, "c", 1), worker: end(worker, "w", 2) };
        ip(&format!("link add {} type veth peer name {}", wire.control.device, wire.worker.device))?;
        for end in [&wire.control, &wire.worker] {
            ip(&format!("link set {} netns {}", end.device, end.namespace))?;
            end.run(&format!("addr add {}/24 dev {}", end.address, end.device))?;
            end.run(&format!("link set {} up", end.device))?;
        }
        wire.worker.run(&format!("route add {CONTROL_ADDRESS}/32 via {}", wire.control.address))?;
        Ok(wire)
    }

    /// Gives the control plane's machine the address that every worker knows it by.
    pub(crate) fn name_control(control: &Host) -> Result<()> {
        ip(&format!("-n {} addr add {CONTROL_ADDRESS}/32 dev lo", control.namespace))
    }

    /// Loses every packet in these directions. The worker's end of the wire stays up: nobody is told.
    pub(crate) fn cut(&self, out: bool, into: bool) -> Result<()> {
        if out {
            self.worker.mislead(&self.control)?;
        }
        if into {
            self.control.mislead(&self.worker)?;
        }
        Ok(())
    }

    /// Mends what [`Wire::cut`] cut in these directions.
    pub(crate) fn mend(&self, out: bool, into: bool) -> Result<()> {
        if out {
            self.worker.lead_right(&self.control)?;
        }
        if into {
            self.control.lead_right(&self.worker)?;
        }
        Ok(())
    }

    /// Makes the wire narrow, both ways: packets wait up to three seconds for their turn, and are lost beyond that.
    pub(crate) fn narrow(&self) -> Result<()> {
        for end in [&self.control, &self.worker] {
            end.tc(&format!("qdisc replace dev {} root tbf rate 48kbit burst 2kb latency 3s", end.device))?;
        }
        Ok(())
    }

    /// Makes it wide again.
    pub(crate) fn widen(&self) -> Result<()> {
        for end in [&self.control, &self.worker] {
            end.tc(&format!("qdisc del dev {} root", end.device))?;
        }
        Ok(())
    }
}
