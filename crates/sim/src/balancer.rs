//! The load balancer that `deploy/haproxy` describes, in front of replicas of a test: the file as it is shipped, with the
//! test's addresses in the places of its examples.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::port::Port;
use crate::process::{Running, Stream};
use crate::replica::Replica;

const CONFIGURATION: &str = include_str!("../../../deploy/haproxy/haproxy.cfg");

/// A running `haproxy`. It is killed when this is dropped.
#[derive(Debug)]
pub struct Balancer {
    process: Running,
    _directory: TempDir,
    ports: Ports,
}

/// Whether `haproxy` can be started here. In CI it must be: a check that never ran would be green.
///
/// # Panics
///
/// In CI, when it is missing.
#[expect(clippy::disallowed_methods, reason = "CI tells itself through the environment")]
pub fn is_there_or_skip(test: &str) -> bool {
    if Command::new("haproxy").arg("-v").output().is_ok() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{test} needs haproxy, and CI must run it");
    eprintln!("skipped: {test} needs haproxy: cargo xtask environment installs it");
    false
}

/// Two ports for a balancer that does not run yet: the line that enrolls a worker names them before.
#[derive(Debug)]
pub struct Ports {
    /// Of the operator API.
    pub api: Port,
    /// Of the worker ingress.
    pub ingress: Port,
}

impl Ports {
    /// Two of this test alone.
    pub fn take() -> Result<Self> {
        Ok(Self { api: Port::take("127.0.0.1")?, ingress: Port::take("127.0.0.1")? })
    }
}

impl Balancer {
    /// Starts `haproxy` in front of three replicas whose CA certificate is in `ca`.
    pub fn start(ports: Ports, replicas: &[Replica; 3], ca: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("leasehold-balancer-").tempdir()?;
        let mut text = CONFIGURATION.replace("/etc/haproxy/leasehold-ca.pem", ca.to_str().context("a path of text")?);
        for (number, replica) in (1..).zip(replicas) {
            let api_port = replica.api().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap_or_default();
            for (example, real) in [
                (format!("10.0.0.1{number}:7440"), replica.api()),
                (format!("10.0.0.1{number}:7443 port 7440"), format!("{} port {api_port}", replica.ingress())),
            ] {
                ensure!(text.contains(&example), "the shipped configuration names no {example}");
                text = text.replace(&example, &real);
            }
        }
        text = text.replace("bind :7440", &format!("bind 127.0.0.1:{}", ports.api.number()));
        text = text.replace("bind :7443", &format!("bind 127.0.0.1:{}", ports.ingress.number()));
        let file = directory.path().join("haproxy.cfg");
        std::fs::write(&file, text)?;
        let process = Running::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file))?;
        Ok(Self { process, _directory: directory, ports })
    }

    /// `host:port` of the operator API.
    pub fn api(&self) -> String {
        format!("127.0.0.1:{}", self.ports.api.number())
    }

    /// `host:port` of the worker ingress.
    pub fn ingress(&self) -> String {
        format!("127.0.0.1:{}", self.ports.ingress.number())
    }

    /// Waits until it takes connections.
    pub fn wait_until_up(&mut self) -> Result<()> {
        let api = self.api();
        let up = eventually("the balancer to take connections", || {
            if !self.process.is_running() {
                return Ok(false);
            }
            TcpStream::connect(&api).map(|_| true).map_err(|error| error.to_string())
        })?;
        if up { Ok(()) } else { bail!("it ended at once:\n{}", self.process.written(Stream::Stderr)) }
    }
}
