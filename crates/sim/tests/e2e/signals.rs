//! Signals to an agent while it runs jobs: what each does, that none is lost, and that none is fatal.
//!
//! (Worker design, *Shutdown* and *One start path*.)

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use leasehold_sim::binaries;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::executable;
use leasehold_sim::process::{Running, Stream};
use leasehold_sim::seed::Seed;
use rustix::process::{Pid, Signal, kill_process};

use crate::freezer::Freezer;
use crate::marks::{Marks, lives};

/// A job that lives until a file is there, and marks its start and its end.
fn gated(cluster: &Cluster, marks: &Marks, gate: &Path) -> String {
    let line = |what: &str| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", marks.file().display());
    let script = format!("{}; until [ -e {} ]; do sleep 0.05; done; {}", line("start"), gate.display(), line("end"));
    cluster.submit(&["--", "sh", "-c", &script])
}

fn generation(cluster: &Cluster) -> u64 {
    cluster.json(&["worker", "get", "near"])["session"]["generation"].as_u64().unwrap_or_default()
}

#[test]
fn a_storm_of_sighup_neither_ends_the_agent_nor_touches_a_job() -> Result<()> {
    let (mut cluster, mut seed) =
        (Cluster::start()?, Seed::announced("a_storm_of_sighup_neither_ends_the_agent_nor_touches_a_job"));
    let near = cluster.join(WorkerOptions::named("near"))?;
    let (marks, gate) = (Marks::new(&cluster, &mut seed), cluster.directory().join("gate"));
    let run = gated(&cluster, &marks, &gate);
    marks.wait_for_lines(1)?;
    let pid = cluster.worker(near).agent_pid();
    for round in 0..4 {
        let before = generation(&cluster);
        // A tight loop over many starts: between an exec and the new handlers, a signal used to kill.
        for sent in 0..200_000 {
            cluster.signal_agent(near, Signal::HUP)?;
            if sent % 5000 == 0 {
                ensure!(cluster.agent_runs(near), "round {round}: dead after {sent} signals");
            }
        }
        eventually("the agent to have registered anew", || {
            let now = generation(&cluster);
            if now > before && cluster.session_state("near") == "active" { Ok(()) } else { Err(now.to_string()) }
        })?;
    }
    assert_eq!(cluster.worker(near).agent_pid(), pid);
    ensure!(cluster.agent_runs(near), "the agent is the same process");
    std::fs::write(gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    marks.check_one_whole_life_of_each(&[run].into())?;
    cluster.shut_down()
}

#[test]
fn a_sigterm_among_sighups_is_heard() -> Result<()> {
    let (mut cluster, mut seed) = (Cluster::start()?, Seed::announced("a_sigterm_among_sighups_is_heard"));
    let near = cluster.join(WorkerOptions::named("near"))?;
    for round in 0..12 {
        let before = seed.below(40_000);
        for _ in 0..before {
            cluster.signal_agent(near, Signal::HUP)?;
        }
        cluster.signal_agent(near, Signal::TERM)?;
        for _ in 0..seed.below(40_000) {
            // It may be gone already.
            let _ = cluster.signal_agent(near, Signal::HUP);
        }
        let ended = cluster.wait_for_agent_end(near).with_context(|| format!("round {round}, {before} before"))?;
        ended.expect_code(0);
        cluster.start_agent(near)?;
    }
    cluster.shut_down()
}

/// Whether a process waits for another to end.
fn waits_for_a_process(pid: u32) -> Result<bool> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|file| file.to_string_lossy().contains("pidfd")))
}

/// Whether an agent's writer is there: it goes first.
fn writes(pid: u32) -> Result<bool> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    Ok(names.any(|name| name.trim() == "durable"))
}

#[test]
fn a_word_to_an_image_that_is_leaving_is_heard_by_the_next() -> Result<()> {
    let Some(freezer) = Freezer::make("a-word-to-the-next-image")? else { return Ok(()) };
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let pid = cluster.directory().join("pid");
    let run = cluster.submit(&["--", "sh", "-c", &format!("echo $$ >{}; exec sleep 600", pid.display())]);
    cluster.wait_for_state(&run, "running")?;
    let job = std::fs::read_to_string(&pid)?;
    freezer.hold(job.trim())?;

    // A thread of the agent's waits for what does not end, and keeps the image that leaves from ending for a second.
    let launcher = *cluster.worker(near).launchers().first().context("a launcher")?;
    kill_process(Pid::from_raw(i32::try_from(launcher)?).context("its pid")?, Signal::KILL)?;
    let agent = cluster.worker(near).agent_pid();
    eventually("the agent to wait for the job's process", || match waits_for_a_process(agent) {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    cluster.signal_agent(near, Signal::HUP)?;
    eventually("the image to be leaving", || match writes(agent) {
        Ok(false) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);

    freezer.set("THAWED")?;
    cluster.start_agent(near)?;
    cluster.wait_for_state(&run, "lost")?;
    cluster.shut_down()
}

#[test]
fn a_replaced_binary_takes_over_with_sighup_and_a_broken_one_does_not() -> Result<()> {
    let (mut cluster, mut seed) =
        (Cluster::start()?, Seed::announced("a_replaced_binary_takes_over_with_sighup_and_a_broken_one_does_not"));
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let binary = cluster.directory().join("worker-binary");
    executable::write(&binary, std::fs::read(binaries::leasehold_worker())?)?;
    let original = cluster.agent_command(near);
    let mut command = std::process::Command::new(&binary);
    command.args(original.get_args()).envs(original.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut agent = Running::start(&mut command)?;
    agent.wait_for_text(Stream::Stderr, "ready")?;
    cluster.adopt_agent(near, agent);
    let (marks, gate) = (Marks::new(&cluster, &mut seed), cluster.directory().join("gate"));
    let run = gated(&cluster, &marks, &gate);
    marks.wait_for_lines(1)?;
    let image = format!("/proc/{}/exe", cluster.worker(near).agent_pid());
    let inode = || std::fs::metadata(&image).map(|metadata| metadata.ino());

    // As an update does it: another file under the same name.
    for round in 0..2 {
        std::fs::remove_file(&binary)?;
        executable::write(&binary, std::fs::read(binaries::leasehold_worker())?)?;
        let (new, before) = (std::fs::metadata(&binary)?.ino(), generation(&cluster));
        ensure!(inode()? != new, "round {round}: the old one runs");
        cluster.signal_agent(near, Signal::HUP)?;
        eventually("the new binary to run", || match inode() {
            Ok(found) if found == new && generation(&cluster) > before => Ok(()),
            found => Err(format!("{found:?}")),
        })?;
    }
    // Half a download: the kernel does not take it, and the one that runs goes on.
    let (good, before) = (inode()?, generation(&cluster));
    std::fs::remove_file(&binary)?;
    executable::write(&binary, "not a program")?;
    cluster.signal_agent(near, Signal::HUP)?;
    eventually("the agent to have registered anew", || {
        let now = generation(&cluster);
        if now > before { Ok(()) } else { Err(now.to_string()) }
    })?;
    assert_eq!(inode()?, good);
    ensure!(cluster.written().contains("cannot be executed"), "it says so: {}", cluster.written());

    std::fs::write(gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    let lives = lives(marks.file())?;
    assert_eq!(lives.len(), 1, "{lives:?}");
    marks.check_one_whole_life_of_each(&[run].into())?;
    cluster.shut_down()
}
