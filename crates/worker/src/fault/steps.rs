//! The one list of the steps at which a worker may die, or its disk, its machine or its network fail.
//!
//! A file is written as a *kind* that is declared here, in the *ways* that are declared for it: one that is not does not
//! compile. A call of the protocol, a process that is started and a socket carry a [`Step`], and only this file makes
//! steps. So a new step cannot be forgotten, and the tests take their list from the binary. A wall (`cargo xtask ci
//! walls`) holds that nothing of the worker goes around it.
//!
//! Never here: what a step does. That it passes exactly the points declared for it is tested beside the code that does it.

use std::fmt;

/// Which process takes a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// The long-lived one, and `join`.
    Agent,
    /// One per running attempt.
    Launcher,
    /// A launcher's child between its fork and its exec.
    Child,
}

/// What a step touches; it decides how it can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches {
    /// A file or a directory.
    Disk,
    /// A pipe or a socket of this machine.
    Machine,
    /// A process that is started: the kernel answers in the same breath, so one that started never looks like a failure.
    Start,
    /// This process itself: what comes after is another program.
    Itself,
    /// The control plane.
    Wire,
}

/// One step, by name: `record.link`, `launcher.spawn`, `call.end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    what: &'static str,
    act: &'static str,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.what, self.act)
    }
}

/// What is done to a file.
pub(crate) mod act {
    pub(crate) const CREATE: &str = "create";
    pub(crate) const RESERVE: &str = "reserve";
    pub(crate) const WRITE: &str = "write";
    pub(crate) const SYNC: &str = "sync";
    pub(crate) const LINK: &str = "link";
    pub(crate) const RENAME: &str = "rename";
    pub(crate) const SYNC_DIR: &str = "sync_dir";
    pub(crate) const REMOVE: &str = "remove";
    pub(crate) const QUARANTINE: &str = "quarantine";
    pub(crate) const QUARANTINE_SYNC: &str = "quarantine_sync";
}

/// A kind of file.
pub trait File {
    /// Its name among the steps.
    const WHAT: &'static str;
}

