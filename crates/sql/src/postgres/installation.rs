//! The installation: made once, with its first admin token.

use leasehold_core::actor::Actor;
use leasehold_core::crypto::Digest;
use leasehold_core::id::ProjectName;
use leasehold_store::call::{Installation, NewApiToken};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::ApiTokenView;

use super::column::values;
use super::lock::Locks;
use super::rows::Columns;
use super::transaction::{Decided, Fault, Tx, Unlocked};
use super::{audit, projects};

/// What this installation is: [`of`] reads it.
pub(super) const INSTALLATION: &str =
    "SELECT trust_domain, ca_certificate, ca_key, ticket_key, created_at FROM installation WHERE one = 1";

/// What this installation is, once it was made.
pub(super) async fn installation(tx: &Tx) -> Result<Option<Installation>, Fault> {
    tx.first(INSTALLATION, values![], of).await
}

/// Reads a row of [`INSTALLATION`].
pub(super) fn of(columns: &mut Columns<'_>) -> Result<Installation, Fault> {
    Ok(Installation {
        trust_domain: columns.next()?,
        ca_certificate: columns.next()?,
        ca_key: columns.next()?,
        ticket_key: columns.next()?,
        created_at: columns.next()?,
    })
}

/// Makes the installation, unless there is one; the same again is a replay.
pub(super) async fn create(db: Unlocked, new: &Installation, first: &NewApiToken) -> Decided<(), Unmet> {
    let tx = &db.lock(Locks::none()).await?;
    if let Some(stored) = installation(tx).await? {
        let same = stored == *new && api_token(tx, first.digest).await?.as_ref() == Some(first);
        return Ok(if same { Outcome::Replayed(()) } else { Outcome::Refused(Unmet::AlreadyInstalled) });
    }
    tx.execute_one(
        "installation",
        "INSERT INTO installation (one, trust_domain, ca_certificate, ca_key, ticket_key, created_at) \
         VALUES (1, $1, $2, $3, $4, $5)",
        values![new.trust_domain, new.ca_certificate, new.ca_key, new.ticket_key, new.created_at],
    )
    .await?;
    tx.execute_one(
        "api token",
        "INSERT INTO api_token (id, name, role, digest, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
        values![first.id, first.name, first.role, first.digest, first.created_at, first.expires_at],
    )
    .await?;
    projects::ensure(tx, &ProjectName::default()).await?;
    audit::write(
        tx,
        &Actor::System,
        "create_installation",
        "installation".to_owned(),
        &[("trust_domain", &new.trust_domain), ("token", &first.id)],
    )
    .await?;
    Ok(Outcome::Applied(()))
}

async fn api_token(tx: &Tx, digest: Digest) -> Result<Option<NewApiToken>, Fault> {
    let sql = "SELECT id, name, role, digest, created_at, expires_at FROM api_token WHERE digest = $1";
    tx.first(sql, values![digest], |columns| {
        Ok(NewApiToken {
            id: columns.next()?,
            name: columns.next()?,
            role: columns.next()?,
            digest: columns.next()?,
            created_at: columns.next()?,
            expires_at: columns.next()?,
        })
    })
    .await
}

/// The unexpired token with this digest.
pub(super) async fn find_api_token(tx: &Tx, digest: Digest) -> Result<Option<ApiTokenView>, Fault> {
    let token = api_token(tx, digest).await?.filter(|token| token.expires_at.is_none_or(|end| tx.now.utc < end));
    Ok(token.map(|NewApiToken { id, name, role, expires_at, .. }| ApiTokenView { id, name, role, expires_at }))
}
