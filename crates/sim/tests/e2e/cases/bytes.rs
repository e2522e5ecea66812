//! Case 18, no trailing newline, NUL, invalid UTF-8, a line of 10 MiB, 200 MB of random bytes: stored are exactly the
//! bytes that were written, up to the quota; the cut is marked; the JSON stays valid; memory of everybody stays flat.

use std::path::Path;

use anyhow::{Context, Result};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use serde_json::Value;

/// What a command line prints, byte for byte: through the API's JSON and back.
pub(super) fn bytes_of(cluster: &Cluster, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = cluster.leasehold().args(arguments).output()?;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Waits until the log of a run's first attempt has this state; answers what is told of it.
pub(super) fn log_becomes(cluster: &Cluster, run: &str, state: &str) -> Result<Value> {
    eventually(&format!("the log of {run} to be {state}"), || {
        let log = cluster.look_at(run)?["attempts"][0]["log"].clone();
        if log["state"] == state { Ok(log) } else { Err(log.to_string()) }
    })
}

#[test]
fn what_was_written_is_what_is_read() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let line = vec![b'x'; 10 * 1024 * 1024];
    for (script, written) in [
        ("printf 'no newline'", &b"no newline"[..]),
        (r"printf 'a\0b\0\0'", b"a\0b\0\0"),
        (r"printf '\377\376\303\n\355\240\200'", b"\xff\xfe\xc3\n\xed\xa0\x80"),
        (r"printf '\033[31mred\r\n'; printf '{\042a\042:1}'", b"\x1b[31mred\r\n{\"a\":1}"),
        ("head -c 10485760 /dev/zero | tr '\\0' x", &line),
    ] {
        let live = bytes_of(&cluster, &["run", "-q", "--", "sh", "-c", script])?;
        assert!(live == written, "live, {script}: {} bytes", live.len());
        let run = cluster.list(&["runs", "list", "--limit", "1"])[0]["id"].as_str().context("an id")?.to_owned();
        let log = log_becomes(&cluster, &run, "complete")?;
        assert_eq!(log["received"], log["length"]);
        assert_eq!(log.get("cut"), None);
        let stored = bytes_of(&cluster, &["logs", &run])?;
        assert!(stored == written, "stored, {script}: {} bytes", stored.len());
    }
    cluster.shut_down()
}

/// The largest resident set that a process ever had, in KiB.
fn peak_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

#[test]
fn two_hundred_megabytes_of_noise_are_cut_and_nobody_grows() -> Result<()> {
    const WRITTEN: usize = 200_000_000;
    let mut cluster = Cluster::start()?;
    let worker = cluster.join(WorkerOptions::named("near"))?;
    bytes_of(&cluster, &["run", "-q", "--", "head", "-c", "3000000", "/dev/zero"])?;
    let agent = cluster.worker(worker).agent_pid();
    let control = cluster.control_pid();
    let before = (peak_kib(agent)?, peak_kib(control)?);

    let (copy, done, gate) = (file(&cluster, "copy"), file(&cluster, "done"), file(&cluster, "gate"));
    let script = format!(
        "head -c {WRITTEN} /dev/urandom | tee {copy}; : > {done}; until [ -e {gate} ]; do sleep 0.05; done; echo end >&2"
    );
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    eventually("all of it to be written", || if Path::new(&done).exists() { Ok(()) } else { Err("not yet".into()) })?;
    let launcher = *cluster.worker(worker).launchers().first().context("a launcher")?;
    let launcher_peak = peak_kib(launcher)?;
    std::fs::write(&gate, "")?;
    cluster.wait_for_state(&run, "succeeded")?;
    let log = log_becomes(&cluster, &run, "complete")?;

    let read = cluster.leasehold().args(["logs", &run]).output()?;
    assert!(read.status.success());
    assert!(String::from_utf8_lossy(&read.stderr).ends_with("end\n"), "the end of the other stream is there");
    let (read, written) = (read.stdout, std::fs::read(&copy)?);
    assert_eq!(log["cut"]["reason"], "quota");
    let missing = usize::try_from(log["cut"]["stdout"].as_u64().context("a count")?)?;
    assert_eq!(read.len() + missing, WRITTEN, "every byte is here or counted");
    let head = read.iter().zip(&written).take_while(|(read, written)| read == written).count();
    assert!(head > 63 * 1024 * 1024, "up to the quota: {head}");
    assert!(read[head..] == written[WRITTEN - (read.len() - head)..], "then the end of the output, and nothing else");
    assert!(read.len() - head > 128 * 1024, "{}", read.len() - head);

    let grown = (peak_kib(agent)?.saturating_sub(before.0), peak_kib(control)?.saturating_sub(before.1));
    eprintln!("agent grew by {} KiB, control plane by {} KiB, launcher's peak {launcher_peak} KiB", grown.0, grown.1);
    assert!(grown.0 < 12 * 1024, "the agent grew by {} KiB", grown.0);
    assert!(grown.1 < 48 * 1024, "the control plane grew by {} KiB", grown.1);
    assert!(launcher_peak < 24 * 1024, "a launcher of {launcher_peak} KiB");
    cluster.shut_down()
}

fn file(cluster: &Cluster, name: &str) -> String {
    cluster.directory().join(name).display().to_string()
}
