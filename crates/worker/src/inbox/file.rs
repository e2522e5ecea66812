//! An inbox record as a file: JSON with a `schema` tag, known fields only; core types never see serde.

use leasehold_core::attempt::{Callback, Handle};
use leasehold_core::canonical::Value;
use leasehold_core::counter::{
    AttemptNumber, CallbackSequence, FenceNumber, LeaseGeneration, LeaseVersion, RecordVersion, SessionGeneration,
};
use leasehold_core::crypto::LeaseToken;
use leasehold_core::inbox::Stage;
use leasehold_core::limits::{INBOX_RECORD_BYTES, REVISION_BYTES};
use leasehold_core::offer::Offer;
use leasehold_core::revision::Revision;
use leasehold_core::time::{Millis, UtcMillis};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::record::Record;

const SCHEMA: &str = "leasehold/inbox-record/v1";

/// A file is not an inbox record. What it holds is not repeated: it names a token.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not the expected JSON.
    #[error("not an inbox record: line {line}, column {column}")]
    Malformed {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// A field holds what it cannot hold.
    #[error("the field `{0}` is invalid")]
    Field(&'static str),
    /// Larger than a record may be.
    #[error("larger than {INBOX_RECORD_BYTES} bytes")]
    TooLarge,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    record_version: u64,
    offer: FileOffer,
    lease_token: Zeroizing<String>,
    session: String,
    session_generation: u64,
    boot_id: String,
    accepted_at_ms: i64,
    updated_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launched_at_ms: Option<i64>,
    stage: FileStage,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOffer {
    offer: String,
    run: String,
    attempt: String,
    attempt_number: u64,
    project: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    revision_digest: String,
    // The canonical bytes themselves: what was digested is what is kept.
    revision: Box<RawValue>,
    fence: u64,
    lease_generation: u64,
    lease_version: u64,
    remaining_ms: u64,
    lease_ms: u64,
    score: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    devices: String,
    created_at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheduled_at_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCallback {
    sequence: u64,
    token_digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHandle {
    boot_id: String,
    pid: u32,
    start_time: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "state", rename_all = "snake_case")]
enum FileStage {
    Accepted {},
    StartingAcknowledged {},
    Launching { callback: FileCallback },
    Started { callback: FileCallback, handle: FileHandle },
    RunningAcknowledged { callback: FileCallback, handle: FileHandle },
    CompletionAcknowledged {},
    StartFailureAcknowledged {},
    Closed { reason: String, released: Option<String>, evidence: Option<String> },
    StartFailed { reason: Option<String>, detail: String, callback: Option<FileCallback> },
    RecoveryRequired { reason: String, callback: Option<FileCallback> },
}

impl Record {
    /// The bytes of the file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let offer = &self.offer;
        let revision =
            String::from_utf8(offer.revision.to_canonical_bytes()).map_err(|_| RecordError::Field("revision"))?;
        let file = File {
            schema: SCHEMA.to_owned(),
            record_version: self.version.get(),
            offer: FileOffer {
                offer: offer.offer.to_string(),
                run: offer.run.to_string(),
                attempt: offer.attempt.to_string(),
                attempt_number: offer.number.get(),
                project: offer.project.to_string(),
                task: offer.task.as_ref().map(ToString::to_string),
                revision_digest: offer.digest.to_string(),
                revision: RawValue::from_string(revision).map_err(|_| RecordError::Field("revision"))?,
                fence: offer.fence.get(),
                lease_generation: offer.lease_generation.get(),
                lease_version: offer.lease_version.get(),
                remaining_ms: offer.remaining.get(),
                lease_ms: offer.lease.get(),
                score: offer.score,
                devices: offer.devices.to_string(),
                created_at_ms: offer.created_at.get(),
                after: offer.after.as_ref().map(ToString::to_string),
                scheduled_at_ms: offer.scheduled_at.map(UtcMillis::get),
            },
            lease_token: Zeroizing::new(self.token.reveal()),
            session: self.session.to_string(),
            session_generation: self.session_generation.get(),
            boot_id: self.boot.to_string(),
            accepted_at_ms: self.accepted_at.get(),
            updated_at_ms: self.updated_at.get(),
            launched_at_ms: self.launched_at.map(UtcMillis::get),
            stage: stage_to_file(&self.stage),
        };
        let bytes = serde_json::to_vec(&file).map_err(|_| RecordError::Field("record"))?;
        if bytes.len() > INBOX_RECORD_BYTES { Err(RecordError::TooLarge) } else { Ok(bytes) }
    }

    /// The record of a file's bytes; refuses anything that [`Self::to_bytes`] does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > INBOX_RECORD_BYTES {
            return Err(RecordError::TooLarge);
        }
        let malformed =
            |error: serde_json::Error| RecordError::Malformed { line: error.line(), column: error.column() };
        let file: File = serde_json::from_slice(bytes).map_err(malformed)?;
        if file.schema != SCHEMA {
            return Err(RecordError::Field("schema"));
        }
        let revision = Value::parse_canonical(file.offer.revision.get().as_bytes(), REVISION_BYTES)
            .map_err(|_| RecordError::Field("revision"))
            .and_then(|value| Revision::from_value(&value).map_err(|_| RecordError::Field("revision")))?;
        let digest = parsed("revision_digest", &file.offer.revision_digest)?;
        if revision.digest() != digest {
            return Err(RecordError::Field("revision_digest"));
        }
        Ok(Self {
            version: RecordVersion::new(file.record_version).map_err(|_| RecordError::Field("record_version"))?,
            offer: Offer {
                offer: parsed("offer", &file.offer.offer)?,
                run: parsed("run", &file.offer.run)?,
                attempt: parsed("attempt", &file.offer.attempt)?,
                number: AttemptNumber::new(file.offer.attempt_number)
                    .map_err(|_| RecordError::Field("attempt_number"))?,
                project: parsed("project", &file.offer.project)?,
                task: file.offer.task.as_deref().map(|task| parsed("task", task)).transpose()?,
                digest,
                revision,
                fence: FenceNumber::new(file.offer.fence).map_err(|_| RecordError::Field("fence"))?,
                lease_generation: LeaseGeneration::new(file.offer.lease_generation)
                    .map_err(|_| RecordError::Field("lease_generation"))?,
                lease_version: LeaseVersion::new(file.offer.lease_version)
                    .map_err(|_| RecordError::Field("lease_version"))?,
                remaining: Millis::new(file.offer.remaining_ms),
                lease: Millis::new(file.offer.lease_ms),
                score: file.offer.score,
                devices: parsed("devices", &file.offer.devices)?,
                created_at: UtcMillis::new(file.offer.created_at_ms),
                after: file.offer.after.as_deref().map(|after| parsed("after", after)).transpose()?,
                scheduled_at: file.offer.scheduled_at_ms.map(UtcMillis::new),
            },
            token: LeaseToken::parse(&file.lease_token).map_err(|_| RecordError::Field("lease_token"))?,
            session: parsed("session", &file.session)?,
            session_generation: SessionGeneration::new(file.session_generation)
                .map_err(|_| RecordError::Field("session_generation"))?,
            boot: parsed("boot_id", &file.boot_id)?,
            accepted_at: UtcMillis::new(file.accepted_at_ms),
            updated_at: UtcMillis::new(file.updated_at_ms),
            launched_at: file.launched_at_ms.map(UtcMillis::new),
            stage: stage_of_file(file.stage)?,
        })
    }
}

