//! The launcher process from its first instruction to its answer; then [`super::supervisor`] takes over.
//!
//! Everything that can fail comes before the child. A refusal is a receipt first and an answer second; a launcher
//! that meets a child's barrier, a receipt or a held lock writes nothing and goes.
//! (Worker design, *Launcher* and *The decidable spawn barrier*.)

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use leasehold_core::attempt::{LimitMeans, RejectReason};
use leasehold_core::frame::Stream;
use leasehold_core::time::Clock;
use nix::sys::signal::SigSet;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Signal, chdir, getpid, set_child_subreaper, set_dumpable_behavior, setsid, umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use zeroize::Zeroizing;

use super::answer::{Answer, Rejection};
use super::barrier::Barrier;
use super::child::{self, Job, Steps};
use super::environment::DEFAULT_PATH;
use super::log::Log;
use super::mask::Mask;
use super::receipt::{Conclusion, Moment, Receipt};
use super::request::{Command, JobLimits, LaunchRequest, REQUEST_BYTES};
use super::schedule::Schedule;
use super::supervisor::{Output, Running, supervise};
use super::{fork, program, socket};
use crate::attempt_dir::{AttemptDir, CONTROL, SCRIPT, WORK};
use crate::cgroup::{JobGroup, MemoryLimit};
use crate::durable::Prepared;
use crate::fault::steps::file;
use crate::fault::{around, steps};
use crate::process_identity::{ProcessIdentity, boot_id};

/// The job's umask where the launcher inherited a stricter one for its own files.
const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

pub(super) fn run(directory: &Path, clock: &'static dyn Clock) -> ExitCode {
    match launch(directory, clock) {
        Ok(running) => {
            answer(&Answer::Started { handle: running.identity.to_string() });
            supervise(running);
            ExitCode::SUCCESS
        }
        Err(Refused::Already) => {
            answer(&Answer::Already {});
            ExitCode::SUCCESS
        }
        Err(Refused::Rejected(rejection)) => {
            answer(&Answer::rejected(&rejection));
            ExitCode::SUCCESS
        }
    }
}

/// Why no job is supervised.
enum Refused {
    /// Another launcher holds, or held, this directory.
    Already,
    /// Nothing of the user's ran.
    Rejected(Rejection),
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

fn rejection<E: std::fmt::Display>(reason: RejectReason) -> impl FnOnce(E) -> Rejection {
    move |error| Rejection::new(reason, error)
}

fn launch(directory: &Path, clock: &'static dyn Clock) -> Result<Running, Refused> {
    let job_umask = become_launcher().map_err(rejection(RejectReason::Spawn))?;
    let dir = AttemptDir::open(directory).map_err(rejection(RejectReason::Storage))?;
    let Some(lock) = dir.try_lock().map_err(rejection(RejectReason::Storage))? else { return Err(Refused::Already) };
    // From here on nobody else launches here. What an earlier launcher left decides, and what cannot be read is left
    // to recovery.
    let barrier = Barrier::read(&dir).map_err(|_| Refused::Already)?;
    if matches!(barrier, Some(Barrier::Child(_))) || !matches!(Receipt::read(&dir), Ok(None)) {
        return Err(Refused::Already);
    }
    // Without its request a launcher has no token to sign a receipt with; nothing has happened that needs one.
    let request = read_request(directory)?;
    let receipt = Receipt::prepare(dir.dir()).map_err(rejection(RejectReason::Storage))?;
    let refuse = |rejection: Rejection| {
        let last_word = Receipt {
            attempt: request.attempt,
            callback_sequence: request.callback_sequence,
            completion_token: request.completion_token.clone(),
            conclusion: Conclusion::Rejected(rejection.clone()),
        };
        // Should even this fail, the answer is still true; after a crash the barrier alone decides.
        let _ = receipt.commit(dir.dir(), &last_word.to_bytes());
        let _ = dir.dir().remove::<file::Control>(CONTROL);
        if let Some(cgroup) = &request.cgroup {
            JobGroup::at(PathBuf::from(&cgroup.directory)).remove();
        }
        Refused::Rejected(rejection)
    };
    if barrier.is_some() {
        return Err(refuse(Rejection::new(
            RejectReason::Tombstone,
            "the attempt was given up before its launcher came",
        )));
    }
    match start(&dir, &request, clock, job_umask) {
        Ok(Started { log, listener, outputs, schedule, identity, group, moment }) => Ok(Running {
            mask: Mask::new(request.secrets.values()),
            attempt: request.attempt,
            callback_sequence: request.callback_sequence,
            completion_token: request.completion_token.clone(),
            keep_descendants: request.keep_descendants,
            limits: request.limits.kept,
            group,
            _lock: lock,
            dir,
            receipt,
            log,
            listener,
            outputs,
            schedule,
            identity,
            started: moment,
            clock,
        }),
        Err(rejection) => Err(refuse(rejection)),
    }
}

/// What this process is before it knows its job. Answers the umask that the job gets.
fn become_launcher() -> io::Result<Mode> {
    fork::close_inherited_on_exec()?;
    // The agent keeps its own waiting ([`crate::run`]); a launcher and its job are told by them, as every process is.
    SigSet::all().thread_unblock()?;
    refuse_ignored_children()?;
    // Fails only for a process that leads its group already: then the session is its own for what matters here.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // The attempt's directory is reached by its descriptor; no mount is held.
    chdir("/")?;
    Ok(umask(PRIVATE))
}

/// An ignored SIGCHLD is inherited through every exec, and then the kernel throws exit codes away.
fn refuse_ignored_children() -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if ignored & (1 << (Signal::CHILD.as_raw() - 1)) == 0 {
        return Ok(());
    }
    Err(io::Error::other("the worker was started with SIGCHLD ignored: start it from a parent that does not ignore it"))
}

