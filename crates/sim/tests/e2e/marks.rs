//! What jobs wrote down about themselves: the truth that the product's word is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::eventually::eventually;
use leasehold_sim::seed::Seed;
use serde_json::json;

/// What one attempt wrote about itself: the process ids of its starts and of its ends.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) starts: Vec<String>,
    pub(crate) ends: Vec<String>,
}

/// The file that the jobs of one round write to.
pub(crate) struct Marks(PathBuf);

impl Marks {
    pub(crate) fn new(cluster: &Cluster, seed: &mut Seed) -> Self {
        Self(cluster.directory().join(format!("marks-{}", seed.below(u64::MAX))))
    }

    pub(crate) fn file(&self) -> &Path {
        &self.0
    }

    /// Submits jobs that write a line, take some hundredths of a second, and write another line.
    pub(crate) fn submit(&self, cluster: &Cluster, jobs: u64, seed: &mut Seed) -> BTreeSet<String> {
        let line = |what: &str| format!("echo {what} $LEASEHOLD_RUN_ID $LEASEHOLD_ATTEMPT $$ >>{}", self.0.display());
        let script = format!("{}; sleep 0.0{}; {}", line("start"), 1 + seed.below(9), line("end"));
        // Thousands of them: a process for each would take longer than what is tested.
        let body = json!({ "revision": { "command": { "argv": ["sh", "-c", script] } } });
        (0..jobs).map(|_| cluster.submit_over_the_socket(&body)).collect()
    }

    /// The moment is a fact, too: so many lines are written, and then as many instructions of ours pass.
    pub(crate) fn wait_for_lines(&self, lines: usize) -> Result<()> {
        eventually(&format!("{lines} lines"), || {
            let written = std::fs::read_to_string(&self.0).unwrap_or_default().lines().count();
            if written >= lines { Ok(()) } else { Err(written.to_string()) }
        })
    }

    /// One start and the same process's end for each run, and nothing else.
    pub(crate) fn check_one_whole_life_of_each(&self, runs: &BTreeSet<String>) -> Result<()> {
        let lives = lives(&self.0)?;
        for ((run, attempt), life) in &lives {
            assert!(runs.contains(run), "a start of a run that nobody submitted: {run}");
            assert_eq!(life.starts.len(), 1, "run {run} attempt {attempt}: {life:?}");
            assert_eq!(life.starts, life.ends, "run {run} attempt {attempt} was carried to its own end");
        }
        let started: BTreeSet<&String> = lives.keys().map(|(run, _)| run).collect();
        assert_eq!(started.len(), runs.len(), "every run was started");
        // A second attempt is right only after a first that provably never started.
        assert_eq!(lives.len(), runs.len(), "one start for each run: {lives:?}");
        Ok(())
    }
}

/// The lives in a file of `start RUN ATTEMPT PID` and `end RUN ATTEMPT PID` lines, by run and attempt.
pub(crate) fn lives(file: &Path) -> Result<BTreeMap<(String, String), Life>> {
    let mut lives: BTreeMap<(String, String), Life> = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, run, attempt, pid] = words.as_slice() else { bail!("a torn line: {line}") };
        let life = lives.entry(((*run).to_owned(), (*attempt).to_owned())).or_default();
        let list = if *what == "start" { &mut life.starts } else { &mut life.ends };
        list.push((*pid).to_owned());
    }
    Ok(lives)
}
