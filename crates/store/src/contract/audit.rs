//! The audit: one row per mutation by a person or by enrollment, with its author; none for refusals, repeats and beats.

use leasehold_core::actor::{Actor, Origin};
use leasehold_core::resolve::Verb;

use super::Harness;
use super::fixture::{Expect, World, exited, plain};
use crate::call::{AdmitRun, AuditPage, CancelRun};
use crate::view::AuditEntry;

/// Every operator's mutation is one row with its author, in order; a repeat and a refusal are none.
pub async fn every_mutation_is_one_row_with_its_author(harness: &dyn Harness) {
    let world = World::new(harness);
    let origin = Origin::Address("2001:db8::1".parse().unwrap());
    let token = Actor::ApiToken { token: world.token_id(), name: "ci".to_owned(), origin };
    let call = AdmitRun { actor: token.clone(), ..world.submission(plain()) };
    let run = call.run;
    world.store.admit_run(call.clone()).await.applied();
    world.store.admit_run(call).await.replayed();
    let cancel = CancelRun { actor: token, ..world.cancel_call(run) };
    world.store.cancel_run(cancel.clone()).await.applied();
    world.store.cancel_run(cancel).await.replayed();
    world.store.cancel_run(world.cancel_call(world.run_id())).await.refused();
    let (_, session) = world.agent("nas").await;
    let lost = world.running(&session, plain()).await;
    world.expire(&lost).await;
    for verb in Verb::ALL {
        world.store.resolve_run(world.resolve_call(lost.run, *verb)).await.unwrap();
    }
    let said: Vec<_> = world.audit().await.into_iter().filter(|row| row.action == "resolve_run").collect();
    let verbs: Vec<_> = said.iter().map(|row| row.facts["verb"].as_str()).collect();
    assert_eq!(verbs, ["wait", "retry"], "what was refused, because a word had closed it, is none");
    assert_eq!(said[0].facts["why"], "looked at the machine");
    let rows = world.audit().await;
    let of_run = format!("run/{run}");
    let rows: Vec<_> = rows.into_iter().filter(|row| row.subject == of_run).collect();
    let told: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.actor.as_str(), row.subject.clone())).collect();
    let subject = format!("run/{run}");
    assert_eq!(told, [("admit_run", "token:ci", subject.clone()), ("cancel_run", "token:ci", subject)]);
    assert!(rows.iter().all(|row| row.origin.as_deref() == Some("2001:db8::1")), "{rows:#?}");
    assert!(rows.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    assert_eq!(rows[1].facts.get("why").map(String::as_str), Some("no longer needed"));
}

/// What a worker does for a run is in the run's story, not in the audit.
pub async fn work_writes_no_audit(harness: &dyn Harness) {
    let world = World::new(harness);
    let (_, session) = world.agent("nas").await;
    let run = world.run(plain()).await;
    let before = world.audit().await;
    let taken = world.take(&session, run).await;
    world.start(&taken).await;
    world.acknowledge_running(&taken).await.applied();
    world.renewal(&taken).await.unwrap();
    world.end(&taken, exited(0)).await.applied();
    world.drain(&session).await.applied();
    world.offline(&session).await.applied();
    assert_eq!(world.audit().await, before);
}

/// The audit is read in pages, from either end.
pub async fn the_audit_is_paged_from_either_end(harness: &dyn Harness) {
    let world = World::new(harness);
    for _ in 0..5 {
        world.run(plain()).await;
    }
    let mut whole = world.audit().await;
    assert_eq!(whole.len(), 5);
    assert!(whole.is_sorted_by_key(|row| row.sequence), "oldest first");
    let pages = async |next: fn(Option<u64>) -> AuditPage| {
        let mut paged: Vec<AuditEntry> = Vec::new();
        loop {
            let last = paged.last().map(|row| row.sequence);
            let page = world.store.audit(next(last), 2).await.unwrap();
            if page.is_empty() {
                return paged;
            }
            assert!(page.len() <= 2);
            paged.extend(page);
        }
    };
    assert_eq!(pages(|after| AuditPage::Oldest { after }).await, whole);
    whole.reverse();
    assert_eq!(pages(|before| AuditPage::Newest { before }).await, whole);
}
