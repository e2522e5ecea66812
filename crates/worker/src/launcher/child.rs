//! The child's steps between fork and exec, in the order that the facts demand.
//!
//! Its control group (the barrier names it), supplementary groups, then the barrier (still as the agent's user: the
//! directory is 0700), then gid, uid, working directory, death signal (each change of user clears it), then whether
//! the launcher is still the parent, then the deadline once more: the link may have waited for the disk. (Decisions,
//! *Order in the child*; launcher facts, *Traps*.)

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leasehold_core::attempt::{LimitMeans, RejectReason};
use leasehold_core::counter::AttemptNumber;
use leasehold_core::id::{BootId, RunId};
use leasehold_core::time::{BootInstant, Clock};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, chdir, getpid, getppid, set_parent_process_death_signal, setpgid,
    setrlimit, umask,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::answer::Rejection;
use super::barrier::{JobIdentity, link_child};
use super::fork;
use super::request::{JobLimits, RunAs};
use crate::cgroup::JobGroup;
use crate::durable::{Dir, Latched};
use crate::fault::steps::{CGROUP_JOIN, JOB_EXEC};
use crate::fault::{self, Side};
use crate::process_identity::ProcessIdentity;

/// Everything a child needs, owned: it outlives no fork.
pub(super) struct Job {
    pub(super) program: PathBuf,
    pub(super) argv: Vec<String>,
    pub(super) environment: Vec<(String, OsString)>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) steps: Steps,
}

/// What the child does before its exec.
pub(super) struct Steps {
    pub(super) dir: Dir,
    pub(super) boot: BootId,
    pub(super) launcher: ProcessIdentity,
    pub(super) run: RunId,
    pub(super) attempt_number: AttemptNumber,
    pub(super) run_as: Option<RunAs>,
    pub(super) group: Option<Group>,
    pub(super) limits: JobLimits,
    pub(super) umask: Mode,
    pub(super) working_dir: PathBuf,
    pub(super) not_after: Option<BootInstant>,
    pub(super) clock: &'static dyn Clock,
}

/// The control group that the child joins.
pub(super) struct Group {
    pub(super) group: JobGroup,
    /// Whether it is not to run without.
    pub(super) required: bool,
}

/// Where the child stopped; sent through a pipe, because `spawn` reports a bare errno for the exec and for all
/// that comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Group = 1,
    Cgroup,
    Barrier,
    Taken,
    Limit,
    User,
    WorkingDir,
    Parent,
    Deadline,
    Exec,
}

impl Stage {
    const ALL: [Self; 10] = [
        Self::Group,
        Self::Cgroup,
        Self::Barrier,
        Self::Taken,
        Self::Limit,
        Self::User,
        Self::WorkingDir,
        Self::Parent,
        Self::Deadline,
        Self::Exec,
    ];

    fn reject_reason(self) -> RejectReason {
        match self {
            Self::Group | Self::Barrier | Self::Parent => RejectReason::Spawn,
            Self::Taken => RejectReason::Tombstone,
            Self::Cgroup | Self::Limit => RejectReason::Limits,
            Self::User => RejectReason::RunAs,
            Self::WorkingDir => RejectReason::WorkingDir,
            Self::Deadline => RejectReason::Deadline,
            Self::Exec => RejectReason::Exec,
        }
    }
}

