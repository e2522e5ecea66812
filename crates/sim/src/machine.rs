//! Where a process of a test runs: on this host, or on a second machine made of a network namespace.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Whether tests that need root can run here.
///
/// An ordinary user's run skips them and says so; in CI (`CI` is set) a missing right is a failure, or a check would
/// be green that never ran.
///
/// # Panics
///
/// In CI, when this is not root.
#[expect(clippy::disallowed_methods, reason = "CI tells itself through the environment")]
pub fn is_root_or_skip(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{test} needs root, and CI must run it");
    eprintln!("skipped: {test} needs root (a network namespace); run it with sudo");
    false
}

/// A second machine: a network namespace with a wire to this host. Removed when dropped.
#[derive(Debug)]
pub struct Machine {
    namespace: String,
    near: String,
    far: String,
    wire: String,
}

impl Machine {
    /// Makes a machine. `number` (1–250) must differ between machines that exist at the same time.
    pub fn create(number: u8) -> Result<Self> {
        let id = format!("{}-{number}", std::process::id());
        let machine = Self {
            namespace: format!("leasehold-{id}"),
            near: format!("10.213.{number}.1"),
            far: format!("10.213.{number}.2"),
            wire: format!("lh{id}n"),
        };
        let (near_end, far_end) = (machine.wire.as_str(), format!("lh{id}f"));
        let inside = machine.namespace.as_str();
        for line in [
            format!("netns add {inside}"),
            format!("link add {near_end} type veth peer name {far_end}"),
            format!("link set {far_end} netns {inside}"),
            format!("addr add {}/24 dev {near_end}", machine.near),
            format!("link set {near_end} up"),
            format!("-n {inside} addr add {}/24 dev {far_end}", machine.far),
            format!("-n {inside} link set {far_end} up"),
            format!("-n {inside} link set lo up"),
        ] {
            ip(&line)?;
        }
        Ok(machine)
    }

    /// The address of this host as the machine sees it.
    pub fn host_address(&self) -> &str {
        &self.near
    }

    /// The machine's own address.
    pub fn address(&self) -> &str {
        &self.far
    }

    /// Cuts the wire: packets are lost in both directions, and nobody is told.
    pub fn cut(&self) -> Result<()> {
        ip(&format!("link set {} down", self.wire))
    }

    /// Mends the wire.
    pub fn mend(&self) -> Result<()> {
        ip(&format!("link set {} up", self.wire))
    }

    /// The name of its network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A command on the machine of this network namespace, or on this host.
pub fn command_in(namespace: Option<&str>, program: &Path) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The wire goes with the namespace at one of its ends.
        if let Err(error) = ip(&format!("netns delete {}", self.namespace)) {
            eprintln!("{error:#}");
        }
    }
}

/// One line of `ip`, which must succeed.
pub(crate) fn ip(line: &str) -> Result<()> {
    let output = Command::new("ip").args(line.split(' ')).output().context("cannot start `ip` (package iproute2)")?;
    if !output.status.success() {
        bail!("`ip {line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_machine_reaches_this_host_over_its_wire() {
        if !is_root_or_skip("a_machine_reaches_this_host_over_its_wire") {
            return;
        }
        let machine = Machine::create(250).unwrap();
        let listener = TcpListener::bind((machine.host_address(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/{}/{port}", machine.host_address());
        let status = command_in(Some(machine.namespace()), Path::new("bash")).args(["-c", &script]).status().unwrap();
        assert!(status.success());
        let (_, caller) = listener.accept().unwrap();
        assert_eq!(caller.ip().to_string(), machine.address());
    }
}
