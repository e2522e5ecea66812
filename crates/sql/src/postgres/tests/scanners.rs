//! Every replica scans: what is due is dealt with once, nobody fails by it, and nobody waits in a circle.

use std::collections::BTreeMap;

use futures_util::future::{join, join_all};
use leasehold_core::canonical::Value;
use leasehold_core::id::RunId;
use leasehold_core::revision::Revision;
use leasehold_core::session::SessionFence;
use leasehold_core::time::Millis;
use leasehold_store::call::AcknowledgeRunning;
use leasehold_store::port::Store as _;
use leasehold_store::view::Scanned;

use super::{Fixture, PostgresStore};
use crate::scene::{exited, revision, running, step};
use crate::test_server::TestServer;

/// Rows of a page: small, so that there are many.
const PAGE: usize = 5;

/// Which scan.
#[derive(Clone, Copy)]
enum Scan {
    Expiry,
    Retry,
    Backstop,
}

impl Scan {
    async fn page(self, fixture: &Fixture<'_>, store: &PostgresStore) -> Scanned {
        let scanned = match self {
            Self::Expiry => store.expire_leases(PAGE).await,
            Self::Retry => store.begin_retries((0..PAGE).map(|_| fixture.attempt_id()).collect()).await,
            Self::Backstop => store.stop_overdue(PAGE).await,
        };
        scanned.unwrap()
    }

    /// Scans with every store at once, until none finds anything; every run that was dealt with, as often as it was.
    async fn at_once(self, fixture: &Fixture<'_>, stores: &[PostgresStore]) -> BTreeMap<RunId, usize> {
        let scanners = stores.iter().map(|store| async move {
            let mut found = Vec::new();
            loop {
                let scanned = self.page(fixture, store).await;
                // What others have in their hands is looked at again.
                let over = scanned.runs.is_empty() && scanned.next.is_none_or(|next| next > Millis::from_secs(1));
                found.extend(scanned.runs);
                if over && !scanned.more {
                    return found;
                }
            }
        });
        let mut times = BTreeMap::new();
        for run in join_all(scanners).await.into_iter().flatten() {
            *times.entry(run).or_insert(0) += 1;
        }
        times
    }
}

async fn started(fixture: &Fixture<'_>, session: &SessionFence, revision: Revision) -> RunId {
    let run = fixture.admit(revision).await;
    let grant = fixture.claim(session, run).await;
    let step = step(session, &grant);
    fixture.store.acknowledge_starting(step.clone()).await.unwrap().into_result().unwrap();
    let call = AcknowledgeRunning { step, call: running(&grant) };
    fixture.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
    run
}

fn once(runs: &[RunId]) -> BTreeMap<RunId, usize> {
    runs.iter().map(|run| (*run, 1)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_four_replicas_find_at_once_is_dealt_with_once() {
    if TestServer::shared_or_skip("scanners beside each other").is_none() {
        return;
    }
    let server = TestServer::start_with(&[("deadlock_timeout", "10ms")]).unwrap();
    let fixture = &Fixture::on(&server).await;
    let mut stores = vec![fixture.store.clone()];
    for _ in 0..3 {
        stores.push(fixture.replica().await);
    }
    let sessions = [fixture.agent("nas").await, fixture.agent("attic").await];
    let text = |key, value| (key, Value::text(value));
    let retried = || {
        let limits = Value::map([text("lease", "1m"), text("timeout", "30s")]);
        let retry = Value::map([text("on_lost", "retry"), text("safety", "idempotent")]);
        revision(&[("limits", limits), ("retry", retry)])
    };
    let (mut running, mut claimed) = (Vec::new(), Vec::new());
    for n in 0..30 {
        let session = &sessions[n % 2];
        running.push(started(fixture, session, retried()).await);
        let run = fixture.admit(revision(&[])).await;
        fixture.claim(session, run).await;
        claimed.push(run);
    }
    running.sort_unstable();

    // Times are up: each is told to stop once. Claims that never started wait again, each once, beside it.
    fixture.clock.advance(Millis::from_secs(31));
    let (stopped, given_up) =
        join(Scan::Backstop.at_once(fixture, &stores), Scan::Expiry.at_once(fixture, &stores)).await;
    assert_eq!((stopped, given_up), (once(&running), once(&claimed)));
    // Nothing stands in the way of what is lost being begun again.
    fixture.sql("UPDATE run SET intent_reason = NULL, intent_by = NULL, intent_why = NULL, intent_at = NULL");

    // Leases end: each is declared once, while some of the jobs say how they ended.
    fixture.clock.advance(Millis::from_secs(60));
    let lost = Scan::Expiry.at_once(fixture, &stores).await;
    assert_eq!(lost, once(&running));
    let losses = "SELECT count(*) FROM event WHERE kind = 'attempt.lost'";
    assert_eq!(fixture.value(losses), running.len().to_string());

    // Retries are due: each begins one attempt.
    fixture.clock.advance(Millis::from_secs(3600));
    let begun = Scan::Retry.at_once(fixture, &stores).await;
    assert_eq!(begun, once(&running));
    assert_eq!(fixture.value("SELECT count(*) FROM attempt WHERE number = 2"), running.len().to_string());

    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(fixture.value(deadlocks), "0");
}

/// Jobs say how they ended while every replica declares their leases: each run ends as its process did, and the scans take
/// nothing away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_and_the_scans_of_every_replica_stand_in_nobodys_way() {
    if TestServer::shared_or_skip("ends beside scanners").is_none() {
        return;
    }
    let server = TestServer::start_with(&[("deadlock_timeout", "10ms")]).unwrap();
    let fixture = &Fixture::on(&server).await;
    let stores = [fixture.store.clone(), fixture.replica().await, fixture.replica().await];
    let session = fixture.agent("nas").await;
    let mut ends = Vec::new();
    for _ in 0..40 {
        let run = fixture.admit(revision(&[])).await;
        let grant = fixture.claim(&session, run).await;
        let held = step(&session, &grant);
        fixture.store.acknowledge_starting(held.clone()).await.unwrap().into_result().unwrap();
        ends.push(exited(&held, &grant, 0, b""));
    }
    // The leases are over, the session is not.
    fixture.clock.advance(Millis::from_secs(603));
    fixture.sql("UPDATE session SET expires_lease = expires_lease + 1000000");
    let ended = join_all(ends.iter().enumerate().map(|(n, end)| stores[n % 3].end(end.clone())));
    let (ended, _) = join(ended, Scan::Expiry.at_once(fixture, &stores)).await;
    for answer in ended {
        answer.unwrap().into_result().unwrap();
    }
    assert_eq!(fixture.value("SELECT count(*) FROM run WHERE state = 'succeeded'"), "40");
    assert_eq!(fixture.value("SELECT count(*) FROM lease WHERE state = 'active'"), "0");
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(fixture.value(deadlocks), "0");
}
