//! Renewing many leases at once: what a heartbeat names is loaded together, decided one by one, and written in one statement.

use std::collections::BTreeMap;

use futures_util::future::try_join;
use leasehold_core::attempt::Attempt;
use leasehold_core::change::Change;
use leasehold_core::counter::{AttemptVersion, LeaseVersion};
use leasehold_core::id::AttemptId;
use leasehold_core::lease::{Lease, LeaseProjection, not_held, renew};
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::session::Session;
use leasehold_core::time::Now;
use leasehold_store::call::{Heartbeat, Renewal};

use super::apply::{update_attempt, write_events};
use super::column::{Column as _, list};
use super::load;
use super::rows::{self, Columns, attempt_columns, lease_columns};
use super::transaction::{Connection, Fault, Tx};

/// What is answered to one renewal.
type Verdict = (AttemptId, Result<LeaseProjection, Refusal>);

/// Records by attempt; none where a row is damaged.
type Readable<T> = BTreeMap<AttemptId, Option<T>>;

/// Attempts and their latest leases, locked.
pub(super) struct Renewable {
    attempts: Readable<Attempt>,
    leases: Readable<Lease>,
}

/// What is to be written of them.
#[derive(Default)]
pub(super) struct Renewed {
    /// By attempt: the version that was loaded, and the lease now.
    leases: BTreeMap<AttemptId, (LeaseVersion, Lease)>,
    /// By attempt, where one is written at all: the version that was loaded, and the attempt now.
    attempts: BTreeMap<AttemptId, (AttemptVersion, Attempt)>,
    /// The stories that go on.
    changes: Vec<Change>,
}

impl Renewable {
    /// Those of these attempts that there are.
    pub(super) async fn of(db: &Connection, renewals: &[Renewal]) -> Result<Self, Fault> {
        if renewals.is_empty() {
            return Ok(Self { attempts: BTreeMap::new(), leases: BTreeMap::new() });
        }
        let held: Vec<AttemptId> = renewals.iter().map(|renewal| renewal.fence.attempt).collect();
        let attempts = concat!("SELECT a.id, ", attempt_columns!("a."), " FROM attempt a WHERE a.id = ANY ($1)");
        let leases = concat!(
            "SELECT a.id, ",
            lease_columns!("l."),
            " FROM attempt a JOIN lease l ON l.attempt = a.id AND l.generation = a.lease_generation \
             WHERE a.id = ANY ($1)"
        );
        let (attempts, leases) = try_join(
            db.all(attempts, [list(&held)], |columns| keyed(columns, rows::attempt)),
            db.all(leases, [list(&held)], |columns| keyed(columns, rows::lease)),
        )
        .await?;
        Ok(Self { attempts: attempts.into_iter().collect(), leases: leases.into_iter().collect() })
    }

    /// A verdict per renewal, in order, and what is to be written.
    pub(super) fn renewed(mut self, call: &Heartbeat, session: &Session, now: Now) -> (Vec<Verdict>, Renewed) {
        let mut renewed = Renewed::default();
        let verdicts = call
            .renewals
            .iter()
            .map(|renewal| (renewal.fence.attempt, self.renew(renewal, session, now, &mut renewed)));
        let verdicts = verdicts.collect();
        (verdicts, renewed)
    }

    fn renew(
        &mut self,
        renewal: &Renewal,
        session: &Session,
        now: Now,
        renewed: &mut Renewed,
    ) -> Result<LeaseProjection, Refusal> {
        let id = renewal.fence.attempt;
        // One damaged attempt must not take the worker's session and every other lease with it.
        let unreadable = || Refusal::new(RefusalCode::Overloaded, "a stored row of this attempt is damaged");
        let attempt = self.attempts.get(&id).ok_or_else(not_held)?.as_ref().ok_or_else(unreadable)?;
        let lease = match self.leases.get(&id) {
            Some(lease) => Some(lease.as_ref().ok_or_else(unreadable)?),
            None if attempt.lease_generation.is_some() => return Err(unreadable()),
            None => None,
        };
        let (projection, mut change) = renew(lease, attempt, &renewal.fence, session, renewal.left.as_ref(), now)?;
        if let Some(next) = change.attempt.take() {
            renewed.attempts.entry(id).or_insert((attempt.version, next.clone())).1 = next.clone();
            self.attempts.insert(id, Some(next));
        }
        if let (Some(next), Some(before)) = (change.lease.take(), lease) {
            renewed.leases.entry(id).or_insert((before.version, next.clone())).1 = next.clone();
            self.leases.insert(id, Some(next));
        }
        if !change.is_empty() {
            renewed.changes.push(change);
        }
        Ok(projection)
    }
}

fn keyed<T>(
    columns: &mut Columns<'_>,
    read: impl FnOnce(&mut Columns<'_>) -> Result<T, Fault>,
) -> Result<(AttemptId, Option<T>), Fault> {
    Ok((columns.next()?, load::readable("lease to renew", read(columns))?))
}

impl Renewed {
    /// Writes every renewed lease, each only as it was loaded, and the stories of those that a later session took over.
    pub(super) async fn write(self, tx: &Tx, session: &Session) -> Result<(), Fault> {
        for change in &self.changes {
            write_events(tx, change).await?;
        }
        for (expected, attempt) in self.attempts.values() {
            update_attempt(tx, attempt, *expected).await?;
        }
        if self.leases.is_empty() {
            return Ok(());
        }
        let attempts: Vec<_> = self.leases.keys().copied().collect();
        let expected: Vec<_> = self.leases.values().map(|(expected, _)| *expected).collect();
        let leases = self.leases.values().map(|(_, lease)| lease);
        let generations: Vec<_> = leases.clone().map(|lease| lease.generation).collect();
        let tokens: Vec<_> = leases.clone().map(|lease| lease.token).collect();
        let versions: Vec<_> = leases.clone().map(|lease| lease.version).collect();
        let expires: Vec<_> = leases.map(|lease| lease.expires).collect();
        let rows = tx
            .execute(
                "UPDATE lease l SET version = n.version, session = $1, session_generation = $2, expires_lease = n.expires \
                 FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[]) \
                 AS n (attempt, generation, expected, token, version, expires) \
                 WHERE l.attempt = n.attempt AND l.generation = n.generation AND l.version = n.expected \
                 AND l.token = n.token AND l.state = 'active'",
                [
                    session.id.bind(),
                    session.generation.bind(),
                    list(&attempts),
                    list(&generations),
                    list(&expected),
                    list(&tokens),
                    list(&versions),
                    list(&expires),
                ],
            )
            .await?;
        if usize::try_from(rows).is_ok_and(|rows| rows == attempts.len()) {
            return Ok(());
        }
        Err(Fault::Damaged(format!("{rows} of {} leases were renewed", attempts.len())))
    }
}
