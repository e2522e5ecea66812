//! Cloned state directory: never let in while the original lives, never starts or judges anything that the original held,
//! audited where it reached the server; the original is undisturbed.
//!
//! A second host is a network namespace (the agent's named socket does not reach there) with a machine id and a boot id of
//! its own, laid over the kernel's. A copied disk is another boot on the same machine id; a snapshot that was resumed is the
//! same boot, too, and is known by the directory alone. Three session leases of 15 s: the whole takes half a minute.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::{Machine, is_root_or_skip};
use leasehold_sim::process::{Ended, Running};
use leasehold_sim::{binaries, story};

use super::{session, wait_for_another_session};

/// Who a host says it is.
#[derive(Debug, Clone, Copy)]
struct Host<'a> {
    machine: &'a str,
    boot: &'a str,
}

const OTHER_BOOT: &str = "11111111-2222-4333-8444-555555555555";

/// Another host that was given a copy of a worker's disk.
struct Clone<'a> {
    network: &'a Machine,
    directory: PathBuf,
}

impl Clone<'_> {
    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Starts the copy's agent.
    fn start(&self, host: Host<'_>) -> Result<Running> {
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = self.directory.join(name);
            fs::write(&path, format!("{text}\n"))?;
            Ok(path)
        };
        let script = "mount --bind \"$1\" /etc/machine-id && mount --bind \"$2\" /proc/sys/kernel/random/boot_id && exec \"$0\" run";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.network.namespace(), "sh", "-c", script]);
        command.arg(binaries::leasehold_worker());
        command.arg(file("machine-id", host.machine)?).arg(file("boot-id", host.boot)?);
        command.env("LEASEHOLD_WORKER_STATE_DIR", self.state()).env("LEASEHOLD_WORKER_ALLOW_ROOT", "1");
        Running::start(&mut command)
    }

    /// Starts the copy, which must give up by itself.
    fn is_refused(&self, host: Host<'_>, code: i32, why: &str) -> Result<()> {
        let ended: Ended = self.start(host)?.wait()?;
        ended.expect_code(code);
        assert!(ended.stderr.contains(why), "it says why: {why}\n{ended}");
        assert!(
            ended.stderr.contains("worker enroll") || ended.stderr.contains("enroll it again"),
            "and what to do\n{ended}"
        );
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = leasehold_sim::process::run(Command::new("cp").arg("-a").arg(from).arg(to))?;
    copied.expect_code(0);
    Ok(())
}

fn alarms(cluster: &Cluster) -> Result<usize> {
    Ok(story::audit(cluster)?.iter().filter(|row| row["action"] == "credential_replayed").count())
}

#[test]
fn a_clone_is_not_let_in_while_the_original_lives_and_judges_nothing_when_it_is() -> Result<()> {
    if !is_root_or_skip("a_clone_is_not_let_in_while_the_original_lives_and_judges_nothing_when_it_is") {
        return Ok(());
    }
    let network = Machine::create(21)?;
    let mut cluster = Cluster::prepare_on(network.host_address())?;
    cluster.control_flags(&["--heartbeat", "5s"]);
    cluster.start_control()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let (starts, gate) = (cluster.directory().join("starts"), cluster.directory().join("gate"));
    let script = format!("echo start >>{}; until [ -e {} ]; do sleep 0.05; done", starts.display(), gate.display());
    let kept = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&kept, "running")?;

    let machine = fs::read_to_string("/etc/machine-id").context("this host has no machine id")?.trim().to_owned();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let directory = cluster.directory().join("clone");
    fs::create_dir(&directory)?;
    let clone = Clone { network: &network, directory };
    copy(cluster.worker(near).state(), &clone.state())?;
    let original = session(&cluster, near);

    // What the machine itself can see never reaches the control plane.
    let other = Host { machine: "0123456789abcdef0123456789abcdef", boot: OTHER_BOOT };
    clone.is_refused(other, 24, "belongs to another machine")?;
    let snapshot = Host { machine: &machine, boot: &boot };
    clone.is_refused(snapshot, 24, "is a copy")?;
    assert_eq!((alarms(&cluster)?, &session(&cluster, near)), (0, &original));

    // A copied disk: it waits for as long as the original speaks, and is told of once it has heard it twice.
    let disk = Host { machine: &machine, boot: OTHER_BOOT };
    let mut waiting = clone.start(disk)?;
    eventually("the waiting copy to be audited", || match alarms(&cluster) {
        Ok(0) => Err("no alarm".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    })?;
    assert!(waiting.is_running(), "it waits");
    waiting.kill()?;
    assert_eq!(session(&cluster, near), original, "and is not let in");

    // The original restarts, and spends the ticket that both had.
    cluster.kill_agent(near)?;
    cluster.spawn_agent(near)?;
    wait_for_another_session(&cluster, near, &original)?;
    let original = session(&cluster, near);
    let before = alarms(&cluster)?;
    clone.is_refused(disk, 25, "ticket")?;
    assert_eq!(alarms(&cluster)?, before + 1, "{:?}", story::audit(&cluster)?);
    assert_eq!(session(&cluster, near), original);

    fs::write(gate, "")?;
    cluster.wait_for_state(&kept, "succeeded")?;
    assert_eq!(fs::read_to_string(&starts)?, "start\n", "the original carried its job to its end");

    // The original dies for good, and the copy of what it was then comes up in its place.
    let (starts, beats) = (cluster.directory().join("held-starts"), cluster.directory().join("held-beats"));
    let script =
        format!("echo start >>{}; while :; do echo beat >>{}; sleep 0.05; done", starts.display(), beats.display());
    let held = cluster.submit(&["--lease", "25s", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&held, "running")?;
    let heir = Clone { network: &network, directory: cluster.directory().join("heir") };
    fs::create_dir(&heir.directory)?;
    copy(cluster.worker(near).state(), &heir.state())?;
    cluster.kill_agent(near)?;
    let mut heir_agent = heir.start(disk)?;
    wait_for_another_session(&cluster, near, &original).context("the copy is let in once the original is silent")?;
    // It is this worker now, and can be given work; what the original held runs out, whatever the copy says.
    assert_eq!(cluster.json(&["runs", "get", &held])["state"], "running", "it has judged nothing");
    let next = cluster.submit(&["--", "true"]);
    cluster.wait_for_state(&next, "succeeded")?;
    let lost = cluster.wait_for_state(&held, "lost")?;
    let beaten = fs::read(&beats)?.len();
    assert_eq!(lost["attempts"][0]["outcome"]["evidence"], "lease_expired", "{lost}");
    assert_eq!(fs::read_to_string(&starts)?, "start\n", "it started nothing again");
    let kinds = story::kinds(&cluster, &held)?;
    assert!(!kinds.iter().any(|kind| kind == "lease.rebound"), "{kinds:?}");
    assert!(heir_agent.is_running());
    assert_eq!(fs::read(&beats)?.len(), beaten, "the launcher had stopped the job before it was called lost");

    // The original that comes back after all is the one whose ticket is spent.
    cluster.spawn_agent(near)?;
    let back = cluster.wait_for_agent_end(near)?;
    back.expect_code(25);
    heir_agent.kill()?;
    cluster.shut_down()
}
