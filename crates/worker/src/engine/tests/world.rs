//! A machine and a network in memory: the disk, launchers and their jobs, lost and late messages, crashes. Everything
//! random comes from one seed.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::attempt::{EvidenceKind, LogPin, Outcome};
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::crypto::{Digest, Ticket};
use leasehold_core::id::{AttemptId, BootId};
use leasehold_core::time::{BootInstant, Entropy, Millis, UtcMillis};

use super::super::port::{Ask, Call, Effect, Exit, Input, Level, Moment, OpId, Signal};
use super::super::{Config, Engine, Recovered, RegistrationFacts};
use super::control::Control;
use crate::session_file::SessionFile;

mod chance;
mod disk;
mod launchers;
mod network;

use chance::{Dice, chance};
use disk::Disk;
use launchers::Launcher;
pub(super) use network::Losing;

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

    /// The agent dies, and its records are unreadable to the next one; its asks still name them.
    pub(super) fn crash_and_damage_records(&mut self) {
        self.crash();
        for record in std::mem::take(&mut self.disk.records).into_values() {
            self.disk.asks.retain(|ask| ask.offer != record.id());
            self.disk.asks.push(Ask { offer: record.id(), token: record.token.clone() });
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

fn revision(limits: &str) -> leasehold_core::revision::Revision {
    use leasehold_core::canonical::Value;
    let (_, lease) = limits.split_once(" = ").unwrap();
    leasehold_core::revision::Revision::from_value(&Value::map([
        ("command", Value::map([("argv", Value::texts(["true"]))])),
        ("limits", Value::map([("lease", Value::text(lease))])),
    ]))
    .unwrap()
}
