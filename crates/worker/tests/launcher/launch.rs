//! One launch in a directory of its own, through the real binary.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;

use leasehold_core::attempt::{Callback, ExitStatus, Handle, StopReason};
use leasehold_core::counter::{AttemptNumber, CallbackSequence};
use leasehold_core::crypto::{CompletionToken, Digest, Domain};
use leasehold_core::frame::{Body, Cut, Decoder, Stream};
use leasehold_core::id::AttemptId;
use leasehold_core::time::{BootInstant, Clock, Millis, UtcMillis};
use leasehold_worker::attempt_dir::{AttemptDir, LOG};
use leasehold_worker::launcher::environment::DEFAULT_PATH;
use leasehold_worker::launcher::request::{Command, JobLimits};
use leasehold_worker::launcher::spawn::{LauncherProgram, spawn};
use leasehold_worker::launcher::{
    Conclusion, ControlConnection, Ending, LaunchOutcome, LaunchRequest, LauncherState, Receipt, Rejection,
};
use rustix::time::{ClockId, clock_gettime};

/// How long anything may take on a loaded machine.
pub(crate) const PATIENCE: Millis = Millis::from_secs(60);

pub(crate) struct MachineClock;

impl Clock for MachineClock {
    fn utc(&self) -> UtcMillis {
        let now = clock_gettime(ClockId::Realtime);
        UtcMillis::new(now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }

    fn boot(&self) -> BootInstant {
        let now = clock_gettime(ClockId::Boottime);
        BootInstant::new(now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }
}

pub(crate) fn now() -> BootInstant {
    MachineClock.boot()
}

/// A directory for one attempt and the request that a test changes.
pub(crate) struct Fixture {
    pub(crate) attempts: tempfile::TempDir,
    pub(crate) dir: AttemptDir,
    pub(crate) request: LaunchRequest,
}

/// A job that was started.
pub(crate) struct Started {
    pub(crate) dir: AttemptDir,
    pub(crate) handle: Handle,
    pub(crate) launcher: Child,
    /// `None`: a job of a few milliseconds ended before anybody could connect.
    pub(crate) control: Option<ControlConnection>,
    callback: Callback,
    attempt: AttemptId,
    pub(crate) attempts: tempfile::TempDir,
}

/// A job that ended.
pub(crate) struct Ended {
    pub(crate) dir: AttemptDir,
    pub(crate) ending: Ending,
    pub(crate) log: Log,
    /// Removed with the fixture, not before.
    _attempts: tempfile::TempDir,
}

/// A log, read back.
pub(crate) struct Log {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) cuts: Vec<Cut>,
}

pub(crate) fn program() -> LauncherProgram {
    LauncherProgram { program: env!("CARGO_BIN_EXE_leasehold-worker").into(), arguments: vec!["launcher".into()] }
}

/// The same with one fault point armed.
pub(crate) fn program_with_fault(fault: &str) -> LauncherProgram {
    let LauncherProgram { program, mut arguments } = program();
    arguments.splice(0..0, [format!("LEASEHOLD_FAULT={fault}").into(), program.into()]);
    LauncherProgram { program: "env".into(), arguments }
}

/// `sh -c script`.
pub(crate) fn sh(script: &str) -> Fixture {
    argv(&["sh", "-c", script])
}

pub(crate) fn argv(words: &[&str]) -> Fixture {
    let attempts = tempfile::tempdir().unwrap();
    let attempt: AttemptId = "01900000-0000-7000-8000-000000000001".parse().unwrap();
    let dir = AttemptDir::create(attempts.path(), attempt).unwrap();
    let request = LaunchRequest {
        run: "01900000-0000-7000-8000-000000000002".parse().unwrap(),
        attempt,
        attempt_number: AttemptNumber::FIRST,
        command: Command::Argv(words.iter().map(|word| (*word).to_owned()).collect()),
        environment: BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]),
        secrets: BTreeMap::new(),
        working_dir: None,
        run_as: None,
        merge_streams: false,
        keep_descendants: false,
        cgroup: None,
        limits: JobLimits::default(),
        log_quota: 64 * 1024 * 1024,
        lease: None,
        timeout_at: None,
        grace: Millis::from_secs(10),
        callback_sequence: CallbackSequence::FIRST,
        completion_token: CompletionToken::from_bytes([7; 32]),
    };
    Fixture { attempts, dir, request }
}

impl Fixture {
    pub(crate) fn callback(&self) -> Callback {
        Callback { sequence: self.request.callback_sequence, token: self.request.completion_token.digest() }
    }

