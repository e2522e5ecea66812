//! The end of an attempt: attempt, run, lease and events change together, or evidence is kept. One that goes as planned is
//! decided before it is sent, and one statement compares and writes ([`end::plain`]).

use futures_util::future::try_join4;
use leasehold_core::attempt::Attempt;
use leasehold_core::change::Change;
use leasehold_core::end::{self, EndCall, EndFacts, Ended, Plain};
use leasehold_core::refusal::Refusal;
use leasehold_store::outcome::Outcome;

use super::apply::{Loaded, apply, note, texts};
use super::column::{Column as _, list};
use super::load::{self, Named, Speaker};
use super::lock::Locks;
use super::rows;
use super::transaction::{Decided, Fault, Undone, Unlocked};

/// An end that nothing speaks against, in one statement; none: nothing was written, and [`end()`] has to ask why.
pub(super) async fn plainly(db: Unlocked, call: &EndCall) -> Result<Option<Outcome<Ended, Refusal>>, Undone> {
    let Some(Plain { ended, change, whatever_the_policy }) = end::plain(call) else { return Ok(None) };
    let Change { run: Some(run), attempt: Some(attempt), events, .. } = &change else { return Ok(None) };
    let (Some(closing), Some(callback)) = (&run.closing, attempt.callback) else { return Ok(None) };
    let EndCall { session, lease, .. } = call;
    let Attempt { log, usage, .. } = attempt;
    let cut = log.and_then(|log| log.cut);
    let actors: Vec<_> = events.iter().map(|event| event.actor.to_string()).collect();
    let facts: Vec<_> = events.iter().map(texts).collect();
    let (lease_now, utc_now) = db.told();
    let written = db
        .at_once(
            END_PLAINLY,
            [
                // Whose end, and of what.
                session.worker.bind(),
                session.session.bind(),
                session.generation.bind(),
                lease.attempt.bind(),
                lease.offer.bind(),
                lease.generation.bind(),
                lease.token.bind(),
                callback.sequence.bind(),
                callback.token.bind(),
                whatever_the_policy.bind(),
                // The attempt.
                attempt.state.bind(),
                attempt.outcome.bind(),
                attempt.ended_at.bind(),
                log.map(|log| log.length).bind(),
                log.map(|log| log.digest).bind(),
                log.map(|log| log.finished).bind(),
                cut.map(|cut| cut.reason).bind(),
                cut.map(|cut| cut.stdout).bind(),
                cut.map(|cut| cut.stderr).bind(),
                usage.map(|usage| usage.user).bind(),
                usage.map(|usage| usage.system).bind(),
                usage.map(|usage| usage.max_rss_kib).bind(),
                usage.map(|usage| usage.oom_killed).bind(),
                usage.and_then(|usage| usage.limits.memory).bind(),
                usage.and_then(|usage| usage.limits.cpu).bind(),
                usage.and_then(|usage| usage.limits.pids).bind(),
                // The run.
                run.state.bind(),
                closing.outcome.bind(),
                closing.unobserved.bind(),
                // The events.
                list(events.iter().map(|event| &event.kind)),
                list(events.iter().map(|event| &event.attempt)),
                list(&actors),
                list(&facts),
                lease_now.bind(),
                utc_now.bind(),
            ],
            rows::column::<i64, _>,
        )
        .await?;
    if written.is_empty() {
        return Ok(None);
    }
    note(&db, &change, events);
    Ok(Some(Outcome::Applied(ended)))
}

/// The statement of a plain end.
const END_PLAINLY: &str = "SELECT end_plainly($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
     $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35)";

/// Decides an `end`; a refusal may keep evidence.
pub(super) async fn end(db: Unlocked, call: &EndCall) -> Decided<Ended, Refusal> {
    let tx = &db.lock(Locks::step(&call.session, &call.lease)).await?;
    let attempt = call.lease.attempt;
    let (speaker, named, latest, revision) = try_join4(
        Speaker::of(tx, &call.session),
        Named::of(tx, &call.lease),
        load::latest_beside(tx, attempt),
        load::revision_of(tx, attempt),
    )
    .await?;
    if let Err(refusal) = speaker.check_trusted() {
        return Ok(Outcome::Refused(refusal));
    }
    let named = match named {
        Ok(named) => named,
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let (Some(latest), Some(revision)) = (latest, revision) else {
        return Err(Fault::Damaged(format!("run {} has not the attempt or revision that it names", named.run.id)));
    };
    let policy = revision.policy();
    let facts = EndFacts {
        current: speaker.current.as_ref(),
        run: &named.run,
        attempt: &named.attempt,
        latest: &latest,
        lease: named.lease.as_ref(),
    };
    let (verdict, change) = end::end(facts, call, &policy, tx.now);
    let loaded = Loaded::of(&named.run, &[&named.attempt, &latest]).and_lease(named.lease.as_ref());
    apply(tx, &loaded, &change).await?;
    Ok(match verdict {
        Ok(ended) if tx.wrote() => Outcome::Applied(ended),
        Ok(ended) => Outcome::Replayed(ended),
        Err(refusal) => Outcome::Refused(refusal),
    })
}
