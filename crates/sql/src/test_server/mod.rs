//! A private PostgreSQL server for tests: started by the test, on a directory and a port of its own, gone with it.
//!
//! What tests prove is only worth something on a server that keeps its word, so `fsync` stays on. The server runs as an
//! unprivileged user, speaks to loopback alone, and ends with the process that started it, however that ends (see
//! [`watchdog`]). Never in a released binary: the feature `test-server` is for tests.

mod counters;
mod database;
mod measure;
mod programs;
mod standby;
mod watchdog;

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

pub use counters::Counters;
pub use database::TestDatabase;
pub use measure::{Laps, PlainRows};
use programs::Programs;
use watchdog::Watchdog;

/// The superuser, for tests that look at the server itself.
const SUPERUSER: &str = "postgres";
/// The role that owns the databases of tests: an ordinary one, as the product gets.
const ROLE: &str = "leasehold";
/// The password of both; telling, so that a test can look for it where it must not be.
pub const PASSWORD: &str = "password-that-nobody-may-print";
/// The ports that servers are given: below those that the kernel hands out for connections, above those of other tests.
const PORTS: std::ops::Range<u16> = 30_000..32_700;

const CONFIGURATION: &str = "\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = '32MB'
max_wal_size = '256MB'
wal_level = replica
max_wal_senders = 8
wal_log_hints = on
hot_standby = on
fsync = on
full_page_writes = on
synchronous_commit = on
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d '
";

/// What went wrong with the server.
#[derive(Debug, thiserror::Error)]
#[error("the test server: {0}")]
pub struct TestServerError(String);

impl From<io::Error> for TestServerError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

type Result<T> = std::result::Result<T, TestServerError>;

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Sessions are ended, transactions rolled back, a checkpoint written.
    Fast,
    /// Everything ends at once; the next start recovers from the write-ahead log.
    Immediate,
}

/// A PostgreSQL server of this process. Ended, and its directory removed, when it is dropped or the process is gone.
#[derive(Debug)]
pub struct TestServer {
    programs: Programs,
    directory: PathBuf,
    port: u16,
    databases: AtomicU32,
    templates: Mutex<Vec<String>>,
    /// Ends the server and removes the directory; last.
    _watchdog: Watchdog,
}

impl TestServer {
    /// Starts a server.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same, with more settings.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self> {
        Self::start_with_files(settings, &[])
    }

    /// The same, with files that settings may name: they are the server's alone, and stand beside its data directory.
    pub fn start_with_files(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Self> {
        let server = Self::prepare(Programs::find()?)?;
        for (name, text) in files {
            let file = server.directory.join(name);
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
            server.programs.give(&file)?;
        }
        let password = server.directory.join("password");
        fs::write(&password, PASSWORD)?;
        let mut initdb = server.programs.command("initdb", &server.directory);
        // Nobody's data yet: only the running server's writes have to survive.
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--username", SUPERUSER]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
        initdb.arg("--pwfile").arg(&password).arg("--pgdata").arg(server.data());
        run(&mut initdb)?;
        server.configure(settings)?;
        server.start_again()?;
        server.query("postgres", &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"))?;
        Ok(server)
    }

    /// Whether PostgreSQL is installed. Where it is not, `test` is skipped and says so; in CI (`CI` is set) that is a failure,
    /// or a check would be green that never ran.
    ///
    /// # Panics
    ///
    /// In CI, when it is not installed.
    #[expect(clippy::disallowed_methods, reason = "CI tells itself through the environment")]
    pub fn is_there_or_skip(test: &str) -> bool {
        let Err(error) = Programs::find() else { return true };
        assert!(std::env::var_os("CI").is_none(), "{test} must run in CI: {error}");
        eprintln!("skipped: {test}: {error}; `cargo xtask environment` installs it");
        false
    }

    /// The one server that all tests of this process share, started by the first that asks; none where `test` is skipped
    /// ([`Self::is_there_or_skip`]).
    ///
    /// # Panics
    ///
    /// When the server cannot be started, and in CI, when it is not installed.
    pub fn shared_or_skip(test: &str) -> Option<&'static Self> {
        static SHARED: OnceLock<TestServer> = OnceLock::new();
        Self::is_there_or_skip(test)
            .then(|| SHARED.get_or_init(|| Self::start().unwrap_or_else(|error| panic!("{error}"))))
    }

    /// A directory and a port; nothing in it yet.
    fn prepare(programs: Programs) -> Result<Self> {
        let directory = own_directory(&programs)?;
        let watchdog = Watchdog::over(&directory)?;
        Ok(Self {
            programs,
            directory,
            port: free_port()?,
            databases: AtomicU32::new(0),
            templates: Mutex::new(Vec::new()),
            _watchdog: watchdog,
        })
    }

    fn configure(&self, settings: &[(&str, &str)]) -> Result<()> {
        use io::Write as _;
        let mut file = fs::OpenOptions::new().append(true).open(self.data().join("postgresql.conf"))?;
        writeln!(file, "{CONFIGURATION}port = {}", self.port)?;
        for (name, value) in settings {
            writeln!(file, "{name} = '{}'", value.replace('\'', "''"))?;
        }
        Ok(())
    }

    /// Starts the server after it was stopped or killed, on the same port, and waits until it answers.
    pub fn start_again(&self) -> Result<()> {
        self.control(&["start", "--wait", "--timeout=60", "--log"], Some(&self.log_file()))
    }

    /// Stops the server, and waits until it has.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        let mode = match mode {
            StopMode::Fast => "--mode=fast",
            StopMode::Immediate => "--mode=immediate",
        };
        self.control(&["stop", "--wait", "--timeout=60", mode], None)
    }

    /// Kills every process of the server as a crash of the machine would, and waits until they are gone.
    pub fn kill(&self) -> Result<()> {
        watchdog::kill(&self.data()).map_err(TestServerError)
    }

    /// How clients reach a database of this server, as the product's role.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@{}/{database}", self.address())
    }

    /// `host:port`, for a proxy in between.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        fs::read(self.log_file()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn control(&self, arguments: &[&str], last: Option<&Path>) -> Result<()> {
        let mut command = self.programs.command("pg_ctl", &self.directory);
        command.arg("--silent").arg("--pgdata").arg(self.data()).args(arguments).args(last);
        run(&mut command).map_err(|TestServerError(said)| TestServerError(format!("{said}\n{}", self.log())))
    }
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<()> {
    // A file, not a pipe: the server inherits it, and outlives the program that started it.
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if output.success() { Ok(()) } else { Err(TestServerError(format!("{command:?} ended with {output}"))) }
}

/// A new directory that the server's user owns.
fn own_directory(programs: &Programs) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leasehold-postgres-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                programs.give(&path)?;
                return Ok(path.canonicalize()?);
            }
            // Of an earlier process that had our id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A port that nobody listens on. Two processes may still choose the same one: they begin at different places.
fn free_port() -> Result<u16> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(61)));
    for _ in PORTS {
        let offset = next.fetch_add(1, Ordering::Relaxed) % u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(offset).unwrap_or(0);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(TestServerError("no port is free".to_owned()))
}

#[cfg(test)]
mod tests;
