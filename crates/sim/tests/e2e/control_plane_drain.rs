//! SIGTERM to a control plane that is in use: twenty open pulls, a follower, clients that say nothing or half a request.
//! It answers what was asked and is gone within ten seconds; a second signal ends it at once, and nothing is lost.
//!
//! (Control design, *Operating it*.)

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::{PATIENCE, eventually};
use leasehold_sim::impostor::{self, Session};
use leasehold_sim::process::{Running, Stream};
use rustix::process::Signal;
use serde_json::json;

const DRAIN: Duration = Duration::from_secs(10);

/// What a connection is sent until it ends.
fn rest_of(mut stream: &TcpStream) -> Result<String> {
    let mut text = Vec::new();
    stream.set_read_timeout(Some(PATIENCE))?;
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Clients that hold a connection and want nothing of it.
fn silent_clients(cluster: &Cluster) -> Result<Vec<TcpStream>> {
    let mut clients = Vec::new();
    for (address, said) in [
        (cluster.ingress(), &b""[..]),
        (cluster.ingress(), b"\x16\x03\x01"),
        (cluster.api(), b""),
        (cluster.api(), b"GET /api/v1/runs HTTP/1.1\r\nhost: x"),
        (cluster.api(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let mut client = TcpStream::connect(address)?;
        client.write_all(said)?;
        clients.push(client);
    }
    Ok(clients)
}

/// Established connections to an address of this host, as the kernel counts them.
fn connections(address: &str) -> usize {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or_default();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let is_ours = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && words.get(3) == Some(&"01")
    };
    table.lines().filter(is_ours).count()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "ten seconds are the promise")]
fn a_control_plane_in_use_answers_and_is_gone_within_ten_seconds() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let by_hand = cluster.enroll(WorkerOptions::named("by-hand"))?;
    let intent = impostor::take_intent(&mut cluster, by_hand)?;
    let session = Session::of(&impostor::holder(&cluster, by_hand)?, &intent.session);
    assert_eq!(session.register(&intent.body)?.status, 200);
    let mut agents = Vec::new();
    for number in 0..19 {
        let name = format!("w{number}");
        let slots = u16::from(number == 0);
        let agent = cluster.enroll(WorkerOptions { slots: slots.max(1), ..WorkerOptions::named(&name) })?;
        cluster.spawn_agent(agent)?;
        agents.push(agent);
    }
    eventually("nineteen sessions", || {
        let active = cluster.list(&["worker", "list"]);
        let active = active.iter().filter(|worker| worker["status"] == "online").count();
        if active >= 20 { Ok(()) } else { Err(active.to_string()) }
    })?;
    let gate = cluster.directory().join("gate");
    let script = format!("echo go; until [ -e {} ]; do sleep 0.05; done; echo done", gate.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    let mut follower = Running::start(cluster.leasehold().args(["runs", "logs", "-f", &run]))?;
    follower.wait_for_text(Stream::Stdout, "go")?;
    let clients = silent_clients(&cluster)?;
    let pull = std::thread::spawn(move || {
        let pull = json!({ "schema": "leasehold/pull/v1", "session_generation": 1, "asks": [], "wait_ms": 30_000 });
        session.call("pull", &pull)
    });
    // Nineteen agents, the pull by hand, and two silent ones; each pull is then open for as long as a few questions take.
    eventually("twenty-two connections to the ingress", || {
        let open = connections(&cluster.ingress());
        if open >= 22 { Ok(()) } else { Err(open.to_string()) }
    })?;
    for _ in 0..20 {
        cluster.ask(&["runs", "list"]);
    }

    let told = Instant::now();
    cluster.signal_control(Signal::TERM)?;
    let ended = cluster.wait_for_control_end()?;
    let took = told.elapsed();
    ended.expect_code(0);
    ensure!(took < DRAIN, "it took {took:?}");
    let answer = pull.join().ok().context("the pull's thread ended")??;
    ensure!(matches!(answer.status, 200 | 503), "the open pull was answered: {answer:?}");
    for client in &clients {
        rest_of(client)?;
    }

    // Nobody lost anything: the job ends while nobody listens, and the follower comes back to its end.
    cluster.start_control()?;
    std::fs::write(gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    assert_eq!(cluster.log(&run), "go\ndone");
    for agent in agents {
        ensure!(cluster.agent_runs(agent), "no agent ended for it");
    }
    follower.kill()?;
    cluster.shut_down()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "at once is less than a drain takes")]
fn a_second_sigterm_ends_it_at_once_and_nothing_that_was_answered_is_lost() -> Result<()> {
    let mut cluster = Cluster::start()?;
    // A request that never becomes whole holds the drain up.
    let clients = silent_clients(&cluster)?;
    let run = cluster.submit(&["--", "true"]);
    let told = Instant::now();
    cluster.signal_control(Signal::TERM)?;
    cluster.wait_for_control_text("draining")?;
    cluster.signal_control(Signal::TERM)?;
    cluster.wait_for_control_end()?.expect_code(130);
    ensure!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    drop(clients);
    cluster.start_control()?;
    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "pending");
    cluster.cli(&["runs", "cancel", &run])?.expect_code(0);
    cluster.shut_down()
}

#[test]
fn up_ends_at_once_when_it_is_told_a_third_time() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let mut command = cluster.leasehold();
    let mut up = Running::start(command.arg("up").args(cluster.listen_flags()))?;
    up.wait_for_text(Stream::Stderr, "Leasehold is up")?;
    let mark = cluster.directory().join("mark");
    let script = format!("trap '' TERM; echo $$ >{}; while :; do sleep 0.1; done", mark.display());
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    eventually("the job to run", || if mark.exists() { Ok(()) } else { Err("no mark".to_owned()) })?;
    let _client = silent_clients(&cluster)?;
    up.signal(Signal::TERM)?;
    up.wait_for_text(Stream::Stderr, "waiting for what runs")?;
    up.signal(Signal::TERM)?;
    up.wait_for_text(Stream::Stderr, "cancelling what runs")?;
    up.signal(Signal::TERM)?;
    up.signal(Signal::TERM)?;
    let ended = up.wait()?;
    ensure!(matches!(ended.code(), Some(0 | 130)), "{ended}");
    // Its launcher outlives both, and keeps to its deadlines; the cluster takes it away.
    ensure!(!run.is_empty());
    Ok(())
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let mut serve = cluster.leasehold();
    serve.arg("serve").arg("--data").arg(cluster.data()).args(cluster.listen_flags());
    // As a log file on a full disk, or a collector that has gone, says no to every line.
    let mut unread = std::process::Command::new("sh");
    unread.args(["-c", "exec \"$0\" \"$@\" 2>/dev/full"]).arg(serve.get_program()).args(serve.get_args());
    let mut running = Running::start(unread.env("LEASEHOLD_LOG", "debug"))?;
    cluster.wait_until_healthy(&mut running)?;
    let run = cluster.submit(&["--", "true"]);
    cluster.cli(&["runs", "cancel", &run])?.expect_code(0);
    let token = std::fs::read_to_string(cluster.data().join("first-admin-token"))?;
    ensure!(token.trim().len() == 43, "the token that could not be shown is left where it can be found");

    running.signal(Signal::TERM)?;
    running.wait()?.expect_code(0);
    Ok(())
}
