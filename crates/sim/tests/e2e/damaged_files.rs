//! Files of a worker that cannot be trusted: garbage, empty, open to others, another user's, a link, a directory.
//!
//! Each is moved away or refused with a sentence that says what to do; none is believed, and none is thrown away.
//! (Worker design, *Inbox*; `docs/recovery.md`, *Files that cannot be trusted*.)

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use serde_json::Value;

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Garbage,
    Empty,
    OpenToOthers,
    AnothersFile,
    Link,
    Directory,
    TooLarge,
}

impl Damage {
    /// Those that this user can make.
    fn all() -> impl Iterator<Item = Self> {
        let root = rustix::process::geteuid().is_root();
        [
            Self::Garbage,
            Self::Empty,
            Self::OpenToOthers,
            Self::AnothersFile,
            Self::Link,
            Self::Directory,
            Self::TooLarge,
        ]
        .into_iter()
        .filter(move |damage| root || *damage != Self::AnothersFile)
    }

    /// Puts it where `path` says, in the place of what is there.
    fn put(self, path: &Path) -> Result<()> {
        let old = std::fs::read(path).unwrap_or_else(|_| b"{}".to_vec());
        remove(path)?;
        let private = |bytes: &[u8]| -> Result<()> {
            std::fs::write(path, bytes)?;
            Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?)
        };
        match self {
            Self::Garbage => private(b"{\"schema\":\"leasehold")?,
            Self::Empty => private(b"")?,
            Self::OpenToOthers => {
                private(&old)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))?;
            }
            Self::AnothersFile => {
                private(&old)?;
                chown(path, Some(1), Some(1))?;
            }
            Self::Link => symlink("/etc/hostname", path)?,
            Self::Directory => {
                std::fs::create_dir(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            }
            Self::TooLarge => private(&vec![b' '; 1024 * 1024])?,
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(std::fs::remove_dir_all(path)?),
        Ok(_) => Ok(std::fs::remove_file(path)?),
        Err(_) => Ok(()),
    }
}

fn succeeds(cluster: &Cluster) -> Result<()> {
    let run = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&run, "succeeded").map(drop)
}

fn wait_until_clean(cluster: &Cluster, worker: usize) -> Result<()> {
    eventually("nothing to be left", || {
        let left = [cluster.worker(worker).files_in("inbox"), cluster.worker(worker).files_in("attempts")].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}\n{}", cluster.written())) }
    })
}

#[test]
fn who_a_worker_is_is_never_guessed_from_a_damaged_file() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    succeeds(&cluster)?;
    wait_until_clean(&cluster, near)?;
    cluster.kill_agent(near)?;
    for (file, remedy) in
        [("identity.json", "worker enroll"), ("session.json", "worker enroll"), ("place.json", "remove that file")]
    {
        let path = cluster.worker(near).state().join(file);
        let good = std::fs::read(&path)?;
        for damage in Damage::all() {
            damage.put(&path)?;
            cluster.spawn_agent(near)?;
            let refused = cluster.wait_for_agent_end(near)?;
            // A person has to look: a service manager is not to try again and again.
            ensure!(refused.code() == Some(24), "{file}, {damage:?}\n{refused}");
            let says = refused.stderr.contains(file) && refused.stderr.contains(remedy);
            ensure!(says, "{file}, {damage:?}: it names the file and what to do\n{refused}");
            ensure!(std::fs::symlink_metadata(&path).is_ok(), "{file}, {damage:?}: it is still there");
        }
        remove(&path)?;
        std::fs::write(&path, good)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    cluster.start_agent(near)?;
    succeeds(&cluster)?;
    cluster.shut_down()
}

#[test]
fn what_does_not_say_who_a_worker_is_is_moved_away_and_work_goes_on() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let state = cluster.worker(near).state().to_owned();
    let inbox = |name: &str| state.join("inbox").join(name);
    let mut quarantined = 0;
    for damage in Damage::all() {
        cluster.kill_agent(near)?;
        damage.put(&state.join("pending-claims.json"))?;
        damage.put(&inbox("01900000-0000-7000-8000-000000000001.json"))?;
        damage.put(&inbox("anything"))?;
        // An attempt whose record is gone, and a thing that is none.
        let orphan = state.join("attempts/01900000-0000-7000-8000-000000000002");
        std::fs::create_dir(&orphan)?;
        std::fs::set_permissions(&orphan, std::fs::Permissions::from_mode(0o700))?;
        std::fs::write(orphan.join("log"), "what it wrote")?;
        damage.put(&state.join("attempts/anything"))?;
        // Somebody else's leftover of ours.
        damage.put(&state.join("session.json.new"))?;
        quarantined += 5;

        cluster.start_agent(near)?;
        succeeds(&cluster).with_context(|| format!("{damage:?}"))?;
        wait_until_clean(&cluster, near).with_context(|| format!("{damage:?}"))?;
        let kept = cluster.worker(near).files_in("quarantine");
        ensure!(kept.len() == quarantined, "{damage:?}: {kept:?}");
        for name in ["pending-claims.json", "01900000-0000-7000-8000-000000000001.json", "attempts", "quarantine"] {
            ensure!(cluster.written().contains(name), "{damage:?}: it says so of {name}\n{}", cluster.written());
        }
    }
    cluster.shut_down()
}

