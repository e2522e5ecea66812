//! A machine and a network in memory: the disk, launchers and their jobs, lost and late messages, crashes. Everything
//! random comes from one seed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use leasehold_core::attempt::{Callback, EvidenceKind, ExitStatus, Handle, LogPin, Outcome, RejectReason, StopReason};
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::crypto::{CompletionToken, Digest, Domain, Ticket};
use leasehold_core::deadline::stop_plan;
use leasehold_core::end::Ending;
use leasehold_core::id::{AttemptId, BootId, OfferId};
use leasehold_core::inbox::InboxState;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::{BootInstant, Entropy, Millis, UtcMillis};
use leasehold_core::verdict::{BarrierFact, LockFact};

use super::super::port::{
    Ask, Call, Effect, Exit, Found, Input, LaunchAnswer, Level, Moment, OpId, Outcome as Answered, Receipt, Signal,
};
use super::super::{Config, Engine, Recovered, RegistrationFacts};
use super::control::Control;
use crate::inbox::record::Record;
use crate::session_file::SessionFile;

/// A small generator of our own, so that a seed means the same everywhere.
#[derive(Debug, Clone)]
pub(super) struct Dice(Rc<Cell<u64>>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rc::new(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    pub(super) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The same dice as randomness for ids and tokens. One thread only, as the simulation is.
struct Chance(std::sync::Mutex<u64>);

impl Entropy for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap();
        for byte in bytes {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*state >> 33).to_le_bytes()[0];
        }
    }
}

pub(super) fn chance(seed: u64) -> Box<dyn Entropy> {
    Box::new(Chance(std::sync::Mutex::new(seed)))
}

pub(super) fn spell(facts: &RegistrationFacts<'_>) -> String {
    format!("{} {} {}", facts.ticket.reveal(), facts.boot, facts.max_runs)
}

pub(super) fn decode_registration(body: &str) -> (Ticket, BootId, Capabilities, u16) {
    let parts: Vec<&str> = body.split(' ').collect();
    let ticket = Ticket::parse(parts[0]).unwrap();
    (ticket, parts[1].parse().unwrap(), capabilities(), parts[2].parse().unwrap())
}

pub(super) fn capabilities() -> Capabilities {
    Capabilities::new(Claimed {
        arch: "x86_64".to_owned(),
        os: "linux".to_owned(),
        executors: BTreeSet::from(["process".to_owned()]),
        memory_mib: 1024,
        disk_mib: 1024,
        ..Claimed::default()
    })
    .unwrap()
}

pub(super) fn config(boot: &str) -> Config {
    Config {
        worker: "box".parse().unwrap(),
        boot: boot.parse().unwrap(),
        capabilities: capabilities(),
        max_runs: 3,
        inbox_records: 8,
        drain_timeout: Millis::from_secs(600),
        run_as: BTreeSet::new(),
        software: "test".to_owned(),
        spell,
    }
}

/// What survives a crash of the agent.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) session: SessionFile,
    pub(super) asks: Vec<Ask>,
    pub(super) records: BTreeMap<OfferId, Record>,
    pub(super) directories: BTreeMap<AttemptId, Directory>,
    /// Whether a person at the machine drained it.
    pub(super) drained_here: bool,
    pub(super) writes: usize,
}

#[derive(Debug, Clone, Default)]
enum Barrier {
    #[default]
    Absent,
    Tombstone,
    Child(Handle),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    barrier: Barrier,
    receipt: Option<Receipt>,
    locked: bool,
    log: u64,
}

/// A launcher on its way.
#[derive(Debug, Clone)]
struct Launcher {
    offer: OfferId,
    callback: Callback,
    token: CompletionToken,
    grace: Millis,
    lease: Millis,
    deadline: BootInstant,
    /// When the job ends by itself.
    ends: Option<BootInstant>,
    stop: Option<(StopReason, BootInstant)>,
}

#[derive(Debug)]
enum Event {
    Effect {
        life: u64,
        effect: Effect,
    },
    Input {
        life: u64,
        input: Box<Input>,
    },
    Timer {
        life: u64,
        serial: u64,
    },
    /// A request arrives at the control plane; `answer` says whether its answer comes back.
    Request {
        life: u64,
        op: OpId,
        call: Box<Call>,
        answer: bool,
    },
    /// The launcher's child reaches the barrier.
    Spawn {
        attempt: AttemptId,
    },
    Launcher {
        attempt: AttemptId,
    },
    Crash,
    Start,
    Submit,
    Cancel,
}

