//! The start path on this machine: identity, ownership, place, what earlier lives left, what the machine can do.
//!
//! Each step refuses with what to do about it. (Worker design, *One start path*; decisions, *Users*.)

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use leasehold_core::fault::FaultKind;
use leasehold_core::time::{Clock, Entropy};

use super::Options;
use super::faults::Faults;
use super::launchers::Surroundings;
use crate::cgroup::{Home, HomeError, Machine as CgroupMachine};
use crate::client::{self, Client};
use crate::config::Config as WorkerConfig;
use crate::config::GpuSetting;
use crate::detect::{self, Found, Searched};
use crate::durable::DurableError;
use crate::engine::{Config, Engine, Recovered};
use crate::fault::around;
use crate::fault::steps::CGROUP_HOME;
use crate::identity::{self, Identity, MovedError};
use crate::inbox::directory::Inbox;
use crate::orphans;
use crate::pause::Pause;
use crate::pending_claims::PendingClaims;
use crate::process_identity::boot_id;
use crate::session_file::SessionFile;
use crate::state::{StateError, StateFile};
use crate::state_dir::{OwnError, StateDir, only_agent};

/// A worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It never joined.
    #[error(
        "{0} holds no identity: this machine has not joined. Make a token on the control plane with `leasehold worker \
         enroll --name NAME` and paste the line it prints"
    )]
    NoIdentity(String),
    /// Jobs would run as root.
    #[error(
        "this worker was started as root, and so would its jobs be. Name the user they run as (--run-as USER), or say \
         that root is meant: --allow-root, LEASEHOLD_WORKER_ALLOW_ROOT=1, or `allow_root = true` in worker.toml"
    )]
    Root,
    /// Another process, or another place.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// Another machine, or a copy.
    #[error(transparent)]
    Moved(#[from] MovedError),
    /// A file of the state directory cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file without which nobody can tell who this worker is, is damaged or missing.
    #[error(
        "{0}. Without it the control plane cannot know this worker again. If a backup of this file is at hand, put it \
         back; otherwise enroll the machine anew: `leasehold worker enroll --name NAME`, then `leasehold-worker join …` \
         with a fresh state directory"
    )]
    Untrusted(StateError),
    /// The capabilities are over a limit.
    #[error("this machine cannot be described: {0}")]
    Capabilities(String),
    /// The configured place for control groups is none.
    #[error(transparent)]
    Cgroup(#[from] HomeError),
    /// The identity cannot be used for TLS.
    #[error("the identity cannot be used: {0}")]
    Tls(String),
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<DurableError> for RunError {
    fn from(error: DurableError) -> Self {
        Self::State(error.into())
    }
}

impl RunError {
    /// What a file says that holds who this worker is: a disk that fails is told apart from what is on it.
    fn untrusted(error: StateError) -> Self {
        if error.may_pass() { Self::State(error) } else { Self::Untrusted(error) }
    }

    /// The exit code of the process. A disk that fails may work again: a service manager is to try then, as it is not
    /// where a person has to look.
    pub fn code(&self) -> u8 {
        match self {
            Self::Root | Self::Cgroup(_) => 2,
            Self::Capabilities(_) | Self::Io(_) => 1,
            Self::Own(error) if error.may_pass() => 1,
            Self::Moved(MovedError::State(error)) | Self::State(error) if error.may_pass() => 1,
            _ => 24,
        }
    }
}

/// Everything a start needs, checked and owned.
pub(super) struct Start {
    pub(super) state: Arc<StateDir>,
    pub(super) inbox: Inbox,
    pub(super) client: Arc<Client>,
    pub(super) engine: Engine,
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) faults: Faults,
    pub(super) found: Found,
    pub(super) _twin: OwnedFd,
}