/// A job that waits for its gate.
struct Job {
    run: String,
    gate: PathBuf,
    directory: PathBuf,
}

/// Starts a job, and kills the agent while it runs.
fn job_without_agent(cluster: &mut Cluster, near: usize, name: &str) -> Result<Job> {
    let gate = cluster.directory().join(format!("gate-{name}"));
    let script = format!("echo before; until [ -e {} ]; do sleep 0.05; done; echo after; exit 5", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;
    cluster.kill_agent(near)?;
    let attempts = cluster.worker(near).files_in("attempts");
    let [attempt] = attempts.as_slice() else { panic!("one attempt: {attempts:?}") };
    let directory = cluster.worker(near).state().join("attempts").join(attempt);
    Ok(Job { run, gate, directory })
}

fn over(cluster: &Cluster, run: &str) -> Result<Value> {
    eventually(&format!("run {run} to be over"), || {
        let said = cluster.json(&["runs", "get", run]);
        match said["state"].as_str() {
            Some("failed" | "lost") => Ok(said),
            _ => Err(format!("{said}\n{}", cluster.written())),
        }
    })
}

#[test]
fn a_damaged_barrier_is_never_a_proof_that_nothing_ran() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    for damage in Damage::all() {
        let job = job_without_agent(&mut cluster, near, &format!("{damage:?}"))?;
        damage.put(&job.directory.join("barrier"))?;
        cluster.start_agent(near)?;
        std::fs::write(&job.gate, "")?;
        // Its launcher lives and says how it ended.
        let said = over(&cluster, &job.run)?;
        ensure!(said["outcome"]["exit_code"] == 5, "{damage:?}: {said}");
        ensure!(cluster.log(&job.run) == "before\nafter", "{damage:?}");
        wait_until_clean(&cluster, near)?;
    }
    cluster.shut_down()
}

#[test]
fn a_damaged_receipt_is_no_end_and_a_damaged_log_holds_up_none() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    for damage in Damage::all() {
        let job = job_without_agent(&mut cluster, near, &format!("{damage:?}"))?;
        std::fs::write(&job.gate, "")?;
        let receipt = job.directory.join("receipt");
        eventually("the job to end", || {
            let ended = receipt.exists() && cluster.worker(near).launchers().is_empty();
            if ended { Ok(()) } else { Err(String::new()) }
        })?;
        damage.put(&receipt)?;
        cluster.start_agent(near)?;
        let said = over(&cluster, &job.run)?;
        ensure!(said["state"] == "lost", "{damage:?}: an end that nobody can vouch for: {said}");
        wait_until_clean(&cluster, near)?;
    }
    for damage in [Damage::Garbage, Damage::Empty, Damage::Directory] {
        let job = job_without_agent(&mut cluster, near, &format!("log-{damage:?}"))?;
        std::fs::write(&job.gate, "")?;
        eventually("the job to end", || {
            let ended = job.directory.join("receipt").exists() && cluster.worker(near).launchers().is_empty();
            if ended { Ok(()) } else { Err(String::new()) }
        })?;
        damage.put(&job.directory.join("log"))?;
        cluster.start_agent(near)?;
        let said = over(&cluster, &job.run)?;
        ensure!(said["outcome"]["exit_code"] == 5, "{damage:?}: {said}");
        wait_until_clean(&cluster, near).with_context(|| format!("a log that is {damage:?}"))?;
    }
    cluster.shut_down()
}

#[test]
fn what_stands_in_the_place_of_a_launchers_socket_or_lock_starts_nothing_twice() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    for damage in [Damage::Garbage, Damage::Link, Damage::Directory] {
        let job = job_without_agent(&mut cluster, near, &format!("control-{damage:?}"))?;
        damage.put(&job.directory.join("control"))?;
        cluster.start_agent(near)?;
        std::fs::write(&job.gate, "")?;
        let said = over(&cluster, &job.run)?;
        ensure!(said["outcome"]["exit_code"] == 5, "a socket that is {damage:?}: {said}");
        wait_until_clean(&cluster, near)?;
    }
    // Without its lock nobody can tell that its launcher lives: it is stopped, and the question stays open.
    let job = job_without_agent(&mut cluster, near, "lock")?;
    remove(&job.directory.join("lock"))?;
    cluster.start_agent(near)?;
    let said = over(&cluster, &job.run)?;
    ensure!(said["state"] == "lost" && said["attempts"][0]["may_live"] == false, "{said}");
    ensure!(cluster.worker(near).launchers().is_empty(), "nothing of it lives");
    wait_until_clean(&cluster, near)?;
    cluster.shut_down()
}
