//! The `retry` of a revision: when an attempt that ended badly is followed by another.

use std::collections::BTreeSet;

use crate::canonical::Value;
use crate::limits::{ATTEMPTS_MAX, RETRY_INITIAL, RETRY_MAX, RETRY_MAX_MAX};
use crate::run::OnLost;
use crate::shape::Field;
use crate::time::Millis;

names! {
    /// What a retry follows.
    pub enum RetryOn as "retry cause" {
        /// The process ended by itself, badly.
        Failed = "failed",
        /// The process was stopped at its timeout.
        TimedOut = "timed_out",
    }
}

names! {
    /// Why a second start cannot do harm, declared by the author.
    pub enum Safety as "safety" {
        /// Nobody says that it cannot.
        None = "none",
        /// Doing it twice is as good as doing it once.
        Idempotent = "idempotent",
        /// Its resources refuse the second, such as by `LEASEHOLD_FENCE`.
        Deduplicated = "deduplicated",
    }
}

/// When an attempt that ended badly is followed by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// What a retry follows.
    pub on: BTreeSet<RetryOn>,
    /// What becomes of a lost run.
    pub on_lost: OnLost,
    /// Why a second start cannot do harm.
    pub safety: Safety,
    /// The first wait.
    pub backoff_initial: Millis,
    /// The longest wait.
    pub backoff_max: Millis,
}

impl Default for Retry {
    /// One attempt; a lost run waits for evidence or a person.
    fn default() -> Self {
        Self {
            max_attempts: 1,
            on: BTreeSet::from([RetryOn::Failed]),
            on_lost: OnLost::Hold,
            safety: Safety::None,
            backoff_initial: RETRY_INITIAL,
            backoff_max: RETRY_MAX,
        }
    }
}

impl Retry {
    pub(super) fn read(field: &Field<'_>) -> Self {
        let mut retry = Self::default();
        let Some(table) = field.table(&["backoff", "max_attempts", "on", "on_lost", "safety"]) else {
            return retry;
        };
        if let Some(attempts) = table.optional("max_attempts").and_then(|f| f.unsigned(1..=ATTEMPTS_MAX)) {
            retry.max_attempts = attempts;
        }
        if let Some(on) = table.optional("on") {
            retry.on = on.set(RetryOn::ALL.len(), |member| member.named(RetryOn::ALL));
        }
        if let Some(on_lost) = table.optional("on_lost").and_then(|f| f.named(OnLost::ALL)) {
            retry.on_lost = on_lost;
        }
        if let Some(safety) = table.optional("safety").and_then(|f| f.named(Safety::ALL)) {
            retry.safety = safety;
        }
        if let Some(backoff) = table.optional("backoff").and_then(|f| f.table(&["initial", "max"])) {
            let span = |key: &str| backoff.optional(key).and_then(|f| f.duration(Millis::new(100)..=RETRY_MAX_MAX));
            let (initial, max) = (span("initial"), span("max"));
            // One given bound moves the other's default along instead of contradicting it.
            retry.backoff_initial = initial.unwrap_or(RETRY_INITIAL.min(max.unwrap_or(RETRY_INITIAL)));
            retry.backoff_max = max.unwrap_or(RETRY_MAX.max(retry.backoff_initial));
            if retry.backoff_max < retry.backoff_initial {
                backoff.conflict("max", retry.backoff_max.to_string(), format!("at least {}", retry.backoff_initial));
            }
        }
        if retry.on_lost == OnLost::Retry && retry.safety == Safety::None {
            let allowed = "safety = \"idempotent\" or \"deduplicated\" with it: a lost attempt may have done its work";
            table.conflict("on_lost", "retry without declared safety", allowed);
        }
        retry
    }

    pub(super) fn to_value(&self) -> Value {
        let backoff = Value::map([
            ("initial", Value::text(self.backoff_initial.to_string())),
            ("max", Value::text(self.backoff_max.to_string())),
        ]);
        Value::map([
            ("backoff", backoff),
            ("max_attempts", Value::Int(self.max_attempts.into())),
            ("on", Value::texts(self.on.iter().map(|on| on.as_str()))),
            ("on_lost", Value::text(self.on_lost.as_str())),
            ("safety", Value::text(self.safety.as_str())),
        ])
    }
}