/// Looks, owns, reads: everything of the start path that needs no network. Nothing of it is undone where it fails.
pub(super) fn prepare(
    options: &Options,
    clock: &dyn Clock,
    entropy: impl Entropy + 'static,
) -> Result<Start, RunError> {
    if !identity::exists(&options.config.state_dir) {
        return Err(RunError::NoIdentity(options.config.state_dir.display().to_string()));
    }
    // Launchers and jobs have working directories of their own: every path they get is absolute.
    let path = std::fs::canonicalize(&options.config.state_dir)?;
    let state = StateDir::own(&path)?;
    let mut identity = Identity::read(state.dir())
        .map_err(RunError::untrusted)?
        .ok_or_else(|| RunError::NoIdentity(options.config.state_dir.display().to_string()))?;
    if let Some(server) = &options.config.server {
        // Whoever answers there is believed by its certificate, not by its address.
        identity.address.clone_from(server);
    }
    let root = rustix::process::geteuid().is_root();
    let allow_root = options.config.allow_root || identity.allow_root;
    if root && !allow_root && options.config.run_as.is_empty() {
        return Err(RunError::Root);
    }
    if root && !options.config.run_as.is_empty() {
        state.let_through()?;
    }
    let boot = boot_id()?;
    identity::check_place(state.dir(), &identity, identity::machine_id().as_deref(), &boot)?;
    let twin = only_agent(&identity)?;
    let session = SessionFile::read(state.dir()).and_then(|session| {
        session.ok_or_else(|| StateError::damaged(crate::session_file::FILE_NAME, "it is missing"))
    });
    let mut session = session.map_err(RunError::untrusted)?;
    if options.take_over {
        // The control plane decides: without its grant the next registration stops for good once more.
        session.stopped = None;
    }
    let drained_here = match Pause::read(state.dir()) {
        Ok(pause) => pause.is_some_and(|pause| pause.on),
        Err(error) if error.may_pass() => return Err(error.into()),
        Err(error) => {
            // A person said something here, and it cannot be read: nothing new until they say it again.
            tracing::error!("{error}: drained until `leasehold-worker resume`");
            true
        }
    };
    let inbox = Inbox::open(&path)?;
    let mut faults = Faults::default();
    let (asks, fault) = PendingClaims::read_or_quarantine(state.dir(), inbox.quarantine())?;
    if let Some(fault) = fault {
        faults.found(format!("{fault}: asking anew"), clock.utc());
    }
    let records = read_inbox(&inbox, |fault| faults.found(fault, clock.utc()))?;
    let is_known = |attempt| records.iter().any(|record| record.attempt() == attempt);
    for found in orphans::quarantine(state.attempts(), is_known, inbox.quarantine())? {
        faults.found(found, clock.utc());
    }
    let home = find_home(&options.config, &identity, state.attempts())?;
    let groups = home.as_ref().map(|home| home.features().clone()).unwrap_or_default();
    let path_of_jobs = |wanted: bool| wanted.then(|| options.user.path.clone());
    let searched = Searched {
        runtimes: path_of_jobs(options.config.detect_runtimes),
        gpus: path_of_jobs(options.config.gpus == GpuSetting::Auto),
    };
    let found = match options.found.as_ref().filter(|found| found.is_of(&searched)) {
        Some(found) => found.clone(),
        None => Found::here(searched, clock),
    };
    let gpus = match &options.config.gpus {
        GpuSetting::Auto => found.gpus(),
        GpuSetting::Off => Vec::new(),
        GpuSetting::Declared(gpus) => gpus.clone(),
    };
    let labels = options.config.labels.clone();
    let capabilities = detect::detect(&found, gpus, &path, groups, labels).map_err(|errors| {
        RunError::Capabilities(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(256));
    let config = Config {
        worker: identity.worker.clone(),
        boot: boot.clone(),
        capabilities,
        max_runs: options.config.slots.unwrap_or(cores).clamp(1, 256),
        inbox_records: options.config.inbox_records.max(2 * usize::from(options.config.slots.unwrap_or(cores))),
        drain_timeout: options.config.drain_timeout,
        run_as: options.config.run_as.iter().cloned().collect::<BTreeSet<_>>(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        spell: client::spell,
    };
    let client = Client::new(&identity).map_err(|error| RunError::Tls(error.to_string()))?;
    let default_user = if root && !allow_root { options.config.run_as.first().cloned() } else { None };
    let recovered = Recovered { session, asks, records, drained_here, faults: in_quarantine(&inbox)? };
    Ok(Start {
        state: Arc::new(state),
        inbox,
        client: Arc::new(client),
        engine: Engine::new(config, Box::new(entropy), recovered),
        surroundings: Arc::new(Surroundings {
            program: options.launcher.clone(),
            user: options.user.clone(),
            worker: identity.worker,
            boot,
            default_user,
            home,
        }),
        faults,
        found,
        _twin: twin,
    })
}

/// Where control groups are made, with what earlier lives left there removed.
fn find_home(config: &WorkerConfig, identity: &Identity, attempts: &Path) -> Result<Option<Home>, RunError> {
    let name = Home::name(&identity.trust_domain, &identity.worker);
    let machine = match CgroupMachine::read() {
        Ok(machine) => machine,
        Err(error) => {
            tracing::warn!("the control groups of this machine cannot be asked for: {error}");
            return Ok(None);
        }
    };
    let home = match around(CGROUP_HOME, || -> std::io::Result<_> { Ok(Home::find(&config.cgroup, &name, &machine)) }) {
        Ok(found) => found?,
        Err(error) => {
            tracing::warn!("no control groups can be made: {error}");
            None
        }
    };
    if let Some(home) = &home {
        let features: Vec<_> = home.features().iter().map(String::as_str).collect();
        tracing::info!("control groups in {}: {}", home.directory().display(), features.join(", "));
        home.sweep(|attempt| attempts.join(attempt.to_string()).exists());
    } else {
        tracing::info!("jobs get no control groups of their own");
    }
    Ok(home)
}

/// What was moved away, now or before, and nobody has looked at.
fn in_quarantine(inbox: &Inbox) -> Result<Vec<(FaultKind, String)>, DurableError> {
    let names = inbox.quarantined()?;
    let Some(first) = names.first() else { return Ok(Vec::new()) };
    let text = format!(
        "files in quarantine: {}, the first is {first}; see `leasehold-worker quarantine`, discard them, then send SIGHUP",
        names.len()
    );
    Ok(vec![(FaultKind::Quarantined, text)])
}

fn read_inbox(inbox: &Inbox, mut found: impl FnMut(String)) -> Result<Vec<crate::inbox::record::Record>, DurableError> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = inbox.page(after.as_deref())?;
        page.quarantined.into_iter().for_each(&mut found);
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            return Ok(records);
        }
    }
}
