//! What the agent tells a launcher to do: one versioned message over a pipe, never an argument, never a file, because
//! it holds the job's secrets and the completion token.
//!
//! Deadlines are instants of the boot-time clock, which both processes share. (Worker design, *Launcher*.)

use std::collections::BTreeMap;
use std::str::FromStr;

use leasehold_core::attempt::{LimitMeans, LimitsKept};
use leasehold_core::counter::{AttemptNumber, CallbackSequence};
use leasehold_core::crypto::CompletionToken;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::revision::Cpu;
use leasehold_core::time::{BootInstant, Millis};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const SCHEMA: &str = "leasehold/launch/v1";

/// Most bytes of a request: an offer, its materials, and their escapes.
pub const REQUEST_BYTES: usize = 1024 * 1024;

/// Everything a launcher needs to know.
#[derive(Clone)]
pub struct LaunchRequest {
    /// The run.
    pub run: RunId,
    /// The attempt; names the directory.
    pub attempt: AttemptId,
    /// Which attempt of the run it is.
    pub attempt_number: AttemptNumber,
    /// What to execute.
    pub command: Command,
    /// The whole public environment (see [`super::environment`]).
    pub environment: BTreeMap<String, String>,
    /// Secret environment, by variable. Masked in the log.
    pub secrets: BTreeMap<String, SecretValue>,
    /// Where to run; the attempt's own `work` directory unless given.
    pub working_dir: Option<String>,
    /// Another user to run as.
    pub run_as: Option<RunAs>,
    /// One pipe for both streams: exact order, everything logged as stdout.
    pub merge_streams: bool,
    /// Leave background processes alone when the direct child has ended.
    pub keep_descendants: bool,
    /// The control group of this attempt.
    pub cgroup: Option<Cgroup>,
    /// How much the job may have, and what keeps it within.
    pub limits: JobLimits,
    /// Bytes of the log's head; what comes later is kept as a bounded tail.
    pub log_quota: u64,
    /// When the lease ends; `None` under `on_lease_loss = "finish"`.
    pub lease: Option<LeaseDeadline>,
    /// When the task's timeout is over.
    pub timeout_at: Option<BootInstant>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Millis,
    /// Names this launch in the receipt.
    pub callback_sequence: CallbackSequence,
    /// Makes the receipt authentic.
    pub completion_token: CompletionToken,
}

/// The control group of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory, which the launcher makes and removes; an absolute path.
    pub directory: String,
    /// Whether the job may not start without it.
    pub required: bool,
}

/// How much a job may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobLimits {
    /// Memory in bytes: of the whole job in a control group, address space of each process as an rlimit.
    pub memory_bytes: Option<u64>,
    /// Processors of the whole job: only a control group keeps it.
    pub cpu: Option<Cpu>,
    /// Processes and threads: of the job in a control group, of all that its user runs as an rlimit.
    pub pids: Option<u32>,
    /// What keeps each.
    pub kept: LimitsKept,
}

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments.
    Argv(Vec<String>),
    /// A text that an interpreter gets as a file, its last argument.
    Script {
        /// The interpreter and its own arguments.
        interpreter: Vec<String>,
        /// The text.
        text: String,
    },
}

/// A secret's value: wiped when dropped, never shown.
#[derive(Clone)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes the value over.
    pub fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value, for the one process that may have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// The user a job runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// A lease as the launcher keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDeadline {
    /// When the lease ends at the control plane, at the latest.
    pub at: BootInstant,
    /// The lease's length; it decides the margin.
    pub length: Millis,
}