/// How unkind the world is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) lost_requests: u64,
    pub(super) lost_answers: u64,
    /// Calls of which the control plane does not know whether they were committed; half of them were.
    pub(super) open_commits: u64,
    pub(super) doubled: u64,
    pub(super) unclear_launches: u64,
    pub(super) killed_launchers: u64,
    pub(super) failing_disk: u64,
    pub(super) crashes: u64,
    pub(super) reboots: u64,
}

pub(super) const CALM: Weather = Weather {
    lost_requests: 0,
    lost_answers: 0,
    open_commits: 0,
    doubled: 0,
    unclear_launches: 0,
    killed_launchers: 0,
    failing_disk: 0,
    crashes: 0,
    reboots: 0,
};

/// Answers that are lost on purpose.
#[derive(Debug)]
pub(super) struct Losing {
    /// What comes instead of the answer.
    instead: Instead,
    /// Of which calls.
    pub(super) call: &'static str,
    /// How many more.
    pub(super) left: usize,
    /// Offers whose first answer was lost: the next one arrives.
    granted: BTreeSet<OfferId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// Nothing; every other time the agent dies as well.
    Nothing,
    /// The control plane says that it does not know itself.
    Overloaded,
}

fn overloaded() -> Refusal {
    Refusal::new(RefusalCode::Overloaded, "whether it was done is not known: send the same call again")
}

impl Losing {
    pub(super) fn answers_of(call: &'static str, count: usize) -> Self {
        Self { instead: Instead::Nothing, call, left: count, granted: BTreeSet::new() }
    }

    /// The control plane itself loses the answers of its store.
    pub(super) fn commits_of(call: &'static str, count: usize) -> Self {
        Self { instead: Instead::Overloaded, ..Self::answers_of(call, count) }
    }