macro_rules! ways {
    ($($(#[$doc:meta])* $way:ident: $($act:ident)+;)+) => {
        $($(#[$doc])* pub trait $way: File {})+

        /// How a file is written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Way { $($way),+ }

        impl Way {
            /// The steps, in order.
            pub(crate) const fn acts(self) -> &'static [&'static str] {
                match self { $(Self::$way => &[$(act::$act),+]),+ }
            }
        }
    };
}

ways! {
    /// A first version, which never replaces.
    Published: CREATE WRITE SYNC LINK SYNC_DIR;
    /// A new version of the whole file, whose name survives a power cut.
    Replaced: CREATE WRITE SYNC RENAME SYNC_DIR;
    /// A new version of the whole file; falling back to the one before is harmless.
    Updated: CREATE WRITE SYNC RENAME;
    /// A name that exactly one side creates in a boot.
    Latched: CREATE WRITE LINK;
    /// A file whose space is reserved before it is needed.
    Prepared: CREATE RESERVE WRITE SYNC RENAME SYNC_DIR;
    /// A file that goes.
    Removed: REMOVE;
    /// A file that may have to be moved away, because it cannot be trusted.
    Quarantined: QUARANTINE QUARANTINE_SYNC;
}

macro_rules! files {
    ($($(#[$doc:meta])* $kind:ident = $what:literal by $process:ident: $($way:ident)+;)+) => {
        /// The kinds of files.
        pub mod file {
            $(
                $(#[$doc])*
                #[derive(Debug, Clone, Copy)]
                pub struct $kind;
                impl super::File for $kind {
                    const WHAT: &'static str = $what;
                }
                $(impl super::$way for $kind {})+
            )+
        }

        const FILES: &[(&str, Process, &[Way])] = &[$(($what, Process::$process, &[$(Way::$way),+])),+];
    };
}

files! {
    /// `session.json`.
    Session = "session" by Agent: Replaced;
    /// `pending-claims.json`.
    Asks = "asks" by Agent: Replaced Quarantined;
    /// `identity.json`, written by `join`.
    Identity = "identity" by Agent: Replaced;
    /// `joining.json`, written and removed by `join`.
    Joining = "joining" by Agent: Replaced Removed;
    /// `place.json`.
    Place = "place" by Agent: Replaced;
    /// `pause.json`.
    Pause = "pause" by Agent: Replaced;
    /// A record of the inbox.
    Record = "record" by Agent: Published Updated Removed Quarantined;
    /// The directory of an attempt whose record is gone.
    Orphan = "orphan" by Agent: Quarantined;
    /// A file in quarantine, which a person lets go.
    Quarantined = "quarantined" by Agent: Removed;
    /// The agent's socket, as a name.
    AgentSocket = "agent_socket" by Agent: Removed;
    /// Recovery's side of the spawn barrier.
    Tombstone = "tombstone" by Agent: Latched;
    /// The launcher's word.
    Receipt = "receipt" by Launcher: Prepared;
    /// The script of a revision that has one.
    Script = "script" by Launcher: Removed Latched;
    /// The launcher's socket, as a name.
    Control = "control" by Launcher: Removed;
    /// The child's side of the spawn barrier.
    Barrier = "barrier" by Child: Latched;
}

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $what:literal $act:literal by $process:ident, $touches:ident;)+) => {
        $($(#[$doc])* pub(crate) const $name: Step = Step { what: $what, act: $act };)+

        const STEPS: &[(Step, Process, Touches)] = &[$(($name, Process::$process, Touches::$touches)),+];
    };
}

steps! {
    /// The lock of the state directory is taken.
    STATE_LOCK = "state" "lock" by Agent, Disk;
    /// A private directory is made: the state directory's own, and an attempt's.
    FOLDER_MAKE = "folder" "make" by Agent, Disk;
    /// An attempt's directory is removed with all that is in it.
    ATTEMPT_CLEAR = "attempt" "clear" by Agent, Disk;
    /// The place for control groups is made and given its controllers.
    CGROUP_HOME = "cgroup" "home" by Agent, Machine;
    /// A program of this machine is asked what it is.
    RUNTIME_SPAWN = "runtime" "spawn" by Agent, Start;
    /// A launcher is started.
    LAUNCHER_SPAWN = "launcher" "spawn" by Agent, Start;
    /// It is handed its request.
    REQUEST_SEND = "request" "send" by Agent, Machine;
    /// Its answer is taken.
    ANSWER_RECEIVE = "answer" "receive" by Agent, Machine;
    /// A running launcher is attached to.
    CONTROL_CONNECT = "control" "connect" by Agent, Machine;
    /// It is told a deadline or a stop.
    CONTROL_SEND = "control" "send" by Agent, Machine;
    /// It listens to a person's questions.
    STATUS_LISTEN = "status" "listen" by Agent, Machine;
    /// The agent executes its own binary again.
    AGENT_EXEC = "agent" "exec" by Agent, Itself;

    /// A machine becomes a worker.
    CALL_ENROLL = "call" "enroll" by Agent, Wire;
    /// A session begins.
    CALL_REGISTER = "call" "register" by Agent, Wire;
    /// The session's beat, with the renewals.
    CALL_HEARTBEAT = "call" "heartbeat" by Agent, Wire;
    /// Nothing new is taken.
    CALL_DRAIN = "call" "drain" by Agent, Wire;
    /// The session ends.
    CALL_OFFLINE = "call" "offline" by Agent, Wire;
    /// Work is asked for.
    CALL_PULL = "call" "pull" by Agent, Wire;
    /// A claim is given back.
    CALL_RELEASE = "call" "release" by Agent, Wire;
    /// A claim is about to be started.
    CALL_STARTING = "call" "starting" by Agent, Wire;
    /// It runs.
    CALL_RUNNING = "call" "running" by Agent, Wire;
    /// A piece of its log.
    CALL_LOG = "call" "log" by Agent, Wire;
    /// How it ended.
    CALL_END = "call" "end" by Agent, Wire;

    /// The attempt's lock is taken.
    ATTEMPT_LOCK = "attempt" "lock" by Launcher, Disk;
    /// The request is read.
    REQUEST_READ = "request" "read" by Launcher, Machine;
    /// The log is begun.
    LOG_CREATE = "log" "create" by Launcher, Disk;
    /// Output goes into the log.
    LOG_APPEND = "log" "append" by Launcher, Disk;
    /// A frame that was written in part is taken back.
    LOG_CUT = "log" "cut" by Launcher, Disk;
    /// The attempt's control group is made and limited.
    CGROUP_MAKE = "cgroup" "make" by Launcher, Machine;
    /// It is removed.
    CGROUP_REMOVE = "cgroup" "remove" by Launcher, Machine;
    /// The launcher listens to agents.
    CONTROL_LISTEN = "control" "listen" by Launcher, Machine;
    /// It tells an agent how things stand.
    CONTROL_TELL = "control" "tell" by Launcher, Machine;
    /// The job's process is made, and executes.
    JOB_FORK = "job" "fork" by Launcher, Start;
    /// The agent is answered.
    ANSWER_SEND = "answer" "send" by Launcher, Machine;

    /// The child enters the attempt's control group.
    CGROUP_JOIN = "cgroup" "join" by Child, Machine;
    /// The child becomes the job.
    JOB_EXEC = "job" "exec" by Child, Itself;
}

impl Step {
    /// Every step with who takes it and what it touches, in the order of the list; its place is its number.
    pub(super) fn all() -> impl Iterator<Item = (Self, Process, Touches)> {
        let of_files = FILES.iter().flat_map(|(what, process, ways)| {
            let mut acts: Vec<&'static str> = Vec::new();
            for act in ways.iter().flat_map(|way| way.acts()) {
                if !acts.contains(act) {
                    acts.push(act);
                }
            }
            acts.into_iter().map(|act| (Self { what, act }, *process, Touches::Disk))
        });
        of_files.chain(STEPS.iter().copied())
    }
}

/// The step `act` of a file of the kind `what`; for `durable`, the one place that writes files by kind.
pub(crate) const fn step_of_file(what: &'static str, act: &'static str) -> Step {
    Step { what, act }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_steps_have_one_name() {
        let mut names: Vec<String> = Step::all().map(|(step, ..)| step.to_string()).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
