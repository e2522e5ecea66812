//! What the port is asked of webhooks: a token is made, and somebody calls with it. Tokens appear as digests only.

use leasehold_core::actor::Actor;
use leasehold_core::counter::RevisionNumber;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{AttemptId, RunId};
use leasehold_core::revision::Revision;
use leasehold_core::trigger::TriggerKey;
use leasehold_core::trigger::webhook::NotCalled;

use crate::call::Keyed;

/// A person makes the token of a webhook, or another in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeWebhookToken {
    /// Who.
    pub actor: Actor,
    /// Of which trigger.
    pub trigger: TriggerKey,
    /// Digest of the token.
    pub token: Digest,
}

/// Somebody calls a webhook.
#[derive(Debug, Clone)]
pub struct CallWebhook {
    /// Who: the holder of its token.
    pub actor: Actor,
    /// Which trigger.
    pub trigger: TriggerKey,
    /// Digest of the token that was sent.
    pub token: Digest,
    /// The run's id.
    pub run: RunId,
    /// The id of attempt 1.
    pub attempt: AttemptId,
    /// Which of the task's revisions the run was made from: the task must have it still.
    pub of: RevisionNumber,
    /// What to execute: that revision, with what its parameters say this time.
    pub revision: Revision,
    /// The caller's key. It belongs to the webhook: no operator and no other webhook has it.
    pub idempotency_key: Option<Keyed>,
}

/// Why a call admitted no run; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// It starts none.
    #[error(transparent)]
    NotCalled(#[from] NotCalled),
    /// The key was used with another call before.
    #[error("this idempotency key was used with another call before")]
    KeyReused,
    /// The task has another revision by now.
    #[error("the task has another revision by now")]
    TaskMoved,
}
