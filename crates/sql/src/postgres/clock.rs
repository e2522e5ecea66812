//! The database's clock, and what is done when it steps.
//!
//! It judges leases, and it can be set. So every reading is compared with this replica's boot-time clock before anything is
//! decided on it ([`leasehold_core::clock_step`] says how, and why no lease ends early by it). A call that meets a step is
//! undone; then the ends that were fixed before the step are moved by as much, once, in one transaction and under a lock that
//! every replica takes; then the call is decided again. The ends stand in the rows, so every replica sees them moved,
//! also one that has not met the step or starts later: holders renew as ever, with any of them.
//!
//! Who has just started has nothing to compare with. For [`limits::CLOCK_WATCH`] it calls nobody late: a replica that was
//! there before looks at the clock more often than that while a lease lives. A step that no replica lived to see is not
//! seen. (Control design, *Two times, two types*; `ARCHITECTURE.md`.)
//!
//! [`limits::CLOCK_WATCH`]: leasehold_core::limits::CLOCK_WATCH

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::actor::Actor;
use leasehold_core::clock_step::{Reading, Seen, Step, Watched, compare, in_doubt};
use leasehold_core::id::{AttemptId, RunId, SessionId, WorkerId};
use leasehold_core::limits::CLOCK_STEP_TOLD;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::{BootInstant, Clock, LeaseInstant, Millis};
use leasehold_store::observe::Fact;
use leasehold_store::outcome::{Outcome, StoreError, Stored};
use leasehold_store::port::ClaimRefused;
use leasehold_store::view::Beaten;
use tokio_postgres::Client;

use super::carry::COLLISIONS;
use super::column::{list, values};
use super::lock::Locks;
use super::open::OpenError;
use super::rows::{self, Columns};
use super::transaction::Undone;
use super::transaction::{Again, Connection, Fault, Tx, Unlocked};
use super::{PostgresStore, audit};

/// Where a call learns the time.
#[derive(Clone, Default)]
pub(super) struct Clocks {
    /// What tests set in place of the database's clock.
    pub(super) told: Option<Arc<dyn Clock>>,
    /// What the database's clock is compared with.
    pub(super) watch: Option<Arc<Watch>>,
}

impl Clocks {
    /// The boot-time clock of this replica's machine, where the database's clock is watched.
    pub(super) fn boot(&self) -> BootInstant {
        self.watch.as_ref().map_or(BootInstant::new(0), |watch| watch.boot())
    }
}

/// What one replica knows of the database's clock.
pub(super) struct Watch {
    machine: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// Calls that meet the same step deal with it one after the other.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct Known {
    watched: Watched,
    /// The last stored step that this replica needs not deal with.
    dealt_with: Option<u64>,
}

impl Watch {
    /// Begins to watch the clock of an opened database.
    pub(super) async fn begin(
        machine: Arc<dyn Clock>,
        told: Option<&Arc<dyn Clock>>,
        client: &Client,
    ) -> Result<Self, OpenError> {
        let asked = machine.boot();
        let sql = "SELECT clock_millis(), (SELECT max(id) FROM clock_step)";
        let row = client.query_one(sql, &[]).await.map_err(|source| OpenError::asked("read the clock", source))?;
        let said = told.map_or_else(|| row.get(0), |clock| clock.boot().get());
        let dealt_with = row.get::<_, Option<i64>>(1).and_then(|id| u64::try_from(id).ok());
        let reading = Reading { asked, said: LeaseInstant::new(said), answered: machine.boot() };
        let known = Mutex::new(Known { watched: Watched::from(reading), dealt_with });
        Ok(Self { machine, known, turn: tokio::sync::Mutex::new(()) })
    }