fn parsed<T: std::str::FromStr>(field: &'static str, text: &str) -> Result<T, RecordError> {
    text.parse().map_err(|_| RecordError::Field(field))
}

fn callback_to_file(callback: &Callback) -> FileCallback {
    FileCallback { sequence: callback.sequence.get(), token_digest: callback.token.to_string() }
}

fn callback_of_file(file: &FileCallback) -> Result<Callback, RecordError> {
    Ok(Callback {
        sequence: CallbackSequence::new(file.sequence).map_err(|_| RecordError::Field("callback"))?,
        token: parsed("callback", &file.token_digest)?,
    })
}

fn handle_to_file(handle: &Handle) -> FileHandle {
    FileHandle { boot_id: handle.boot.to_string(), pid: handle.pid, start_time: handle.start_time }
}

fn handle_of_file(file: &FileHandle) -> Result<Handle, RecordError> {
    Ok(Handle { boot: parsed("handle", &file.boot_id)?, pid: file.pid, start_time: file.start_time })
}

fn stage_to_file(stage: &Stage) -> FileStage {
    match stage {
        Stage::Accepted => FileStage::Accepted {},
        Stage::StartingAcknowledged => FileStage::StartingAcknowledged {},
        Stage::Launching { callback } => FileStage::Launching { callback: callback_to_file(callback) },
        Stage::Started { callback, handle } => {
            FileStage::Started { callback: callback_to_file(callback), handle: handle_to_file(handle) }
        }
        Stage::RunningAcknowledged { callback, handle } => {
            FileStage::RunningAcknowledged { callback: callback_to_file(callback), handle: handle_to_file(handle) }
        }
        Stage::CompletionAcknowledged => FileStage::CompletionAcknowledged {},
        Stage::StartFailureAcknowledged => FileStage::StartFailureAcknowledged {},
        Stage::Closed { reason, released, evidence } => FileStage::Closed {
            reason: reason.to_string(),
            released: released.map(|reason| reason.to_string()),
            evidence: evidence.map(|kind| kind.to_string()),
        },
        Stage::StartFailed { reason, detail, callback } => FileStage::StartFailed {
            reason: reason.map(|reason| reason.to_string()),
            detail: detail.clone(),
            callback: callback.as_ref().map(callback_to_file),
        },
        Stage::RecoveryRequired { reason, callback } => FileStage::RecoveryRequired {
            reason: reason.to_string(),
            callback: callback.as_ref().map(callback_to_file),
        },
    }
}

