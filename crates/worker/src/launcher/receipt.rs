//! The receipt: the launcher's word on how an attempt ended, on disk before anybody is told.
//!
//! It is authentic only if its token's SHA-256 equals the digest in the inbox record; the token lies on disk only
//! after the end, 0600, and is useless without the lease token. `stopped` is said if and only if the launcher
//! signalled before it reaped; otherwise the end is the process's own. (Worker design, *Launcher*.)

use leasehold_core::attempt::{Callback, ExitStatus, Left, LimitMeans, LimitsKept, LogPin, StopReason, Usage};
use leasehold_core::counter::CallbackSequence;
use leasehold_core::crypto::{CompletionToken, Digest};
use leasehold_core::frame::Cut;
use leasehold_core::id::AttemptId;
use leasehold_core::limits::LEFT_PIDS;
use leasehold_core::time::{BootInstant, Millis, UtcMillis};
use serde::{Deserialize, Serialize};

use super::answer::Rejection;
use crate::attempt_dir::{AttemptDir, RECEIPT};
use crate::durable::{Dir, DurableError, Prepared};
use crate::fault::steps::file;
use crate::process_identity::ProcessIdentity;

const SCHEMA: &str = "leasehold/receipt/v1";

/// Most bytes of a receipt; that many are reserved before the job starts.
pub const RECEIPT_BYTES: usize = 8 * 1024;

/// A launcher's last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Of which attempt.
    pub attempt: AttemptId,
    /// Of which launch.
    pub callback_sequence: CallbackSequence,
    /// What makes it authentic.
    pub completion_token: CompletionToken,
    /// What it says.
    pub conclusion: Conclusion,
}

/// What a receipt says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// Nothing of the user's ran.
    Rejected(Rejection),
    /// The job ran and ended.
    Ended(Box<Ending>),
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// How the direct child ended.
    pub status: ExitStatus,
    /// Why the launcher had signalled it before it was reaped; `None`: it ended by itself.
    pub stopped: Option<StopReason>,
    /// The exec.
    pub started: Moment,
    /// The reap of the direct child.
    pub ended: Moment,
    /// What the job and everything below it used up, and how its limits were kept.
    pub usage: Usage,
    /// Its log.
    pub log: LogSummary,
    /// Processes that could not be killed (`cancel_incomplete`), the first [`LEFT_PIDS`] of `left_count`.
    pub left: Vec<ProcessIdentity>,
    /// How many processes could not be killed.
    pub left_count: u64,
    /// They ended after all, and the launcher saw it.
    pub left_gone: bool,
}

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For people.
    pub utc: UtcMillis,
    /// For spans.
    pub boot: BootInstant,
}

/// The finished log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSummary {
    /// Bytes of whole frames.
    pub length: u64,
    /// SHA-256 of those bytes.
    pub digest: Digest,
    /// What is missing, and why.
    pub cut: Option<Cut>,
}

