//! The example for Kubernetes, held against the schemas of its API: an unknown or misplaced field is refused.
//!
//! `kubernetes-validate` brings the schemas along, so no cluster is asked. It comes from Python's package index, into the target directory.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::checkout::{root, run, target_directory};

const VALIDATOR: &str = "kubernetes-validate==1.37.0";

/// Validates every manifest of `deploy/kubernetes`.
pub(crate) fn check() -> Result<()> {
    let home = target_directory()?.join("kubernetes-validate");
    let validator = home.join("bin/kubernetes-validate");
    if !validator.is_file() {
        install(&home)?;
    }
    let mut manifests: Vec<_> =
        std::fs::read_dir(root().join("deploy/kubernetes"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    manifests.sort();
    run(Command::new(validator).env("PYTHONPATH", &home).args(["--strict", "--quiet"]).args(manifests))
}

/// Into a directory of its own, so that nothing of the machine changes; `venv` would ask Debian for one package more.
fn install(home: &Path) -> Result<()> {
    let mut pip = Command::new("pip3");
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"]).arg(home).arg(VALIDATOR);
    run(&mut pip).context("the validator of the Kubernetes example is not installed")
}
