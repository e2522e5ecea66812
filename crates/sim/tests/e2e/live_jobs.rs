//! Jobs that live until a test lets them go, and write what can be compared: one start, their own exit code, a log without a
//! hole.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::eventually::eventually;
use leasehold_sim::process;
use leasehold_sim::seed::Seed;

/// What one job is, and what it writes beside its log.
struct Job {
    run: String,
    exit: u8,
    starts: PathBuf,
    written: PathBuf,
}

pub(crate) struct LiveJobs {
    gate: PathBuf,
    jobs: Vec<Job>,
}

impl LiveJobs {
    /// Submits them and waits until they run.
    pub(crate) fn start(cluster: &Cluster, jobs: u8, seed: &mut Seed) -> Result<Self> {
        let home = cluster.directory().join(format!("live-{}", seed.below(u64::MAX)));
        fs::create_dir(&home)?;
        let gate = home.join("gate");
        let mut live = Self { gate, jobs: Vec::new() };
        for number in 1..=jobs {
            let file = |what: &str| home.join(format!("{number}.{what}"));
            let (starts, written) = (file("starts"), file("written"));
            // What it writes is random, and none of it text; the same bytes go to a file and to its standard output.
            let script = format!(
                "echo $$ >>{}; until [ -e {} ]; do head -c 200 /dev/urandom | tee -a {}; sleep 0.0{}; done; exit {number}",
                starts.display(),
                live.gate.display(),
                written.display(),
                1 + seed.below(9),
            );
            let run = cluster.submit(&["--", "sh", "-c", &script]);
            live.jobs.push(Job { run, exit: number, starts, written });
        }
        for job in &live.jobs {
            cluster.wait_for_state(&job.run, "running")?;
        }
        Ok(live)
    }

    pub(crate) fn check_one_start_each(&self) -> Result<()> {
        for Job { run, starts, .. } in &self.jobs {
            ensure!(fs::read_to_string(starts)?.lines().count() == 1, "run {run} started again");
        }
        Ok(())
    }

    /// Lets them go: each ends as it says, in its one attempt, and its log is what it wrote.
    pub(crate) fn end_whole(self, cluster: &Cluster) -> Result<()> {
        fs::write(&self.gate, "")?;
        for Job { run, exit, written, .. } in &self.jobs {
            let found = cluster.wait_for_state(run, "failed")?;
            assert_eq!(found["outcome"]["exit_code"], *exit, "{found}");
            assert_eq!(found["attempts"].as_array().map(Vec::len), Some(1), "{found}");
            eventually("a complete log", || {
                let found = cluster.json(&["runs", "get", run]);
                if found["attempts"][0]["log"]["state"] == "complete" { Ok(()) } else { Err(found.to_string()) }
            })?;
            assert!(log_of(cluster, run)? == fs::read(written)?, "the log of run {run} is what it wrote");
        }
        self.check_one_start_each()
    }
}

/// The bytes of a log.
pub(crate) fn log_of(cluster: &Cluster, run: &str) -> Result<Vec<u8>> {
    let file = cluster.directory().join(format!("{run}.log"));
    let mut command = Command::new("sh");
    let leasehold = cluster.leasehold();
    command.args(["-c", "exec \"$0\" runs logs \"$1\" >\"$2\""]).arg(leasehold.get_program()).arg(run).arg(&file);
    process::run(command.current_dir(cluster.directory()))?.expect_code(0);
    Ok(fs::read(file)?)
}
