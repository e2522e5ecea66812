//! A control plane and its workers, as a user would start them, on a directory of their own.
//!
//! Dropping a cluster kills every process that names its directory and fails when one survives; a test that ends well
//! calls [`Cluster::shut_down`], which asks politely and proves that nothing was left.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::port::Port;
use crate::process::{Running, Stream};
use crate::{binaries, control_groups, database, processes};

mod control_plane;
mod operator;
mod workers;

pub use workers::{Worker, WorkerOptions};

/// A control plane under test.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in this order: processes before the directory they live in.
    control: Option<Running>,
    workers: Vec<Worker>,
    host: String,
    api_port: Port,
    ingress_port: Port,
    logs_everything: bool,
    program: PathBuf,
    control_flags: Vec<String>,
    control_variables: Vec<(String, String)>,
    directory: TempDir,
}

impl Cluster {
    /// Starts a control plane that expects a beat every five minutes: sessions of callers that never beat outlive a test.
    pub fn start_unhurried() -> Result<Self> {
        let mut cluster = Self::prepare()?;
        cluster.control_flags(&["--heartbeat", "5m"]);
        cluster.start_control()?;
        Ok(cluster)
    }

    /// Starts a control plane on loopback.
    pub fn start() -> Result<Self> {
        Self::start_on("127.0.0.1")
    }

    /// Starts a control plane whose worker ingress listens on one address of this host.
    pub fn start_on(host: &str) -> Result<Self> {
        let mut cluster = Self::prepare_on(host)?;
        cluster.start_control()?;
        Ok(cluster)
    }

    /// A directory and two free ports; nothing runs yet.
    pub fn prepare() -> Result<Self> {
        Self::prepare_on("127.0.0.1")
    }

    /// The same, its state in the PostgreSQL database at `url`.
    pub fn prepare_on_postgres(url: &str) -> Result<Self> {
        let mut cluster = Self::prepare()?;
        cluster.control_variables([("LEASEHOLD_DATABASE".to_owned(), url.to_owned())]);
        Ok(cluster)
    }

    /// The same on one address of this host.
    pub fn prepare_on(host: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("leasehold-").tempdir()?;
        let (api_port, ingress_port) = (Port::take("127.0.0.1")?, Port::take(host)?);
        let host = host.to_owned();
        Ok(Self {
            control: None,
            workers: Vec::new(),
            host,
            api_port,
            ingress_port,
            logs_everything: false,
            program: binaries::leasehold().to_owned(),
            control_flags: Vec::new(),
            control_variables: Vec::new(),
            directory,
        })
    }

    /// What is started from now on logs all that it can.
    pub fn log_everything(&mut self) {
        self.logs_everything = true;
    }

    /// Everything that the control plane that runs, and each agent that runs, has written.
    pub fn written(&self) -> String {
        let agents = self.workers.iter().filter_map(Worker::agent);
        let running = self.control.iter().chain(agents);
        running.map(|process| process.written(Stream::Stdout) + &process.written(Stream::Stderr)).collect()
    }

    /// The directory that everything of this cluster lives in, and where its command line runs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The data directory of the control plane, under the name that the command line looks for.
    pub fn data(&self) -> PathBuf {
        self.directory().join("leasehold-data")
    }

    /// The admin socket of the control plane, which needs no token.
    pub fn admin_socket(&self) -> PathBuf {
        self.data().join("admin.sock")
    }

    /// `host:port` of the operator API: always on loopback, where it speaks plain HTTP.
    pub fn api(&self) -> String {
        format!("127.0.0.1:{}", self.api_port.number())
    }

    /// `host:port` of the worker ingress.
    pub fn ingress(&self) -> String {
        format!("{}:{}", self.host, self.ingress_port.number())
    }

    /// Stops every agent, then the control plane, each politely, and proves that nothing is left and that what is stored
    /// does not contradict itself.
    ///
    /// # Panics
    ///
    /// When one of them does not end with code 0, or the store contradicts itself.
    pub fn shut_down(mut self) -> Result<()> {
        for index in 0..self.workers.len() {
            if self.workers[index].agent().is_some() {
                self.stop_agent(index)?.expect_code(0);
            }
        }
        if let Some(control) = self.control.take() {
            control.signal(Signal::TERM)?;
            control.wait()?.expect_code(0);
            // On PostgreSQL there is no file to look into.
            if !self.data().join("database.seen").exists() {
                assert_eq!(database::contradictions(&self.data())?, Vec::<String>::new());
            }
        }
        processes::wait_until_none_names(self.directory.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let homes: Vec<_> =
            self.workers.iter().flat_map(|worker| control_groups::homes(&worker.name, worker.state())).collect();
        // Reaped first, or a killed agent would stay a zombie of ours.
        self.workers.clear();
        self.control = None;
        let killed = processes::kill_all_naming(self.directory.path());
        let cleared: Result<()> = homes.iter().try_for_each(|home| control_groups::clear(home));
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = killed.and(cleared) {
            panic!("{error:#}");
        }
    }
}