    /// Whether this answer is lost. A pull that grants nothing new arrives.
    fn loses(&mut self, call: &Call, answer: &super::super::port::Answer) -> bool {
        use super::super::port::{Answer, AskAnswer};
        if self.left == 0 || call.name() != self.call {
            return false;
        }
        let fresh = match answer {
            Answer::Pulled { asks, .. } => {
                let granted = asks.iter().filter(|(_, answer)| matches!(answer, AskAnswer::Granted(_)));
                granted.filter(|(offer, _)| self.granted.insert(*offer)).count()
            }
            _ => 1,
        };
        self.left = self.left.saturating_sub(fresh);
        fresh > 0
    }
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) dice: Dice,
    entropy: Box<dyn Entropy>,
    pub(super) now: i64,
    serial: u64,
    queue: BTreeMap<(i64, u64), Event>,
    pub(super) disk: Disk,
    pub(super) control: Control,
    pub(super) engine: Option<Engine>,
    life: u64,
    timer: u64,
    boot: u64,
    launchers: BTreeMap<AttemptId, Launcher>,
    pub(super) spawns: BTreeMap<AttemptId, usize>,
    pub(super) weather: Weather,
    pub(super) exits: Vec<Exit>,
    pub(super) runs: Vec<leasehold_core::id::RunId>,
    pub(super) faults: Vec<String>,
    pub(super) calls: BTreeMap<&'static str, usize>,
    /// Jobs take this long at most.
    pub(super) longest_job: u64,
    /// The control plane is out of reach until then.
    pub(super) cut_until: i64,
    pub(super) lease: &'static str,
    pub(super) losing: Option<Losing>,
    /// Launchers are frozen: they live, and do nothing.
    pub(super) frozen: bool,
    /// The log endpoint misbehaves.
    pub(super) bad_logs: bool,
    pub(super) trace: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        let entropy = chance(seed ^ 0xabcd);
        let control = Control::new("box".parse().unwrap(), &*entropy);
        let session = SessionFile::enrolled(control.first_ticket());
        Self {
            seed,
            dice: Dice::new(seed),
            entropy,
            now: 1_000_000,
            serial: 0,
            queue: BTreeMap::new(),
            disk: Disk {
                session,
                asks: Vec::new(),
                records: BTreeMap::new(),
                directories: BTreeMap::new(),
                drained_here: false,
                writes: 0,
            },
            control,
            engine: None,
            life: 0,
            timer: 0,
            boot: 1,
            launchers: BTreeMap::new(),
            spawns: BTreeMap::new(),
            weather,
            exits: Vec::new(),
            runs: Vec::new(),
            faults: Vec::new(),
            calls: BTreeMap::new(),
            longest_job: 40_000,
            cut_until: 0,
            lease: "60s",
            losing: None,
            frozen: false,
            bad_logs: false,
            trace: Vec::new(),
        }
    }

    fn at(&mut self, after: u64, event: Event) {
        self.serial += 1;
        let due = self.now + i64::try_from(after).unwrap();
        self.queue.insert((due, self.serial), event);
    }

    pub(super) fn start_agent(&mut self) {
        self.at(0, Event::Start);
    }

    pub(super) fn submit_in(&mut self, after: u64) {
        self.at(after, Event::Submit);
    }

    pub(super) fn cancel_in(&mut self, after: u64) {
        self.at(after, Event::Cancel);
    }

    pub(super) fn crash_in(&mut self, after: u64) {
        self.at(after, Event::Crash);
    }

    pub(super) fn disk_low(&mut self, low: bool) {
        self.feed(Input::Disk { low });
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.feed(Input::Signal(signal));
    }

    /// A person at this machine drains it, or resumes it: on disk first.
    pub(super) fn drain_here(&mut self, drain: bool) {
        self.disk.drained_here = drain;
        self.feed(Input::DrainedHere(drain));
    }

    fn boot_name(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// Handles events until `until` says so; panics when nothing is left to happen or it takes too long.
    pub(super) fn run_until(&mut self, what: &str, mut until: impl FnMut(&Self) -> bool) {
        for _ in 0..60_000 {
            if until(self) {
                return;
            }
            let Some(((at, _), event)) = self.queue.pop_first() else {
                panic!("seed {}: nothing happens any more before: {what}\n{}", self.seed, self.story());
            };
            self.now = self.now.max(at);
            self.control.at(self.now, &*self.entropy);
            self.happen(event);
        }
        panic!("seed {}: never: {what}\n{}", self.seed, self.story());
    }

    pub(super) fn story(&self) -> String {
        let records: Vec<_> = self.disk.records.values().map(|record| (record.attempt(), record.state())).collect();
        let runs: Vec<_> = self.runs.iter().map(|run| self.control.state(*run)).collect();
        let tail = self.trace.len().saturating_sub(60);
        format!(
            "now {}\nruns {runs:?}\nrecords {records:?}\ndirectories {:?}\nlaunchers {:?}\nengine {:#?}\n{}",
            self.now,
            self.disk.directories.keys(),
            self.launchers.keys(),
            self.engine,
            self.trace[tail..].join("\n")
        )
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start => self.start(),
            Event::Crash => self.crash(),
            Event::Submit => {
                let text = format!("limits.lease = {}", self.lease);
                let revision = revision(&text);
                let run = self.control.submit(revision, &*self.entropy);
                self.runs.push(run);
            }
            Event::Cancel => {
                if let Some(run) = self.runs.get(usize::try_from(self.dice.below(64)).unwrap() % self.runs.len().max(1))
                {
                    self.control.cancel(*run);
                }
            }
            Event::Effect { life, effect } => {
                if life == self.life && self.engine.is_some() {
                    // A crash between any two effects.
                    if self.dice.percent(self.weather.crashes) {
                        return self.crash();
                    }
                    self.carry_out(effect);
                }
            }
            Event::Input { life, input } => {
                if life == self.life {
                    self.feed(*input);
                }
            }
            Event::Timer { life, serial } => {
                if life == self.life && serial == self.timer {
                    self.feed(Input::Timer);
                }
            }
            Event::Request { life, op, call, answer } => self.request(life, op, &call, answer),
            Event::Spawn { attempt } => self.spawn(attempt),
            Event::Launcher { attempt } => self.launcher(attempt),
        }
    }

    fn start(&mut self) {
        if self.engine.is_some() {
            return;
        }
        self.life += 1;
        let recovered = Recovered {
            session: self.disk.session.clone(),
            asks: self.disk.asks.clone(),
            records: self.disk.records.values().cloned().collect(),
            drained_here: self.disk.drained_here,
            faults: Vec::new(),
        };
        let entropy = chance(self.seed.wrapping_add(self.life));
        self.trace.push(format!("{} start of life {}", self.now, self.life));
        self.engine = Some(Engine::new(config(&self.boot_name()), entropy, recovered));
        self.feed(Input::Start);
    }

    fn crash(&mut self) {
        self.trace.push(format!("{} crash", self.now));
        // What was on its way to the disk may have reached it.
        let life = self.life;
        let pending: Vec<_> = std::mem::take(&mut self.queue).into_iter().collect();
        for (key, event) in pending {
            match event {
                Event::Effect { life: of, effect } if of == life => {
                    if self.dice.percent(50) {
                        self.write(&effect);
                    }
                }
                other => {
                    self.queue.insert(key, other);
                }
            }
        }
        self.engine = None;
        self.life += 1;
        if self.dice.percent(self.weather.reboots) {
            self.reboot();
        }
        let after = self.dice.below(4_000);
        self.at(after, Event::Start);
    }

    fn reboot(&mut self) {
        self.trace.push(format!("{} reboot", self.now));
        self.boot += 1;
        self.launchers.clear();
        self.queue.retain(|_, event| !matches!(event, Event::Spawn { .. } | Event::Launcher { .. }));
        for directory in self.disk.directories.values_mut() {
            directory.locked = false;
        }
    }

    pub(super) fn feed(&mut self, input: Input) {
        let Some(engine) = &mut self.engine else { return };
        let now = Moment { boot: BootInstant::new(self.now), utc: UtcMillis::new(1_800_000_000_000 + self.now) };
        let text = format!("{input:?}");
        let idle = text.starts_with("Timer") || text.contains("Beaten") || text.contains("Pulled");
        if !idle || text.contains("Granted") {
            self.trace.push(format!("{} <- {}", self.now, text.chars().take(200).collect::<String>()));
        }
        let effects = engine.step(now, input);
        let life = self.life;
        for effect in effects {
            match effect {
                Effect::SetTimer(at) => {
                    self.timer = self.serial + 1;
                    let serial = self.timer;
                    let after = u64::try_from(at.get() - self.now).unwrap_or(0);
                    self.at(after, Event::Timer { life, serial });
                }
                Effect::Report(report) => {
                    self.trace.push(format!("{} says {}", self.now, report.text));
                    if report.level == Level::Fault {
                        self.faults.push(report.text);
                    }
                }
                effect => {
                    let after = self.dice.below(3);
                    self.at(after, Event::Effect { life, effect });
                }
            }
        }
    }

    fn answer(&mut self, after: u64, input: Input) {
        let life = self.life;
        self.at(after, Event::Input { life, input: Box::new(input) });
    }

    fn write(&mut self, effect: &Effect) {
        match effect {
            Effect::WriteRecord { record, .. } => {
                if let Some(old) = self.disk.records.get(&record.id()) {
                    let next = old.version == record.version || record.may_replace(old);
                    assert!(next, "seed {}: {:?} over {:?}", self.seed, record.stage, old.stage);
                }
                self.disk.records.insert(record.id(), (**record).clone());
            }
            Effect::RemoveRecord { offer, .. } => {
                let old = self.disk.records.remove(offer);
                // An offer that the disk did not take is removed without ever having been acknowledged.
                let removable = |state: InboxState| state.is_settled() || state == InboxState::Accepted;
                assert!(old.is_none_or(|old| removable(old.state())), "seed {}: an open record removed", self.seed);
            }
            Effect::WriteSession { file, .. } => self.disk.session = (**file).clone(),
            Effect::WriteAsks { asks, .. } => self.disk.asks.clone_from(asks),
            Effect::CreateDirectory { attempt, .. } => {
                self.disk.directories.entry(*attempt).or_default();
            }
            Effect::RemoveDirectory { attempt, .. } => {
                // One that is only on its way may lose its directory: it never makes one, and cannot link in it.
                let alive = |directory: &Directory| directory.locked && matches!(directory.barrier, Barrier::Child(_));
                let alive = self.disk.directories.get(attempt).is_some_and(alive);
                assert!(!alive, "seed {}: the directory of a running job removed\n{}", self.seed, self.story());
                self.disk.directories.remove(attempt);
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let wait = self.dice.below(8);
        match effect {
            Effect::WriteRecord { op, .. }
            | Effect::RemoveRecord { op, .. }
            | Effect::WriteSession { op, .. }
            | Effect::WriteAsks { op, .. }
            | Effect::CreateDirectory { op, .. }
            | Effect::RemoveDirectory { op, .. } => {
                self.disk.writes += 1;
                let fails = self.dice.percent(self.weather.failing_disk);
                // A failed write may have reached the disk all the same.
                if !fails || self.dice.percent(50) {
                    self.write(&effect);
                }
                let result = if fails { Err("no space left on device".to_owned()) } else { Ok(()) };
                self.answer(wait, Input::Done { op, result });
            }
            Effect::Call { op, call, timeout } => self.send(op, call, timeout),
            Effect::CancelCall { .. } | Effect::SetTimer(_) | Effect::Report(_) => {}
            Effect::Launch { op, launch } => self.launch(op, *launch),
            Effect::Observe { op, attempt, tombstone } => {
                let found = self.observe(attempt, tombstone);
                self.answer(wait, Input::Observed { op, found: Ok(Box::new(found)) });
            }
            Effect::Attach { op, attempt, .. } => {
                let attached = self.launchers.contains_key(&attempt) && self.spawned(attempt);
                self.answer(wait, Input::Attached { op, attached });
            }
            Effect::StopRemains { op, attempt } => {
                self.launchers.remove(&attempt);
                if let Some(directory) = self.disk.directories.get_mut(&attempt) {
                    directory.locked = false;
                }
                self.answer(wait, Input::Remains { op, evidence: EvidenceKind::LauncherKilledAllGone });
            }
            Effect::MeasureLog { op, attempt } => {
                let log = self.disk.directories.get(&attempt).map(|directory| LogPin {
                    length: directory.log,
                    digest: Digest::from_bytes([2; 32]),
                    cut: None,
                    finished: false,
                });
                self.answer(wait, Input::LogMeasured { op, log });
            }
            Effect::SendDeadline { attempt, deadline, .. } => {
                if let Some(launcher) = self.launchers.get_mut(&attempt) {
                    launcher.deadline = launcher.deadline.max(deadline);
                }
                self.plan(attempt);
            }
            Effect::SendStop { attempt, reason } => {
                let kill = BootInstant::new(self.now).plus(Millis::from_secs(1));
                if let Some(launcher) = self.launchers.get_mut(&attempt) {
                    launcher.stop.get_or_insert((reason, kill));
                }
                self.plan(attempt);
            }
            Effect::Exit(exit) => {
                self.trace.push(format!("{} exit {exit:?}", self.now));
                self.exits.push(exit);
                self.engine = None;
                self.life += 1;
                if exit.begins_again() {
                    self.at(5, Event::Start);
                }
            }
        }
    }

    fn send(&mut self, op: OpId, call: Call, timeout: Millis) {
        *self.calls.entry(call.name()).or_default() += 1;
        if self.bad_logs && matches!(call, Call::Log { .. }) {
            return self.log_endpoint(op, call, timeout);
        }
        let life = self.life;
        if self.now < self.cut_until {
            return self.answer(
                5,
                Input::Answer {
                    op,
                    outcome: Answered::NotDone("connection refused".to_owned()),
                    directives: Vec::new(),
                },
            );
        }
        let (there, lost) = (self.dice.below(40), self.dice.percent(self.weather.lost_requests));
        let answer = !lost && !self.dice.percent(self.weather.lost_answers);
        if self.dice.percent(self.weather.doubled) {
            // The same bytes again, much later; nobody waits for that answer.
            let late = there + self.dice.below(30_000);
            self.at(late, Event::Request { life, op, call: Box::new(call.clone()), answer: false });
        }
        if !answer {
            let outcome = Answered::Unknown("no answer".to_owned());
            let after = there + self.dice.below(timeout.get().max(1)) + 50;
            self.answer(after, Input::Answer { op, outcome, directives: Vec::new() });
        }
        if !lost {
            self.at(there, Event::Request { life, op, call: Box::new(call), answer });
        }
    }

    /// An endpoint that answers 500, 413, loses its answers, swallows requests and stalls, in turn; one in five arrives.
    fn log_endpoint(&mut self, op: OpId, call: Call, timeout: Millis) {
        let life = self.life;
        let stalled = |why: &str| Answered::Unknown(why.to_owned());
        let (after, outcome) = match self.calls["logs"] % 5 {
            0 => (5, stalled("status 500 without a problem of this protocol")),
            1 => (5, Answered::Refused(Refusal::new(RefusalCode::LimitExceeded, "too large for the way"))),
            2 => {
                self.at(1, Event::Request { life, op, call: Box::new(call), answer: false });
                (20, stalled("the connection was reset"))
            }
            3 => (timeout.get(), stalled("no answer in time")),
            _ => return self.at(5, Event::Request { life, op, call: Box::new(call), answer: true }),
        };
        self.answer(after, Input::Answer { op, outcome, directives: Vec::new() });
    }

    fn request(&mut self, life: u64, op: OpId, call: &Call, answer: bool) {
        // A long poll waits for work; without any it is answered after a while, as the protocol's is.
        let directories = &self.disk.directories;
        let written = |attempt| directories.get(&attempt).map_or(0, |directory: &Directory| directory.log);
        let open = self.weather.open_commits > 0 && self.dice.percent(self.weather.open_commits);
        let result = if open && self.dice.percent(50) {
            Err(overloaded())
        } else {
            let result = self.control.call(call, &written);
            // A refusal changes nothing, and is known without a commit.
            if open { result.and_then(|_| Err(overloaded())) } else { result }
        };
        if !answer {
            return;
        }
        if let (Some(losing), Ok(given)) = (&mut self.losing, &result)
            && losing.loses(call, given)
        {
            let outcome = match losing.instead {
                Instead::Nothing if losing.left % 2 == 0 => return self.crash(),
                Instead::Nothing => Answered::Unknown("no answer".to_owned()),
                Instead::Overloaded => Answered::Refused(overloaded()),
            };
            return self.answer(50, Input::Answer { op, outcome, directives: Vec::new() });
        }
        let idle = match (&result, call) {
            (Ok(super::super::port::Answer::Pulled { asks, .. }), Call::Pull { wait, .. }) => {
                let granted = asks.iter().any(|(_, answer)| !matches!(answer, super::super::port::AskAnswer::None));
                !granted && *wait > Millis::ZERO
            }
            _ => false,
        };
        let outcome = match result {
            Ok(answer) => Answered::Answered(answer),
            Err(refusal) => Answered::Refused(refusal),
        };
        let directives = self.control.directives();
        let back = self.dice.below(40) + if idle { 1_500 } else { 0 };
        self.at(back, Event::Input { life, input: Box::new(Input::Answer { op, outcome, directives }) });
    }

    fn spawned(&self, attempt: AttemptId) -> bool {
        self.disk.directories.get(&attempt).is_some_and(|directory| matches!(directory.barrier, Barrier::Child(_)))
    }

    fn launch(&mut self, op: OpId, launch: super::super::port::Launch) {
        let attempt = launch.offer.attempt;
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            return self.answer(1, Input::Launched { op, answer: LaunchAnswer::Unknown("no directory".to_owned()) });
        };
        directory.locked = true;
        let limits = launch.offer.revision.limits();
        let launcher = Launcher {
            offer: launch.offer.offer,
            callback: launch.callback,
            token: launch.token,
            grace: limits.grace,
            lease: launch.lease,
            deadline: launch.lease_deadline,
            ends: None,
            stop: None,
        };
        self.launchers.insert(attempt, launcher);
        let unclear = self.dice.percent(self.weather.unclear_launches);
        // An unclear launch may still be on its way long after the agent gave up on it, or crashed.
        let spawn = self.dice.below(if unclear { 3_000 } else { 5 });
        self.at(spawn, Event::Spawn { attempt });
        if unclear {
            let after = self.dice.below(3_000);
            self.answer(after, Input::Launched { op, answer: LaunchAnswer::Unknown("no answer".to_owned()) });
        } else {
            self.answers_when_spawned(op, attempt, spawn);
        }
    }

    fn answers_when_spawned(&mut self, op: OpId, attempt: AttemptId, spawn: u64) {
        // The answer follows the child; a rejection is written as a receipt before.
        if self.dice.percent(8) {
            self.queue.retain(|_, event| !matches!(event, Event::Spawn { attempt: of } if *of == attempt));
            let Some(launcher) = self.launchers.remove(&attempt) else { return };
            let reason = RejectReason::Exec;
            let ending = Ending::Rejected { reason, detail: "not found".to_owned() };
            self.finish(attempt, &launcher, ending);
            let answer = LaunchAnswer::Rejected { reason, detail: "not found".to_owned() };
            return self.answer(spawn + 1, Input::Launched { op, answer });
        }
        let handle = self.handle(attempt);
        self.answer(spawn + 2, Input::Launched { op, answer: LaunchAnswer::Started(handle) });
    }

    fn handle(&self, attempt: AttemptId) -> Handle {
        let pid = 1000 + u32::from(attempt.as_bytes()[15]);
        Handle { boot: self.boot_name().parse().unwrap(), pid, start_time: 7 }
    }

    /// The child at the barrier: links its name, or finds another's and executes nothing.
    fn spawn(&mut self, attempt: AttemptId) {
        let handle = self.handle(attempt);
        let Some(launcher) = self.launchers.get(&attempt).cloned() else { return };
        let late =
            BootInstant::new(self.now) >= stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            self.launchers.remove(&attempt);
            return;
        };
        if !matches!(directory.barrier, Barrier::Absent) || late {
            let reason = if late { RejectReason::Deadline } else { RejectReason::Tombstone };
            self.launchers.remove(&attempt);
            self.finish(attempt, &launcher, Ending::Rejected { reason, detail: String::new() });
            return self.hang_up(&launcher);
        }
        directory.barrier = Barrier::Child(handle);
        *self.spawns.entry(attempt).or_default() += 1;
        self.trace.push(format!("{} spawn {attempt}", self.now));
        let span = Millis::new(self.dice.below(self.longest_job) + 20);
        if let Some(launcher) = self.launchers.get_mut(&attempt) {
            launcher.ends = Some(BootInstant::new(self.now).plus(span));
        }
        if self.dice.percent(self.weather.killed_launchers) {
            // The child dies with its launcher; nobody writes a receipt.
            directory_of(&mut self.disk, attempt).locked = false;
            self.launchers.remove(&attempt);
            return self.hang_up(&launcher);
        }
        self.plan(attempt);
    }

    fn plan(&mut self, attempt: AttemptId) {
        let Some(launcher) = self.launchers.get(&attempt) else { return };
        let stops = stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let mut next = stops;
        for at in [launcher.ends, launcher.stop.map(|(_, at)| at)].into_iter().flatten() {
            next = next.min(at);
        }
        let after = u64::try_from(next.get() - self.now).unwrap_or(0);
        self.at(after, Event::Launcher { attempt });
    }

    /// A launcher's timer: the job ended, was told to, or its lease is about to.
    fn launcher(&mut self, attempt: AttemptId) {
        let now = BootInstant::new(self.now);
        if self.frozen || !self.spawned(attempt) {
            return;
        }
        let Some(launcher) = self.launchers.get(&attempt).cloned() else { return };
        let stops = stop_plan(launcher.deadline, launcher.lease, launcher.grace).terminate_at;
        let at = UtcMillis::new(1_800_000_000_000 + self.now);
        let ending = if launcher.ends.is_some_and(|ends| ends <= now) {
            let code = u8::from(attempt.as_bytes()[15].is_multiple_of(4));
            Ending::Exited { status: ExitStatus::Code(code), at }
        } else if let Some((reason, _)) = launcher.stop.filter(|(_, at)| *at <= now) {
            Ending::Stopped { reason, status: ExitStatus::Signal(15), at }
        } else if stops <= now {
            Ending::Stopped { reason: StopReason::Lease, status: ExitStatus::Signal(15), at }
        } else {
            return;
        };
        self.launchers.remove(&attempt);
        let log = self.dice.below(600_000);
        directory_of(&mut self.disk, attempt).log = log;
        self.finish(attempt, &launcher, ending);
        self.hang_up(&launcher);
    }

    fn finish(&mut self, attempt: AttemptId, launcher: &Launcher, ending: Ending) {
        let Some(directory) = self.disk.directories.get_mut(&attempt) else { return };
        let ran = !matches!(ending, Ending::Rejected { .. });
        directory.locked = false;
        directory.receipt = Some(Receipt {
            ending,
            callback: launcher.callback,
            token: launcher.token.clone(),
            log: ran.then_some(LogPin {
                length: directory.log,
                digest: Digest::of(Domain::Log, b""),
                cut: None,
                finished: true,
            }),
            usage: None,
            left: None,
            left_gone: false,
        });
    }

    fn hang_up(&mut self, launcher: &Launcher) {
        let offer = launcher.offer;
        self.answer(1, Input::HungUp { offer });
    }

    fn observe(&mut self, attempt: AttemptId, tombstone: bool) -> Found {
        let Some(directory) = self.disk.directories.get_mut(&attempt) else {
            return Found {
                directory: false,
                barrier: BarrierFact::Absent,
                handle: None,
                receipt: None,
                lock: LockFact::Free,
                log: 0,
            };
        };
        let lock = if directory.locked { LockFact::Held } else { LockFact::Free };
        if tombstone && matches!(directory.barrier, Barrier::Absent) {
            directory.barrier = Barrier::Tombstone;
        }
        Found {
            directory: true,
            barrier: match &directory.barrier {
                Barrier::Absent => BarrierFact::Absent,
                Barrier::Tombstone => BarrierFact::Tombstone,
                Barrier::Child(_) => BarrierFact::Child,
            },
            handle: match &directory.barrier {
                Barrier::Child(handle) => Some(handle.clone()),
                Barrier::Absent | Barrier::Tombstone => None,
            },
            receipt: directory.receipt.clone(),
            lock,
            log: directory.log,
        }
    }

    /// The promises that hold at every instant.
    pub(super) fn check(&self) {
        for (attempt, spawns) in &self.spawns {
            assert!(*spawns <= 1, "seed {}: attempt {attempt} was started {spawns} times\n{}", self.seed, self.story());
        }
        let mut alive = BTreeSet::new();
        for attempt in self.launchers.keys().filter(|attempt| self.spawned(**attempt)) {
            let run = self.control.attempts[attempt].run;
            assert!(alive.insert(run), "seed {}: two live processes of run {run}\n{}", self.seed, self.story());
        }
        for (id, attempt) in &self.control.attempts {
            let denied = attempt.outcome == Some(Outcome::NeverSpawned) && self.spawns.contains_key(id);
            assert!(!denied, "seed {}: {id} was started and called never spawned\n{}", self.seed, self.story());
        }
        assert_eq!(self.control.copies, 0, "seed {}: taken for a copy\n{}", self.seed, self.story());
    }

    pub(super) fn is_clean(&self) -> bool {
        self.disk.records.is_empty() && self.disk.directories.is_empty() && self.launchers.is_empty()
    }
}

