//! Fault points: the numbered places before and after every step of a worker (see [`steps`]) where a test kills the
//! process, spoils the disk, or loses a call.
//!
//! Nothing is armed in production; reaching a point then costs one atomic load. Only a binary arms one, once, from the
//! environment that its owner gave it: `LEASEHOLD_FAULT=<step>.<before|after>:<effect>[@passes]`, several joined by
//! commas. The effects are `kill`, `enospc`, `eio`, `erofs`; for calls `kill`, `unsent` and `lost`; for a launcher's child
//! also `orphan`. `@3` is the third time that the point is passed and no other, `@2-5` the second to the fifth. This stays
//! in released binaries, so that what is shipped is what tests can drive, and is harmless there: who may set a variable of
//! a process may kill it, too. `leasehold-worker fault-points` prints the list.
//!
//! What is armed at a launcher's step is handed to the first launcher that an agent starts, and to no other.
//! Never here: the environment is not read, and no step is carried out.

pub mod steps;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use steps::{Process, Step, Touches};

/// The variable from which binaries arm faults.
pub const VARIABLE: &str = "LEASEHOLD_FAULT";
/// The variable that names the file to which every fault that strikes adds a line.
pub const STRUCK: &str = "LEASEHOLD_FAULT_STRUCK";

static ARMED: OnceLock<Armed> = OnceLock::new();

struct Armed {
    faults: Vec<(Fault, AtomicU32)>,
    /// What the first launcher gets.
    for_launcher: Mutex<Option<String>>,
    struck: Option<PathBuf>,
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nothing of the step has happened.
    Before,
    /// The step has happened, and nobody knows.
    After,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// What happens at a fault point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The process is killed, as by `kill -9`.
    Kill,
    /// The step fails as on a full disk.
    NoSpace,
    /// The step fails as on a broken disk.
    Io,
    /// The step fails as on a disk that became read-only.
    ReadOnly,
    /// The request of a call never leaves.
    Unsent,
    /// The answer of a call is lost.
    Lost,
    /// The child's launcher is killed.
    Orphan,
}

impl Effect {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Kill, "kill"),
        (Self::NoSpace, "enospc"),
        (Self::Io, "eio"),
        (Self::ReadOnly, "erofs"),
        (Self::Unsent, "unsent"),
        (Self::Lost, "lost"),
        (Self::Orphan, "orphan"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(effect, _)| *effect == self).map_or("", |(_, name)| name)
    }
}

/// A place that can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its place in the list, from 1.
    pub number: usize,
    /// Around which step.
    pub step: Step,
    /// On which side of it.
    pub side: Side,
    /// Which process comes here.
    pub process: Process,
    touches: Touches,
}

impl Point {
    /// Every point, in the order of the steps.
    pub fn all() -> Vec<Self> {
        let sides = Step::all().flat_map(|(step, process, touches)| {
            let after = (touches != Touches::Itself).then_some(Side::After);
            [Some(Side::Before), after].into_iter().flatten().map(move |side| (step, side, process, touches))
        });
        let numbered = (1..).zip(sides);
        numbered.map(|(number, (step, side, process, touches))| Self { number, step, side, process, touches }).collect()
    }

    /// What can happen here.
    pub fn effects(&self) -> Vec<Effect> {
        let errors = [Effect::NoSpace, Effect::Io, Effect::ReadOnly];
        let mut effects = vec![Effect::Kill];
        match (self.touches, self.side) {
            (Touches::Wire, Side::Before) => effects.push(Effect::Unsent),
            (Touches::Wire, Side::After) => effects.push(Effect::Lost),
            (Touches::Disk, _) => effects.extend(errors),
            (Touches::Start, Side::After) => {}
            (Touches::Machine | Touches::Start | Touches::Itself, _) => effects.push(Effect::Io),
        }
        if self.process == Process::Child {
            effects.push(Effect::Orphan);
        }
        effects
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.step, self.side)
    }
}

