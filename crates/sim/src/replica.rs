//! More replicas of a cluster's control plane: the same PostgreSQL database, the same master key, a data directory each.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::port::Port;
use crate::process::{Ended, Running, Stream};
use crate::request;

/// One more replica. It is killed when this is dropped.
#[derive(Debug)]
pub struct Replica {
    process: Option<Running>,
    data: PathBuf,
    host: String,
    api_port: Port,
    ingress_port: Port,
    flags: Vec<String>,
}

impl Replica {
    /// A replica of this name that listens on an address of this host, with more flags of `serve`; it does not run yet.
    pub fn prepare(cluster: &Cluster, name: &str, host: &str, flags: &[&str]) -> Result<Self> {
        let (api_port, ingress_port) = (Port::take(host)?, Port::take(host)?);
        Ok(Self {
            process: None,
            data: cluster.directory().join(name),
            host: host.to_owned(),
            api_port,
            ingress_port,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        })
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// `host:port` of its operator API.
    pub fn api(&self) -> String {
        format!("{}:{}", self.host, self.api_port.number())
    }

    /// `host:port` of its worker ingress.
    pub fn ingress(&self) -> String {
        format!("{}:{}", self.host, self.ingress_port.number())
    }

    /// Starts it without waiting, with the key of the cluster's first control plane.
    pub fn spawn(&mut self, cluster: &Cluster) -> Result<()> {
        let mut command = cluster.leasehold();
        command.arg("serve").arg("--data").arg(&self.data);
        command.args(["--listen", &self.api(), "--worker-listen", &self.ingress()]).args(&self.flags);
        command.envs(cluster.variables().iter().map(|(name, value)| (name, value)));
        command.env("LEASEHOLD_MASTER_KEY_FILE", cluster.data().join("master.key"));
        self.process = Some(Running::start(&mut command)?);
        Ok(())
    }

    /// Starts it and waits until its admin socket answers that it can do its work.
    pub fn start(&mut self, cluster: &Cluster) -> Result<()> {
        self.spawn(cluster)?;
        self.wait_until_ready()
    }

    /// Waits until its admin socket answers that it can do its work.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let socket = self.data.join("admin.sock");
        let process = self.process.as_mut().context("the replica does not run")?;
        let ready = eventually("a replica to be ready", || {
            if !process.is_running() {
                return Ok(false);
            }
            match request::get_over(&socket, "/readyz") {
                Ok(answer) if answer.status == 200 => Ok(true),
                Ok(answer) => Err(format!("{answer:?}")),
                Err(error) => Err(format!("{error:#}")),
            }
        })?;
        if ready { Ok(()) } else { bail!("it ended at once:\n{}", process.written(Stream::Stderr)) }
    }

    /// Everything it has written.
    pub fn written(&self) -> String {
        let written = |process: &Running| process.written(Stream::Stdout) + &process.written(Stream::Stderr);
        self.process.as_ref().map(written).unwrap_or_default()
    }

    /// Whether it was started and still runs.
    pub fn runs(&mut self) -> bool {
        self.process.as_mut().is_some_and(Running::is_running)
    }

    /// How it, which has gone or was told to go, ended.
    pub fn end(&mut self) -> Result<Ended> {
        self.process.take().context("the replica does not run")?.wait()
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().context("the replica does not run")?.kill()
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(&mut self) -> Result<()> {
        let process = self.process.take().context("the replica does not run")?;
        process.signal(Signal::TERM)?;
        process.wait()?.expect_code(0);
        Ok(())
    }
}
