//! Fault points: the named places before and after each durable step where a test kills the process or fills the disk.
//!
//! Nothing is armed in production; reaching a point then costs one atomic load. Only a binary arms one, from its
//! environment: `LEASEHOLD_FAULT=<what>.<step>.<before|after>:<kill|enospc>`, such as `receipt.rename.before:kill`.
//! This module never reads the environment.

use std::io;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// The variable from which binaries arm a fault.
pub const VARIABLE: &str = "LEASEHOLD_FAULT";

static ARMED: OnceLock<Fault> = OnceLock::new();

/// One step of a durable write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reserving space.
    Reserve,
    /// Writing bytes.
    Write,
    /// Syncing a file.
    Sync,
    /// Linking a name without replacing.
    Link,
    /// Renaming over a name.
    Rename,
    /// Syncing a directory.
    SyncDir,
    /// Removing a name.
    Remove,
}

impl Step {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Reserve, "reserve"),
        (Self::Write, "write"),
        (Self::Sync, "sync"),
        (Self::Link, "link"),
        (Self::Rename, "rename"),
        (Self::SyncDir, "sync_dir"),
        (Self::Remove, "remove"),
    ];
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Nothing of the step has happened.
    Before,
    /// The step has happened, and nobody knows.
    After,
}

/// A place that can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPoint {
    /// What kind of file: `record`, `receipt`, `barrier`, ….
    pub what: &'static str,
    /// Which step.
    pub step: Step,
    /// Which side of it.
    pub side: Side,
}

/// What happens at a fault point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The process is killed, as by `kill -9`.
    Kill,
    /// The step fails as on a full disk.
    NoSpace,
}

/// A fault that a binary may arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    what: String,
    step: Step,
    side: Side,
    effect: Effect,
}

/// A text names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fault: expected <what>.<step>.<before|after>:<kill|enospc>")]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let refused = || FaultError(text.chars().take(64).collect());
        let (point, effect) = text.split_once(':').ok_or_else(refused)?;
        let mut parts = point.split('.');
        let (Some(what), Some(step), Some(side), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refused());
        };
        let (step, _) = Step::ALL.into_iter().find(|(_, name)| *name == step).ok_or_else(refused)?;
        let side = match side {
            "before" => Side::Before,
            "after" => Side::After,
            _ => return Err(refused()),
        };
        let effect = match effect {
            "kill" => Effect::Kill,
            "enospc" => Effect::NoSpace,
            _ => return Err(refused()),
        };
        Ok(Self { what: what.to_owned(), step, side, effect })
    }
}

/// Arms `fault` for the rest of this process's life. The first one stays; whether this is it.
pub fn arm(fault: Fault) -> bool {
    ARMED.set(fault).is_ok()
}

/// Called at each point.
pub(super) fn reach(point: FaultPoint) -> io::Result<()> {
    match ARMED.get() {
        Some(fault) if fault.what == point.what && fault.step == point.step && fault.side == point.side => {
            take_effect(fault.effect)
        }
        _ => Ok(()),
    }
}

fn take_effect(effect: Effect) -> io::Result<()> {
    match effect {
        Effect::Kill => Err(kill_process(getpid(), Signal::KILL).err().unwrap_or(Errno::INTR).into()),
        Effect::NoSpace => Err(Errno::NOSPC.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_by_file_step_side_and_effect() {
        let fault: Fault = "receipt.sync_dir.after:enospc".parse().unwrap();
        assert_eq!(
            fault,
            Fault { what: "receipt".to_owned(), step: Step::SyncDir, side: Side::After, effect: Effect::NoSpace }
        );
        for bad in [
            "",
            "receipt",
            "receipt.sync",
            "receipt.sync.before",
            "a.b.before:kill",
            "a.sync.x:kill",
            "a.sync.before:x",
            "a.sync.before.c:kill",
        ] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }
}
