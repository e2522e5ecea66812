//! `leasehold doctor`: well beside a control plane that runs and beside one that does not, told what is wrong with what to
//! do, and nothing is changed by looking.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use serde_json::Value;

/// A file's mode, the time of its last change, and its bytes.
type Seen = (u32, i64, Vec<u8>);

/// Every file under a directory.
fn snapshot(directory: &Path) -> Result<BTreeMap<String, Seen>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        let bytes = if found.is_file() { fs::read(&path)? } else { Vec::new() };
        files.insert(path.display().to_string(), (found.mode(), found.mtime(), bytes));
    }
    Ok(files)
}

struct Told {
    code: Option<i32>,
    report: Value,
}

impl Told {
    fn of(cluster: &Cluster) -> Result<Self> {
        let data = cluster.data();
        let data = data.to_str().context("a path of text")?;
        let (api, ingress) = (cluster.api(), cluster.ingress());
        let told =
            cluster.cli(&["doctor", "--data", data, "--listen", &api, "--worker-listen", &ingress, "-o", "json"])?;
        let report = serde_json::from_str(&told.stdout).with_context(|| told.to_string())?;
        Ok(Self { code: told.code(), report })
    }

    fn status(&self, check: &str) -> &str {
        self.check(check)["status"].as_str().unwrap_or_default()
    }

    #[track_caller]
    fn check(&self, check: &str) -> &Value {
        let mut checks = self.report["checks"].as_array().into_iter().flatten();
        checks.find(|found| found["check"] == check).unwrap_or_else(|| panic!("no {check} in {:#}", self.report))
    }

    /// The checks that are not as they should be.
    fn complaints(&self) -> Vec<&str> {
        let checks = self.report["checks"].as_array().into_iter().flatten();
        let bad = checks.filter(|found| found["status"] == "warning" || found["status"] == "problem");
        // How full the disk of whoever runs the tests is says nothing about the product.
        bad.filter_map(|found| found["check"].as_str()).filter(|check| *check != "disk_space").collect()
    }

    /// Everything that is complained of says what to do.
    fn check_advice(&self) {
        for found in self.report["checks"].as_array().into_iter().flatten() {
            let bad = found["status"] == "warning" || found["status"] == "problem";
            assert_eq!(bad, found["advice"].is_string(), "{found}");
        }
    }
}

#[test]
fn a_sound_control_plane_is_well_whether_it_runs_or_not_and_nothing_is_changed() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&run, "succeeded")?;

    let running = Told::of(&cluster)?;
    assert_eq!((running.code, running.complaints()), (Some(0), vec![]), "{:#}", running.report);
    for check in ["control_plane", "api_listener", "worker_listener", "lease_clock", "lock", "schema"] {
        assert_eq!(running.status(check), "ok", "{:#}", running.report);
    }
    // A person reads the same.
    let data = cluster.data();
    let page = cluster.ask(&[
        "doctor",
        "--data",
        data.to_str().context("text")?,
        "--listen",
        &cluster.api(),
        "--worker-listen",
        &cluster.ingress(),
    ]);
    assert!(page.contains("ok       control plane        ready"), "{page}");

    cluster.stop_agent(near)?.expect_code(0);
    cluster.stop_control()?;
    let before = snapshot(&data)?;
    let stopped = Told::of(&cluster)?;
    assert_eq!((stopped.code, stopped.complaints()), (Some(0), vec![]), "{:#}", stopped.report);
    assert_eq!((stopped.status("control_plane"), stopped.status("api_listener")), ("skipped", "skipped"));
    assert!(snapshot(&data)? == before, "nothing was changed, and nothing was made");
    cluster.shut_down()
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.kill_control()?;
    cluster.start_control()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let held = cluster.directory().join("held");
    let run =
        cluster.submit(&["--lease", "25s", "--", "sh", "-c", &format!("touch {}; exec sleep 600", held.display())]);
    cluster.wait_for_state(&run, "running")?;
    for launcher in cluster.worker(near).launchers() {
        let pid = i32::try_from(launcher).ok().and_then(rustix::process::Pid::from_raw).context("a process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    }
    cluster.wait_for_state(&run, "lost")?;
    cluster.kill_agent(near)?;
    leasehold_sim::eventually::eventually("the worker to be silent for longer than its session", || {
        let told = Told::of(&cluster).map_err(|error| error.to_string())?;
        if told.status("workers") == "warning" { Ok(()) } else { Err(told.report.to_string()) }
    })?;
    let told = Told::of(&cluster)?;
    told.check_advice();
    assert_eq!((told.code, told.complaints()), (Some(0), vec!["workers", "lost_runs"]), "{:#}", told.report);
    assert!(
        told.check("workers")["detail"].as_str().is_some_and(|detail| detail.contains("near")),
        "{:#}",
        told.report
    );

    // Killed, its files open to others, its key gone, its log not written back.
    cluster.kill_control()?;
    let data = cluster.data();
    let key = data.join("master.key");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755))?;
    rustix::fs::rename(&key, cluster.directory().join("kept.key"))?;
    let told = Told::of(&cluster)?;
    told.check_advice();
    assert_eq!(told.code, Some(1), "{:#}", told.report);
    for check in ["data_directory", "master_key"] {
        assert_eq!(told.status(check), "problem", "{:#}", told.report);
    }
    assert_eq!(told.status("lost_runs"), "warning", "what was not written back yet is read as well: {:#}", told.report);
    rustix::fs::rename(cluster.directory().join("kept.key"), &key)?;

    // A page of the database is overwritten, once everything is written back.
    cluster.start_control()?;
    cluster.stop_control()?;
    let database = data.join("leasehold.db");
    let mut bytes = fs::read(&database)?;
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes.get_mut(middle..middle + 4096).context("a database of some pages")?.fill(0xa5);
    let sound = fs::read(&database)?;
    fs::write(&database, &bytes)?;
    let told = Told::of(&cluster)?;
    assert_eq!((told.code, told.status("database")), (Some(1), "problem"), "{:#}", told.report);
    fs::write(&database, sound)?;

    // There is nothing there at all.
    let nothing = cluster.cli(&["doctor", "--data", "/nonexistent/leasehold"])?;
    nothing.expect_code(1);
    assert!(nothing.stderr.contains("/nonexistent/leasehold"), "{nothing}");
    cluster.start_control()?;
    cluster.shut_down()
}