/// The list for people and tests: number, point, process and effects, a line each.
pub fn list() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for point in Point::all() {
        let process = match point.process {
            Process::Agent => "agent",
            Process::Launcher => "launcher",
            Process::Child => "child",
        };
        let effects: Vec<_> = point.effects().into_iter().map(Effect::name).collect();
        let _ = writeln!(text, "{} {point} {process} {}", point.number, effects.join(","));
    }
    text
}

/// A fault that a binary may arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    point: Point,
    effect: Effect,
    /// The first and the last pass at which it strikes.
    passes: (u32, u32),
}

/// A text names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fault: expected <step>.<before|after>:<effect>[@passes], with a point and an effect that \
     `leasehold-worker fault-points` lists"
)]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let refused = || FaultError(text.chars().take(64).collect());
        let (point, rest) = text.split_once(':').ok_or_else(refused)?;
        let (effect, passes) = rest.split_once('@').map_or((rest, None), |(effect, passes)| (effect, Some(passes)));
        let point = Point::all().into_iter().find(|known| known.to_string() == point).ok_or_else(refused)?;
        let effect = point.effects().into_iter().find(|known| known.name() == effect).ok_or_else(refused)?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(refused);
        let passes = match passes.map(|passes| passes.split_once('-').unwrap_or((passes, passes))) {
            None => (1, u32::MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        Ok(Self { point, effect, passes })
    }
}

/// Arms what `faults` names for the rest of this process's life; every one that strikes adds a line to `struck`.
pub fn arm(faults: &str, struck: Option<PathBuf>) -> Result<(), FaultError> {
    let texts: Vec<&str> = faults.split(',').collect();
    let parsed = texts.iter().map(|text| text.parse::<Fault>()).collect::<Result<Vec<_>, _>>()?;
    let of_launchers = texts.iter().zip(&parsed).filter(|(_, fault)| fault.point.process != Process::Agent);
    let for_launcher: Vec<&str> = of_launchers.map(|(text, _)| *text).collect();
    let for_launcher = Mutex::new((!for_launcher.is_empty()).then(|| for_launcher.join(",")));
    let faults = parsed.into_iter().map(|fault| (fault, AtomicU32::new(0))).collect();
    // Where something is armed already, that stays.
    let _ = ARMED.set(Armed { faults, for_launcher, struck });
    Ok(())
}

