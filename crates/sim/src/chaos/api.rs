//! The operator API as the chaos run asks it: over the admin sockets of the replicas in turn, with patience for one that is
//! frozen or gone.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::history::{Attempt, Event, Log, Outcome, Run};
use super::jobs::{Stream, Verb};

/// How long a control plane may take to answer before the question is asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// An asker.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    sockets: Vec<PathBuf>,
    /// Whose turn it is.
    turn: Arc<AtomicUsize>,
}

impl Api {
    /// An asker of the control planes with these data directories.
    pub(crate) fn of<'a>(data: impl IntoIterator<Item = &'a Path>) -> Self {
        let sockets = data.into_iter().map(|data| data.join("admin.sock")).collect();
        Self { sockets, turn: Arc::default() }
    }

    /// To the replica whose turn it is, or the next one that is there.
    fn connect(&self) -> Result<UnixStream> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut refusal = None;
        for place in 0..self.sockets.len() {
            match UnixStream::connect(&self.sockets[(turn + place) % self.sockets.len()]) {
                Ok(stream) => return Ok(stream),
                Err(error) => refusal = Some(error),
            }
        }
        bail!("nobody is there: {refusal:?}")
    }

    /// One request; an error also where nobody answers in time.
    fn request(&self, method: &str, path: &str, key: Option<&str>, body: &[u8]) -> Result<(u16, Vec<u8>)> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: local\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        )?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").context("no HTTP answer")?;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no HTTP status")?;
        let body = &answer[end + 4..];
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body)? } else { body.to_vec() };
        Ok((status, body))
    }

    /// `GET`, which must succeed.
    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>> {
        let (status, body) = self.request("GET", path, None, &[])?;
        ensure!(status == 200, "GET {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    pub(crate) fn json(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.bytes(path)?)?)
    }

    /// Every item of a list.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>> {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let page = self.json(&format!("{path}{mark}limit=64{after}"))?;
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(items),
            }
        }
    }

    /// Submits a run; the same key never makes a second one.
    pub(crate) fn submit(&self, key: &str, body: &Value) -> Result<String> {
        let (status, answer) = self.request("POST", "/api/v1/runs", Some(key), body.to_string().as_bytes())?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match answer["id"].as_str() {
            Some(id) if status == 201 || status == 200 => Ok(id.to_owned()),
            _ => bail!("{status}: {answer}"),
        }
    }

    /// Cancels a run: whether the wish was taken. A run that has ended, or is lost, refuses it.
    pub(crate) fn cancel(&self, run: &str) -> Result<bool> {
        let (status, answer) = self.request("POST", &format!("/api/v1/runs/{run}/cancel"), None, b"{}")?;
        taken(status, &answer)
    }

    /// Says a word on a lost attempt: whether it was taken. One that comes second is refused.
    pub(crate) fn resolve(&self, run: &str, attempt: u64, verb: Verb) -> Result<bool> {
        let body = json!({ "verb": verb.name(), "attempt": attempt, "why": "chaos" }).to_string();
        let (status, answer) = self.request("POST", &format!("/api/v1/runs/{run}/resolve"), None, body.as_bytes())?;
        taken(status, &answer)
    }

    /// `drain` or `resume`: whether the wish stands, also from before.
    pub(crate) fn ask_worker(&self, worker: &str, verb: &str) -> Result<()> {
        let (status, answer) = self.request("POST", &format!("/api/v1/workers/{worker}/{verb}"), None, b"{}")?;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Deletes a worker: whether it is gone. One that holds something stays, unless its machine is `destroyed`.
    pub(crate) fn delete_worker(&self, worker: &str, destroyed: bool) -> Result<bool> {
        let body = json!({ "destroyed": destroyed, "why": "chaos" }).to_string();
        let (status, answer) = self.request("DELETE", &format!("/api/v1/workers/{worker}"), None, body.as_bytes())?;
        taken(status, &answer)
    }

    /// Everything there is to show of a run.
    pub(crate) fn run(&self, id: &str) -> Result<Run> {
        let said = self.json(&format!("/api/v1/runs/{id}"))?;
        let mut attempts = Vec::new();
        for attempt in said["attempts"].as_array().context("a run has attempts")? {
            attempts.push(self.attempt(id, attempt)?);
        }
        let events = self.list(&format!("/api/v1/runs/{id}/events"))?;
        Ok(Run {
            id: text(&said["id"]),
            state: text(&said["state"]),
            end_not_observed: said["end_not_observed"] == true,
            outcome: outcome(&said["outcome"]),
            attempts,
            events: events.iter().map(event).collect(),
        })
    }

    fn attempt(&self, run: &str, said: &Value) -> Result<Attempt> {
        let number = said["number"].as_u64().context("an attempt has a number")?;
        let read = |stream: Stream| {
            self.bytes(&format!("/api/v1/runs/{run}/log?format=raw&stream={}&attempt={number}", stream.name()))
        };
        Ok(Attempt {
            id: text(&said["id"]),
            number,
            state: text(&said["state"]),
            worker: said["worker"].as_str().map(str::to_owned),
            outcome: outcome(&said["outcome"]),
            resolution: text(&said["resolution"]),
            word: said["word"]["verb"].as_str().map(str::to_owned),
            evidence: said["evidence"].as_array().into_iter().flatten().map(text).collect(),
            may_live: said["may_live"] == true,
            is_left: said["cancel_incomplete"].is_object(),
            log: Log {
                state: text(&said["log"]["state"]),
                stdout: read(Stream::Stdout)?,
                stderr: read(Stream::Stderr)?,
            },
        })
    }
}

fn taken(status: u16, answer: &[u8]) -> Result<bool> {
    match status {
        200..300 => Ok(true),
        409 => Ok(false),
        _ => bail!("{status}: {}", String::from_utf8_lossy(answer)),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn outcome(value: &Value) -> Option<Outcome> {
    value.is_object().then(|| Outcome {
        kind: text(&value["kind"]),
        exit_code: value["exit_code"].as_u64(),
        signal: value["signal"].as_i64(),
        reason: value["reason"].as_str().map(str::to_owned),
        evidence: value["evidence"].as_str().map(str::to_owned),
    })
}

fn event(value: &Value) -> Event {
    Event {
        sequence: value["sequence"].as_u64().unwrap_or(0),
        kind: text(&value["kind"]),
        attempt: value["attempt_id"].as_str().map(str::to_owned),
        actor: text(&value["actor"]),
        facts: if value["facts"].is_object() { value["facts"].to_string() } else { String::new() },
    }
}

/// A body in chunks, put together; broken off, it is an error.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").context("a chunk without a length")?;
        let length = usize::from_str_radix(str::from_utf8(&rest[..end])?.trim(), 16)?;
        rest = &rest[end + 2..];
        if length == 0 {
            return Ok(body);
        }
        ensure!(rest.len() >= length + 2, "the body broke off");
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::unchunked;

    #[test]
    fn chunks_are_put_together_and_a_broken_body_is_told() {
        assert_eq!(unchunked(b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n").unwrap(), b"abc0123456789");
        assert!(unchunked(b"3\r\nab").is_err());
        assert!(unchunked(b"3\r\nabc\r\n").is_err());
    }
}
