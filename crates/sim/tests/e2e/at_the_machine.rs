//! The verbs of the worker's own machine: `status`, `drain`, `resume`, `doctor`, `quarantine`, with an agent and without
//! one.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::process::{self, Ended, Running, Stream};
use rustix::process::Signal;
use serde_json::Value;

/// One of the worker's own verbs, on its state directory.
fn verb(cluster: &Cluster, near: usize, arguments: &[&str]) -> Command {
    let agent = cluster.agent_command(near);
    let mut command = Command::new(agent.get_program());
    command.args(arguments).envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

fn say(cluster: &Cluster, near: usize, arguments: &[&str]) -> Result<Ended> {
    process::run(&mut verb(cluster, near, arguments))
}

fn status(cluster: &Cluster, near: usize) -> Result<Value> {
    let told = say(cluster, near, &["status", "-o", "json"])?;
    serde_json::from_str(&told.stdout).with_context(|| told.to_string())
}

#[test]
fn a_status_says_what_runs_and_until_when_and_what_is_left_when_nothing_does() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let run = cluster.submit(&["--timeout", "10m", "--lease", "5m", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;

    let told = eventually("the agent to say that it runs", || {
        let told = status(&cluster, near).map_err(|error| format!("{error:#}"))?;
        if told["attempts"][0]["state"] == "running_acknowledged" { Ok(told) } else { Err(told.to_string()) }
    })?;
    let attempt = &told["attempts"][0];
    assert_eq!((&attempt["run"], &attempt["job"]), (&Value::from(run.as_str()), &Value::from("runs")), "{told}");
    let left = |what: &str| attempt[what].as_u64().unwrap_or_default();
    ensure!((1..=300_000).contains(&left("lease_ends_in_ms")), "{told}");
    ensure!((1..=600_000).contains(&left("times_out_in_ms")), "{told}");
    assert_eq!(told["inbox"]["running_acknowledged"], 1, "{told}");
    assert_eq!(told["agent"]["pid"], cluster.worker(near).agent_pid(), "{told}");
    assert_eq!((&told["agent"]["max_runs"], &told["agent"]["free_slots"]), (&2.into(), &1.into()), "{told}");
    ensure!(told["agent"]["silent_ms"].as_u64().is_some(), "{told}");
    ensure!(!told.to_string().contains("token"), "{told}");
    let table = say(&cluster, near, &["status"])?;
    table.expect_code(0);
    ensure!(table.stdout.contains(&run) && table.stdout.contains("near of "), "{table}");

    // Without an agent the directory speaks, and is left as it is.
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    let garbage = cluster.worker(near).state().join("inbox/garbage.json");
    std::fs::write(&garbage, "{")?;
    std::fs::set_permissions(&garbage, std::fs::Permissions::from_mode(0o600))?;
    let told = say(&cluster, near, &["status", "-o", "json"])?;
    told.expect_code(1);
    let told: Value = serde_json::from_str(&told.stdout)?;
    assert_eq!(told["agent"], Value::Null, "{told}");
    assert_eq!(told["attempts"][0]["job"], "its launcher runs", "{told}");
    ensure!(garbage.exists(), "a look moves nothing away");
    say(&cluster, near, &["drain"])?.expect_code(1);

    cluster.start_agent(near)?;
    assert_eq!(status(&cluster, near)?["quarantine"][0], "garbage.json");
    std::fs::write(gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    cluster.shut_down()
}

#[test]
fn a_drain_at_the_machine_waits_for_what_runs_and_is_remembered_until_resume() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let gate = cluster.directory().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    cluster.wait_for_state(&run, "running")?;

    let mut drain = Running::start(&mut verb(&cluster, near, &["drain", "--wait"]))?;
    drain.wait_for_text(Stream::Stdout, "draining: 1 attempt is open")?;
    let later = cluster.submit(&["--", "true"]);
    eventually("its wait to be explained", || {
        let told = cluster.json(&["runs", "explain", &later]).to_string();
        if told.contains("takes nothing new, by its last heartbeat") { Ok(()) } else { Err(told) }
    })?;
    let mut timed = verb(&cluster, near, &["drain", "--wait", "--timeout", "1s"]);
    process::run(&mut timed)?.expect_code(23);
    std::fs::write(gate, "")?;
    let drained = drain.wait()?;
    drained.expect_code(0);
    ensure!(drained.stdout.contains("nothing is open"), "{drained}");
    cluster.wait_for_state(&run, "succeeded")?;

    // The agent stays, and so does the drain, over a look at the machine and over a new start.
    ensure!(cluster.agent_runs(near), "it stays");
    let before = status(&cluster, near)?["agent"]["session"]["generation"].as_u64();
    cluster.signal_agent(near, Signal::HUP)?;
    // What reaches the old image together with it is not heard by the next one.
    eventually("the next image to have a session", || {
        let told = status(&cluster, near).map_err(|error| error.to_string())?;
        if told["agent"]["session"]["generation"].as_u64() > before { Ok(()) } else { Err(told.to_string()) }
    })?;
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    cluster.start_agent(near)?;
    let told = status(&cluster, near)?;
    assert_eq!((&told["drained_here"], &told["agent"]["free_slots"]), (&true.into(), &0.into()), "{told}");
    // An ask that the image before left open may be answered with it, and is given back.
    let waits = cluster.wait_for_state(&later, "pending")?;
    assert_eq!(waits["started_at"], serde_json::Value::Null, "{waits}");

    say(&cluster, near, &["resume"])?.expect_code(0);
    cluster.wait_for_state(&later, "succeeded")?;
    assert_eq!(status(&cluster, near)?["drained_here"], false);
    cluster.shut_down()
}

#[test]
fn an_agent_that_is_asked_nonsense_goes_on() -> Result<()> {
    use std::io::{Read as _, Write as _};
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let socket = cluster.worker(near).state().join("agent.sock");
    let mut silent = Vec::new();
    for said in [&b"\n"[..], b"\"explode\"\n", b"{\"status\":", &[0xff; 9000]] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket)?;
        // It may be answered, and closed, before everything is said.
        let _ = stream.write_all(said);
        if said.ends_with(b"\n") {
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            ensure!(answer.contains("does not know that question"), "{answer}");
        }
        silent.push(stream);
    }
    // It may have been asked before its first heartbeat was answered.
    eventually("the agent to take work", || {
        let told = status(&cluster, near).map_err(|error| format!("{error:#}"))?;
        let summary = told["agent"]["summary"].as_str().unwrap_or_default();
        if summary.contains("taking work") { Ok(()) } else { Err(told.to_string()) }
    })?;
    cluster.shut_down()
}

