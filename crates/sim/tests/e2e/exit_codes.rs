//! The exit codes that unit files and scripts rely on: 0, 1, 2, 20, 23, 24 and 25, each from the real binary. (21 and 22
//! need a control plane that refuses: `worker/tests/control_plane/exit_codes.rs`.)
//!
//! (Decisions, *Worker exit codes*.)

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use leasehold_sim::binaries;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::impostor::{self, Session};
use leasehold_sim::process::{self, Running, Stream};
use rustix::process::Signal;
use serde_json::Value;

fn worker(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binaries::leasehold_worker());
    command.args(arguments).env("LEASEHOLD_WORKER_STATE_DIR", state).env("LEASEHOLD_WORKER_ALLOW_ROOT", "1");
    command
}

/// Copies a state directory as it is now, but for the memory of where it stood.
fn copied(cluster: &Cluster, worker: usize) -> Result<PathBuf> {
    let (from, to) = (cluster.worker(worker).state(), cluster.directory().join("copied"));
    let status = Command::new("cp").arg("-a").arg(from).arg(&to).status()?;
    assert!(status.success());
    let place = to.join("place.json");
    if place.exists() {
        std::fs::remove_file(place)?;
    }
    Ok(to)
}

#[test]
fn a_command_line_that_makes_no_sense_is_2_and_a_missing_identity_24() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    for arguments in [&["walk"][..], &["run", "--slots", "0"], &["run", "--walk"], &["join"]] {
        let ended = process::run(&mut worker(&state, arguments))?;
        ended.expect_code(2);
        assert!(ended.stderr.contains("--help"), "it says where to look\n{ended}");
    }
    let ended = process::run(&mut worker(&state, &["run"]))?;
    ended.expect_code(24);
    assert!(ended.stderr.contains("leasehold worker enroll"), "it says what to do\n{ended}");
    assert!(!state.exists(), "nothing is half-written");
    Ok(())
}

#[test]
fn the_code_is_told_also_where_the_words_cannot_be() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut unread = Command::new("sh");
    unread.args(["-c", "exec \"$0\" run 2>/dev/full"]).arg(binaries::leasehold_worker());
    unread.env("LEASEHOLD_WORKER_STATE_DIR", directory.path().join("state")).env("LEASEHOLD_WORKER_ALLOW_ROOT", "1");
    process::run(&mut unread)?.expect_code(24);
    Ok(())
}

#[test]
fn a_control_plane_that_cannot_be_reached_is_1_for_join() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut cluster = Cluster::start()?;
    let line = cluster.ask(&["worker", "enroll", "--name", "near", "-q"]);
    cluster.kill_control()?;
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    process::run(&mut worker(&directory.path().join("state"), &words))?.expect_code(1);
    Ok(())
}

#[test]
fn a_drain_that_times_out_is_23_and_says_so_and_the_next_start_carries_on() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    cluster.spawn_agent_with(near, "LEASEHOLD_WORKER_DRAIN_TIMEOUT", "1s")?;
    let gate = cluster.directory().join("gate");
    let run = cluster.submit(&["--", "sh", "-c", &format!("until [ -e {} ]; do sleep 0.05; done", gate.display())]);
    cluster.wait_for_state(&run, "running")?;

    let ended = cluster.stop_agent(near)?;
    ended.expect_code(23);
    assert!(ended.stderr.contains("the drain timed out: 1 attempt"), "{ended}");
    assert_eq!(cluster.worker(near).launchers().len(), 1, "its job stays");

    std::fs::write(gate, "")?;
    cluster.start_agent(near)?;
    cluster.wait_for_state(&run, "succeeded")?;
    cluster.shut_down()
}

#[test]
fn a_copy_that_comes_with_a_spent_ticket_ends_with_25() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    let copy = copied(&cluster, near)?;
    cluster.start_agent(near)?;
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);

    let spent = process::run(&mut worker(&copy, &["run"]))?;
    spent.expect_code(25);
    assert!(spent.stderr.contains("this state is a copy") || spent.stderr.contains("ticket"), "{spent}");
    // Remembered: it does not ask again.
    process::run(&mut worker(&copy, &["run"]))?.expect_code(25);
    cluster.start_agent(near)?;
    cluster.shut_down()
}

#[test]
fn an_agent_whose_place_was_taken_ends_with_20_and_does_not_come_back_by_itself() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    let intent = impostor::take_intent(&mut cluster, near)?;
    // It first repeats that registration, then makes its own: its newest ticket is there once it is ready.
    let mut agent = Running::start(&mut cluster.agent_command(near))?;
    agent.wait_for_text(Stream::Stderr, "ready")?;
    cluster.adopt_agent(near, agent);
    // Somebody with everything that the agent has, its newest ticket included.
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.worker(near).state().join("session.json"))?)?;
    let mut body = intent.body.clone();
    body["ticket"] = file["ticket"].clone();
    let rival = Session::of(&impostor::holder(&cluster, near)?, "01900000-0000-7000-8000-00000000abcd");
    let registered = rival.register(&body)?;
    assert_eq!(registered.status, 200, "{registered:?}");

    let fenced = cluster.wait_for_agent_end(near)?;
    fenced.expect_code(20);
    assert!(fenced.stderr.contains("fenced"), "{fenced}");
    cluster.spawn_agent(near)?;
    cluster.wait_for_agent_end(near)?.expect_code(20);
    cluster.shut_down()
}
