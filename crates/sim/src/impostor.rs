//! Somebody who has a worker's credentials and sends what he likes: the raw side of the worker protocol.
//!
//! The certificate is taken from an enrolled state directory, the body of a registration from the intent that an agent
//! writes down before it asks, so that no test has to know how capabilities are told.

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
    let file = state.join("identity.json");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let identity: Value = serde_json::from_str(&text).context("the identity is JSON")?;
    let certificates = identity["certificates"].as_array().context("the identity has certificates")?;
    let chain: String = certificates.iter().filter_map(Value::as_str).map(|der| pem("CERTIFICATE", der)).collect();
    let key = pem("PRIVATE KEY", identity["key"].as_str().context("the identity has a key")?);
    // curl reads PEM only. What an impostor wrote down stays beside the state directory, never in it.
    let (certificate_file, key_file) = (state.with_extension("stolen.crt"), state.with_extension("stolen.key"));
    std::fs::write(&certificate_file, chain)?;
    std::fs::write(&key_file, key)?;
    Ok(Certified::new(&cluster.ingress(), &certificate_file, &key_file))
}

/// DER in base64 as a PEM block.
fn pem(label: &str, base64: &str) -> String {
    let lines: Vec<&str> = base64.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
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

    /// `POST` of one of the session's calls that says something in headers.
    pub fn call_with(&self, verb: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer> {
        self.certified.send_with("POST", &format!("/worker/v1/sessions/{}/{verb}", self.id), headers, body)
    }

    /// The same call without a certificate.
    pub fn call_uncertified(&self, verb: &str, body: &Value) -> Result<Answer> {
        let path = format!("/worker/v1/sessions/{}/{verb}", self.id);
        self.certified.send_uncertified("POST", &path, body.to_string().as_bytes())
    }
}
