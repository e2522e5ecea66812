//! `leasehold up`: one command brings up both processes, runs a command through the full protocol, and leaves nothing.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::eventually::eventually;
use leasehold_sim::process::{self, Running, Stream};
use leasehold_sim::processes;
use rustix::process::Signal;

/// `leasehold up` on the cluster's directory and ports, with a command to run (or none).
fn up(cluster: &Cluster, command: &[&str]) -> std::process::Command {
    let mut up = cluster.leasehold();
    up.arg("up").arg("--data").arg(cluster.data()).args(cluster.listen_flags());
    if !command.is_empty() {
        up.arg("--").args(command);
    }
    up
}

#[test]
fn the_streams_and_the_exit_code_are_the_commands_own() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let ended = process::run(&mut up(&cluster, &["sh", "-c", "uname -a; echo to-stderr >&2; exit 7"]))?;
    let uname = process::run(std::process::Command::new("uname").arg("-a"))?;

    ended.expect_code(7);
    assert_eq!(ended.stdout, uname.stdout, "stdout carries the command's own stream and nothing else\n{ended}");
    assert!(ended.stderr.lines().any(|line| line == "to-stderr"), "{ended}");
    assert!(cluster.data().is_dir());
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_signal_that_ends_the_command_is_told_as_a_shell_would() -> Result<()> {
    let cluster = Cluster::prepare()?;
    process::run(&mut up(&cluster, &["sh", "-c", "kill -KILL $$"]))?.expect_code(128 + 9);
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn the_command_runs_in_the_callers_directory() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let ended = process::run(&mut up(&cluster, &["pwd", "-P"]))?;
    assert_eq!(ended.expect_code(0).answer(), cluster.directory().canonicalize()?.display().to_string());
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_command_knows_whose_user_it_is_even_when_the_caller_did_not_say() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let ended =
        process::run(up(&cluster, &["sh", "-c", "test \"$USER\" = \"$(id -un)\" && echo same"]).env_remove("USER"))?;
    assert_eq!(ended.expect_code(0).answer(), "same", "{ended}");
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_second_use_of_the_same_data_works_after_the_first_has_ended() -> Result<()> {
    let cluster = Cluster::prepare()?;
    for code in [3, 4] {
        process::run(&mut up(&cluster, &["sh", "-c", &format!("exit {code}")]))?.expect_code(code);
        processes::wait_until_none_names(cluster.directory())?;
    }
    Ok(())
}

#[test]
fn a_second_up_on_data_in_use_names_its_holder() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let mut first = Running::start(&mut up(&cluster, &[]))?;
    cluster.wait_until_healthy(&mut first)?;

    let second = process::run(&mut up(&cluster, &["true"]))?;
    second.expect_code(1);
    assert!(second.stderr.contains(&first.pid().to_string()), "the sentence names the holder\n{second}");
    assert!(first.is_running());

    first.signal(Signal::INT)?;
    first.wait()?.expect_code(0);
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn without_a_command_it_stays_up_and_an_interrupt_shuts_both_processes_down() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let mut running = Running::start(&mut up(&cluster, &[]))?;
    cluster.wait_until_healthy(&mut running)?;
    running.wait_for_text(Stream::Stderr, &cluster.api())?;
    let both = processes::naming(cluster.directory());
    assert!(both.iter().any(|found| found.pid != running.pid()), "the worker is a process of its own: {both:?}");
    assert_eq!(cluster.ask(&["run", "--", "echo", "through the running pair"]), "through the running pair");

    running.signal(Signal::INT)?;
    running.wait()?.expect_code(0);
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn an_interrupt_cancels_the_command_with_grace_and_ends_with_130() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(&mut up(&cluster, &["sh", "-c", script]))?;
    running.wait_for_text(Stream::Stdout, "ready")?;

    running.signal(Signal::INT)?;
    let ended = running.wait()?;
    ended.expect_code(130);
    assert_eq!(ended.stdout, "ready\ntold\n", "SIGTERM came before the end\n{ended}");
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn the_end_of_the_terminal_is_an_interrupt_once_however_often_it_is_told() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let script = "trap 'echo told; sleep 0.5; echo done; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let up = up(&cluster, &["sh", "-c", script]);
    // Whatever started these tests may itself have been started by `nohup`.
    let mut hearing = std::process::Command::new("env");
    hearing.arg("--default-signal=HUP").arg(up.get_program()).args(up.get_args());
    let mut running = Running::start(&mut hearing)?;
    running.wait_for_text(Stream::Stdout, "ready")?;

    running.signal(Signal::HUP)?;
    running.wait_for_text(Stream::Stdout, "told")?;
    running.signal(Signal::HUP)?;
    let ended = running.wait()?;
    ended.expect_code(130);
    assert_eq!(ended.stdout, "ready\ntold\ndone\n", "cancelled with its grace\n{ended}");
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn whoever_ignores_the_end_of_the_terminal_stays() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let up = up(&cluster, &[]);
    let mut ignoring = std::process::Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(up.get_program()).args(up.get_args());
    let mut running = Running::start(&mut ignoring)?;
    cluster.wait_until_healthy(&mut running)?;
    running.signal(Signal::HUP)?;
    assert_eq!(cluster.ask(&["run", "--", "echo", "still here"]), "still here");
    running.signal(Signal::INT)?;
    running.wait()?.expect_code(0);
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_command_whose_output_nobody_reads_any_more_is_stopped() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let mut command = up(&cluster, &["sh", "-c", "while :; do echo y; sleep 0.01; done"]);
    let mut up = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    // `head -1`: reads a line and goes.
    BufReader::new(up.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
    assert_eq!(line, "y\n");
    let status = eventually("the end of up", || match up.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    })?;
    assert_eq!(status.code(), Some(1));
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_second_interrupt_kills_a_command_that_does_not_listen() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(&mut up(&cluster, &["sh", "-c", script]))?;
    running.wait_for_text(Stream::Stdout, "ready")?;

    running.signal(Signal::INT)?;
    running.wait_for_text(Stream::Stdout, "told")?;
    running.signal(Signal::INT)?;
    running.wait()?.expect_code(130);
    processes::wait_until_none_names(cluster.directory())
}

#[test]
fn a_killed_up_takes_its_worker_along_and_the_next_one_carries_the_job_on() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let (gate, starts) = (cluster.directory().join("gate"), cluster.directory().join("starts"));
    let script =
        format!("echo start >>{}; echo go; until [ -e {} ]; do sleep 0.05; done", starts.display(), gate.display());
    let mut first = Running::start(&mut up(&cluster, &["sh", "-c", &script]))?;
    first.wait_for_text(Stream::Stdout, "go")?;
    first.kill()?;
    eventually("the worker to be gone", || {
        let found = processes::naming(cluster.directory());
        if found.iter().any(|process| process.command.contains("worker-process run")) {
            Err(format!("{found:?}"))
        } else {
            Ok(())
        }
    })?;

    let mut second = Running::start(&mut up(&cluster, &[]))?;
    cluster.wait_until_healthy(&mut second)?;
    let ids = cluster.ask(&["runs", "list", "-q"]);
    std::fs::write(gate, "")?;
    cluster.wait_for_state(&ids, "succeeded")?;
    assert_eq!(std::fs::read_to_string(starts)?, "start\n", "one start");
    second.signal(Signal::INT)?;
    second.wait()?.expect_code(0);
    processes::wait_until_none_names(cluster.directory())
}
