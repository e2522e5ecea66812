//! What a job sees of its surroundings: a clean environment, the revision's variables, and `LEASEHOLD_*`.
//!
//! Nothing of the agent's own environment reaches a job but the four values of [`UserEnvironment`]. Later layers
//! win, so a revision may set `PATH`, and never `LEASEHOLD_FENCE`. (Decisions, *Directories and environment*;
//! product, *A task file*.)

use std::collections::BTreeMap;
use std::path::Path;

use leasehold_core::chain::After;
use leasehold_core::counter::{AttemptNumber, FenceNumber};
use leasehold_core::device::Devices;
use leasehold_core::id::{RunId, TaskName, WorkerId};
use leasehold_core::time::UtcMillis;

use crate::logging::rfc3339;

/// A search path where the agent has none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What every job inherits, chosen by the binary from its own environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEnvironment {
    /// `PATH`.
    pub path: String,
    /// `HOME`.
    pub home: String,
    /// `LANG`.
    pub lang: String,
    /// `USER`.
    pub user: String,
}

impl Default for UserEnvironment {
    fn default() -> Self {
        Self {
            path: DEFAULT_PATH.to_owned(),
            home: "/".to_owned(),
            lang: "C.UTF-8".to_owned(),
            user: "nobody".to_owned(),
        }
    }
}

/// What a job is told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts<'a> {
    /// `LEASEHOLD_RUN_ID`.
    pub run: RunId,
    /// `LEASEHOLD_ATTEMPT`.
    pub attempt_number: AttemptNumber,
    /// `LEASEHOLD_FENCE`: pass it to your own database to fence late writers.
    pub fence: FenceNumber,
    /// `LEASEHOLD_WORKER`.
    pub worker: &'a WorkerId,
    /// `LEASEHOLD_OUTPUT`: files put here become artifacts.
    pub output: &'a Path,
    /// `LEASEHOLD_TASK`, where the run has one.
    pub task: Option<&'a TaskName>,
    /// `LEASEHOLD_SCHEDULED_AT` (RFC 3339, UTC): the fire time, where a schedule made the run.
    pub scheduled_at: Option<UtcMillis>,
    /// `LEASEHOLD_DEVICES` and `CUDA_VISIBLE_DEVICES`, where it has devices for itself.
    pub devices: &'a Devices,
    /// `LEASEHOLD_AFTER`, where the run follows others.
    pub after: Option<&'a After>,
}

/// The variable that names the run; with [`ATTEMPT_VARIABLE`] it marks a job's processes.
pub const RUN_VARIABLE: &str = "LEASEHOLD_RUN_ID";
/// The variable that names the attempt of the run.
pub const ATTEMPT_VARIABLE: &str = "LEASEHOLD_ATTEMPT";

/// The public environment of a job; `variables` are the revision's own.
pub fn job_environment(
    user: &UserEnvironment,
    variables: &BTreeMap<String, String>,
    facts: &JobFacts<'_>,
) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    let mut set = |name: &str, value: String| environment.insert(name.to_owned(), value);
    set("PATH", user.path.clone());
    set("HOME", user.home.clone());
    set("LANG", user.lang.clone());
    set("USER", user.user.clone());
    for (name, value) in variables {
        set(name, value.clone());
    }
    set(RUN_VARIABLE, facts.run.to_string());
    set(ATTEMPT_VARIABLE, facts.attempt_number.to_string());
    set("LEASEHOLD_FENCE", facts.fence.to_string());
    set("LEASEHOLD_WORKER", facts.worker.to_string());
    set("LEASEHOLD_OUTPUT", facts.output.to_string_lossy().into_owned());
    if let Some(task) = facts.task {
        set("LEASEHOLD_TASK", task.to_string());
    }
    if let Some(scheduled_at) = facts.scheduled_at {
        set("LEASEHOLD_SCHEDULED_AT", fire_time(scheduled_at));
    }
    if !facts.devices.is_empty() {
        let devices = facts.devices.to_string();
        set("LEASEHOLD_DEVICES", devices.clone());
        // What is not among them is another job's. Numbers mean what `nvidia-smi` means by them.
        set("CUDA_VISIBLE_DEVICES", devices);
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    }

    if let Some(after) = facts.after {
        set("LEASEHOLD_AFTER", after.to_string());
    }
    environment
}

/// As the operator API writes it: of a whole second without a fraction.
fn fire_time(at: UtcMillis) -> String {
    let text = rfc3339(at);
    match text.strip_suffix(".000Z") {
        Some(whole) => format!("{whole}Z"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_may_set_its_path_but_never_its_fence_nor_its_devices() {
        let said =
            [("PATH", "/opt/bin"), ("LEASEHOLD_FENCE", "99"), ("TZ", "UTC"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3")];
        let variables = said.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let worker = "nas".parse().unwrap();
        let after: After = "a=01900000-0000-7000-8000-000000000001".parse().unwrap();
        let facts = JobFacts {
            run: "01900000-0000-7000-8000-000000000000".parse().unwrap(),
            attempt_number: AttemptNumber::FIRST,
            fence: FenceNumber::FIRST,
            worker: &worker,
            output: Path::new("/state/output"),
            task: None,
            scheduled_at: Some(UtcMillis::new(951_782_400_000)),
            devices: &"GPU-8f1c0c52,GPU-0a5b8c9d".parse().unwrap(),
            after: Some(&after),
        };
        let environment = job_environment(&UserEnvironment::default(), &variables, &facts);
        assert_eq!(environment["PATH"], "/opt/bin");
        assert_eq!(environment["LEASEHOLD_FENCE"], "1");
        assert_eq!(environment["TZ"], "UTC");
        assert_eq!(environment["HOME"], "/");
        for variable in ["CUDA_VISIBLE_DEVICES", "LEASEHOLD_DEVICES"] {
            assert_eq!(environment[variable], "GPU-8f1c0c52,GPU-0a5b8c9d");
        }
        let none = job_environment(
            &UserEnvironment::default(),
            &variables,
            &JobFacts { devices: &Devices::default(), ..facts },
        );
        assert_eq!(none["CUDA_VISIBLE_DEVICES"], "0,1,2,3", "who has none is not kept from saying so");
        assert!(!none.contains_key("LEASEHOLD_DEVICES"));
        assert!(!environment.contains_key("LEASEHOLD_TASK"));
        assert_eq!(environment["LEASEHOLD_SCHEDULED_AT"], "2000-02-29T00:00:00Z");
        assert_eq!(fire_time(UtcMillis::new(1500)), "1970-01-01T00:00:01.500Z", "`@every 1500ms`");
        assert_eq!(environment["LEASEHOLD_AFTER"], "a=01900000-0000-7000-8000-000000000001");
    }
}
