//! What earlier releases wrote is read, shown as they showed it, and carried on.
//!
//! `tests/releases/<version>` holds a control plane's data and a worker's state directory as that release left them, with
//! what it said about them (`said.json`). A release is added by its own binaries:
//! `cargo xtask keep-release`. Nothing in there is of use to anybody: keys and certificates belong to an installation that
//! never listened on anything but loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::{binaries, process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// What of a control plane's data directory is kept: the rest is made anew at every start.
const KEPT: [&str; 3] = ["leasehold.db", "master.key", "ca.pem"];

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

/// Copies files and directories, open to their owner only, as the product keeps them.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let metadata = from.symlink_metadata()?;
    if metadata.is_dir() {
        fs::create_dir_all(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if metadata.is_file() {
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// What the control plane says of everything that it holds and that does not depend on when it is asked.
fn control_plane_says(cluster: &Cluster) -> Result<Value> {
    let mut runs = Vec::new();
    for run in cluster.list(&["runs", "list", "--limit", "1000"]) {
        let id = run["id"].as_str().context("a run has an id")?;
        let log = cluster.cli(&["runs", "logs", id])?.stdout;
        runs.push(json!({ "run": cluster.json(&["runs", "get", id]), "log": log }));
    }
    let workers = cluster.list(&["worker", "list"]);
    let workers = workers.iter().map(|worker| json!({ "id": worker["id"], "enrolled_at": worker["enrolled_at"] }));
    let workers = workers.collect::<Vec<_>>();
    Ok(json!({ "runs": runs, "workers": workers, "audit": cluster.list(&["audit", "list", "--limit", "1000"]) }))
}

/// Where `says` lacks something that `said` has: a later release may say more, never less and nothing else.
fn differs(said: &Value, says: &Value, place: &str) -> Option<String> {
    match (said, says) {
        (Value::Object(said), Value::Object(_)) => {
            said.iter().find_map(|(key, value)| differs(value, &says[key], &format!("{place}.{key}")))
        }
        (Value::Array(said), Value::Array(says)) if said.len() == says.len() => {
            let pairs = said.iter().zip(says).enumerate();
            pairs.into_iter().find_map(|(index, (said, says))| differs(said, says, &format!("{place}[{index}]")))
        }
        _ if said == says => None,
        _ => Some(format!("{place} was {said}, and is {says}")),
    }
}

/// What the worker's own binary says of a state directory that no agent holds.
fn worker_says(state: &Path) -> Result<Value> {
    let mut status = Command::new(binaries::leasehold_worker());
    status.args(["status", "-o", "json"]).env("LEASEHOLD_WORKER_STATE_DIR", state);
    let told = process::run(status.env("LEASEHOLD_WORKER_ALLOW_ROOT", "1"))?;
    let mut told: Value = serde_json::from_str(&told.stdout).with_context(|| told.to_string())?;
    for attempt in told["attempts"].as_array_mut().context("a list of attempts")? {
        // Whether its launcher runs is the machine's matter, not the directory's.
        attempt.as_object_mut().context("an attempt")?.remove("job");
    }
    let kept = ["worker", "trust_domain", "attempts", "inbox", "quarantine", "orphans"];
    Ok(kept.into_iter().map(|key| (key.to_owned(), told[key].clone())).collect::<serde_json::Map<_, _>>().into())
}

#[test]
fn what_every_release_wrote_is_shown_as_it_was_and_carried_on() -> Result<()> {
    let mut versions = 0;
    for release in fs::read_dir(releases())? {
        let release = release?.path();
        let said: Value = serde_json::from_slice(&fs::read(release.join("said.json"))?)?;
        let mut cluster = Cluster::prepare()?;
        copy(&release.join("data"), &cluster.data())?;
        copy(&release.join("state"), &cluster.directory().join("state"))?;
        let state = worker_says(&cluster.directory().join("state"))?;
        assert_eq!(differs(&said["state"], &state, "state"), None, "{}", release.display());
        cluster.start_control()?;
        let control = control_plane_says(&cluster)?;
        assert_eq!(differs(&said["control"], &control, "control"), None, "{}", release.display());

        let of_state = |state: &str| {
            let runs = said["control"]["runs"].as_array().into_iter().flatten();
            let found =
                runs.map(|run| &run["run"]).find(|run| run["state"] == state).and_then(|run| run["id"].as_str());
            found.map(str::to_owned).with_context(|| format!("{} holds no run that is {state}", release.display()))
        };
        cluster.ask(&["runs", "resolve", &of_state("lost")?, "mark-failed"]);
        cluster.cli(&["runs", "cancel", &of_state("retry_wait")?])?.expect_code(0);
        cluster.join(WorkerOptions::named("newcomer"))?;
        cluster.wait_for_state(&of_state("pending")?, "succeeded")?;
        cluster.shut_down()?;
        versions += 1;
    }
    ensure!(versions > 0, "no release is kept in {}", releases().display());
    Ok(())
}

#[test]
#[ignore = "writes the directory of this version under tests/releases: `cargo xtask keep-release`, at a release"]
fn keep_what_this_release_writes() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let kept = releases().join(env!("CARGO_PKG_VERSION"));
    ensure!(!kept.exists(), "{} is there already: a release is written once", kept.display());

    let near = cluster.join(WorkerOptions { slots: 3, ..WorkerOptions::named("near") })?;
    let gate = cluster.directory().join("gate");
    let wait = format!("echo waits; until [ -e {} ]; do sleep 0.05; done; echo over", gate.display());
    let patient = "[retry]\nmax_attempts = 3\nbackoff = { initial = \"24h\", max = \"24h\" }\n";
    fs::write(cluster.directory().join("patient.toml"), patient)?;
    for worker in ["near", "far", "newcomer"] {
        let only = format!("[placement.require]\nworker_ids = [\"{worker}\"]\n");
        fs::write(cluster.directory().join(worker).with_extension("toml"), only)?;
    }
    for (state, arguments) in [
        ("succeeded", &["--env", "WHO=world", "--", "sh", "-c", "echo hello $WHO; echo aside >&2"][..]),
        ("failed", &["--", "sh", "-c", "printf 'no newline'; exit 7"]),
        ("timed_out", &["--timeout", "1s", "--grace", "1s", "--", "sleep", "600"]),
        ("retry_wait", &["--spec", "patient.toml", "--", "false"]),
    ] {
        let run = cluster.submit(arguments);
        cluster.wait_for_state(&run, state)?;
        cluster.log(&run);
    }
    let cancelled = cluster.submit(&["--", "sleep", "600"]);
    cluster.wait_for_state(&cancelled, "running")?;
    cluster.ask(&["runs", "cancel", &cancelled, "--reason", "no longer needed"]);
    cluster.wait_for_state(&cancelled, "cancelled")?;

    // Nobody can take these but a worker that comes later.
    cluster.submit(&["--spec", "newcomer.toml", "--priority", "7", "--", "echo", "at last"]);

    let far = cluster.join(WorkerOptions::named("far"))?;
    let lost = cluster.submit(&["--spec", "far.toml", "--lease", "25s", "--", "sleep", "600"]);
    cluster.wait_for_state(&lost, "running")?;
    cluster.kill_agent(far)?;
    for launcher in cluster.worker(far).launchers() {
        let launcher = i32::try_from(launcher).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(launcher, Signal::KILL)?;
    }
    cluster.wait_for_state(&lost, "lost")?;
    cluster.ask(&["worker", "drain", "far", "--reason", "its disk is replaced"]);

    // One that runs on, and one whose receipt nobody has been told of yet.
    let near_only = |command: &[&str]| {
        let mut arguments = vec!["--spec", "near.toml", "--lease", "24h", "--", "sh", "-c"];
        arguments.extend(command);
        cluster.submit(&arguments)
    };
    let running = near_only(&["echo runs; sleep 600"]);
    let ended = near_only(&[&wait]);
    cluster.wait_for_state(&running, "running")?;
    cluster.wait_for_state(&ended, "running")?;
    eventually("the log of both", || {
        let shown = [&running, &ended].iter().all(|run| cluster.ask(&["runs", "logs", run]).contains('s'));
        if shown { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    cluster.kill_agent(near)?;
    fs::write(gate, "")?;
    let attempts = cluster.worker(near).state().join("attempts");
    eventually("a receipt", || {
        let receipts = fs::read_dir(&attempts).map_err(|error| error.to_string())?;
        let written = receipts.flatten().any(|attempt| attempt.path().join("receipt").exists());
        if written { Ok(()) } else { Err("not yet".to_owned()) }
    })?;

    let control = control_plane_says(&cluster)?;
    cluster.stop_control()?;
    let state = worker_says(cluster.worker(near).state())?;
    for file in KEPT {
        fs::create_dir_all(kept.join("data"))?;
        copy(&cluster.data().join(file), &kept.join("data").join(file))?;
    }
    copy(cluster.worker(near).state(), &kept.join("state"))?;
    fs::write(kept.join("said.json"), serde_json::to_vec_pretty(&json!({ "control": control, "state": state }))?)?;
    Ok(())
}
