//! Random histories: whatever callers do in whatever order, and however stale they are, the promises hold after every step.
//!
//! Nothing is expected of an answer but that there is one; the rows are judged. A failure names its seed and step, and
//! the same seed walks the same way.

use std::collections::BTreeMap;

use leasehold_core::attempt::{Attempt, AttemptState, EvidenceKind, RejectReason, Resolution, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::claim::ReleaseReason;
use leasehold_core::end::Ending;
use leasehold_core::id::{AttemptId, ProjectName, RunId};
use leasehold_core::resolve::Verb;
use leasehold_core::revision::Revision;
use leasehold_core::run::{Run, RunState};
use leasehold_core::session::SessionFence;
use leasehold_core::time::Millis;

use super::Harness;
use super::fixture::{
    Machine, Taken, World, exited, failed_when_lost, plain, retried_when_lost, revision_with, seconds, stopped,
};
use super::limits::agree_with_core;
use crate::call::Release;
use crate::faulty::split_mix;

struct Walk<'h> {
    world: World<'h>,
    chance: u64,
    machines: Vec<Machine>,
    /// Every session that ever was, per machine, the newest last.
    sessions: Vec<Vec<SessionFence>>,
    runs: Vec<RunId>,
    /// Every lease that was ever granted.
    taken: Vec<Taken>,
    /// Terminal records as they were first seen.
    attempts: BTreeMap<AttemptId, Attempt>,
    closed: BTreeMap<RunId, Run>,
}

impl Walk<'_> {
    fn draw(&mut self, sides: usize) -> usize {
        let sides = u64::try_from(sides.max(1)).unwrap();
        usize::try_from(split_mix(&mut self.chance) % sides).unwrap()
    }

    fn revision(&mut self) -> Revision {
        let limits = [("timeout", Value::text("30s")), ("lease", Value::text("25s"))];
        let one_at_once = [("concurrency", Value::Int(1)), ("mutex", Value::Bool(true))];
        let both = Value::map(limits.clone().into_iter().chain(one_at_once));
        let limits = Value::map(limits);
        let retry = Value::map([
            ("max_attempts", Value::Int(3)),
            ("on", Value::List(vec![Value::text("failed"), Value::text("timed_out")])),
        ]);
        let revisions = [
            plain(),
            retried_when_lost(),
            failed_when_lost(),
            revision_with([("limits", limits), ("retry", retry)]),
            revision_with([("limits", both)]),
        ];
        revisions[self.draw(revisions.len())].clone()
    }

    fn ending(&mut self) -> Ending {
        let endings = [
            exited(0),
            exited(1),
            stopped(StopReason::Cancel),
            stopped(StopReason::Timeout),
            stopped(StopReason::Lease),
            Ending::NeverSpawned,
            Ending::Rejected { reason: RejectReason::Spawn, detail: String::new() },
            Ending::Lost { evidence: EvidenceKind::LauncherKilledMayLive },
        ];
        endings[self.draw(endings.len())].clone()
    }

    /// A machine's session: mostly its newest, at times a stale one.
    fn session(&mut self) -> SessionFence {
        let machine = self.draw(self.machines.len());
        let age = if self.draw(8) == 0 { self.draw(self.sessions[machine].len()) } else { 0 };
        self.sessions[machine][self.sessions[machine].len() - 1 - age].clone()
    }

    /// A lease, mostly a late one, in the hands of its worker's newest session, or of any.
    fn lease(&mut self) -> Option<Taken> {
        let recent = self.taken.len().min(6);
        let back = if self.draw(6) == 0 { self.draw(self.taken.len()) } else { self.draw(recent) };
        let taken = self.taken.iter().rev().nth(back)?.clone();
        if self.draw(10) == 0 {
            return Some(taken.held_by(&self.session()));
        }
        let mut newest = self.sessions.iter().filter_map(|of| of.last());
        let own = newest.find(|fence| fence.worker == taken.step.session.worker).cloned();
        Some(own.map_or_else(|| taken.clone(), |own| taken.held_by(&own)))
    }

    fn run(&mut self) -> RunId {
        let place = self.draw(self.runs.len());
        self.runs[place]
    }

    async fn register(&mut self) {
        let index = self.draw(self.machines.len());
        let machine = self.machines[index].clone();
        let boot = if self.draw(4) == 0 { "boot-b" } else { "boot-a" };
        let ticket = self.world.ticket(&machine).await;
        let call = self.world.registration(&machine, self.world.session_id(), ticket, boot);
        let session = call.registration.session;
        if let Ok(projection) = self.world.store.register_session(call).await.unwrap().into_result() {
            let fence = SessionFence { worker: machine.id, session, generation: projection.generation };
            self.sessions[index].push(fence);
        }
    }

    async fn step(&mut self) {
        match self.draw(16) {
            0 => {
                let revision = self.revision();
                if self.runs.len() < 10 {
                    let task = ["report", "photos"][self.draw(2)];
                    self.runs.push(self.world.run_of(task, revision).await);
                }
            }
            1 | 2 => {
                let (session, run) = (self.session(), self.run());
                if let Ok(taken) = self.world.try_take(&session, run).await {
                    self.taken.push(taken);
                }
            }
            3 => self.register().await,
            4 => {
                let session = self.session();
                let held: Vec<_> = self.taken.iter().rev().take(6).cloned().collect();
                let held: Vec<_> = held.iter().collect();
                self.world.beat(&session, &held).await.unwrap();
            }
            5 => {
                let span = [1000, 5000, 21_000, 46_000, 700_000][self.draw(5)];
                self.world.pass(Millis::new(span));
            }
            6 => drop(self.world.store.expire_leases(64).await.unwrap()),
            7 => {
                let ids = vec![self.world.attempt_id(), self.world.attempt_id()];
                self.world.store.begin_retries(ids).await.unwrap();
            }
            8 => drop(self.world.store.stop_overdue(64).await.unwrap()),
            9 => {
                let run = self.run();
                match self.draw(12) {
                    0 => drop(self.world.store.cancel_run(self.world.cancel_call(run)).await.unwrap()),
                    1..6 => {
                        let verb = Verb::ALL[self.draw(Verb::ALL.len())];
                        drop(self.world.store.resolve_run(self.world.resolve_call(run, verb)).await.unwrap());
                    }
                    _ => {}
                }
            }
            _ => {
                let Some(taken) = self.lease() else { return };
                match self.draw(5) {
                    0 | 1 => drop(self.world.store.acknowledge_starting(taken.step).await.unwrap()),
                    2 => drop(self.world.acknowledge_running(&taken).await.unwrap()),
                    3 => {
                        let ending = self.ending();
                        self.world.end(&taken, ending).await.unwrap();
                    }
                    _ => {
                        let release = Release { step: taken.step, reason: ReleaseReason::DiskLow };
                        self.world.store.release(release).await.unwrap();
                    }
                }
            }
        }
    }

    /// What holds after every step.
    /// Judges what is open, and with `all` also what was closed: that it is as it was.
    async fn judge(&mut self, all: bool) {
        let mut held = 0;
        for id in self.runs.clone() {
            if !all && self.closed.contains_key(&id) {
                continue;
            }
            let view = self.world.view(id).await;
            let (run, latest) = (&view.run, view.attempts.last().unwrap());
            assert_eq!(latest.number, run.latest);
            for (attempt, number) in view.attempts.iter().zip(1..) {
                assert_eq!(attempt.number.get(), number, "attempts are numbered in order");
                assert!(attempt.state.is_terminal() || attempt.id == latest.id, "one attempt at a time");
                let by_a_person = attempt.resolution == Resolution::Person;
                assert!(!by_a_person || attempt.word.is_some(), "a person's word is kept");
                assert!(attempt.resolution == Resolution::None || attempt.state == AttemptState::Lost);
                if attempt.state.is_terminal() {
                    let first = self.attempts.entry(attempt.id).or_insert_with(|| attempt.clone());
                    assert_eq!((attempt.state, &attempt.outcome), (first.state, &first.outcome), "it never changes");
                }
            }
            let fits = match run.state {
                RunState::Pending => latest.state == AttemptState::Pending,
                RunState::Dispatching => matches!(latest.state, AttemptState::Claimed | AttemptState::Starting),
                RunState::Running => latest.state == AttemptState::Running,
                RunState::Lost => latest.state == AttemptState::Lost,
                RunState::RetryWait => latest.state.is_terminal() && run.due.is_some(),
                _ => latest.state.is_terminal(),
            };
            assert!(fits, "run {} with attempt {}", run.state, latest.state);
            assert_eq!(run.closing.is_some(), run.state.is_terminal());
            if run.state.is_terminal() {
                let first = self.closed.entry(id).or_insert_with(|| run.clone());
                assert_eq!(first, run, "a run is closed once");
            }
            held += usize::from(latest.state.is_live());
            self.world.story(id).await;
        }
        let mut active = 0;
        for machine in &self.machines {
            let leases = self.world.worker(&machine.id).await.active.len();
            assert!(leases <= 4, "never more leases than slots");
            active += leases;
        }
        assert_eq!(active, held, "an attempt is held exactly as long as its lease is active");
        let fences: BTreeMap<_, _> =
            self.taken.iter().map(|taken| ((taken.run, taken.grant.lease.fence), taken)).collect();
        assert_eq!(fences.len(), self.taken.len(), "a fence number is given out once");
    }
}

