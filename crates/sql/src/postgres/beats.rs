//! Plain heartbeats of a replica, many in one transaction: while one batch is on its way the next gathers, so a beat that
//! comes alone does not wait, and a thousand that come together are a few commits.
//!
//! A beat is plain where it only goes on (`beat_together` in the schema says which). The batch never waits for a lock and
//! never refuses anything: whatever it leaves out, and whatever it certainly did not do, takes the way of a single beat,
//! which asks `core`. (Control design, *Security*: heartbeats are batched per replica.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::attempt::AttemptState;
use leasehold_core::id::{AttemptId, WorkerId};
use leasehold_core::lease::LeaseProjection;
use leasehold_core::session::{SessionProjection, SessionState};
use leasehold_core::time::{Clock, LeaseInstant};
use leasehold_store::call::{Heartbeat, Renewal};
use leasehold_store::outcome::StoreError;
use leasehold_store::view::Beaten;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::carry::CALL;
use super::column::{Bound, Column, list};
use super::connections::Connections;
use super::rows::Columns;
use super::transaction::{Connection, Fault, Undone};

/// Beats in one batch.
const TOGETHER: usize = 64;

/// Renewals in one batch: beyond, no other beat is added.
const RENEWALS: usize = 1024;

/// How long a batch keeps the next one waiting: one that hangs must not take every worker's session with it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Batches on their way at once.
const ON_THEIR_WAY: usize = 4;

/// Beats that wait to be gathered; beyond, their callers wait.
const WAITING: usize = 1024;

/// A beaten session, or nothing where the beat is to be answered alone.
type Answer = Result<Option<Beaten>, StoreError>;

/// Where a replica's beats are gathered.
pub(super) struct Beats {
    /// The task that gathers ends with this.
    queue: mpsc::Sender<Waiting>,
}

struct Waiting {
    call: Arc<Heartbeat>,
    answer: oneshot::Sender<Answer>,
}

impl Beats {
    /// Begins to gather.
    pub(super) fn on(connections: Connections, clock: Option<Arc<dyn Clock>>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(gather(waiting, connections, clock));
        Self { queue }
    }

