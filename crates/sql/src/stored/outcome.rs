//! What an attempt or run ended with, as one text column: canonical JSON with a `kind`.

use leasehold_core::attempt::{EvidenceKind, ExitStatus, Outcome, RejectReason, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::run::StopIntentReason;

/// The longest text that is read back: a reject's detail is at most 512 characters.
const OUTCOME_BYTES: usize = 16 * 1024;

/// What [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Result<Outcome, String> {
    let value = Value::parse_canonical(text.as_bytes(), OUTCOME_BYTES).map_err(|error| error.to_string())?;
    outcome(&value).ok_or_else(|| "not an outcome".to_owned())
}

/// The text of `outcome`.
pub(crate) fn encode(outcome: &Outcome) -> String {
    value(outcome).to_canonical_text()
}

fn value(outcome: &Outcome) -> Value {
    let kind = |kind: &str| ("kind", Value::text(kind));
    let status = |status: &ExitStatus| match status {
        ExitStatus::Code(code) => ("code", Value::Int((*code).into())),
        ExitStatus::Signal(signal) => ("signal", Value::Int((*signal).into())),
    };
    let reason = |reason: &str| ("reason", Value::text(reason));
    match outcome {
        Outcome::Exited(how) => Value::map([kind("exited"), status(how)]),
        Outcome::Stopped(why, how) => Value::map([kind("stopped"), reason(why.as_str()), status(how)]),
        Outcome::Rejected { reason: why, detail } => {
            Value::map([kind("rejected"), reason(why.as_str()), ("detail", Value::text(detail))])
        }
        Outcome::NeverSpawned => Value::map([kind("never_spawned")]),
        Outcome::NotStarted(why) => Value::map([kind("not_started"), reason(why.as_str())]),
        Outcome::Lost(evidence) => Value::map([kind("lost"), ("evidence", Value::text(evidence.as_str()))]),
        Outcome::Superseded => Value::map([kind("superseded")]),
    }
}

fn outcome(value: &Value) -> Option<Outcome> {
    let Value::Map(entries) = value else { return None };
    let text = |key: &str| match entries.get(key) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let number = |key: &str| match entries.get(key) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    };
    let status = || match (number("code"), number("signal")) {
        (Some(code), None) => u8::try_from(code).ok().map(ExitStatus::Code),
        (None, Some(signal)) => i32::try_from(signal).ok().map(ExitStatus::Signal),
        _ => None,
    };
    match text("kind")? {
        "exited" => Some(Outcome::Exited(status()?)),
        "stopped" => Some(Outcome::Stopped(text("reason")?.parse::<StopReason>().ok()?, status()?)),
        "rejected" => Some(Outcome::Rejected {
            reason: text("reason")?.parse::<RejectReason>().ok()?,
            detail: text("detail")?.to_owned(),
        }),
        "never_spawned" => Some(Outcome::NeverSpawned),
        "not_started" => Some(Outcome::NotStarted(text("reason")?.parse::<StopIntentReason>().ok()?)),
        "lost" => Some(Outcome::Lost(text("evidence")?.parse::<EvidenceKind>().ok()?)),
        "superseded" => Some(Outcome::Superseded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_its_column() {
        let mut outcomes = vec![
            Outcome::Exited(ExitStatus::Code(0)),
            Outcome::Exited(ExitStatus::Code(255)),
            Outcome::Exited(ExitStatus::Signal(64)),
            Outcome::NeverSpawned,
            Outcome::Superseded,
        ];
        outcomes.extend(StopReason::ALL.iter().map(|why| Outcome::Stopped(*why, ExitStatus::Signal(15))));
        outcomes.extend(StopIntentReason::ALL.iter().map(|why| Outcome::NotStarted(*why)));
        outcomes.extend(EvidenceKind::ALL.iter().map(|evidence| Outcome::Lost(*evidence)));
        outcomes.extend(
            RejectReason::ALL.iter().map(|reason| Outcome::Rejected { reason: *reason, detail: "\"no\"\n".repeat(99) }),
        );
        for outcome in outcomes {
            assert_eq!(decode(&encode(&outcome)), Ok(outcome));
        }
    }

    #[test]
    fn what_is_not_an_outcome_is_damage() {
        for text in ["", "{}", r#"{"kind":"exited"}"#, r#"{"code":256,"kind":"exited"}"#, r#"{"kind":"lost"}"#, "[]"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