/// Prints where a walk stood when a promise broke.
struct Place {
    seed: u64,
    step: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the walk of seed {} broke at step {}", self.seed, self.step);
        }
    }
}

/// The promises hold after every step of a random history.
pub async fn a_random_history_keeps_every_promise(harness: &dyn Harness) {
    const SEEDS: [u64; 3] = [1, 20_260_711, 0x1ea5_e401_d000_0003];
    for (round, seed) in SEEDS.into_iter().enumerate() {
        let mut place = Place { seed, step: 0 };
        let world = World::new(harness);
        world.number_from(u64::try_from(round).unwrap() << 32);
        let mut walk = Walk {
            world,
            chance: seed,
            machines: Vec::new(),
            sessions: Vec::new(),
            runs: Vec::new(),
            taken: Vec::new(),
            attempts: BTreeMap::new(),
            closed: BTreeMap::new(),
        };
        for name in ["nas", "box"] {
            let (machine, session) = walk.world.agent(&format!("{name}-{round}")).await;
            walk.machines.push(machine);
            walk.sessions.push(vec![session]);
        }
        // What earlier rounds left may hold places still.
        let held = walk.world.store.project(&ProjectName::default()).await.unwrap().map_or(0, |view| view.occupied);
        walk.world.limit_project("default", Some(held + 3)).await;
        let first = walk.revision();
        walk.runs.push(walk.world.run(first).await);
        for step in 0..250 {
            place.step = step;
            Box::pin(walk.step()).await;
            Box::pin(walk.judge(step % 25 == 24)).await;
            if step % 5 == 4 {
                agree_with_core(&walk.world).await;
            }
        }
        walk.world.pass(seconds(3600));
        drop(place);
    }
}