/// Every file of a directory with its content and times.
fn picture(path: &Path, into: &mut BTreeMap<PathBuf, (SystemTime, Vec<u8>)>) -> Result<()> {
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        let content = if metadata.is_file() { std::fs::read(&path)? } else { Vec::new() };
        into.insert(path.clone(), (metadata.modified()?, content));
        if metadata.is_dir() {
            picture(&path, into)?;
        }
    }
    Ok(())
}

/// The verdict and the sight of one finding.
fn finding<'a>(findings: &'a Value, what: &str) -> Option<(&'a str, &'a str)> {
    let found = findings.as_array()?.iter().find(|finding| finding["what"] == what)?;
    Some((found["verdict"].as_str()?, found["seen"].as_str()?))
}

#[test]
fn a_doctor_says_which_step_fails_and_changes_nothing() -> Result<()> {
    let (mut cluster, other) = (Cluster::start()?, Cluster::start()?);
    let near = cluster.join(WorkerOptions::named("near"))?;
    let well = say(&cluster, near, &["doctor", "-o", "json"])?;
    well.expect_code(0);
    let findings: Value = serde_json::from_str(&well.stdout)?;
    for what in ["configuration", "user", "identity", "state", "agent", "control plane", "admission", "clock"] {
        assert_eq!(finding(&findings, what).map(|(verdict, _)| verdict), Some("ok"), "{what}: {findings:#}");
    }
    cluster.stop_agent(near)?.expect_code(0);
    let mut before = BTreeMap::new();
    picture(cluster.worker(near).state(), &mut before)?;

    // Somebody who accepts and hangs up, and a port where nobody is.
    let deaf = TcpListener::bind("127.0.0.1:0")?;
    let port = deaf.local_addr()?.port();
    let hanging_up = std::thread::spawn(move || deaf.accept().map(drop));
    let closed = { TcpListener::bind("127.0.0.1:0")?.local_addr()?.port() };
    for (server, step) in [
        ("https://no-such-host.invalid:7443".to_owned(), "(DNS)"),
        (format!("https://127.0.0.1:{closed}"), "(TCP)"),
        (format!("https://127.0.0.1:{port}"), "TLS"),
        (format!("https://{}", other.ingress()), "(SAN)"),
    ] {
        let mut command = verb(&cluster, near, &["doctor", "-o", "json"]);
        let ill = process::run(command.env("LEASEHOLD_WORKER_SERVER", &server))?;
        ill.expect_code(1);
        let findings: Value = serde_json::from_str(&ill.stdout)?;
        let (verdict, seen) = finding(&findings, "control plane").context("a finding")?;
        ensure!(verdict == "problem" && seen.contains(step), "{server}: {findings:#}");
    }
    ensure!(hanging_up.join().is_ok_and(|accepted| accepted.is_ok()), "it was visited");
    let mut after = BTreeMap::new();
    picture(cluster.worker(near).state(), &mut after)?;
    ensure!(before == after, "it changed {:?}", before.keys().chain(after.keys()).collect::<Vec<_>>());

    // The machine's own: an unreadable configuration, no identity, a directory that others may enter.
    let file = cluster.directory().join("worker.toml");
    std::fs::write(&file, "slot = 3")?;
    let ill = say(&cluster, near, &["doctor", "--config", file.to_str().context("a path")?])?;
    ill.expect_code(1);
    ensure!(ill.stdout.contains("did you mean `slots`?"), "{ill}");
    let empty = cluster.directory().join("empty");
    let ill = say(&cluster, near, &["doctor", "--state-dir", empty.to_str().context("a path")?])?;
    ill.expect_code(1);
    ensure!(ill.stdout.contains("has not joined") && !empty.exists(), "{ill}");
    std::fs::set_permissions(cluster.worker(near).state(), std::fs::Permissions::from_mode(0o755))?;
    let ill = say(&cluster, near, &["doctor"])?;
    ill.expect_code(1);
    ensure!(ill.stdout.contains("gives others access"), "{ill}");
    std::fs::set_permissions(cluster.worker(near).state(), std::fs::Permissions::from_mode(0o700))?;
    other.shut_down()?;
    cluster.shut_down()
}

