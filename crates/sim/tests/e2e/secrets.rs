//! No token and no key is in any file, row, log line or answer but the ones meant to carry it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use rustix::process::Signal;
use serde_json::Value;

/// Secrets by what they are, as the bytes they are made of.
type Secrets = BTreeMap<String, Vec<u8>>;

/// Every form in which a secret would give itself away.
fn forms(secret: &[u8]) -> [Vec<u8>; 4] {
    let texts = [BASE64URL_NOPAD.encode(secret), BASE64.encode(secret), HEXLOWER.encode(secret)];
    let [url, base64, hex] = texts.map(String::into_bytes);
    [secret.to_vec(), url, base64, hex]
}

#[track_caller]
fn holds_none(place: &str, bytes: &[u8], secrets: &Secrets) {
    assert!(!bytes.is_empty(), "{place} is empty: nothing was looked at");
    // One character for each byte: the search of texts is fast, and megabytes are searched dozens of times.
    let as_text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    let text = as_text(bytes);
    for (what, secret) in secrets {
        for form in forms(secret) {
            assert!(!text.contains(&as_text(&form)), "{place} tells {what}");
        }
    }
}

/// Adds whatever under `value` is called a token, ticket or key.
fn collect(place: &str, value: &Value, secrets: &mut Secrets) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let text = value.as_str().filter(|_| {
                    let name = name.to_lowercase();
                    (name.contains("token") || name.contains("ticket") || name == "key") && !name.contains("digest")
                });
                let secret = text.and_then(|text| {
                    BASE64URL_NOPAD.decode(text.as_bytes()).or_else(|_| BASE64.decode(text.as_bytes())).ok()
                });
                if let Some(secret) = secret.filter(|secret| secret.len() >= 32) {
                    secrets.insert(format!("{place}'s {name}"), secret);
                }
                collect(place, value, secrets);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(place, value, secrets)),
        _ => {}
    }
}

fn collect_files(directory: &Path, secrets: &mut Secrets) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, secrets)?;
        } else if let Some(value) = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            collect(&name, &value, secrets);
        }
    }
    Ok(())
}

#[test]
fn no_secret_is_in_any_row_log_line_answer_or_job_but_where_it_is_meant_to_be() -> Result<()> {
    let mut cluster = Cluster::prepare()?;
    cluster.log_everything();
    cluster.start_control()?;
    let mut secrets = Secrets::new();
    let admin = cluster.first_token()?;
    secrets.insert("the admin token".to_owned(), BASE64URL_NOPAD.decode(admin.as_bytes())?);
    let line = cluster.ask(&["worker", "enroll", "--name", "spare", "-q"]);
    let join = line.split_whitespace().find_map(|word| word.strip_prefix("lhj1_")).context("a join token")?;
    let enrollment = join.split('.').next().unwrap_or(join);
    secrets.insert("an enrollment token".to_owned(), BASE64URL_NOPAD.decode(enrollment.as_bytes())?);
    let near = cluster.join(WorkerOptions::named("near"))?;

    // A job that looks at everything it was given and at its parents, and waits to be told to end.
    let gate = cluster.directory().join("gate");
    let script = format!(
        "env; id; for p in $$ $PPID; do tr '\\0' '\\n' </proc/$p/cmdline; tr '\\0' '\\n' </proc/$p/environ; done; \
         echo seen; until [ -e {} ]; do sleep 0.05; done",
        gate.display()
    );
    let run = cluster.submit(&["--", "sh", "-c", &script]);
    eventually("the job to have seen everything", || {
        let log = cluster.cli(&["runs", "logs", &run]).map_err(|error| error.to_string())?;
        if log.stdout.contains("seen\n") { Ok(()) } else { Err(log.to_string()) }
    })?;
    // The launch's own token stands in its receipt until that is reported: the agent is held still meanwhile.
    cluster.signal_agent(near, Signal::STOP)?;
    std::fs::write(&gate, "")?;
    eventually("every kind of secret in the worker's files", || {
        collect_files(cluster.worker(near).state(), &mut secrets).map_err(|error| error.to_string())?;
        let names = secrets.keys().cloned().collect::<Vec<_>>().join(", ");
        let kinds = ["identity.json's key", "session.json's ticket", "lease_token", "completion_token"];
        if kinds.iter().all(|kind| names.contains(kind)) { Ok(()) } else { Err(names) }
    })?;
    cluster.signal_agent(near, Signal::CONT)?;
    cluster.wait_for_state(&run, "succeeded")?;

    for answer in [
        &["runs", "get", &run, "-o", "json"][..],
        &["runs", "watch", &run, "-o", "jsonl"],
        &["runs", "logs", &run],
        &["runs", "list", "-o", "jsonl"],
        &["worker", "list", "-o", "jsonl"],
        &["worker", "get", "near", "-o", "json"],
    ] {
        let ended = cluster.cli(answer)?;
        ended.expect_code(0);
        holds_none(&answer.join(" "), ended.to_string().as_bytes(), &secrets);
    }
    for entry in std::fs::read_dir(cluster.data())? {
        let path = entry?.path();
        if path.is_file() && std::fs::metadata(&path)?.len() > 0 {
            holds_none(&path.display().to_string(), &std::fs::read(&path)?, &secrets);
        }
    }
    // The first admin token is printed once, on purpose.
    let written = cluster.written().replacen(&admin, "", 1);
    assert!(written.contains("TRACE"), "everything was logged");
    holds_none("the log", written.as_bytes(), &secrets);

    let master = std::fs::read_to_string(cluster.data().join("master.key"))?;
    assert!(!written.contains(master.trim()), "the log tells the master key");
    cluster.shut_down()
}
