//! Which binaries a test starts: those it is told (`LEASEHOLD_BIN`, `LEASEHOLD_WORKER_BIN`), or those of this build; and those of
//! the latest release (`LEASEHOLD_PREVIOUS_BIN`, `LEASEHOLD_PREVIOUS_WORKER_BIN`, or `cargo xtask previous-release`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The command line and control plane.
pub fn leasehold() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| told("LEASEHOLD_BIN").unwrap_or_else(|| built("leasehold")))
}

/// The headless worker.
pub fn leasehold_worker() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| told("LEASEHOLD_WORKER_BIN").unwrap_or_else(|| built("leasehold-worker")))
}

/// The command line and control plane of the latest release.
pub fn previous_leasehold() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| told("LEASEHOLD_PREVIOUS_BIN").unwrap_or_else(|| released()[0].clone()))
}

/// The headless worker of the latest release.
pub fn previous_leasehold_worker() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| told("LEASEHOLD_PREVIOUS_WORKER_BIN").unwrap_or_else(|| released()[1].clone()))
}

#[expect(clippy::disallowed_methods, reason = "how the tests are told which binaries to start")]
fn told(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os(variable)?);
    assert!(path.is_file(), "{variable} names {}, which is no file", path.display());
    Some(path)
}

/// Builds those of the latest release; where they are.
fn released() -> &'static [PathBuf; 2] {
    static PATHS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PATHS.get_or_init(|| {
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        cargo.args(["run", "--quiet", "--package", "xtask", "--", "previous-release"]);
        let ended = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output();
        let ended = ended.expect("cargo can be started");
        assert!(ended.status.success(), "`cargo xtask previous-release` ended with {}", ended.status);
        let text = String::from_utf8_lossy(&ended.stdout);
        let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
        paths.try_into().unwrap_or_else(|paths| panic!("two paths were to come, and not {paths:?}"))
    })
}

/// Builds a binary of the workspace in the directory this test was built in; cargo does nothing when it is fresh.
fn built(package: &str) -> PathBuf {
    let test = env::current_exe().expect("a running test has a path");
    // target/<profile>/deps/<test>
    let profile = test.ancestors().nth(2).expect("cargo puts tests three levels deep");
    let target = profile.parent().expect("a profile directory is in the target directory");
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    cargo.args(["build", "--quiet", "--package", package, "--bin", package]).arg("--target-dir").arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo can be started");
    assert!(status.success(), "cargo could not build {package}");
    let path = profile.join(package);
    assert!(path.is_file(), "cargo built {package}, but there is no {}", path.display());
    path
}
