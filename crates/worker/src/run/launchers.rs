//! The engine's effects on launchers and attempts: each blocking, each for a thread of its own.
//!
//! (Worker design, *From offer to running*, *The decidable spawn barrier*, *Launcher*.)

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use leasehold_core::attempt::{Callback, EvidenceKind, LimitMeans, LimitsKept, LogPin, RejectReason};
use leasehold_core::crypto::{Domain, Hasher};
use leasehold_core::frame::{Body, Cut, Decoder, sound_frames, whole_frames};
use leasehold_core::id::{AttemptId, BootId, WorkerId};
use leasehold_core::limits::MIB;
use leasehold_core::revision::{OnLeaseLoss, Program};
use leasehold_core::time::{Clock, Millis};
use leasehold_core::verdict::{BarrierFact, LockFact};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::users;
use crate::attempt_dir::{AttemptDir, LOG, OUTPUT};
use crate::cgroup::{Home, JobGroup};
use crate::engine::port::{Found, Launch, LaunchAnswer, Receipt as SaidReceipt};
use crate::launcher::environment::{JobFacts, UserEnvironment, job_environment};
use crate::launcher::observe::{decide, observe};
use crate::launcher::request::{Cgroup, Command, JobLimits, LaunchRequest, LeaseDeadline, RunAs};
use crate::launcher::spawn::{LauncherProgram, spawn};
use crate::launcher::stop_named::{Remains, stop_named};
use crate::launcher::{Barrier, Conclusion, LaunchOutcome, Receipt, Rejection};

/// How long each step of the conversation with a starting launcher may take.
const PATIENCE: Millis = Millis::from_secs(10);
/// How long a killed launcher may take to be gone.
const GONE: Millis = Millis::from_secs(3);

/// Bytes of a log that are measured at once.
const MEASURED_AT_ONCE: u64 = 256 * 1024;

/// What every launch of this agent has in common.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) program: LauncherProgram,
    pub(super) user: UserEnvironment,
    pub(super) worker: WorkerId,
    pub(super) boot: BootId,
    /// As whom jobs run that name nobody; none: as this very user.
    pub(super) default_user: Option<String>,
    /// Where control groups of attempts are made; none: nowhere.
    pub(super) home: Option<Home>,
}

/// Starts a launcher and waits for its answer.
pub(super) fn launch(surroundings: &Surroundings, attempts: &Path, launch: &Launch) -> LaunchAnswer {
    let rejected = |reason, detail: String| LaunchAnswer::Rejected { reason, detail };
    let name = launch.offer.revision.command().run_as.as_ref().or(surroundings.default_user.as_ref());
    let mut home = surroundings.user.clone();
    let run_as = match name.map(|name| (name, users::find(name))) {
        None => None,
        Some((name, Ok(Some(user)))) => {
            // Another user's job has that user's home, not the agent's.
            home = UserEnvironment { home: user.home, user: name.clone(), ..home };
            Some(user.run_as)
        }
        // No launcher was called, and none will be: nothing ran.
        Some((name, Ok(None))) => return rejected(RejectReason::RunAs, format!("this machine has no user `{name}`")),
        Some((name, Err(error))) => return rejected(RejectReason::RunAs, format!("cannot look up `{name}`: {error}")),
    };
    let dir = match AttemptDir::find(attempts, launch.offer.attempt) {
        Ok(Some(dir)) => dir,
        Ok(None) => return LaunchAnswer::Unknown("the attempt's directory is gone".to_owned()),
        Err(error) => return LaunchAnswer::Unknown(error.to_string()),
    };
    let features = surroundings.home.as_ref().map(|home| home.features().clone()).unwrap_or_default();
    let kept = match launch.offer.revision.limits().kept(&features) {
        Ok(kept) => kept,
        // Placed by what this machine could do before its configuration changed.
        Err(feature) => return rejected(RejectReason::Limits, format!("this worker has no `{feature}` any more")),
    };
    let request = request(surroundings, &dir, launch, (run_as, &home), kept);
    // The child is reaped when it hangs up; dropping it here leaves it running.
    match spawn(&surroundings.program, &dir, &request, PATIENCE).outcome {
        LaunchOutcome::Started { handle } => LaunchAnswer::Started(handle),
        LaunchOutcome::Rejected(Rejection { reason, detail }) => rejected(reason, detail),
        LaunchOutcome::Unknown { detail } => LaunchAnswer::Unknown(detail),
    }
}

