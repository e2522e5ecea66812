//! A call of a webhook: who may call, and whether a call starts a run.
//!
//! A webhook has at most one token, of its own: it opens this webhook and nothing else, and goes with its trigger. A call
//! never waits for its turn: there is no time that it could be admitted for later. So what stands in its way is told to the
//! caller, and nothing is kept. (Control design, *Triggers*.)

use super::{KeptTrigger, Kind, TriggerKey};
use crate::crypto::Digest;
use crate::id::RunId;
use crate::revision::Overlap;
use crate::schedule::Blocking;
use crate::time::UtcMillis;

/// Who made a webhook's token, and when: what is shown of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMade {
    /// Who.
    pub by: String,
    /// When.
    pub at: UtcMillis,
}

/// The token of a webhook, as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptToken {
    /// Its digest.
    pub digest: Digest,
    /// Where it comes from.
    pub made: TokenMade,
}

/// Why a call starts no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCalled {
    /// There is no such webhook, it has no token, or another one: which of them is never told.
    #[error("no webhook can be called with this token")]
    Unauthenticated,
    /// It, or its task, is paused.
    #[error("the webhook is paused")]
    Paused,
    /// A run of its task stands in the way, and its overlap policy is to skip.
    #[error("run {0} stands in the way")]
    InTheWay(RunId),
}

/// Whether whoever sends a token of this digest may call the webhook that has the token `kept`.
pub fn authenticate(kept: Option<Digest>, sent: Digest) -> Result<(), NotCalled> {
    // The comparison takes the same time wherever the two differ.
    if kept == Some(sent) { Ok(()) } else { Err(NotCalled::Unauthenticated) }
}

/// Whether a call that is authenticated starts a run; `blocking` is what stands in the way of a run of its task.
pub fn call(kept: &KeptTrigger, overlap: Overlap, blocking: &[Blocking]) -> Result<(), NotCalled> {
    if kept.kind != Kind::Webhook {
        return Err(NotCalled::Unauthenticated);
    }
    if kept.progress.paused {
        return Err(NotCalled::Paused);
    }
    match blocking.first() {
        Some(first) if overlap != Overlap::AllowAll => Err(NotCalled::InTheWay(first.run)),
        _ => Ok(()),
    }
}

impl TriggerKey {
    /// The idempotency key `key` of a caller of this webhook, as it is kept beside those of its project. A caller's key has
    /// no blanks, and no name has any: it is that of no operator and of no other webhook.
    pub fn keyed(&self, key: &str) -> String {
        format!("webhook {} {} {key}", self.task, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Domain, WebhookToken};
    use crate::id::ProjectName;
    use crate::schedule::Progress;

    fn kept(kind: Kind, paused: bool) -> KeptTrigger {
        let key = TriggerKey {
            project: ProjectName::default(),
            task: "report".parse().unwrap(),
            name: "push".parse().unwrap(),
        };
        let progress = Progress { next: None, backlog: None, waiting: None, paused };
        KeptTrigger { key, kind, progress, look_at: None, pause: None }
    }

    #[test]
    fn one_token_opens_one_webhook_and_nothing_else() {
        let token = |byte| WebhookToken::from_bytes([byte; 32]).digest();
        assert_eq!(authenticate(Some(token(1)), token(1)), Ok(()));
        for held in [None, Some(token(2)), Some(Digest::of(Domain::ApiToken, &[1; 32]))] {
            assert_eq!(authenticate(held, token(1)), Err(NotCalled::Unauthenticated));
        }
    }

    #[test]
    fn a_call_starts_a_run_unless_a_pause_or_a_run_is_in_its_way() {
        let run = "01900000-0000-7000-8000-000000000001".parse().unwrap();
        let blocking = [Blocking { run, stopping: false }];
        let webhook = |paused| kept(Kind::Webhook, paused);
        assert_eq!(call(&webhook(false), Overlap::Skip, &[]), Ok(()));
        assert_eq!(call(&webhook(false), Overlap::Skip, &blocking), Err(NotCalled::InTheWay(run)));
        assert_eq!(call(&webhook(false), Overlap::AllowAll, &blocking), Ok(()));
        assert_eq!(call(&webhook(true), Overlap::AllowAll, &blocking), Err(NotCalled::Paused));
        assert_eq!(call(&kept(Kind::Cron, false), Overlap::Skip, &[]), Err(NotCalled::Unauthenticated));
    }

    #[test]
    fn a_callers_key_is_that_of_one_webhook() {
        let push = kept(Kind::Webhook, false).key;
        let other = TriggerKey { name: "pull".parse().unwrap(), ..push.clone() };
        assert_ne!(push.keyed("k"), other.keyed("k"));
        // What an operator's key cannot have.
        assert!(push.keyed("k").contains(' '));
    }
}