    /// Beats together with those of others. Nothing: the beat was certainly not done, and is to be answered alone.
    pub(super) async fn beat(&self, call: &Arc<Heartbeat>) -> Answer {
        if !may_be_plain(call) {
            return Ok(None);
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.send(Waiting { call: call.clone(), answer }).await.is_err() {
            return Ok(None);
        }
        let lost = |_| Err(StoreError::Unknown { reason: "a batch of heartbeats was given up".to_owned() });
        answered.await.unwrap_or_else(lost)
    }
}

/// Whether it says nothing that needs more than a batch looks at.
fn may_be_plain(call: &Heartbeat) -> bool {
    let named: BTreeSet<AttemptId> = call.renewals.iter().map(|renewal| renewal.fence.attempt).collect();
    call.faults.is_none()
        && named.len() == call.renewals.len()
        && call.renewals.iter().all(|renewal| renewal.left.is_none())
}

/// Sends batch after batch.
async fn gather(mut waiting: mpsc::Receiver<Waiting>, connections: Connections, clock: Option<Arc<dyn Clock>>) {
    let mut on_their_way = JoinSet::new();
    while let Some(first) = waiting.recv().await {
        let batch = batch(first, &mut waiting);
        on_their_way.spawn(carry_out(batch, connections.clone(), clock.clone()));
        let _ = timeout(PATIENCE, on_their_way.join_next()).await;
        while on_their_way.len() >= ON_THEIR_WAY {
            on_their_way.join_next().await;
        }
    }
}

/// What waits, as far as it fits: one beat of each worker, and none whose caller went away.
fn batch(first: Waiting, waiting: &mut mpsc::Receiver<Waiting>) -> Vec<Waiting> {
    let (mut batch, mut workers, mut renewals) = (Vec::new(), BTreeSet::<WorkerId>::new(), 0);
    let mut next = Some(first);
    while let Some(beat) = next {
        if !beat.answer.is_closed() {
            if workers.insert(beat.call.session.worker.clone()) {
                renewals += beat.call.renewals.len();
                batch.push(beat);
            } else {
                // The second of a worker is decided on what the first one left.
                let _ = beat.answer.send(Ok(None));
            }
        }
        let full = batch.len() >= TOGETHER || renewals >= RENEWALS;
        next = if full { None } else { waiting.try_recv().ok() };
    }
    batch
}

/// Carries a batch out, and answers everyone in it.
async fn carry_out(batch: Vec<Waiting>, connections: Connections, clock: Option<Arc<dyn Clock>>) {
    if batch.is_empty() {
        return;
    }
    let calls: Vec<&Heartbeat> = batch.iter().map(|beat| &*beat.call).collect();
    let told = clock.map(|clock| LeaseInstant::new(clock.boot().get()));
    let beaten = match connections.get().await {
        Ok(client) => match beat_together(&Connection::new(client), &calls, told).await {
            Ok(beaten) => Ok(beaten),
            Err(Undone::Certainly(fault)) => {
                tracing::debug!(reason = fault.reason(), "a batch of heartbeats is carried out one by one");
                Ok(vec![None; calls.len()])
            }
            Err(Undone::Unknown(reason)) => Err(StoreError::Unknown { reason }),
        },
        // Nobody gets one now: each would only wait as long once more.
        Err(error) => Err(error),
    };
    match beaten {
        Ok(beaten) => {
            for (beat, beaten) in batch.into_iter().zip(beaten) {
                let _ = beat.answer.send(Ok(beaten));
            }
        }
        Err(error) => {
            for beat in batch {
                let _ = beat.answer.send(Err(error.clone()));
            }
        }
    }
}

/// Does those of `calls`, one of each worker, that are plain; the others are nothing. `told` is the clock of a test.
pub(super) async fn beat_together(
    db: &Connection,
    calls: &[&Heartbeat],
    told: Option<LeaseInstant>,
) -> Result<Vec<Option<Beaten>>, Undone> {
    let done = db.at_once(BEAT_TOGETHER, values(calls, told), told_of);
    let told = timeout(CALL, done).await.unwrap_or_else(|_| Err(Undone::Unknown("not answered in time".to_owned())));
    if let Err(Undone::Certainly(_)) = &told {
        // A server that does not answer is not waited for.
        let _ = timeout(CALL, db.roll_back()).await;
    }
    // What is not understood was done all the same.
    beaten(calls, &told?).ok_or_else(|| Undone::Unknown("the answer of a batch of heartbeats has a gap".to_owned()))
}

/// The statement of a batch.
pub(super) const BEAT_TOGETHER: &str = "SELECT at, of_beat, of_renewal, is_generation, is_version, is_state, is_expires, is_length \
     FROM beat_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// What it is given.
pub(super) fn values<'a>(calls: &[&'a Heartbeat], told: Option<LeaseInstant>) -> [Bound<'a>; 12] {
    fn each<'a, T: Column + 'a>(of: impl IntoIterator<Item = &'a T>) -> Bound<'a> {
        list(of)
    }
    let renewals = || {
        let numbered = (1_i64..).zip(calls);
        numbered.flat_map(|(place, call)| call.renewals.iter().map(move |renewal| (place, renewal)))
    };
    let fence = |(_, renewal): (i64, &'a Renewal)| &renewal.fence;
    [
        each(calls.iter().map(|call| &call.session.worker)),
        each(calls.iter().map(|call| &call.session.session)),
        each(calls.iter().map(|call| &call.session.generation)),
        each(calls.iter().map(|call| &call.version)),
        each(calls.iter().map(|call| &call.said.slots)),
        each(calls.iter().map(|call| &call.said.obeys_drain)),
        Bound::List(renewals().map(|(place, _)| Bound::Integer(place)).collect()),
        each(renewals().map(fence).map(|fence| &fence.attempt)),
        each(renewals().map(fence).map(|fence| &fence.offer)),
        each(renewals().map(fence).map(|fence| &fence.generation)),
        each(renewals().map(fence).map(|fence| &fence.token)),
        told.map_or(Bound::Null, |told| Bound::Integer(told.get())),
    ]
}

/// One line of the answer.
pub(super) enum Told {
    /// Of the beat at this place.
    Session(usize, SessionProjection),
    /// Of the renewal at this place, over all beats.
    Lease(usize, LeaseProjection),
}

/// Reads one line of the answer.
pub(super) fn told_of(columns: &mut Columns<'_>) -> Result<Told, Fault> {
    let at: LeaseInstant = columns.next()?;
    let (beat, renewal) = (columns.next()?, columns.next::<Option<usize>>()?);
    let Some(renewal) = renewal else {
        let (generation, version, state) = (columns.next()?, columns.next()?, columns.next::<SessionState>()?);
        let expires: LeaseInstant = columns.next()?;
        let (remaining, interval) = (expires.since(at), columns.next()?);
        return Ok(Told::Session(beat, SessionProjection { generation, version, state, remaining, interval }));
    };
    let (generation, version) = (columns.next()?, columns.next()?);
    let attempt_state = columns.next::<AttemptState>()?;
    let expires: LeaseInstant = columns.next()?;
    let (remaining, length) = (expires.since(at), columns.next()?);
    Ok(Told::Lease(renewal, LeaseProjection { generation, version, remaining, length, attempt_state }))
}

/// What every call is answered, of what was told: all of a plain beat, or nothing. None if it is neither.
pub(super) fn beaten(calls: &[&Heartbeat], told: &[Told]) -> Option<Vec<Option<Beaten>>> {
    let mut sessions = vec![None; calls.len()];
    let mut leases = vec![None; calls.iter().map(|call| call.renewals.len()).sum()];
    for told in told {
        match told {
            Told::Session(place, session) => *sessions.get_mut(place.checked_sub(1)?)? = Some(session),
            Told::Lease(place, lease) => *leases.get_mut(place.checked_sub(1)?)? = Some(lease),
        }
    }
    let mut leases = leases.into_iter();
    let answer = |(call, session): (&&Heartbeat, Option<&SessionProjection>)| {
        let renewed = call.renewals.iter().zip(leases.by_ref().take(call.renewals.len()));
        let renewed = renewed.map(|(renewal, lease)| Some((renewal.fence.attempt, Ok(lease?.clone()))));
        let renewed: Vec<_> = renewed.collect();
        let Some(session) = session else { return Some(None) };
        let leases = renewed.into_iter().collect::<Option<_>>()?;
        Some(Some(Beaten { session: session.clone(), leases, directives: Vec::new() }))
    };
    calls.iter().zip(sessions).map(answer).collect()
}