fn request(
    surroundings: &Surroundings,
    dir: &AttemptDir,
    launch: &Launch,
    (run_as, user): (Option<RunAs>, &UserEnvironment),
    kept: LimitsKept,
) -> LaunchRequest {
    let offer = &launch.offer;
    let (command, limits) = (offer.revision.command(), offer.revision.limits());
    let by_group = [kept.memory, kept.cpu, kept.pids].contains(&Some(LimitMeans::Cgroup));
    let asked_for = offer.revision.placement().require().features.contains("cgroup-kill");
    let facts = JobFacts {
        run: offer.run,
        attempt_number: offer.number,
        fence: offer.fence,
        worker: &surroundings.worker,
        output: &dir.path(OUTPUT),
        task: offer.task.as_ref(),
        scheduled_at: offer.scheduled_at,
        devices: &offer.devices,
        after: offer.after.as_ref(),
    };
    let mib = u64::try_from(MIB).unwrap_or(1 << 20);
    let lease = LeaseDeadline { at: launch.lease_deadline, length: launch.lease };
    LaunchRequest {
        run: offer.run,
        attempt: offer.attempt,
        attempt_number: offer.number,
        command: match &command.program {
            Program::Argv(argv) => Command::Argv(argv.clone()),
            Program::Script { script, interpreter } => {
                Command::Script { interpreter: interpreter.clone(), text: script.clone() }
            }
        },
        environment: job_environment(user, &offer.revision.public_variables(), &facts),
        secrets: std::collections::BTreeMap::new(),
        working_dir: command.working_dir.clone(),
        run_as,
        merge_streams: command.merge_streams,
        keep_descendants: limits.keep_descendants,
        cgroup: surroundings.home.as_ref().map(|home| Cgroup {
            directory: home.of(offer.attempt).display().to_string(),
            required: by_group || asked_for,
        }),
        limits: JobLimits {
            memory_bytes: limits.memory_mib.map(|size| size.saturating_mul(mib)),
            cpu: limits.cpu,
            pids: limits.pids,
            kept,
        },
        log_quota: u64::from(limits.log_mib).saturating_mul(mib),
        lease: (limits.on_lease_loss == OnLeaseLoss::Stop).then_some(lease),
        timeout_at: launch.timeout_at,
        grace: limits.grace,
        callback_sequence: launch.callback.sequence,
        completion_token: launch.token.clone(),
    }
}

/// Looks at an attempt; links recovery's tombstone first where that is asked.
pub(super) fn look(attempts: &Path, attempt: AttemptId, boot: &BootId, tombstone: bool) -> Result<Found, String> {
    let Some(dir) = AttemptDir::find(attempts, attempt).map_err(|error| error.to_string())? else {
        return Ok(Found {
            directory: false,
            barrier: BarrierFact::Absent,
            handle: None,
            receipt: None,
            lock: LockFact::Free,
            log: 0,
        });
    };
    let seen = if tombstone { decide(&dir, boot) } else { observe(&dir) };
    let seen = seen.map_err(|error| error.to_string())?;
    for damage in &seen.damage {
        tracing::error!(%attempt, "{damage}: it is no evidence");
    }
    Ok(Found {
        directory: true,
        barrier: seen.barrier_fact(),
        handle: seen.identity().map(|identity| identity.process.to_handle()),
        receipt: seen.receipt.as_ref().filter(|receipt| receipt.attempt == attempt).map(said),
        lock: seen.lock,
        log: std::fs::metadata(dir.path(LOG)).map_or(0, |metadata| metadata.len()),
    })
}

/// A launcher's last word, as the engine takes it.
pub(super) fn said(receipt: &Receipt) -> SaidReceipt {
    SaidReceipt {
        ending: receipt.ending(),
        callback: Callback { sequence: receipt.callback_sequence, token: receipt.completion_token.digest() },
        token: receipt.completion_token.clone(),
        log: receipt.log(),
        left: receipt.left(),
        left_gone: receipt.left_gone(),
        usage: match &receipt.conclusion {
            Conclusion::Rejected(_) => None,
            Conclusion::Ended(ending) => Some(ending.usage),
        },
    }
}

/// Stops what an attempt's barrier names, a launcher that still lives included, and says whether that is everything.
pub(super) fn stop_remains(attempts: &Path, attempt: AttemptId, boot: &BootId, clock: &dyn Clock) -> EvidenceKind {
    let remains = match stop(attempts, attempt, boot, clock) {
        Ok(remains) => remains,
        Err(why) => {
            tracing::error!(%attempt, "what its launcher left cannot be stopped: {why}");
            Remains::MayLive
        }
    };
    match remains {
        Remains::AllGone => EvidenceKind::LauncherKilledAllGone,
        Remains::MayLive => EvidenceKind::LauncherKilledMayLive,
    }
}

