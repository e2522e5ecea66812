//! The load: jobs submitted one after another while the faults come, some cancelled, all of them watched.
//!
//! A call that is not answered is repeated with the same key, as a client of the product would.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::api::Api;
use super::boot_millis;
use super::history::{EVERY, Submitted};
use super::jobs::Job;

/// How the load is made.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) api: Api,
    pub(crate) seed: u64,
    /// The program of the jobs.
    pub(crate) program: PathBuf,
    /// Where they write.
    pub(crate) marks: PathBuf,
    /// Runs that are open at once.
    pub(crate) open: usize,
}

/// What was submitted and seen.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) submitted: BTreeMap<String, Submitted>,
    pub(crate) seen_over: BTreeMap<(String, u64), u64>,
    /// Refusals that no client should meet.
    pub(crate) surprises: Vec<String>,
    to_cancel: Vec<(u64, String)>,
}

const OPEN: &str = "state=pending&state=dispatching&state=running&state=retry_wait";

impl Load {
    /// Submits until it is over, then watches until it is `settled`.
    pub(crate) fn run(&self, over: &AtomicBool, settled: &AtomicBool) -> Loaded {
        let mut loaded = Loaded::default();
        let mut number = 0;
        while !settled.load(Ordering::Relaxed) {
            pause();
            self.cancel_what_is_due(&mut loaded);
            let Ok(open) = self.api.json(&format!("/api/v1/runs?{OPEN}&limit=64")) else { continue };
            let now = boot_millis();
            let items = open["items"].as_array().cloned().unwrap_or_default();
            let mut open = BTreeSet::new();
            for item in &items {
                let (Some(run), Some(latest)) = (item["id"].as_str(), item["attempt"].as_u64()) else { continue };
                open.insert(run);
                // The latest of a run that waits before its next is over as well.
                let over = if item["state"] == "retry_wait" { latest } else { latest - 1 };
                if over > 0 {
                    loaded.seen_over.entry((run.to_owned(), over)).or_insert(now);
                }
            }
            for run in loaded.submitted.keys().filter(|run| !open.contains(run.as_str())) {
                loaded.seen_over.entry((run.clone(), EVERY)).or_insert(now);
            }
            let room = self.open.saturating_sub(open.len());
            for _ in 0..room {
                if over.load(Ordering::Relaxed) || !self.submit(number, &mut loaded) {
                    break;
                }
                number += 1;
            }
        }
        loaded
    }

    /// Whether it was accepted; else it is tried again under the same number.
    fn submit(&self, number: u64, loaded: &mut Loaded) -> bool {
        let job = Job::drawn(self.seed, number);
        let body = job.submission(&self.program, &self.marks);
        match self.api.submit(&format!("chaos-{number}"), &body) {
            Ok(run) => {
                if let Some(after) = job.cancel_after {
                    loaded.to_cancel.push((boot_millis() + after, run.clone()));
                }
                loaded.submitted.insert(run, Submitted { job, cancelled: false });
                true
            }
            Err(error) => {
                let text = format!("{error:#}");
                if text.starts_with('4') {
                    loaded.surprises.push(format!("job {number} was refused: {text}"));
                }
                false
            }
        }
    }

    fn cancel_what_is_due(&self, loaded: &mut Loaded) {
        let now = boot_millis();
        let due: Vec<String> = loaded.to_cancel.extract_if(.., |(at, _)| *at <= now).map(|(_, run)| run).collect();
        for run in due {
            let answer = self.api.cancel(&run);
            if let Some(submitted) = loaded.submitted.get_mut(&run) {
                // Without an answer it may have been taken all the same.
                submitted.cancelled |= *answer.as_ref().unwrap_or(&true);
            }
            if answer.is_err() {
                loaded.to_cancel.push((now, run));
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the product")]
fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}