    pub(super) fn boot(&self) -> BootInstant {
        self.machine.boot()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing can panic while it is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the clock stepped, when it says `said` now and was asked no earlier than `asked`.
    pub(super) fn has_stepped(&self, asked: BootInstant, said: LeaseInstant) -> bool {
        let reading = Reading { asked, said, answered: self.boot() };
        let mut known = self.known();
        match compare(known.watched, reading) {
            Seen::Steady(watched) => {
                known.watched = watched;
                false
            }
            Seen::Stepped(_) => true,
        }
    }

    /// Others have dealt with every step up to this one, and the clock was steady after they had.
    pub(super) fn knows(&self, dealt_with: Option<u64>) {
        let mut known = self.known();
        known.dealt_with = known.dealt_with.max(dealt_with);
    }

    /// How long nobody can be called late still.
    pub(super) fn doubts_for(&self) -> Millis {
        self.known().watched.doubts_for(self.boot())
    }
}

impl PostgresStore {
    /// Moves the ends that were fixed before the clock stepped, unless they are moved already.
    pub(super) async fn settle_clock(&self) -> Result<(), StoreError> {
        let Some(watch) = &self.inner.clocks.watch else { return Ok(()) };
        let _turn = watch.turn.lock().await;
        let mut collided = 0;
        loop {
            let connection = Arc::new(Connection::new(self.connect().await?));
            let known = *watch.known();
            match self.attempt(&connection, &|db| settle(db, watch, known)).await {
                Ok(None) => return Ok(()),
                Ok(Some(settled)) => {
                    *watch.known() = settled;
                    return Ok(());
                }
                // If it was committed, the next look finds it dealt with.
                Err(Undone::Unknown(reason)) => return Err(StoreError::NotDone { reason }),
                Err(Undone::Certainly(fault)) if fault.again() == Again::Collided && collided < COLLISIONS => {
                    collided += 1;
                }
                Err(Undone::Certainly(fault)) => return Err(fault.into()),
            }
        }
    }

    /// What is answered to a call of a worker; nobody is called late before the clock was watched for a while.
    pub(super) fn unless_in_doubt<T>(&self, answer: Stored<T, Refusal>) -> Stored<T, Refusal> {
        match answer {
            Ok(Outcome::Refused(refusal)) if self.is_in_doubt() => Ok(Outcome::Refused(in_doubt(refusal))),
            answer => answer,
        }
    }

    /// The same for a heartbeat, and for each lease that it renews.
    pub(super) fn beaten_unless_in_doubt(&self, answer: Stored<Beaten, Refusal>) -> Stored<Beaten, Refusal> {
        match self.unless_in_doubt(answer) {
            Ok(Outcome::Applied(Beaten { session, leases, directives })) if self.is_in_doubt() => {
                let leases =
                    leases.into_iter().map(|(attempt, verdict)| (attempt, verdict.map_err(in_doubt))).collect();
                Ok(Outcome::Applied(Beaten { session, leases, directives }))
            }
            answer => answer,
        }
    }

