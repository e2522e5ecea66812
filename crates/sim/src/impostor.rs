//! Somebody who has a worker's credentials and sends what he likes: the raw side of the worker protocol.
//!
//! The certificate is taken from an enrolled state directory, the body of a registration from the intent that an agent
//! writes down before it asks, so that no test has to know how capabilities are told.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::request::{Answer, Certified};

/// A registration that an agent meant to send.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The session's id.
    pub session: String,
    /// The exact body.
    pub body: Value,
}

/// Starts an agent while nobody answers, takes the registration it wrote down, and kills it.
pub fn take_intent(cluster: &mut Cluster, worker: usize) -> Result<Intent> {
    cluster.kill_control()?;
    cluster.spawn_agent(worker)?;
    let file = cluster.worker(worker).state().join("session.json");
    let intent = eventually("an intent in session.json", || {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let intent = &value["intent"];
        let (session, body) = (intent["session"].as_str(), intent["body"].as_str());
        match (session, body.and_then(|body| serde_json::from_str(body).ok())) {
            (Some(session), Some(body)) => Ok(Intent { session: session.to_owned(), body }),
            _ => Err("no intent yet".to_owned()),
        }
    })?;
    cluster.kill_agent(worker)?;
    cluster.start_control()?;
    Ok(intent)
}

/// The holder of the certificate of an enrolled worker.
pub fn holder(cluster: &Cluster, worker: usize) -> Result<Certified> {
    let state = cluster.worker(worker).state();
    let certificate = file_with(state, "-----BEGIN CERTIFICATE-----")?;
    let key = file_with(state, "PRIVATE KEY-----")?;
    Ok(Certified::new(&cluster.ingress(), &certificate, &key))
}

/// The worker's own PEM file with this marker; the CA's certificates are not the worker's.
fn file_with(state: &Path, marker: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(state).with_context(|| format!("cannot list {}", state.display()))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.starts_with("ca") && !name.starts_with("trust")
        })
        .find(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(marker)))
        .with_context(|| format!("no file in {} holds `{marker}`", state.display()))
}

/// A live session that is driven by hand.
#[derive(Debug, Clone)]
pub struct Session {
    certified: Certified,
    /// Its id.
    pub id: String,
}

impl Session {
    /// A session of this id, called with these credentials, whether or not it is theirs.
    pub fn of(certified: &Certified, id: &str) -> Self {
        Self { certified: certified.clone(), id: id.to_owned() }
    }

    /// `PUT` of the session itself.
    pub fn register(&self, body: &Value) -> Result<Answer> {
        self.certified.send("PUT", &format!("/worker/v1/sessions/{}", self.id), body.to_string().as_bytes())
    }

    /// `POST` of one of the session's calls.
    pub fn call(&self, verb: &str, body: &Value) -> Result<Answer> {
        self.call_bytes(verb, body.to_string().as_bytes())
    }

    /// `POST` of one of the session's calls, with any bytes as its body.
    pub fn call_bytes(&self, verb: &str, body: &[u8]) -> Result<Answer> {
        self.certified.send("POST", &format!("/worker/v1/sessions/{}/{verb}", self.id), body)
    }

    /// The same call without a certificate.
    pub fn call_uncertified(&self, verb: &str, body: &Value) -> Result<Answer> {
        let path = format!("/worker/v1/sessions/{}/{verb}", self.id);
        self.certified.send_uncertified("POST", &path, body.to_string().as_bytes())
    }
}