/// A pipe that fails is the machine's failure, and may be tried again; a request that makes no sense stays so.
fn read_request(directory: &Path) -> Result<LaunchRequest, Rejection> {
    // Reserved at once, touched as needed: a buffer that grows leaves copies of secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES + 1));
    let most = u64::try_from(REQUEST_BYTES + 1).unwrap_or(u64::MAX);
    around(steps::REQUEST_READ, || io::stdin().lock().take(most).read_to_end(&mut bytes))
        .map_err(rejection(RejectReason::Spawn))?;
    let request = LaunchRequest::from_bytes(&bytes).map_err(rejection(RejectReason::Request))?;
    if directory.file_name() != Some(request.attempt.to_string().as_ref()) || !directory.is_absolute() {
        let why = "the launch request is of another attempt than the directory";
        return Err(Rejection::new(RejectReason::Request, why));
    }
    Ok(request)
}

struct Started {
    log: Log,
    listener: OwnedFd,
    outputs: Vec<Output>,
    schedule: Schedule,
    identity: ProcessIdentity,
    group: Option<JobGroup>,
    moment: Moment,
}

fn start(
    dir: &AttemptDir,
    request: &LaunchRequest,
    clock: &'static dyn Clock,
    job_umask: Mode,
) -> Result<Started, Rejection> {
    let schedule = Schedule::new(request.lease, request.timeout_at, request.grace);
    let not_after = schedule.not_after();
    if not_after.is_some_and(|deadline| clock.boot() >= deadline) {
        return Err(Rejection::new(RejectReason::Deadline, "the deadline had passed before the launch"));
    }
    let log = Log::create(dir, request.log_quota).map_err(rejection(RejectReason::Storage))?;
    dir.dir().remove::<file::Control>(CONTROL).map_err(rejection(RejectReason::Storage))?;
    let listener = socket::listen(dir).map_err(rejection(RejectReason::Storage))?;
    let working_dir = request.working_dir.as_ref().map_or_else(|| dir.path(WORK), PathBuf::from);
    if !working_dir.is_dir() {
        return Err(Rejection::new(
            RejectReason::WorkingDir,
            format!("the working directory {} is missing", working_dir.display()),
        ));
    }
    let argv = match &request.command {
        Command::Argv(argv) => argv.clone(),
        Command::Script { interpreter, text } => {
            // Needed only while this launcher lives: nothing to sync.
            dir.dir().remove::<file::Script>(SCRIPT).map_err(rejection(RejectReason::Storage))?;
            dir.dir()
                .latch::<file::Script>(SCRIPT, "new", text.as_bytes())
                .map_err(rejection(RejectReason::Storage))?;
            let script = dir.path(SCRIPT).display().to_string();
            interpreter.iter().cloned().chain([script]).collect()
        }
    };
    if let Some(user) = &request.run_as {
        dir.hand_to(user.uid, user.gid).map_err(|error| {
            let why = format!("cannot hand its directory to uid {}: {error}; only root runs jobs as others", user.uid);
            Rejection::new(RejectReason::RunAs, why)
        })?;
    }
    let name = argv.first().map_or("", String::as_str);
    let search_path = request.environment.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let program = program::find(name, search_path, &working_dir).map_err(rejection(RejectReason::Exec))?;
    let boot = boot_id().map_err(rejection(RejectReason::Spawn))?;
    let launcher = ProcessIdentity::of(&boot, getpid()).map_err(rejection(RejectReason::Spawn))?;
    let group = control_group(request).map_err(rejection(RejectReason::Limits))?;
    let (outputs, stdout, stderr) = pipes(request.merge_streams).map_err(rejection(RejectReason::Spawn))?;
    let public = request.environment.iter().map(|(name, value)| (name.clone(), OsString::from(value)));
    let secret = request.secrets.iter().map(|(name, value)| (name.clone(), OsString::from(value.reveal())));
    let pid = child::start(Job {
        program,
        argv,
        environment: public.chain(secret).collect(),
        stdout,
        stderr,
        steps: Steps {
            dir: dir.dir().try_clone().map_err(rejection(RejectReason::Spawn))?,
            boot: boot.clone(),
            launcher,
            run: request.run,
            attempt_number: request.attempt_number,
            run_as: request.run_as.clone(),
            group,
            limits: request.limits,
            umask: job_umask,
            working_dir,
            not_after,
            clock,
        },
    })?;
    let moment = Moment { utc: clock.utc(), boot: clock.boot() };
    // The child's own word at the barrier. It has just been linked there; should the disk fail to give it back, the
    // unreaped child still says the same of itself.
    let (identity, cgroup) = if let Ok(Some(Barrier::Child(identity))) = Barrier::read(dir) {
        (identity.process, identity.cgroup)
    } else {
        let unread = ProcessIdentity { boot: boot.clone(), pid, start: 0 };
        let cgroup = request.cgroup.as_ref().map(|cgroup| cgroup.directory.clone());
        (ProcessIdentity::of(&boot, pid).unwrap_or(unread), cgroup)
    };
    let group = cgroup.map(|directory| JobGroup::at(directory.into()));
    Ok(Started { log, listener, outputs, schedule, identity, group, moment })
}