fn directory_of(disk: &mut Disk, attempt: AttemptId) -> &mut Directory {
    disk.directories.get_mut(&attempt).unwrap()
}

fn revision(limits: &str) -> leasehold_core::revision::Revision {
    use leasehold_core::canonical::Value;
    let (_, lease) = limits.split_once(" = ").unwrap();
    leasehold_core::revision::Revision::from_value(&Value::map([
        ("command", Value::map([("argv", Value::texts(["true"]))])),
        ("limits", Value::map([("lease", Value::text(lease))])),
    ]))
    .unwrap()
}

impl World {
    /// Whether no process of the attempt lives any more.
    pub(super) fn is_stopped(&self, attempt: AttemptId) -> bool {
        !self.launchers.contains_key(&attempt)
    }

    /// Whether a process of the attempt runs.
    pub(super) fn is_running(&self, attempt: AttemptId) -> bool {
        self.launchers.contains_key(&attempt) && self.spawned(attempt)
    }

    /// The agent dies, and its records are unreadable to the next one; its asks still name them.
    pub(super) fn crash_and_damage_records(&mut self) {
        self.crash();
        for record in std::mem::take(&mut self.disk.records).into_values() {
            self.disk.asks.retain(|ask| ask.offer != record.id());
            self.disk.asks.push(Ask { offer: record.id(), token: record.token.clone() });
        }
    }
}