/// Starts the job. An error proves that nothing of the user's ran.
pub(super) fn start(job: Job) -> Result<Pid, Rejection> {
    let failed = |error: io::Error| Rejection::new(RejectReason::Spawn, error);
    let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let program = job.program.display().to_string();
    let working_dir = job.steps.working_dir.display().to_string();
    let mut command = Command::new(&job.program);
    command
        .arg0(job.argv.first().map_or("", String::as_str))
        .args(job.argv.iter().skip(1))
        .env_clear()
        .envs(job.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::from(job.stdout))
        .stderr(Stdio::from(job.stderr));
    let steps = job.steps;
    let mut reporter = std::fs::File::from(reporter);
    let spawned = fork::spawn(command, move || {
        let (stage, done) = match steps.take() {
            Ok(()) => (Stage::Exec, Ok(())),
            Err((stage, error)) => (stage, Err(error)),
        };
        reporter.write_all(&[stage as u8])?;
        done
    });
    let mut byte = [0];
    let said = std::fs::File::from(report).read_exact(&mut byte);
    let stage = said.ok().and_then(|()| Stage::ALL.into_iter().find(|stage| *stage as u8 == byte[0]));
    let error = match spawned {
        Ok(child) if stage == Some(Stage::Exec) => return Ok(Pid::from_child(&child)),
        // The standard library takes a child that died on its way for one that executed.
        Ok(mut child) => match child.wait() {
            Ok(status) => io::Error::other(format!("it ended before it could execute anything ({status})")),
            Err(error) => error,
        },
        Err(error) => error,
    };
    let detail = match stage {
        Some(Stage::Exec) => format!("cannot execute {program}: {error}"),
        Some(Stage::WorkingDir) => format!("cannot enter the working directory {working_dir}: {error}"),
        Some(Stage::Cgroup) => format!("cannot enter the control group of the attempt: {error}"),
        Some(Stage::Taken) => "the attempt was given up before its process could start".to_owned(),
        Some(Stage::Deadline) => "the deadline passed before the process could start".to_owned(),
        Some(stage) => format!("the child failed at {stage:?}: {error}"),
        None => format!("the child could not be made: {error}"),
    };
    Err(Rejection::new(stage.map_or(RejectReason::Spawn, Stage::reject_reason), detail))
}

impl Steps {
    /// Enters the attempt's control group and answers its directory; none, where it can do without and has to.
    fn join(&self) -> Result<Option<String>, (Stage, io::Error)> {
        let Some(Group { group, required }) = &self.group else { return Ok(None) };
        match fault::around(CGROUP_JOIN, || group.join()) {
            Ok(()) => Ok(Some(group.directory().display().to_string())),
            Err(error) if *required => Err((Stage::Cgroup, error)),
            Err(_) => Ok(None),
        }
    }

    fn take(&self) -> Result<(), (Stage, io::Error)> {
        let at = |stage: Stage| move |errno: Errno| (stage, io::Error::from(errno));
        setpgid(None, None).map_err(at(Stage::Group))?;
        let cgroup = self.join()?;
        if let Some(run_as) = &self.run_as {
            let groups: Vec<Gid> = run_as.groups.iter().copied().map(Gid::from_raw).collect();
            set_thread_groups(&groups).map_err(at(Stage::User))?;
        }
        let identity = JobIdentity {
            process: ProcessIdentity::of(&self.boot, getpid()).map_err(|error| (Stage::Barrier, error))?,
            launcher: self.launcher.clone(),
            run: self.run,
            attempt_number: self.attempt_number,
            cgroup,
        };
        match link_child(&self.dir, &identity) {
            Ok(Latched::Won) => {}
            Ok(Latched::Taken) => return Err(at(Stage::Taken)(Errno::EXIST)),
            Err(error) => return Err((Stage::Barrier, io::Error::other(error))),
        }
        umask(self.umask);
        let JobLimits { memory_bytes, pids, kept, .. } = self.limits;
        for (resource, limit, kept) in
            [(Resource::As, memory_bytes, kept.memory), (Resource::Nproc, pids.map(u64::from), kept.pids)]
        {
            if kept == Some(LimitMeans::Rlimit) {
                setrlimit(resource, Rlimit { current: limit, maximum: limit }).map_err(at(Stage::Limit))?;
            }
        }
        if let Some(run_as) = &self.run_as {
            let (gid, uid) = (Gid::from_raw(run_as.gid), Uid::from_raw(run_as.uid));
            set_thread_res_gid(gid, gid, gid).map_err(at(Stage::User))?;
            set_thread_res_uid(uid, uid, uid).map_err(at(Stage::User))?;
        }
        chdir(&self.working_dir).map_err(at(Stage::WorkingDir))?;
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(Stage::Parent))?;
        if getppid() != Some(self.launcher.pid) {
            return Err(at(Stage::Parent)(Errno::SRCH));
        }
        if self.not_after.is_some_and(|deadline| self.clock.boot() >= deadline) {
            return Err(at(Stage::Deadline)(Errno::TIMEDOUT));
        }
        fault::reach(JOB_EXEC, Side::Before).map_err(|error| (Stage::Exec, error))
    }
}