/// Makes the attempt's control group with its limits. A job that can do without has none where it cannot be made.
fn control_group(request: &LaunchRequest) -> Result<Option<child::Group>, String> {
    let Some(cgroup) = &request.cgroup else { return Ok(None) };
    let made: io::Result<JobGroup> = around(steps::CGROUP_MAKE, || {
        let group = JobGroup::create(PathBuf::from(&cgroup.directory))?;
        let JobLimits { memory_bytes, cpu, pids, kept } = request.limits;
        let in_group = |means: Option<LimitMeans>| means == Some(LimitMeans::Cgroup);
        if let (Some(bytes), true) = (memory_bytes, in_group(kept.memory)) {
            group.limit_memory(MemoryLimit(bytes))?;
        }
        if let (Some(cpu), true) = (cpu, in_group(kept.cpu)) {
            group.limit_cpu(cpu)?;
        }
        if let (Some(pids), true) = (pids, in_group(kept.pids)) {
            group.limit_pids(pids)?;
        }
        Ok(group)
    });
    match made {
        Ok(group) => Ok(Some(child::Group { group, required: cgroup.required })),
        Err(error) if cgroup.required => {
            Err(format!("the control group {} cannot be made or limited: {error}", cgroup.directory))
        }
        Err(_) => Ok(None),
    }
}

fn pipes(merge_streams: bool) -> io::Result<(Vec<Output>, OwnedFd, OwnedFd)> {
    let (from_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut outputs = vec![Output::new(Stream::Stdout, from_stdout)?];
    let stderr = if merge_streams {
        stdout.try_clone()?
    } else {
        let (from_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        outputs.push(Output::new(Stream::Stderr, from_stderr)?);
        stderr
    };
    Ok((outputs, stdout, stderr))
}

/// Answers, and lets go of the agent's pipes: whoever waits for their end must not wait for the job's.
fn answer(answer: &Answer) {
    let mut stdout = io::stdout().lock();
    // An agent that is gone asks the barrier when it is back.
    let _ = around(steps::ANSWER_SEND, || stdout.write_all(&answer.to_line()).and_then(|()| stdout.flush()));
    drop(stdout);
    if let Ok(null) = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = (dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null));
    }
}

/// The lock's descriptor; named for what it is for.
pub(super) type Lock = File;

/// The receipt's reserved file.
pub(super) type ReservedReceipt = Prepared;