    /// The same for a claim.
    pub(super) fn claimed_unless_in_doubt<T>(&self, answer: Stored<T, ClaimRefused>) -> Stored<T, ClaimRefused> {
        match answer {
            Ok(Outcome::Refused(ClaimRefused::Refused(refusal))) if self.is_in_doubt() => {
                Ok(Outcome::Refused(ClaimRefused::Refused(in_doubt(refusal))))
            }
            answer => answer,
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.inner.clocks.watch.as_ref().is_some_and(|watch| watch.doubts_for() > Millis::ZERO)
    }

    /// Whether the operator is to be told that the clock stepped.
    pub(super) async fn clock_stepped_lately(&self) -> Option<bool> {
        let client = self.connect().await.ok()?;
        let told = i64::try_from(CLOCK_STEP_TOLD.get()).unwrap_or(i64::MAX);
        let sql = "SELECT EXISTS (SELECT 1 FROM clock_step WHERE at > clock_millis() - $1)";
        client.query_one(sql, &[&told]).await.ok()?.try_get(0).ok()
    }
}

/// What this replica knows once the step that it met is dealt with; none where it met none after all.
async fn settle(db: Unlocked, watch: &Watch, known: Known) -> Result<Option<Known>, Fault> {
    let (tx, reading) = &db.lock_clock(watch).await?;
    let Seen::Stepped(met) = compare(known.watched, *reading) else { return Ok(None) };
    let (moved, mut dealt_with) = tx
        .only(
            "SELECT coalesce(sum(by_millis), 0)::bigint, max(id) FROM clock_step WHERE id > $1",
            values![known.dealt_with.unwrap_or(0)],
            |columns| Ok((columns.next::<i64>()?, columns.next::<Option<u64>>()?)),
        )
        .await?;
    if let Some(step) = met.beyond(moved) {
        move_ends(tx, step).await?;
        dealt_with = Some(store(tx, step).await?);
    }
    Ok(Some(Known { watched: known.watched.after_a_step(*reading), dealt_with: known.dealt_with.max(dealt_with) }))
}

async fn store(tx: &Tx, step: Step) -> Result<u64, Fault> {
    let by = step.signed();
    tracing::error!(
        by_millis = by,
        "the database's clock stepped; every lease and session keeps the time that it had left: \
         set the server's clock right, and have it slewed, not stepped"
    );
    tx.note(Fact::ClockStepped);
    audit::write(tx, &Actor::System, "clock_stepped", "database".to_owned(), &[("by_millis", &by)]).await?;
    let sql = "INSERT INTO clock_step (at, by_millis) VALUES ($1, $2) RETURNING id";
    tx.only(sql, values![tx.now.utc, by], rows::column).await
}

/// Moves every end that was fixed on the clock before it stepped.
async fn move_ends(tx: &Tx, step: Step) -> Result<(), Fault> {
    lock_all(tx).await?;
    move_sessions(tx, step).await?;
    move_leases(tx, step).await?;
    move_attempts(tx, step).await?;
    move_waits(tx, step).await
}

async fn move_sessions(tx: &Tx, step: Step) -> Result<(), Fault> {
    // One seek for each worker: sessions are many, and all but a few of the past.
    let sql = "SELECT s.id, s.expires_lease, s.spoke_lease, s.lease_millis FROM worker w \
               JOIN LATERAL (SELECT * FROM session WHERE id = w.current_session LIMIT 1) s ON true \
               WHERE s.state <> 'offline'";
    let read = |columns: &mut Columns<'_>| -> Result<(SessionId, LeaseInstant, LeaseInstant, Millis), Fault> {
        Ok((columns.next()?, columns.next()?, columns.next()?, columns.next()?))
    };
    let (sessions, seen) = (tx.all(sql, values![], read).await?, tx.now.lease);
    let ids: Vec<_> = sessions.iter().map(|(id, ..)| *id).collect();
    let ends: Vec<_> = sessions.iter().map(|(_, end, _, length)| step.lease_end(*end, *length, seen)).collect();
    let spoke: Vec<_> = sessions.iter().map(|(_, _, spoke, _)| step.spoken(*spoke, seen)).collect();
    let sql = "UPDATE session s SET expires_lease = n.expires, spoke_lease = n.spoke \
               FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS n (id, expires, spoke) WHERE s.id = n.id";
    tx.execute(sql, [list(&ids), list(&ends), list(&spoke)]).await?;
    Ok(())
}

async fn move_leases(tx: &Tx, step: Step) -> Result<(), Fault> {
    let sql = "SELECT attempt, expires_lease, length_millis FROM lease WHERE state = 'active'";
    let read = |columns: &mut Columns<'_>| -> Result<(AttemptId, LeaseInstant, Millis), Fault> {
        Ok((columns.next()?, columns.next()?, columns.next()?))
    };
    let (leases, seen) = (tx.all(sql, values![], read).await?, tx.now.lease);
    let ids: Vec<_> = leases.iter().map(|(attempt, ..)| *attempt).collect();
    let ends: Vec<_> = leases.iter().map(|(_, end, length)| step.lease_end(*end, *length, seen)).collect();
    let sql = "UPDATE lease l SET expires_lease = n.expires FROM unnest($1::uuid[], $2::bigint[]) \
               AS n (attempt, expires) WHERE l.attempt = n.attempt AND l.state = 'active'";
    tx.execute(sql, [list(&ids), list(&ends)]).await?;
    Ok(())
}

