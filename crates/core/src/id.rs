//! Identities: one type per kind of thing, so that the wrong one does not compile.
//!
//! Ids that the product makes are UUIDv7 in lower-case hyphenated form; names that people choose are DNS labels.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::time::{Entropy, UtcMillis};

/// Why a text is not the id or name it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is not a lower-case hyphenated UUIDv7.
    #[error("`{got}` is not a {kind}: expected a lower-case UUIDv7 such as 01900000-0000-7000-8000-000000000000")]
    NotUuidV7 {
        /// What the text should have been, for people.
        kind: &'static str,
        /// What was given, cut to 64 characters.
        got: String,
    },
    /// The text is not a DNS label.
    #[error("`{got}` is not a {kind}: expected 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit")]
    NotLabel {
        /// What the text should have been, for people.
        kind: &'static str,
        /// What was given, cut to 64 characters.
        got: String,
    },
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id; ids made later sort later.
            pub fn new(now: UtcMillis, entropy: &dyn Entropy) -> Self {
                let mut random = [0; 10];
                entropy.fill(&mut random);
                let millis = u64::try_from(now.get()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// The sixteen bytes, for storage.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The id of sixteen stored bytes; refuses anything but a UUIDv7.
            pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, IdError> {
                let uuid = Uuid::from_bytes(bytes);
                if uuid.get_version_num() == 7 {
                    Ok(Self(uuid))
                } else {
                    Err(IdError::NotUuidV7 { kind: $kind, got: uuid.to_string() })
                }
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let refused = || IdError::NotUuidV7 { kind: $kind, got: cut(text) };
                let uuid = Uuid::try_parse(text).map_err(|_| refused())?;
                // One spelling per id: it is a key in file names, rows and digests.
                if uuid.get_version_num() != 7 || uuid.hyphenated().to_string() != text {
                    return Err(refused());
                }
                Ok(Self(uuid))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0.hyphenated())
            }
        }
    };
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The label as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if is_label(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError::NotLabel { kind: $kind, got: cut(text) })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

uuid_id!(
    /// A run: one request to execute one revision.
    RunId, "run id"
);
uuid_id!(
    /// An attempt: one try at a run; started at most once.
    AttemptId, "attempt id"
);
uuid_id!(
    /// A session: one life of an agent.
    SessionId, "session id"
);
uuid_id!(
    /// An offer: work handed to a worker under a run lease; chosen by the worker in its ask.
    OfferId, "offer id"
);
uuid_id!(
    /// An enrollment: one permission for one machine to become a worker.
    EnrollmentId, "enrollment id"
);
uuid_id!(
    /// A replica: one life of one control plane process.
    ReplicaId, "replica id"
);
uuid_id!(
    /// An API token's public id (never the token itself).
    ApiTokenId, "token id"
);
uuid_id!(
    /// A move of a store from one database to another.
    MoveId, "id of a move"
);

label!(
    /// A worker: the machine's identity, fixed at enrollment.
    WorkerId, "worker id"
);
label!(
    /// A project: the namespace of tasks, runs and secrets.
    ProjectName, "project name"
);
label!(
    /// A secret of a project; the name only, never what it holds.
    SecretName, "secret name"
);
label!(
    /// A trigger of a task.
    TriggerName, "trigger name"
);
label!(
    /// A task: the lasting name whose revisions are run.
    TaskName, "task name"
);

impl ProjectName {
    /// The project of everything that names none.
    pub const DEFAULT: &'static str = "default";
}

impl Default for ProjectName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

/// The trust domain: the name that every certificate of one installation carries in its SPIFFE id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// The control plane's identity in this domain.
    pub fn control_uri(&self) -> String {
        format!("spiffe://{}/control", self.0)
    }

    /// A worker's identity in this domain.
    pub fn worker_uri(&self, worker: &WorkerId) -> String {
        format!("spiffe://{}/worker/{worker}", self.0)
    }

    /// The worker whose identity `uri` is in this domain, if it is one.
    pub fn worker_of(&self, uri: &str) -> Option<WorkerId> {
        uri.strip_prefix("spiffe://")?.strip_prefix(&self.0)?.strip_prefix("/worker/")?.parse().ok()
    }

    /// The domain as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TrustDomain {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if !text.is_empty() && text.len() <= 253 && text.split('.').all(is_label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::NotLabel { kind: "trust domain", got: cut(text) })
        }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernel's id of one boot of one machine (`/proc/sys/kernel/random/boot_id`), or any stable text of
/// 1 to 64 printable ASCII characters that a platform offers instead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BootId(String);

impl BootId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BootId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::NotLabel { kind: "boot id", got: cut(text) })
        }
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn is_label(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 63
        && bytes.iter().all(inner)
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting;
    impl Entropy for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            for (byte, n) in bytes.iter_mut().zip(1..) {
                *byte = n;
            }
        }
    }

    #[test]
    fn a_new_id_survives_text_and_bytes() {
        let id = RunId::new(UtcMillis::new(1_800_000_000_000), &Counting);
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert_eq!(RunId::from_bytes(*id.as_bytes()), Ok(id));
    }

    #[test]
    fn later_ids_sort_later() {
        let earlier = RunId::new(UtcMillis::new(1), &Counting);
        let later = RunId::new(UtcMillis::new(2), &Counting);
        assert!(earlier < later);
        assert!(earlier.to_string() < later.to_string());
    }

    #[test]
    fn one_spelling_per_id() {
        let id = RunId::new(UtcMillis::new(1_800_000_000_000), &Counting).to_string();
        for other in [id.to_uppercase(), id.replace('-', ""), format!("{{{id}}}"), format!(" {id}")] {
            assert!(other.parse::<RunId>().is_err(), "{other}");
        }
        assert!("7f8b4b3c-1d2e-4f50-8a9b-0c1d2e3f4a5b".parse::<RunId>().is_err(), "version 4");
    }

    #[test]
    fn labels_are_dns_labels() {
        for good in ["a", "box-1", &"a".repeat(63)] {
            assert!(good.parse::<WorkerId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<WorkerId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_worker_uri_names_only_workers_of_its_own_domain() {
        let domain: TrustDomain = "home.example".parse().unwrap();
        let worker: WorkerId = "nas".parse().unwrap();
        assert_eq!(domain.worker_of(&domain.worker_uri(&worker)), Some(worker));
        for foreign in [
            "spiffe://home.example.evil/worker/nas",
            "spiffe://home.example/control",
            "spiffe://home.example/worker/nas/x",
            "spiffe://home.example/worker/",
            "https://home.example/worker/nas",
        ] {
            assert_eq!(domain.worker_of(foreign), None, "{foreign}");
        }
    }
}
