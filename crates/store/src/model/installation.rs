//! The installation: made once, with its first admin token.

use leasehold_core::actor::Actor;
use leasehold_core::crypto::Digest;
use leasehold_core::id::ProjectName;

use super::{Transaction, projects};
use crate::call::{Installation, NewApiToken};
use crate::outcome::Outcome;
use crate::port::Unmet;
use crate::view::ApiTokenView;

pub(super) fn create(tx: &mut Transaction<'_>, installation: Installation, first: NewApiToken) -> Outcome<(), Unmet> {
    if let Some(stored) = &tx.state.installation {
        let same = *stored == installation && tx.state.api_tokens.contains(&first);
        return if same { Outcome::Replayed(()) } else { Outcome::Refused(Unmet::AlreadyInstalled) };
    }
    let facts = [("trust_domain", installation.trust_domain.to_string()), ("token", first.id.to_string())];
    tx.record(&Actor::System, "create_installation", "installation", facts);
    tx.state.installation = Some(installation);
    tx.state.api_tokens.push(first);
    projects::ensure(tx, &ProjectName::default());
    Outcome::Applied(())
}

pub(super) fn find_api_token(tx: &Transaction<'_>, digest: Digest) -> Option<ApiTokenView> {
    let token = tx.state.api_tokens.iter().find(|token| token.digest == digest)?;
    let works = token.expires_at.is_none_or(|end| tx.now.utc < end);
    works.then(|| ApiTokenView {
        id: token.id,
        name: token.name.clone(),
        role: token.role,
        expires_at: token.expires_at,
    })
}