/// A request is not one that this launcher understands.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Larger than [`REQUEST_BYTES`].
    #[error("the launch request is larger than {REQUEST_BYTES} bytes")]
    TooLarge,
    /// Not the expected JSON. (What was got is not repeated: it may hold secrets.)
    #[error("the launch request is malformed at line {line}, column {column}")]
    Malformed {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// A field holds what it cannot hold.
    #[error("the launch request's `{0}` is invalid")]
    Field(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    schema: String,
    run: String,
    attempt: String,
    attempt_number: u64,
    command: WireCommand,
    environment: BTreeMap<String, String>,
    secrets: BTreeMap<String, Wiped>,
    working_dir: Option<String>,
    run_as: Option<WireRunAs>,
    merge_streams: bool,
    keep_descendants: bool,
    cgroup: Option<WireCgroup>,
    memory: Option<WireLimit>,
    cpu: Option<WireLimit>,
    pids: Option<WireLimit>,
    log_quota: u64,
    lease: Option<WireLease>,
    timeout_at_boot_ms: Option<i64>,
    grace_ms: u64,
    callback_sequence: u64,
    completion_token: Wiped,
}

/// A secret inside a message: wiped when the message is dropped.
struct Wiped(Zeroizing<String>);

impl Serialize for Wiped {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Wiped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum WireCommand {
    Argv(Vec<String>),
    Script { interpreter: Vec<String>, text: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRunAs {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCgroup {
    directory: String,
    required: bool,
}

/// A limit (bytes, a text of cores, a count) and what keeps it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLimit {
    most: String,
    kept: String,
}

impl WireLimit {
    fn of(most: Option<impl ToString>, kept: Option<LimitMeans>) -> Option<Self> {
        Some(Self { most: most?.to_string(), kept: kept.unwrap_or(LimitMeans::None).to_string() })
    }

    fn read<T: FromStr>(limit: Option<&Self>) -> Result<(Option<T>, Option<LimitMeans>), RequestError> {
        let Some(limit) = limit else { return Ok((None, None)) };
        let refused = || RequestError::Field("limits");
        Ok((Some(limit.most.parse().map_err(|_| refused())?), Some(limit.kept.parse().map_err(|_| refused())?)))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLease {
    at_boot_ms: i64,
    length_ms: u64,
}

impl LaunchRequest {
    /// The message, wiped when dropped.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, RequestError> {
        let message = Message {
            schema: SCHEMA.to_owned(),
            run: self.run.to_string(),
            attempt: self.attempt.to_string(),
            attempt_number: self.attempt_number.get(),
            command: match self.command.clone() {
                Command::Argv(argv) => WireCommand::Argv(argv),
                Command::Script { interpreter, text } => WireCommand::Script { interpreter, text },
            },
            environment: self.environment.clone(),
            secrets: self.secrets.iter().map(|(name, value)| (name.clone(), Wiped(value.0.clone()))).collect(),
            working_dir: self.working_dir.clone(),
            run_as: self.run_as.clone().map(|RunAs { uid, gid, groups }| WireRunAs { uid, gid, groups }),
            merge_streams: self.merge_streams,
            keep_descendants: self.keep_descendants,
            cgroup: self.cgroup.clone().map(|Cgroup { directory, required }| WireCgroup { directory, required }),
            memory: WireLimit::of(self.limits.memory_bytes, self.limits.kept.memory),
            cpu: WireLimit::of(self.limits.cpu, self.limits.kept.cpu),
            pids: WireLimit::of(self.limits.pids, self.limits.kept.pids),
            log_quota: self.log_quota,
            lease: self.lease.map(|lease| WireLease { at_boot_ms: lease.at.get(), length_ms: lease.length.get() }),
            timeout_at_boot_ms: self.timeout_at.map(BootInstant::get),
            grace_ms: self.grace.get(),
            callback_sequence: self.callback_sequence.get(),
            completion_token: Wiped(Zeroizing::new(self.completion_token.reveal())),
        };
        // Room for all of it at once: a buffer that grows leaves unwiped copies of secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES));
        serde_json::to_writer(&mut *bytes, &message).map_err(|_| RequestError::TooLarge)?;
        if bytes.len() > REQUEST_BYTES { Err(RequestError::TooLarge) } else { Ok(bytes) }
    }

    /// Reads a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RequestError> {
        if bytes.len() > REQUEST_BYTES {
            return Err(RequestError::TooLarge);
        }
        let message: Message = serde_json::from_slice(bytes)
            .map_err(|error| RequestError::Malformed { line: error.line(), column: error.column() })?;
        let field = |name: &'static str| move |_| RequestError::Field(name);
        if message.schema != SCHEMA {
            return Err(RequestError::Field("schema"));
        }
        let command = match message.command {
            WireCommand::Argv(argv) => Command::Argv(argv),
            WireCommand::Script { interpreter, text } => Command::Script { interpreter, text },
        };
        let (Command::Argv(words) | Command::Script { interpreter: words, .. }) = &command;
        if words.first().is_none_or(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
            return Err(RequestError::Field("command"));
        }
        for (name, value) in message
            .environment
            .iter()
            .map(|(name, value)| (name, value.as_str()))
            .chain(message.secrets.iter().map(|(name, value)| (name, value.0.as_str())))
        {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(RequestError::Field("environment"));
            }
        }
        if message.working_dir.as_deref().is_some_and(|dir| !dir.starts_with('/') || dir.contains('\0')) {
            return Err(RequestError::Field("working_dir"));
        }
        if message.cgroup.as_ref().is_some_and(|cgroup| !cgroup.directory.starts_with('/')) {
            return Err(RequestError::Field("cgroup"));
        }
        let (memory_bytes, memory) = WireLimit::read(message.memory.as_ref())?;
        let (cpu, cpu_kept) = WireLimit::read(message.cpu.as_ref())?;
        let (pids, pids_kept) = WireLimit::read(message.pids.as_ref())?;
        let kept = LimitsKept { memory, cpu: cpu_kept, pids: pids_kept };
        let limits = JobLimits { memory_bytes, cpu, pids, kept };
        Ok(Self {
            run: message.run.parse().map_err(|_| RequestError::Field("run"))?,
            attempt: message.attempt.parse().map_err(|_| RequestError::Field("attempt"))?,
            attempt_number: AttemptNumber::new(message.attempt_number).map_err(field("attempt_number"))?,
            command,
            environment: message.environment,
            secrets: message.secrets.into_iter().map(|(name, value)| (name, SecretValue(value.0))).collect(),
            working_dir: message.working_dir,
            run_as: message.run_as.map(|WireRunAs { uid, gid, groups }| RunAs { uid, gid, groups }),
            merge_streams: message.merge_streams,
            keep_descendants: message.keep_descendants,
            cgroup: message.cgroup.map(|WireCgroup { directory, required }| Cgroup { directory, required }),
            limits,
            log_quota: message.log_quota,
            lease: message.lease.map(|lease| LeaseDeadline {
                at: BootInstant::new(lease.at_boot_ms),
                length: Millis::new(lease.length_ms),
            }),
            timeout_at: message.timeout_at_boot_ms.map(BootInstant::new),
            grace: Millis::new(message.grace_ms),
            callback_sequence: CallbackSequence::new(message.callback_sequence).map_err(field("callback_sequence"))?,
            completion_token: CompletionToken::parse(&message.completion_token.0)
                .map_err(|_| RequestError::Field("completion_token"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> LaunchRequest {
        LaunchRequest {
            run: "01900000-0000-7000-8000-000000000002".parse().unwrap(),
            attempt: "01900000-0000-7000-8000-000000000001".parse().unwrap(),
            attempt_number: AttemptNumber::FIRST,
            command: Command::Script { interpreter: vec!["sh".to_owned()], text: "echo".to_owned() },
            environment: BTreeMap::from([("TZ".to_owned(), "UTC".to_owned())]),
            secrets: BTreeMap::from([("KEY".to_owned(), SecretValue::new("hunter2".to_owned()))]),
            working_dir: Some("/srv".to_owned()),
            run_as: Some(RunAs { uid: 1, gid: 2, groups: vec![3] }),
            merge_streams: true,
            keep_descendants: true,
            cgroup: Some(Cgroup { directory: "/sys/fs/cgroup/x".to_owned(), required: true }),
            limits: JobLimits {
                memory_bytes: Some(1),
                cpu: Some("1.5".parse().unwrap()),
                pids: Some(2),
                kept: LimitsKept {
                    memory: Some(LimitMeans::Cgroup),
                    cpu: Some(LimitMeans::None),
                    pids: Some(LimitMeans::Rlimit),
                },
            },
            log_quota: 3,
            lease: Some(LeaseDeadline { at: BootInstant::new(4), length: Millis::new(5) }),
            timeout_at: Some(BootInstant::new(6)),
            grace: Millis::new(7),
            callback_sequence: CallbackSequence::FIRST,
            completion_token: CompletionToken::from_bytes([7; 32]),
        }
    }

    #[test]
    fn the_message_of_version_one_is_fixed() {
        let token = CompletionToken::from_bytes([7; 32]).reveal();
        let expected = [
            r#"{"schema":"leasehold/launch/v1","run":"01900000-0000-7000-8000-000000000002","#,
            r#""attempt":"01900000-0000-7000-8000-000000000001","attempt_number":1,"#,
            r#""command":{"script":{"interpreter":["sh"],"text":"echo"}},"environment":{"TZ":"UTC"},"#,
            r#""secrets":{"KEY":"hunter2"},"working_dir":"/srv","run_as":{"uid":1,"gid":2,"groups":[3]},"#,
            r#""merge_streams":true,"keep_descendants":true,"#,
            r#""cgroup":{"directory":"/sys/fs/cgroup/x","required":true},"memory":{"most":"1","kept":"cgroup"},"#,
            r#""cpu":{"most":"1.5","kept":"none"},"pids":{"most":"2","kept":"rlimit"},"log_quota":3,"#,
            r#""lease":{"at_boot_ms":4,"length_ms":5},"timeout_at_boot_ms":6,"grace_ms":7,"#,
            r#""callback_sequence":1,"completion_token":""#,
            &token,
            r#""}"#,
        ]
        .concat();
        let bytes = request().to_bytes().unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        assert_eq!(*LaunchRequest::from_bytes(&bytes).unwrap().to_bytes().unwrap(), *bytes);
    }

    #[test]
    fn what_is_not_exactly_a_request_is_refused_without_being_repeated() {
        let good = String::from_utf8(request().to_bytes().unwrap().to_vec()).unwrap();
        for (from, to) in [
            ("launch/v1", "launch/v2"),
            ("\"log_quota\"", "\"hunter2\":1,\"log_quota\""),
            ("\"grace_ms\":7", "\"grace_ms\":\"hunter2\""),
            ("\"grace_ms\":7", "\"grace_ms\":-7"),
            ("[\"sh\"]", "[]"),
            ("[\"sh\"]", "[\"\"]"),
            ("[\"sh\"]", "[\"s\\u0000h\"]"),
            ("\"TZ\"", "\"T=Z\""),
            ("hunter2", "hunter2\\u0000"),
            ("/srv", "srv"),
            ("/sys/fs", "sys/fs"),
            ("\"kept\":\"rlimit\"", "\"kept\":\"hunter2\""),
            ("\"most\":\"2\"", "\"most\":\"-2\""),
            ("\"attempt_number\":1", "\"attempt_number\":9223372036854775808"),
            ("\"completion_token\":\"", "\"completion_token\":\"hunter2"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            let Err(error) = LaunchRequest::from_bytes(bad.as_bytes()) else { panic!("accepted: {to}") };
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        let long = " ".repeat(REQUEST_BYTES + 1);
        assert!(matches!(LaunchRequest::from_bytes(long.as_bytes()), Err(RequestError::TooLarge)));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", SecretValue::new("hunter2".to_owned())), "SecretValue(…)");
    }
}