fn stop(attempts: &Path, attempt: AttemptId, boot: &BootId, clock: &dyn Clock) -> Result<Remains, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let dir = AttemptDir::find(attempts, attempt).map_err(|error| text(&error))?;
    let Some(dir) = dir else { return Err("its directory is gone".to_owned()) };
    let identity = match Barrier::read(&dir).map_err(|error| text(&error))? {
        Some(Barrier::Child(identity)) => identity,
        // Nobody passed the barrier, or ever will: nothing of the user's ran.
        Some(Barrier::Tombstone) => return Ok(Remains::AllGone),
        Some(Barrier::Unreadable) | None => return Err("its spawn barrier is gone".to_owned()),
    };
    if dir.is_locked().map_err(|error| text(&error))? {
        if let Some(launcher) = identity.launcher.open(boot).map_err(|error| text(&error))? {
            // Its child dies with it.
            let _ = pidfd_send_signal(&launcher, Signal::KILL);
            let timeout = rustix::time::Timespec { tv_sec: i64::try_from(GONE.get() / 1000).unwrap_or(3), tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&launcher, PollFlags::IN)], Some(&timeout));
        }
        if dir.is_locked().map_err(|error| text(&error))? {
            return Ok(Remains::MayLive);
        }
    }
    stop_named(&identity, boot, clock).map_err(|error| text(&error))
}

/// Removes an attempt's directory, and with it what a launcher that died left of its control group.
pub(super) fn remove(surroundings: &Surroundings, attempts: &Path, attempt: AttemptId) -> Result<(), String> {
    let Some(dir) = AttemptDir::find(attempts, attempt).map_err(|error| error.to_string())? else { return Ok(()) };
    let made = match Barrier::read(&dir) {
        Ok(Some(Barrier::Child(identity))) => identity.cgroup.map(Into::into),
        _ => None,
    };
    for directory in made.into_iter().chain(surroundings.home.as_ref().map(|home| home.of(attempt))) {
        JobGroup::at(directory).remove();
    }
    dir.remove().map_err(|error| error.to_string())
}

/// The next whole frames of a log.
pub(super) fn read_log(attempts: &Path, attempt: AttemptId, offset: u64, most: usize) -> Result<Bytes, String> {
    let Some(dir) = AttemptDir::find(attempts, attempt).map_err(|error| error.to_string())? else {
        return Ok(Bytes::new());
    };
    let file = match std::fs::File::open(dir.path(LOG)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Bytes::new()),
        Err(error) => return Err(error.to_string()),
    };
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let size = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX).min(most);
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, offset).map_err(|error| error.to_string())?;
    let whole = match sound_frames(&bytes) {
        0 => whole_frames(&bytes).map_err(|error| error.to_string())?,
        sound => sound,
    };
    bytes.truncate(whole);
    Ok(bytes.into())
}

/// What stands on disk of the log of an attempt whose launcher is gone: its whole frames, as far as they make sense. None
/// where there is no log, or nobody can read it.
pub(super) fn measure_log(attempts: &Path, attempt: AttemptId) -> Option<LogPin> {
    let dir = AttemptDir::find(attempts, attempt).ok()??;
    match measured(&dir.path(LOG)) {
        Ok(pin) => Some(pin),
        Err(error) => {
            tracing::warn!(%attempt, "what there is of its log is not known: {error}");
            None
        }
    }
}

fn measured(path: &Path) -> std::io::Result<LogPin> {
    let mut file = std::fs::File::open(path)?;
    let (mut hasher, mut decoder) = (Hasher::new(Domain::Log), Decoder::new());
    let (mut length, mut cut): (u64, Option<Cut>) = (0, None);
    let mut rest = Vec::new();
    loop {
        let before = rest.len();
        (&mut file).take(MEASURED_AT_ONCE).read_to_end(&mut rest)?;
        // After a power cut the end of the file may be anything: the log goes as far as its frames do.
        let whole = sound_frames(&rest);
        hasher.update(&rest[..whole]);
        length = length.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
        decoder.push(&rest[..whole]);
        while let Ok(Some(frame)) = decoder.next_frame() {
            if let Body::Cut(more) = frame.body {
                cut = Some(cut.map_or(more, |known| known.and(more)));
            }
        }
        if rest.len() == before || whole_frames(&rest).is_err() {
            return Ok(LogPin { length, digest: hasher.finish(), cut, finished: false });
        }
        rest.drain(..whole);
    }
}

#[cfg(test)]
mod tests {
    use crate::attempt_dir::{BARRIER, RECEIPT};
    use leasehold_core::frame::{Stream, encode_output};
    use leasehold_core::time::UtcMillis;

    use super::*;