async fn move_attempts(tx: &Tx, step: Step) -> Result<(), Fault> {
    let sql = "SELECT a.id, a.start_by_lease, a.deadline_lease FROM lease l JOIN attempt a ON a.id = l.attempt \
               WHERE l.state = 'active' AND (a.start_by_lease IS NOT NULL OR a.deadline_lease IS NOT NULL)";
    let read = |columns: &mut Columns<'_>| -> Result<(AttemptId, Option<LeaseInstant>, Option<LeaseInstant>), Fault> {
        Ok((columns.next()?, columns.next()?, columns.next()?))
    };
    let attempts = tx.all(sql, values![], read).await?;
    let moved = |up: Option<LeaseInstant>| up.map(|up| step.time_up(up));
    let ids: Vec<_> = attempts.iter().map(|(attempt, ..)| *attempt).collect();
    let start_by: Vec<_> = attempts.iter().map(|(_, start_by, _)| moved(*start_by)).collect();
    let deadline: Vec<_> = attempts.iter().map(|(.., deadline)| moved(*deadline)).collect();
    let sql = "UPDATE attempt a SET start_by_lease = n.start_by, deadline_lease = n.deadline \
               FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS n (id, start_by, deadline) WHERE a.id = n.id";
    tx.execute(sql, [list(&ids), list(&start_by), list(&deadline)]).await?;
    Ok(())
}

/// Of runs for their next attempt, and of runs for a worker that gave them back: only one that is locked does.
async fn move_waits(tx: &Tx, step: Step) -> Result<(), Fault> {
    let sql = "SELECT id, due_lease FROM run WHERE state = 'retry_wait'";
    let read =
        |columns: &mut Columns<'_>| -> Result<(RunId, LeaseInstant), Fault> { Ok((columns.next()?, columns.next()?)) };
    let waits = tx.all(sql, values![], read).await?;
    let ids: Vec<_> = waits.iter().map(|(run, _)| *run).collect();
    let due: Vec<_> = waits.iter().map(|(_, due)| step.wait_over(*due)).collect();
    let sql = "UPDATE run r SET due_lease = n.due FROM unnest($1::uuid[], $2::bigint[]) AS n (id, due) \
               WHERE r.id = n.id AND r.due_lease <> n.due";
    tx.execute(sql, [list(&ids), list(&due)]).await?;

    let sql = "SELECT run, worker, until_lease FROM refused WHERE until_lease > $1";
    let read = |columns: &mut Columns<'_>| -> Result<(RunId, WorkerId, LeaseInstant), Fault> {
        Ok((columns.next()?, columns.next()?, columns.next()?))
    };
    let given_back = tx.all(sql, values![tx.now.lease], read).await?;
    let runs: Vec<_> = given_back.iter().map(|(run, ..)| *run).collect();
    let until: Vec<_> = given_back.iter().map(|(.., until)| step.wait_over(*until)).collect();
    let workers = list(given_back.iter().map(|(_, worker, _)| worker));
    let sql = "UPDATE refused r SET until_lease = n.until FROM unnest($1::uuid[], $2::text[], $3::bigint[]) \
               AS n (run, worker, until) WHERE r.run = n.run AND r.worker = n.worker AND r.until_lease <> n.until";
    tx.execute(sql, [list(&runs), workers, list(&until)]).await?;
    Ok(())
}

/// Takes every lock that stands for an end, in the one order: what is being decided on the clock as it was is written first.
async fn lock_all(tx: &Tx) -> Result<(), Fault> {
    let workers = "SELECT id FROM worker WHERE current_session IS NOT NULL";
    let workers = tx.all(workers, values![], rows::column::<WorkerId, _>).await?;
    let locked = "SELECT id FROM worker WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE";
    tx.all(locked, [list(&workers)], rows::column::<WorkerId, _>).await?;
    // No worker takes or gives back anything any more.
    let waits = "SELECT id FROM run WHERE state = 'retry_wait'";
    let held = "SELECT attempt FROM lease WHERE state = 'active'";
    let waits = tx.all(waits, values![], rows::column::<RunId, _>).await?;
    let held = tx.all(held, values![], rows::column::<AttemptId, _>).await?;
    Locks::Named { worker: None, runs: waits, attempts: held }.take(tx).await?;
    Ok(())
}
