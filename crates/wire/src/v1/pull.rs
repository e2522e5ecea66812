//! `pull`: the worker asks for work, and the answer waits for it up to 30 s.
//!
//! The server claims before it answers. The same offer id and token again rebuilds the same offer.

use std::collections::BTreeMap;

use leasehold_core::claim::Ask;
use leasehold_core::counter::SessionGeneration;
use leasehold_core::crypto::LeaseToken;
use leasehold_core::id::OfferId;
use leasehold_core::limits;
use leasehold_core::placement::MismatchClass;
use leasehold_core::time::Millis;
use serde::{Deserialize, Serialize};

use super::offer::Offer;
use super::projection::Directive;
use crate::error::WireError;
use crate::field;
use crate::parse::Message;

/// The request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullRequest {
    /// The session's generation.
    #[serde(with = "field::number")]
    pub session_generation: SessionGeneration,
    /// What the worker asks with: 0 to 16; none means that it waits for directives only.
    pub asks: Vec<AskRequest>,
    /// How long the answer may wait: at most 30 s.
    #[serde(with = "field::number")]
    pub wait_ms: Millis,
}

/// One ask: durable at the worker before the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskRequest {
    /// Chosen by the worker.
    #[serde(with = "field::text")]
    pub offer_id: OfferId,
    /// Chosen by the worker; the control plane keeps its digest only.
    #[serde(with = "field::token")]
    pub lease_token: LeaseToken,
}

impl From<&AskRequest> for Ask {
    fn from(wire: &AskRequest) -> Self {
        Self { offer: wire.offer_id, token: wire.lease_token.digest() }
    }
}

impl Message for PullRequest {
    const SCHEMA: &'static str = "leasehold/pull/v1";
    const LIMIT: usize = limits::JSON_BODY;

    fn check(&self) -> Result<(), WireError> {
        WireError::check_count("asks", self.asks.len(), limits::PULL_ASKS)?;
        if self.wait_ms > limits::PULL_WAIT {
            let allowed = format!("at most {}", limits::PULL_WAIT.get());
            return Err(WireError::limit("wait_ms", format!("got {}", self.wait_ms.get()), allowed));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, ask) in self.asks.iter().enumerate() {
            if !seen.insert(ask.offer_id) {
                let field = format!("asks[{index}].offer_id");
                return Err(WireError::invalid(field, "the same offer id twice", "every ask with an id of its own"));
            }
        }
        Ok(())
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullAnswer {
    /// A verdict per ask, in the order they were asked.
    pub asks: Vec<AskAnswer>,
    /// Why some asks were answered `none`; present if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// What the worker is to do.
    pub directives: Vec<Directive>,
    /// How long the request was held: a lease's deadline is sent + held + remaining.
    #[serde(with = "field::number")]
    pub held_ms: Millis,
}

/// The verdict on one ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskAnswer {
    /// The ask.
    #[serde(with = "field::text")]
    pub offer_id: OfferId,
    /// What became of it.
    pub verdict: AskVerdict,
}

/// What became of an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskVerdict {
    /// Here is work.
    Granted(Box<Offer>),
    /// Nothing yet: the ask stays good.
    None,
    /// The ask is another worker's, has another token, or its lease has ended: drop it.
    Gone,
}

/// Why there was nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// The leading reason.
    pub reason: IdleReason,
    /// How many lanes (runs that are blocked alike) each class kept from this worker.
    #[serde(with = "counts")]
    pub counts: BTreeMap<MismatchClass, u32>,
    /// Whether the search ended at its budget rather than at the last lane.
    pub truncated: bool,
}

/// Why there was nothing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleReason {
    /// No run waits.
    NoPendingRuns,
    /// Runs wait, and none of them fits this worker now; the counts say why.
    NoMatch,
    /// The worker's slots are all held.
    NoFreeSlot,
    /// The session drains.
    Draining,
    /// The search ended at its budget: pull again.
    Budget,
}

mod counts {
    use std::collections::BTreeMap;

    use leasehold_core::placement::MismatchClass;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(counts: &BTreeMap<MismatchClass, u32>, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(counts.iter().map(|(class, count)| (class.as_str(), count)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<MismatchClass, u32>, D::Error> {
        let named = BTreeMap::<String, u32>::deserialize(d)?;
        named.into_iter().map(|(name, count)| Ok((name.parse().map_err(D::Error::custom)?, count))).collect()
    }
}

impl Message for PullAnswer {
    const SCHEMA: &'static str = "leasehold/pull-answer/v1";
    const LIMIT: usize = limits::PULL_ANSWER;

    fn check(&self) -> Result<(), WireError> {
        WireError::check_count("asks", self.asks.len(), limits::PULL_ASKS)?;
        WireError::check_count("directives", self.directives.len(), limits::DIRECTIVES)?;
        for (index, answer) in self.asks.iter().enumerate() {
            if let AskVerdict::Granted(offer) = &answer.verdict {
                let field = format!("asks[{index}].verdict.granted");
                if offer.offer_id != answer.offer_id {
                    let allowed = "the offer id of the ask".to_owned();
                    return Err(WireError::invalid(format!("{field}.offer_id"), "another offer's id", allowed));
                }
                offer.check(&field)?;
            }
        }
        Ok(())
    }
}