    #[test]
    fn what_cannot_be_trusted_in_an_attempts_directory_is_no_evidence() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let boot: BootId = "boot".parse().unwrap();
        let attempt: AttemptId = "01900000-0000-7000-8000-000000000000".parse().unwrap();
        for name in [BARRIER, RECEIPT] {
            for damage in ["empty", "garbage", "open to all", "a link", "a directory", "too large"] {
                let attempts = tempfile::tempdir().unwrap();
                let dir = AttemptDir::create(attempts.path(), attempt).unwrap();
                let path = dir.path(name);
                let private = |text: &[u8]| {
                    std::fs::write(&path, text).unwrap();
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
                };
                match damage {
                    "empty" => private(b""),
                    "garbage" => private(b"{\"schema\":"),
                    "too large" => private(&vec![b' '; 64 * 1024]),
                    "a link" => symlink("/etc/hostname", &path).unwrap(),
                    "a directory" => std::fs::create_dir(&path).unwrap(),
                    _ => {
                        private(b"{}");
                        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
                    }
                }
                // As recovery looks that wants to bury it, and as one that only looks.
                for tombstone in [false, true] {
                    let found = look(attempts.path(), attempt, &boot, tombstone).unwrap();
                    assert!(found.receipt.is_none(), "{name} is {damage}");
                    if name == BARRIER {
                        // Somebody may have executed: never a proof that nothing ran.
                        assert_eq!(found.barrier, BarrierFact::Child, "{damage}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_dead_launcher_left_of_its_log_is_its_sound_frames() {
        use leasehold_core::crypto::Digest;
        use leasehold_core::frame::{CutReason, encode_cut};
        let attempts = tempfile::tempdir().unwrap();
        let attempt: AttemptId = "01900000-0000-7000-8000-000000000000".parse().unwrap();
        assert_eq!(measure_log(attempts.path(), attempt), None, "no directory");
        let dir = AttemptDir::create(attempts.path(), attempt).unwrap();
        assert_eq!(measure_log(attempts.path(), attempt), None, "no log");
        let mut log = Vec::new();
        let cut = |reason, stdout| Cut { reason, stdout, stderr: 1 };
        encode_output(&mut log, UtcMillis::new(1), Stream::Stdout, &vec![7; 700_000]);
        encode_cut(&mut log, UtcMillis::new(2), cut(CutReason::DiskFull, 5));
        encode_cut(&mut log, UtcMillis::new(3), cut(CutReason::Quota, 6));
        encode_output(&mut log, UtcMillis::new(4), Stream::Stderr, b"after");
        let whole = LogPin {
            length: u64::try_from(log.len()).unwrap(),
            digest: Digest::of(Domain::Log, &log),
            cut: Some(Cut { reason: CutReason::DiskFull, stdout: 11, stderr: 2 }),
            finished: false,
        };
        // Half a frame, the zeros of a power cut, and what was never a frame: none of it is the log.
        let mut half = Vec::new();
        encode_output(&mut half, UtcMillis::new(5), Stream::Stdout, b"half");
        let zeros = vec![0; 400_000];
        for more in [&[] as &[u8], &half[..half.len() - 1], &zeros, b"garbage"] {
            std::fs::write(dir.path(LOG), [&log, more].concat()).unwrap();
            assert_eq!(measure_log(attempts.path(), attempt), Some(whole));
            let mut shipped = Vec::new();
            while shipped.len() < log.len() {
                let offset = u64::try_from(shipped.len()).unwrap();
                shipped.extend_from_slice(&read_log(attempts.path(), attempt, offset, 256 * 1024).unwrap());
            }
            assert_eq!(shipped, log);
        }
    }

    #[test]
    fn a_log_is_read_in_whole_frames_from_any_frame_on() {
        let attempts = tempfile::tempdir().unwrap();
        let attempt: AttemptId = "01900000-0000-7000-8000-000000000000".parse().unwrap();
        let dir = AttemptDir::create(attempts.path(), attempt).unwrap();
        let mut log = Vec::new();
        encode_output(&mut log, UtcMillis::new(1), Stream::Stdout, &vec![7; 20_000]);
        let first = 12 + 16 * 1024;
        std::fs::write(dir.path(LOG), &log[..log.len() - 1]).unwrap();
        let read = |offset, most| read_log(attempts.path(), attempt, offset, most).unwrap();
        assert_eq!(read(0, 256 * 1024), &log[..first], "the unfinished frame waits");
        assert_eq!(read(u64::try_from(first).unwrap(), 256 * 1024), Bytes::new());
        std::fs::write(dir.path(LOG), &log).unwrap();
        assert_eq!(read(u64::try_from(first).unwrap(), 256 * 1024), &log[first..]);
        assert_eq!(read(0, 17_000), &log[..first]);
    }
}
