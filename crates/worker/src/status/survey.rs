//! A look at a state directory from outside: read, never written, whether or not an agent runs there.
//!
//! What an agent would move to quarantine is only told here. (Worker design, *Inbox*.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use leasehold_core::limits::INBOX_RECORD_BYTES;
use leasehold_core::time::UtcMillis;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Attempt, Orphan, SCHEMA, Status};
use crate::attempt_dir::AttemptDir;
use crate::durable::{Dir, DurableError};
use crate::identity::Identity;
use crate::inbox::record::Record;
use crate::logging::rfc3339;
use crate::pause::Pause;
use crate::session_file::{SessionFile, Stopped};
use crate::state::{StateError, StateFile};

/// What a state directory holds.
#[derive(Debug)]
pub struct Survey {
    /// The status, without its agent.
    pub status: Status,
    /// Records that could not be read: the file and why.
    pub unreadable: Vec<(String, String)>,
}

/// When a worker's own certificate begins and ends.
pub fn validity(identity: &Identity) -> Option<(UtcMillis, UtcMillis)> {
    let (_, leaf) = X509Certificate::from_der(identity.certificates.first()?).ok()?;
    let millis = |seconds: i64| UtcMillis::new(seconds.saturating_mul(1000));
    Some((millis(leaf.validity().not_before.timestamp()), millis(leaf.validity().not_after.timestamp())))
}

/// Looks at the state directory of this worker.
pub fn survey(dir: &Dir, identity: &Identity) -> Result<Survey, StateError> {
    let mut unreadable = Vec::new();
    let attempts_path = dir.path().join("attempts");
    // Before the records: an attempt's directory is made after its record, and goes before it.
    let directories = names_in(&attempts_path)?;
    let records = records(dir.path(), &mut unreadable)?;
    let known: BTreeSet<String> = records.iter().map(|record| record.attempt().to_string()).collect();
    let mut inbox = BTreeMap::new();
    for record in &records {
        *inbox.entry(record.state().to_string()).or_insert(0) += 1;
    }
    let running = |attempt: &str| is_running(&attempts_path, attempt);
    let attempts = records
        .iter()
        .map(|record| Attempt {
            run: record.offer.run.to_string(),
            attempt: record.attempt().to_string(),
            number: record.offer.number.get(),
            task: record.offer.task.as_ref().map(ToString::to_string),
            state: record.state().to_string(),
            job: if running(&record.attempt().to_string()) { "its launcher runs" } else { "no launcher runs" }
                .to_owned(),
            lease_ends_in_ms: None,
            times_out_in_ms: None,
            stopping: None,
        })
        .collect();
    let orphans = unknown(&attempts_path, directories, &known);
    let stopped = SessionFile::read(dir)?.and_then(|file| file.stopped).map(|stopped| match stopped {
        Stopped::Fenced => "fenced".to_owned(),
        Stopped::TicketSpent => "ticket_spent".to_owned(),
    });
    let status = Status {
        schema: SCHEMA.to_owned(),
        worker: identity.worker.to_string(),
        trust_domain: identity.trust_domain.to_string(),
        server: format!("https://{}", identity.address),
        state_dir: dir.path().display().to_string(),
        certificate_expires_at: validity(identity).map(|(_, until)| rfc3339(until)),
        stopped,
        drained_here: Pause::read(dir)?.is_some_and(|pause| pause.on),
        agent: None,
        unheard: None,
        attempts,
        inbox,
        quarantine: names_in(&dir.path().join("quarantine"))?,
        orphans,
    };
    Ok(Survey { status, unreadable })
}

fn unknown(attempts: &Path, directories: Vec<String>, known: &BTreeSet<String>) -> Vec<Orphan> {
    let unknown = directories.into_iter().filter(|name| !known.contains(name) && attempts.join(name).exists());
    unknown.map(|attempt| Orphan { running: is_running(attempts, &attempt), attempt }).collect()
}

/// Whether a launcher holds the attempt's lock. What cannot be told is taken for one that does: a person may delete what
/// nothing runs in.
fn is_running(attempts: &Path, attempt: &str) -> bool {
    match AttemptDir::open(&attempts.join(attempt)) {
        Ok(dir) => dir.is_locked().unwrap_or(true),
        Err(DurableError::Unsafe { .. } | DurableError::Exists(_)) => false,
        Err(DurableError::Io { source, .. }) => {
            !matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
        }
    }
}

/// The records of an inbox, none of them touched.
fn records(state: &Path, unreadable: &mut Vec<(String, String)>) -> Result<Vec<Record>, DurableError> {
    let path = state.join("inbox");
    let mut records = Vec::new();
    if !path.exists() {
        return Ok(records);
    }
    let dir = Dir::open(&path)?;
    // What is being written is no record yet.
    for name in dir.names()?.into_iter().filter(|name| !name.ends_with(".json.new")) {
        match dir.read(&name, INBOX_RECORD_BYTES) {
            // Gone since: it was settled.
            Ok(None) => {}
            Ok(Some(bytes)) => match Record::from_bytes(&bytes) {
                Ok(record) => records.push(record),
                Err(error) => unreadable.push((name, error.to_string())),
            },
            Err(error) => unreadable.push((name, error.to_string())),
        }
    }
    Ok(records)
}

fn names_in(path: &Path) -> Result<Vec<String>, DurableError> {
    if path.exists() { Dir::open(path)?.names() } else { Ok(Vec::new()) }
}