/// The faults of the next launcher: what was armed for one, once.
pub(crate) fn take_for_launcher() -> Option<String> {
    ARMED.get()?.for_launcher.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Takes a step, with the point before it and the point after it.
pub(crate) fn around<T, E: From<io::Error>>(step: Step, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    reach(step, Side::Before)?;
    let done = act()?;
    reach(step, Side::After)?;
    Ok(done)
}

/// Called at each point; an error is what the step is to come to.
pub(crate) fn reach(step: Step, side: Side) -> io::Result<()> {
    #[cfg(test)]
    passed::note(step, side);
    match ARMED.get() {
        None => Ok(()),
        Some(armed) => armed.reach(step, side),
    }
}

impl Armed {
    fn reach(&self, step: Step, side: Side) -> io::Result<()> {
        let here = self.faults.iter().filter(|(fault, _)| fault.point.step == step && fault.point.side == side);
        // All of them count this pass, before the first that strikes ends it.
        let passes = here.map(|(fault, passed)| (fault, passed.fetch_add(1, Ordering::Relaxed).saturating_add(1)));
        for (fault, pass) in passes.collect::<Vec<_>>() {
            if pass >= fault.passes.0 && pass <= fault.passes.1 {
                self.note(fault, pass);
                take_effect(fault.effect)?;
            }
        }
        Ok(())
    }

    fn note(&self, fault: &Fault, pass: u32) {
        let Some(path) = &self.struck else { return };
        let line = format!("{}:{}@{pass}\n", fault.point, fault.effect.name());
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // A test that is not told waits in vain, and says so.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

fn take_effect(effect: Effect) -> io::Result<()> {
    let errno = match effect {
        Effect::Kill => kill(Some(getpid())).err().unwrap_or(Errno::INTR),
        Effect::NoSpace => Errno::NOSPC,
        Effect::Io => Errno::IO,
        Effect::ReadOnly => Errno::ROFS,
        Effect::Unsent => Errno::NETUNREACH,
        Effect::Lost => Errno::CONNRESET,
        Effect::Orphan => {
            let launcher = getppid();
            kill(launcher)?;
            while getppid() == launcher {
                std::thread::yield_now();
            }
            return Ok(());
        }
    };
    Err(errno.into())
}

fn kill(process: Option<Pid>) -> Result<(), Errno> {
    kill_process(process.ok_or(Errno::SRCH)?, Signal::KILL)
}

/// What a test saw being passed.
#[cfg(test)]
pub(crate) mod passed {
    use std::cell::RefCell;

    use super::steps::Step;
    use super::{Side, fmt};

    thread_local! {
        static PASSED: RefCell<Vec<(String, Side)>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(step: Step, side: Side) {
        PASSED.with_borrow_mut(|passed| passed.push((step.to_string(), side)));
    }

    /// The steps that `act` passes on both sides, in order.
    pub(crate) fn steps_of<T: fmt::Debug>(act: impl FnOnce() -> T) -> Vec<String> {
        PASSED.with_borrow_mut(Vec::clear);
        act();
        let passed = PASSED.take();
        let pairs = passed.chunks(2).map(|pair| match pair {
            [(before, Side::Before), (after, Side::After)] if before == after => before.clone(),
            other => panic!("a step without its two sides: {other:?}"),
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_by_step_side_effect_and_passes() {
        let fault: Fault = "receipt.sync_dir.after:enospc".parse().unwrap();
        assert_eq!((fault.point.to_string().as_str(), fault.effect), ("receipt.sync_dir.after", Effect::NoSpace));
        assert_eq!(fault.passes, (1, u32::MAX));
        assert_eq!("call.end.after:lost@2".parse::<Fault>().unwrap().passes, (2, 2));
        assert_eq!("record.link.before:erofs@2-5".parse::<Fault>().unwrap().passes, (2, 5));
        for bad in [
            "",
            "receipt",
            "receipt.sync",
            "receipt.sync.before",
            "a.b.before:kill",
            "receipt.sync.x:kill",
            "receipt.sync.before:x",
            "receipt.sync.before:lost",
            "receipt.sync.before:orphan",
            "call.end.before:lost",
            "call.end.after:enospc",
            "job.exec.after:kill",
            "receipt.sync.before:kill@0",
            "receipt.sync.before:kill@1-",
        ] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_strikes_at_its_passes_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let struck = dir.path().join("struck");
        let fault = "record.link.before:erofs@2-3".parse().unwrap();
        let armed = Armed {
            faults: vec![(fault, AtomicU32::new(0))],
            for_launcher: Mutex::new(None),
            struck: Some(struck.clone()),
        };
        let step = steps::step_of_file("record", "link");
        let met: Vec<bool> = (0..4).map(|_| armed.reach(step, Side::Before).is_err()).collect();
        assert_eq!(met, [false, true, true, false]);
        assert!(armed.reach(step, Side::After).is_ok());
        let text = std::fs::read_to_string(struck).unwrap();
        assert_eq!(text, "record.link.before:erofs@2\nrecord.link.before:erofs@3\n");
    }

    #[test]
    fn two_faults_at_one_point_count_the_same_passes() {
        let faults = ["record.link.before:erofs@1", "record.link.before:enospc@2"].map(|text| text.parse().unwrap());
        let armed = Armed {
            faults: faults.into_iter().map(|fault| (fault, AtomicU32::new(0))).collect(),
            for_launcher: Mutex::new(None),
            struck: None,
        };
        let step = steps::step_of_file("record", "link");
        let met: Vec<_> = (0..3).map(|_| armed.reach(step, Side::Before).map_err(|error| error.kind())).collect();
        assert_eq!(met, [Err(io::ErrorKind::ReadOnlyFilesystem), Err(io::ErrorKind::StorageFull), Ok(())]);
    }

    #[test]
    fn every_point_of_the_list_can_be_armed() {
        for line in list().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, _, effects] = words.as_slice() else { panic!("{line}") };
            for effect in effects.split(',') {
                format!("{point}:{effect}").parse::<Fault>().unwrap();
            }
        }
    }
}
