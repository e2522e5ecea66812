//! A control plane, a worker on another machine, and every verb of the command line between them.

use std::io::Read as _;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::{Machine, is_root_or_skip};
use leasehold_sim::process::{self, Running, Stream};
use rustix::process::Signal;

#[test]
fn a_worker_on_another_machine_enrolls_and_runs() -> Result<()> {
    if !is_root_or_skip("a_worker_on_another_machine_enrolls_and_runs") {
        return Ok(());
    }
    let machine = Machine::create(1)?;
    let mut cluster = Cluster::start_on(machine.host_address())?;
    let options = WorkerOptions { name: "far", slots: 2, machine: Some(&machine) };
    let far = cluster.enroll(options)?;
    cluster.start_agent(far)?;

    let addresses = cluster.ask(&["run", "--", "ip", "-4", "addr"]);
    assert!(addresses.contains(machine.address()), "it ran on the other machine:\n{addresses}");
    assert_eq!(cluster.session_state("far"), "active");
    cluster.shut_down()
}

#[test]
fn a_run_is_followed_with_both_streams_and_a_code_of_ours() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;

    let failed = cluster.cli(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"])?;
    failed.expect_code(5);
    assert_eq!(failed.stdout, "out\n", "{failed}");
    assert!(failed.stderr.lines().any(|line| line == "err"), "{failed}");
    cluster.cli(&["run", "--reflect-exit-status", "--", "sh", "-c", "exit 3"])?.expect_code(3);
    cluster.cli(&["run", "--reflect-exit-status", "--", "sh", "-c", "kill -TERM $$"])?.expect_code(128 + 15);
    cluster.cli(&["run", "--timeout", "1s", "--", "sleep", "600"])?.expect_code(7);
    cluster.shut_down()
}

#[test]
fn each_verb_of_runs_tells_of_a_finished_run() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--", "sh", "-c", "echo out; echo err >&2; exit 3"]);

    cluster.cli(&["runs", "watch", &run, "--exit-status"])?.expect_code(5);
    assert_eq!(cluster.wait_for_state(&run, "failed")?["id"], run.as_str());
    cluster.log(&run);
    let log = cluster.cli(&["runs", "logs", &run])?;
    log.expect_code(0);
    assert_eq!((log.stdout.as_str(), log.stderr.contains("err")), ("out\n", true), "{log}");

    assert_eq!(cluster.runs_in_state("failed"), [run.as_str()]);
    let table = cluster.ask(&["runs", "list"]);
    assert!(table.lines().count() >= 2 && table.contains("failed"), "a heading and a row:\n{table}");
    let listed = cluster.list(&["runs", "list"]);
    assert_eq!(listed.iter().map(|item| item["id"].as_str()).collect::<Vec<_>>(), [Some(run.as_str())]);
    assert_eq!(cluster.ask(&["runs", "list", "-q"]), run, "quiet prints the one thing a script wants");
    let prefix = &run[..run.len() - 4];
    assert_eq!(cluster.json(&["runs", "get", prefix])["id"], run.as_str(), "a unique prefix is enough");
    cluster.shut_down()
}

#[test]
fn a_cancelled_run_is_stopped_and_says_so() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let mark = cluster.directory().join("pid");
    let script = format!("echo $$ >{}; exec sleep 600", mark.display());
    let mut followed =
        Running::start(cluster.leasehold().args(["run", "--", "sh", "-c", &format!("echo go; {script}")]))?;
    followed.wait_for_text(Stream::Stdout, "go")?;
    let running = cluster.runs_in_state("running");
    let [run] = running.as_slice() else { panic!("one run is running: {running:?}") };

    cluster.cli(&["runs", "cancel", run])?.expect_code(0);
    followed.wait()?.expect_code(6);
    cluster.wait_for_state(run, "cancelled")?;
    let pid = std::fs::read_to_string(mark)?;
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "the process {pid} is gone");
    cluster.shut_down()
}