/// A receipt exists and cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The file cannot be read.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The bytes are no receipt of this version.
    #[error("the receipt is damaged: {0}")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    attempt: String,
    callback_sequence: u64,
    completion_token: String,
    conclusion: WireConclusion,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireConclusion {
    Rejected {
        reason: String,
        detail: String,
    },
    Ended {
        status: WireStatus,
        stopped: Option<String>,
        started_utc_ms: i64,
        started_boot_ms: i64,
        ended_utc_ms: i64,
        ended_boot_ms: i64,
        user_ms: u64,
        system_ms: u64,
        max_rss_kib: u64,
        oom_killed: bool,
        limits: Box<WireKept>,
        log_length: u64,
        log_sha256: String,
        log_cut: Option<WireCut>,
        left: Vec<String>,
        left_count: u64,
        left_gone: bool,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCut {
    reason: String,
    stdout: u64,
    stderr: u64,
}

/// What kept each limit.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireKept {
    memory: Option<String>,
    cpu: Option<String>,
    pids: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireStatus {
    Code(u8),
    Signal(i32),
}

impl WireCut {
    fn read(self) -> Result<Cut, leasehold_core::names::UnknownName> {
        Ok(Cut { reason: self.reason.parse()?, stdout: self.stdout, stderr: self.stderr })
    }
}

impl Receipt {
    /// The receipt of an attempt, if there is one.
    pub fn read(dir: &AttemptDir) -> Result<Option<Self>, ReceiptError> {
        match dir.dir().read(RECEIPT, RECEIPT_BYTES)? {
            Some(bytes) => Self::from_bytes(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Whether this is the word of the launch that `callback` names (compared in constant time).
    pub fn is_authentic(&self, attempt: AttemptId, callback: &Callback) -> bool {
        self.completion_token.digest() == callback.token
            && self.attempt == attempt
            && self.callback_sequence == callback.sequence
    }

    /// What the worker says about the end.
    pub fn ending(&self) -> leasehold_core::end::Ending {
        use leasehold_core::end;
        match &self.conclusion {
            Conclusion::Rejected(Rejection { reason, detail }) => {
                end::Ending::Rejected { reason: *reason, detail: detail.clone() }
            }
            Conclusion::Ended(ending) => match ending.stopped {
                Some(reason) => end::Ending::Stopped { reason, status: ending.status, at: ending.ended.utc },
                None => end::Ending::Exited { status: ending.status, at: ending.ended.utc },
            },
        }
    }

    /// What the end pins of the log; nothing of a job that never ran.
    pub fn log(&self) -> Option<LogPin> {
        match &self.conclusion {
            Conclusion::Rejected(_) => None,
            Conclusion::Ended(ending) => {
                let LogSummary { length, digest, cut } = ending.log;
                Some(LogPin { length, digest, cut, finished: true })
            }
        }
    }

    /// What the kernel would not let go of (`cancel_incomplete`), unless it went after all.
    pub fn left(&self) -> Option<Left> {
        match &self.conclusion {
            Conclusion::Ended(ending) if ending.left_count > 0 && !ending.left_gone => {
                let pids = ending.left.iter().filter_map(|left| u32::try_from(left.pid.as_raw_nonzero().get()).ok());
                Some(Left { count: ending.left_count, pids: pids.take(LEFT_PIDS).collect() })
            }
            _ => None,
        }
    }

    /// Whether something was left and went after all.
    pub fn left_gone(&self) -> bool {
        matches!(&self.conclusion, Conclusion::Ended(ending) if ending.left_gone)
    }

    /// The same receipt, of a job of which nothing is left any more.
    pub(super) fn with_nothing_left(&self) -> Self {
        let mut receipt = self.clone();
        if let Conclusion::Ended(ending) = &mut receipt.conclusion {
            ending.left_gone = true;
        }
        receipt
    }

    pub(super) fn prepare(dir: &Dir) -> Result<Prepared, DurableError> {
        dir.prepare::<file::Receipt>(RECEIPT, RECEIPT_BYTES)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let conclusion = match &self.conclusion {
            Conclusion::Rejected(Rejection { reason, detail }) => {
                WireConclusion::Rejected { reason: reason.to_string(), detail: detail.clone() }
            }
            Conclusion::Ended(ending) => WireConclusion::Ended {
                status: match ending.status {
                    ExitStatus::Code(code) => WireStatus::Code(code),
                    ExitStatus::Signal(signal) => WireStatus::Signal(signal),
                },
                stopped: ending.stopped.map(|reason| reason.to_string()),
                started_utc_ms: ending.started.utc.get(),
                started_boot_ms: ending.started.boot.get(),
                ended_utc_ms: ending.ended.utc.get(),
                ended_boot_ms: ending.ended.boot.get(),
                user_ms: ending.usage.user.get(),
                system_ms: ending.usage.system.get(),
                max_rss_kib: ending.usage.max_rss_kib,
                oom_killed: ending.usage.oom_killed,
                limits: Box::new(WireKept {
                    memory: ending.usage.limits.memory.map(|means| means.to_string()),
                    cpu: ending.usage.limits.cpu.map(|means| means.to_string()),
                    pids: ending.usage.limits.pids.map(|means| means.to_string()),
                }),
                log_length: ending.log.length,
                log_sha256: ending.log.digest.to_string(),
                log_cut: ending.log.cut.map(|cut| WireCut {
                    reason: cut.reason.to_string(),
                    stdout: cut.stdout,
                    stderr: cut.stderr,
                }),
                left: ending.left.iter().take(LEFT_PIDS).map(ToString::to_string).collect(),
                left_count: ending.left_count,
                left_gone: ending.left_gone,
            },
        };
        let file = File {
            schema: SCHEMA.to_owned(),
            attempt: self.attempt.to_string(),
            callback_sequence: self.callback_sequence.get(),
            completion_token: self.completion_token.reveal(),
            conclusion,
        };
        // Strings and numbers always serialize; an empty file would read as damaged, never as an end.
        serde_json::to_vec(&file).unwrap_or_default()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, ReceiptError> {
        // serde_json's own message may repeat content, and the content holds the token.
        let damaged = |what: &'static str| move || ReceiptError::Damaged(what.to_owned());
        let file: File = serde_json::from_slice(bytes).map_err(|_| damaged("not the expected JSON")())?;
        if file.schema != SCHEMA {
            return Err(damaged("schema")());
        }
        let means = |text: Option<&str>| -> Result<Option<LimitMeans>, ReceiptError> {
            text.map(str::parse).transpose().map_err(|_| damaged("limits")())
        };
        let conclusion = match file.conclusion {
            WireConclusion::Rejected { reason, detail } => {
                Conclusion::Rejected(Rejection { reason: reason.parse().map_err(|_| damaged("reason")())?, detail })
            }
            WireConclusion::Ended {
                status,
                stopped,
                started_utc_ms,
                started_boot_ms,
                ended_utc_ms,
                ended_boot_ms,
                user_ms,
                system_ms,
                max_rss_kib,
                oom_killed,
                limits,
                log_length,
                log_sha256,
                log_cut,
                left,
                left_count,
                left_gone,
            } => Conclusion::Ended(Box::new(Ending {
                status: match status {
                    WireStatus::Code(code) => ExitStatus::Code(code),
                    WireStatus::Signal(signal) => ExitStatus::Signal(signal),
                },
                stopped: stopped.map(|reason| reason.parse()).transpose().map_err(|_| damaged("stopped")())?,
                started: Moment { utc: UtcMillis::new(started_utc_ms), boot: BootInstant::new(started_boot_ms) },
                ended: Moment { utc: UtcMillis::new(ended_utc_ms), boot: BootInstant::new(ended_boot_ms) },
                usage: Usage {
                    user: Millis::new(user_ms),
                    system: Millis::new(system_ms),
                    max_rss_kib,
                    oom_killed,
                    limits: LimitsKept {
                        memory: means(limits.memory.as_deref())?,
                        cpu: means(limits.cpu.as_deref())?,
                        pids: means(limits.pids.as_deref())?,
                    },
                },
                log: LogSummary {
                    length: log_length,
                    digest: log_sha256.parse().map_err(|_| damaged("log_sha256")())?,
                    cut: log_cut.map(WireCut::read).transpose().map_err(|_| damaged("log_cut")())?,
                },
                left: left.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(|_| damaged("left")())?,
                left_count,
                left_gone,
            })),
        };
        Ok(Self {
            attempt: file.attempt.parse().map_err(|_| damaged("attempt")())?,
            callback_sequence: CallbackSequence::new(file.callback_sequence)
                .map_err(|_| damaged("callback_sequence")())?,
            completion_token: CompletionToken::parse(&file.completion_token)
                .map_err(|_| damaged("completion_token")())?,
            conclusion,
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::attempt::RejectReason;
    use leasehold_core::crypto::Domain;
    use leasehold_core::frame::CutReason;

    use super::*;

    fn receipt(conclusion: Conclusion) -> Receipt {
        Receipt {
            attempt: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
            callback_sequence: CallbackSequence::FIRST,
            completion_token: CompletionToken::from_bytes([7; 32]),
            conclusion,
        }
    }

    fn ending() -> Ending {
        Ending {
            status: ExitStatus::Signal(15),
            stopped: Some(StopReason::Timeout),
            started: Moment { utc: UtcMillis::new(1), boot: BootInstant::new(2) },
            ended: Moment { utc: UtcMillis::new(3), boot: BootInstant::new(4) },
            usage: Usage {
                user: Millis::new(5),
                system: Millis::new(6),
                max_rss_kib: 7,
                oom_killed: true,
                limits: LimitsKept { memory: Some(LimitMeans::Cgroup), cpu: Some(LimitMeans::None), pids: None },
            },
            log: LogSummary {
                length: 8,
                digest: Digest::of(Domain::Log, b"log"),
                cut: Some(Cut { reason: CutReason::DiskFull, stdout: 9, stderr: u64::MAX }),
            },
            left: (1..=40).map(|pid| format!("{}/{pid}/11", "b".repeat(64)).parse().unwrap()).collect(),
            left_count: 40,
            left_gone: false,
        }
    }

    #[test]
    fn the_largest_receipt_fits_into_what_was_reserved_for_it() {
        let bytes = receipt(Conclusion::Ended(Box::new(ending()))).to_bytes();
        assert!(bytes.len() <= RECEIPT_BYTES);
        let worst = "\u{1}".repeat(super::super::answer::DETAIL_CHARS);
        let bytes = receipt(Conclusion::Rejected(Rejection::new(RejectReason::Exec, worst))).to_bytes();
        assert!(bytes.len() <= RECEIPT_BYTES);
    }

    #[test]
    fn what_could_not_be_killed_is_named_and_counted() {
        let said = receipt(Conclusion::Ended(Box::new(ending()))).left().unwrap();
        assert_eq!((said.count, said.pids), (40, (1..=16).collect()));
        let none = Ending { left: Vec::new(), left_count: 0, ..ending() };
        assert_eq!(receipt(Conclusion::Ended(Box::new(none))).left(), None);
    }

    #[test]
    fn a_receipt_survives_its_file() {
        let mut whole = ending();
        whole.left.truncate(LEFT_PIDS);
        for conclusion in
            [Conclusion::Ended(Box::new(whole)), Conclusion::Rejected(Rejection::new(RejectReason::Deadline, "late"))]
        {
            let receipt = receipt(conclusion);
            assert_eq!(Receipt::from_bytes(&receipt.to_bytes()).unwrap(), receipt);
        }
    }

    #[test]
    fn a_damaged_receipt_is_refused_and_its_token_not_repeated() {
        let good = String::from_utf8(receipt(Conclusion::Ended(Box::new(ending()))).to_bytes()).unwrap();
        let token = CompletionToken::from_bytes([7; 32]).reveal();
        for (from, to) in [
            ("receipt/v1", "receipt/v2"),
            ("\"stopped\":\"timeout\"", "\"stopped\":\"bored\""),
            ("{\"signal\":15}", "{\"code\":256}"),
            ("\"left_count\"", "\"more\":1,\"left_count\""),
            ("\"disk_full\"", "\"full_moon\""),
            ("\"callback_sequence\":1", "\"callback_sequence\":-1"),
            ("}", ""),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            let error = Receipt::from_bytes(bad.as_bytes()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(&token));
        }
    }

    #[test]
    fn stopped_is_said_only_when_the_launcher_signalled() {
        use leasehold_core::end;
        let natural = Ending { stopped: None, ..ending() };
        assert!(matches!(
            receipt(Conclusion::Ended(Box::new(natural))).ending(),
            end::Ending::Exited { status: ExitStatus::Signal(15), .. }
        ));
        assert!(matches!(
            receipt(Conclusion::Ended(Box::new(ending()))).ending(),
            end::Ending::Stopped { reason: StopReason::Timeout, status: ExitStatus::Signal(15), .. }
        ));
    }
}