    /// Launches and expects a start.
    pub(crate) fn start(self) -> Started {
        let launch = spawn(&program(), &self.dir, &self.request, PATIENCE);
        let LaunchOutcome::Started { handle } = launch.outcome else { panic!("not started: {:?}", launch.outcome) };
        let control = ControlConnection::connect(&self.dir).unwrap();
        Started {
            attempt: self.request.attempt,
            callback: self.callback(),
            dir: self.dir,
            handle,
            launcher: launch.launcher.unwrap(),
            control,
            attempts: self.attempts,
        }
    }

    /// Launches and waits for the end.
    pub(crate) fn end(self) -> Ended {
        self.start().end()
    }

    /// Launches and expects a refusal, which the receipt repeats.
    pub(crate) fn refused(self) -> (Rejection, tempfile::TempDir) {
        let launch = spawn(&program(), &self.dir, &self.request, PATIENCE);
        let LaunchOutcome::Rejected(rejection) = launch.outcome else { panic!("not rejected: {:?}", launch.outcome) };
        launch.launcher.unwrap().wait().unwrap();
        let receipt = Receipt::read(&self.dir).unwrap().expect("a refusal is a receipt first");
        assert!(receipt.is_authentic(self.request.attempt, &self.callback()));
        assert_eq!(receipt.conclusion, Conclusion::Rejected(rejection.clone()));
        (rejection, self.attempts)
    }
}

impl Started {
    /// Waits for the hang-up, then for the launcher, and reads what it left.
    pub(crate) fn end(mut self) -> Ended {
        while self.state().is_some() {}
        assert!(self.launcher.wait().unwrap().success());
        let receipt = Receipt::read(&self.dir).unwrap().expect("the hang-up means that the receipt is there");
        assert!(receipt.is_authentic(self.attempt, &self.callback));
        let Conclusion::Ended(ending) = receipt.conclusion else { panic!("{:?}", receipt.conclusion) };
        let log = Log::read(&self.dir, &ending);
        Ended { dir: self.dir, ending: *ending, log, _attempts: self.attempts }
    }

    /// The next state, `None` for the hang-up.
    pub(crate) fn state(&self) -> Option<LauncherState> {
        let control = self.control.as_ref()?;
        assert!(control.wait(PATIENCE).unwrap(), "the launcher says nothing");
        control.receive().unwrap()
    }

    pub(crate) fn control(&self) -> &ControlConnection {
        self.control.as_ref().expect("the job runs")
    }

    /// Waits until the job's stdout holds a whole line, and answers the first one.
    pub(crate) fn first_line(&self) -> String {
        let until = now().plus(PATIENCE);
        while now() < until {
            let bytes = std::fs::read(self.dir.path(LOG)).unwrap();
            let stdout = decode(&bytes).stdout;
            if let Some(end) = stdout.iter().position(|&byte| byte == b'\n') {
                return String::from_utf8(stdout[..end].to_vec()).unwrap();
            }
            std::thread::yield_now();
        }
        panic!("the job wrote no line");
    }
}

impl Ended {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.log.stdout).into_owned()
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match (self.ending.stopped, self.ending.status) {
            (None, ExitStatus::Code(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn stopped(&self) -> (StopReason, ExitStatus) {
        (self.ending.stopped.expect("stopped"), self.ending.status)
    }
}

impl Log {
    fn read(dir: &AttemptDir, ending: &Ending) -> Self {
        let bytes = std::fs::read(dir.path(LOG)).unwrap();
        assert_eq!(u64::try_from(bytes.len()).unwrap(), ending.log.length);
        assert_eq!(Digest::of(Domain::Log, &bytes), ending.log.digest);
        decode(&bytes)
    }
}

fn decode(bytes: &[u8]) -> Log {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    let mut log = Log { stdout: Vec::new(), stderr: Vec::new(), cuts: Vec::new() };
    while let Some(frame) = decoder.next_frame().unwrap() {
        match frame.body {
            Body::Output { stream: Stream::Stdout, bytes } => log.stdout.extend(bytes),
            Body::Output { stream: Stream::Stderr, bytes } => log.stderr.extend(bytes),
            Body::Cut(cut) => log.cuts.push(cut),
        }
    }
    log
}

/// Whether a process lives (a zombie does not).
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

/// Waits until a process is gone.
pub(crate) fn wait_gone(pid: &str) {
    let until = now().plus(PATIENCE);
    while is_alive(pid) {
        assert!(now() < until, "process {pid} lives on");
        std::thread::yield_now();
    }
}