fn stage_of_file(file: FileStage) -> Result<Stage, RecordError> {
    Ok(match file {
        FileStage::Accepted {} => Stage::Accepted,
        FileStage::StartingAcknowledged {} => Stage::StartingAcknowledged,
        FileStage::Launching { callback } => Stage::Launching { callback: callback_of_file(&callback)? },
        FileStage::Started { callback, handle } => {
            Stage::Started { callback: callback_of_file(&callback)?, handle: handle_of_file(&handle)? }
        }
        FileStage::RunningAcknowledged { callback, handle } => {
            Stage::RunningAcknowledged { callback: callback_of_file(&callback)?, handle: handle_of_file(&handle)? }
        }
        FileStage::CompletionAcknowledged {} => Stage::CompletionAcknowledged,
        FileStage::StartFailureAcknowledged {} => Stage::StartFailureAcknowledged,
        FileStage::Closed { reason, released, evidence } => Stage::Closed {
            reason: parsed("reason", &reason)?,
            released: released.as_deref().map(|text| parsed("released", text)).transpose()?,
            evidence: evidence.as_deref().map(|text| parsed("evidence", text)).transpose()?,
        },
        FileStage::StartFailed { reason, detail, callback } => Stage::StartFailed {
            reason: reason.as_deref().map(|text| parsed("reason", text)).transpose()?,
            detail,
            callback: callback.as_ref().map(callback_of_file).transpose()?,
        },
        FileStage::RecoveryRequired { reason, callback } => Stage::RecoveryRequired {
            reason: parsed("reason", &reason)?,
            callback: callback.as_ref().map(callback_of_file).transpose()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::attempt::{EvidenceKind, RejectReason};
    use leasehold_core::claim::ReleaseReason;
    use leasehold_core::inbox::{ClosedReason, InboxState, RecoveryReason};

    use super::super::record::tests::{callback, handle, record};
    use super::*;

    fn stages() -> Vec<Stage> {
        let (callback, handle) = (callback(), handle());
        vec![
            Stage::Accepted,
            Stage::StartingAcknowledged,
            Stage::Launching { callback },
            Stage::Started { callback, handle: handle.clone() },
            Stage::RunningAcknowledged { callback, handle },
            Stage::CompletionAcknowledged,
            Stage::StartFailureAcknowledged,
            Stage::Closed {
                reason: ClosedReason::Released,
                released: Some(ReleaseReason::DiskLow),
                evidence: Some(EvidenceKind::LauncherKilledMayLive),
            },
            Stage::StartFailed {
                reason: Some(RejectReason::Exec),
                detail: "no such file: \"x\"".to_owned(),
                callback: Some(callback),
            },
            Stage::RecoveryRequired { reason: RecoveryReason::LaunchOutcomeUnknown, callback: None },
        ]
    }

    #[test]
    fn a_record_of_every_stage_survives_its_bytes() {
        let stages = stages();
        assert_eq!(stages.len(), InboxState::ALL.len());
        for stage in stages {
            let record = Record { stage, launched_at: Some(UtcMillis::new(7)), ..record(3) };
            assert_eq!(Record::from_bytes(&record.to_bytes().unwrap()).unwrap(), record);
        }
    }

    #[test]
    fn what_is_not_a_record_is_refused_without_repeating_it() {
        let record = record(3);
        let text = String::from_utf8(record.to_bytes().unwrap()).unwrap();
        for (other, why) in [
            (text.replace("record/v1", "record/v9"), "schema"),
            (text.replace("\"argv\":[\"true\"]", "\"argv\":[\"false\"]"), "revision_digest"),
            (text.replace("\"accepted\"", "\"excepted\""), "not an inbox record"),
            (text.replace("\"score\":0", "\"score\":0,\"more\":1"), "not an inbox record"),
            (text[..text.len() / 2].to_owned(), "not an inbox record"),
            (String::new(), "not an inbox record"),
        ] {
            let error = Record::from_bytes(other.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains(&record.token.reveal()));
        }
    }
}