#[test]
fn what_could_not_be_trusted_is_kept_until_a_person_lets_it_go() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let near = cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--lease", "25s", "--", "sleep", "600"]);
    cluster.wait_for_state(&run, "running")?;
    cluster.kill_agent(near)?;
    // The record is damaged, and its ask has left the file: nobody asks for it again.
    let state = cluster.worker(near).state().to_owned();
    let record = cluster.worker(near).records().into_iter().next().context("a record")?;
    std::fs::write(state.join("inbox").join(&record), "{")?;
    std::fs::write(state.join("pending-claims.json"), r#"{"schema":"leasehold/pending-claims/v1","asks":[]}"#)?;
    cluster.start_agent(near)?;

    let orphan = cluster.worker(near).files_in("attempts").into_iter().next().context("a directory")?;
    let told = status(&cluster, near)?;
    assert_eq!(
        (&told["quarantine"][0], &told["orphans"][0]["attempt"]),
        (&record.as_str().into(), &orphan.as_str().into()),
        "{told}"
    );
    let faults = told["agent"]["faults"].to_string();
    ensure!(faults.contains(&record) && faults.contains(&orphan), "{told}");
    let listed = say(&cluster, near, &["quarantine"])?;
    ensure!(listed.stdout.contains(&record) && listed.stdout.contains("its launcher runs"), "{listed}");
    // Its launcher stops the job before the lease ends; until then nothing may take its directory away.
    say(&cluster, near, &["quarantine", "discard", &orphan])?.expect_code(1);
    say(&cluster, near, &["quarantine", "discard", &record, "nothing"])?.expect_code(1);
    ensure!(state.join("quarantine").join(&record).exists(), "a mistake deletes nothing");
    cluster.wait_for_state(&run, "lost")?;
    ensure!(cluster.worker(near).launchers().is_empty(), "the launcher is over");

    // The next start moves it away with the rest; nothing of it is lost meanwhile.
    cluster.signal_agent(near, Signal::USR1)?;
    cluster.wait_for_agent_end(near)?.expect_code(0);
    cluster.start_agent(near)?;
    ensure!(state.join("quarantine").join(&orphan).join("receipt").exists(), "{:?}", status(&cluster, near)?);
    say(&cluster, near, &["quarantine", "discard", "--all"])?.expect_code(0);
    assert_eq!(cluster.worker(near).files_in("quarantine"), Vec::<String>::new());
    assert_eq!(cluster.worker(near).files_in("attempts"), Vec::<String>::new());
    assert_eq!(say(&cluster, near, &["quarantine"])?.stdout, "nothing\n");
    cluster.shut_down()
}
