//! The released product under measure: `leasehold up` on data of its own, asked over its admin socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::machine::{per_second, to_millis};
use super::memory::{Memory, child_of};
use super::{Quantiles, stamp};
use crate::checkout;

/// Builds what is released.
pub(crate) fn build() -> Result<()> {
    checkout::run(checkout::cargo().args(["build", "--release", "--locked", "--package", "leasehold"]))
}

/// A running `leasehold up`.
pub(crate) struct Product {
    directory: tempfile::TempDir,
    child: Child,
}

impl Product {
    /// Starts it and waits until its worker takes work.
    pub(crate) fn start() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let child = Command::new(checkout::target_directory()?.join("release/leasehold"))
            .args(["up", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--data"])
            .arg(directory.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start leasehold")?;
        let mut product = Self { directory, child };
        loop {
            if let Some(status) = product.child.try_wait()? {
                bail!("leasehold up ended with {status}");
            }
            let workers = product.get("/api/v1/workers").unwrap_or_default();
            let online = |items: &Vec<Value>| items.iter().any(|item| item["status"] == "online");
            if workers["items"].as_array().is_some_and(online) {
                return Ok(product);
            }
            pause();
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("data/admin.sock")
    }

    /// The worker's own process.
    pub(crate) fn memory_of_worker(&self) -> Result<Memory> {
        Memory::of(self.worker()?)
    }

    fn worker(&self) -> Result<u32> {
        child_of(self.child.id(), "worker-process")
    }

    /// A launcher with a job that waits.
    pub(crate) fn memory_of_launcher(&self) -> Result<Memory> {
        let run = self.submit(&["sleep", "600"])?;
        while self.get(&format!("/api/v1/runs/{run}"))?["state"] != "running" {
            pause();
        }
        let memory = Memory::of(child_of(self.worker()?, "launcher")?);
        self.request("POST", &format!("/api/v1/runs/{run}/cancel"), Some(&json!({})))?;
        self.wait_for_end(&run)?;
        memory
    }

    /// From submitting a run to its program's beginning, one at a time.
    pub(crate) fn start_latency(&self, times: usize) -> Result<Quantiles> {
        let file = self.directory.path().join("stamps");
        let program = std::env::current_exe().context("cannot find this program")?;
        let argv = [text(&program), "stamp".to_owned(), text(&file)];
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut millis = Vec::with_capacity(times);
        for _ in 0..times {
            let begun = stamp::boot_nanos();
            let run = self.submit(&argv)?;
            self.wait_for_end(&run)?;
            let last = stamp::read(&file).pop().context("the job wrote no stamp")?;
            millis.push(to_millis(last - begun));
        }
        Ok(Quantiles::of(millis))
    }

    /// `/bin/true` that many times, submitted at once, until the last has ended.
    pub(crate) fn runs_per_second(&self, runs: usize) -> Result<f64> {
        let begun = stamp::boot_nanos();
        let mut last = String::new();
        for _ in 0..runs {
            last = self.submit(&["/bin/true"])?;
        }
        self.wait_for_end(&last)?;
        // First come, first served: when the last has ended, at most the slots beside it are still under way.
        loop {
            let open = self.get("/api/v1/runs?state=pending&state=dispatching&state=running&limit=1")?;
            if open["items"].as_array().is_none_or(Vec::is_empty) {
                break;
            }
            pause();
        }
        Ok(per_second(u32::try_from(runs)?, begun, stamp::boot_nanos()))
    }

    /// Shuts it down as a person would.
    pub(crate) fn stop(&mut self) -> Result<()> {
        Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status()
            .context("cannot signal leasehold")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("leasehold up ended with {status}");
        }
        Ok(())
    }

    fn submit(&self, argv: &[&str]) -> Result<String> {
        let body = json!({ "revision": { "command": { "argv": argv } } });
        let run = self.request("POST", "/api/v1/runs", Some(&body))?;
        Ok(run["id"].as_str().with_context(|| format!("no run id in {run}"))?.to_owned())
    }

    fn wait_for_end(&self, run: &str) -> Result<()> {
        loop {
            let state = self.get(&format!("/api/v1/runs/{run}"))?["state"].clone();
            match state.as_str() {
                Some("pending" | "dispatching" | "running" | "retry_wait") => pause(),
                Some("succeeded" | "cancelled") => return Ok(()),
                _ => bail!("run {run} ended as {state}"),
            }
        }
    }

    fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = ask(&self.socket(), method, path, &body.map(Value::to_string).unwrap_or_default())?;
        if body.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&body).with_context(|| body.clone()) }
    }
}

/// Asks a control plane over its admin socket, and answers what it says.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).context("cannot reach the admin socket")?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).unwrap_or("");
    if !status.starts_with('2') {
        bail!("{method} {path} answered {status}: {body}");
    }
    Ok(body.to_owned())
}

impl Drop for Product {
    fn drop(&mut self) {
        // Already gone after `stop`; a failed measurement must not leave it running.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Between two looks at something that will happen.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench polls; a tight loop would take the processor from what is measured"
)]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}