#[test]
fn leaving_a_followed_run_leaves_it_going() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("echo go; until [ -e {} ]; do sleep 0.05; done; echo done", gate.display());
    let mut followed = Running::start(cluster.leasehold().args(["run", "--", "sh", "-c", &script]))?;
    followed.wait_for_text(Stream::Stdout, "go")?;

    followed.signal(Signal::INT)?;
    let left = followed.wait()?;
    left.expect_code(130);
    let running = cluster.runs_in_state("running");
    let [run] = running.as_slice() else { panic!("it goes on: {running:?}") };
    assert!(left.stderr.contains(run.as_str()), "it says which run goes on\n{left}");

    std::fs::write(gate, "")?;
    cluster.cli(&["runs", "watch", run, "--exit-status"])?.expect_code(0);
    assert_eq!(cluster.log(run), "go\ndone");
    cluster.shut_down()
}

#[test]
fn workers_are_listed_with_what_they_can() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions { name: "one", slots: 3, machine: None })?;
    cluster.enroll(WorkerOptions::named("two"))?;

    let mut names: Vec<String> = cluster.ask(&["worker", "list", "-o", "name"]).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    let worker = cluster.json(&["worker", "get", "one"]);
    assert_eq!(worker["capabilities"]["arch"], std::env::consts::ARCH, "{worker}");
    assert_eq!(cluster.session_state("two"), "", "enrolled, but it never registered");
    cluster.shut_down()
}

#[test]
fn a_draining_agent_finishes_what_runs_and_takes_nothing_new() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("echo go; until [ -e {} ]; do sleep 0.05; done", gate.display());
    let mut followed = Running::start(cluster.leasehold().args(["run", "--", "sh", "-c", &script]))?;
    followed.wait_for_text(Stream::Stdout, "go")?;

    cluster.signal_agent(near, Signal::TERM)?;
    eventually("the worker to be draining", || {
        let state = cluster.session_state("near");
        if state == "draining" { Ok(()) } else { Err(state) }
    })?;
    let later = cluster.submit(&["--", "true"]);
    std::fs::write(gate, "")?;
    followed.wait()?.expect_code(0);
    cluster.wait_for_agent_end(near)?.expect_code(0);
    assert_eq!(cluster.json(&["runs", "get", &later])["state"], "pending");

    cluster.start_agent(near)?;
    cluster.cli(&["runs", "watch", &later, "--exit-status"])?.expect_code(0);
    cluster.shut_down()
}

#[test]
fn a_remote_command_line_uses_the_address_and_the_token() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let token = cluster.first_token()?;
    let elsewhere = tempfile::tempdir()?;
    let remote = |token: &str| {
        let mut command = cluster.leasehold();
        command.args(["run", "--", "echo", "from afar"]).current_dir(elsewhere.path());
        command.env("LEASEHOLD_ADDR", format!("http://{}", cluster.api())).env("LEASEHOLD_TOKEN", token);
        process::run(&mut command)
    };
    assert_eq!(remote(&token)?.expect_code(0).answer(), "from afar");
    remote("not-a-token")?.expect_code(4);
    cluster.shut_down()
}

#[test]
fn a_first_start_whose_port_is_busy_makes_nothing_and_shows_no_token() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (busy, free) = (listener.local_addr()?.to_string(), "127.0.0.1:0");
    for (verb, api, ingress) in [("serve", busy.as_str(), free), ("serve", free, &busy), ("up", &busy, free)] {
        let mut start = cluster.leasehold();
        start.arg(verb).arg("--data").arg(cluster.data()).args(["--listen", api, "--worker-listen", ingress]);
        let refused = process::run(&mut start)?;
        refused.expect_code(1);
        assert!(refused.stderr.contains("another program does already"), "{refused}");
        assert!(!refused.stderr.contains("token") && !cluster.data().exists(), "{refused}");
    }
    Ok(())
}

#[test]
fn output_waits_for_a_reader_that_made_its_pipe_non_blocking() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--", "seq", "1", "50000"]);
    cluster.cli(&["runs", "watch", &run, "--exit-status"])?.expect_code(0);

    // As a terminal is that a program works with so: a full one says *again later*.
    let (mut reader, writer) = std::io::pipe()?;
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK)?;
    let mut logs = cluster.leasehold().args(["logs", &run]).stdout(writer).spawn()?;
    eventually("a full pipe", || match rustix::io::ioctl_fionread(&reader) {
        Ok(bytes) if bytes > 60_000 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    assert_eq!(logs.wait()?.code(), Some(0));
    assert!(text.lines().eq((1..=50_000).map(|number| number.to_string())), "{} bytes arrived", text.len());
    cluster.shut_down()
}
