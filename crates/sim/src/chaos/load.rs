//! The load: jobs submitted one after another while the faults come, some cancelled, some resolved by a person when they
//! are lost, all of them watched.
//!
//! A call that is not answered is repeated with the same key, as a client of the product would.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::api::Api;
use super::boot_millis;
use super::history::{EVERY, Submitted, Word};
use super::jobs::Job;

/// How the load is made.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) api: Api,
    pub(crate) seed: u64,
    /// What the job of a number is, for a seed.
    pub(crate) draws: fn(u64, u64) -> Job,
    /// How many jobs there are in all; without end where the faults decide how long there is a load.
    pub(crate) total: u64,
    /// The program of the jobs.
    pub(crate) program: PathBuf,
    /// Where they write.
    pub(crate) marks: PathBuf,
    /// Runs that are open at once.
    pub(crate) open: usize,
}

/// How far a load has come, and how far it may go.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The faults are over: nothing more is submitted.
    pub(crate) over: AtomicBool,
    /// Nothing more will be said; where the load has an end, all of it has ended.
    pub(crate) quiet: AtomicBool,
    /// Nobody need watch any more.
    pub(crate) settled: AtomicBool,
    /// How many jobs were accepted.
    pub(crate) accepted: AtomicU64,
}

/// What was submitted and seen.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) submitted: BTreeMap<String, Submitted>,
    pub(crate) seen_over: BTreeMap<(String, u64), u64>,
    /// Refusals that no client should meet.
    pub(crate) surprises: Vec<String>,
    /// The latest submission was not answered: nobody knows yet whether it was accepted.
    in_doubt: bool,
    to_cancel: Vec<(u64, String)>,
    /// When a run's attempt was first seen to be lost.
    lost: BTreeMap<(String, u64), u64>,
}

const UNSETTLED: &str = "state=pending&state=dispatching&state=running&state=retry_wait&state=lost";

impl Load {
    /// Submits and speaks until it is over, says that it is quiet, then watches until it is settled.
    pub(crate) fn run(&self, progress: &Progress) -> Loaded {
        let Progress { over, quiet, settled, accepted } = progress;
        let mut loaded = Loaded::default();
        let mut number = 0;
        while !settled.load(Ordering::Relaxed) {
            pause();
            self.cancel_what_is_due(&mut loaded);
            let Ok(items) = self.api.list(&format!("/api/v1/runs?{UNSETTLED}")) else { continue };
            let now = boot_millis();
            let (mut open, mut lost) = (BTreeSet::new(), Vec::new());
            for item in &items {
                let (Some(run), Some(latest)) = (item["id"].as_str(), item["attempt"].as_u64()) else { continue };
                // The latest of a run that waits before its next is over as well, and of one that waits for a person.
                let over = match item["state"].as_str() {
                    Some("retry_wait") => latest,
                    Some("lost") => {
                        lost.push((run.to_owned(), latest));
                        latest
                    }
                    _ => latest - 1,
                };
                if over > 0 {
                    loaded.seen_over.entry((run.to_owned(), over)).or_insert(now);
                }
                open.insert(run);
            }
            for run in loaded.submitted.keys().filter(|run| !open.contains(run.as_str())) {
                loaded.seen_over.entry((run.clone(), EVERY)).or_insert(now);
            }
            if number == self.total && open.is_empty() {
                quiet.store(true, Ordering::Relaxed);
            }
            let open = open.len() - lost.len();
            if !over.load(Ordering::Relaxed) {
                self.say_what_is_due(&mut loaded, lost);
            } else if !loaded.in_doubt {
                quiet.store(true, Ordering::Relaxed);
            }
            let room = self.open.saturating_sub(open);
            for _ in 0..room {
                let ends = number == self.total || over.load(Ordering::Relaxed) && !loaded.in_doubt;
                if ends || !self.submit(number, &mut loaded) {
                    break;
                }
                number += 1;
                accepted.store(number, Ordering::Relaxed);
            }
        }
        loaded
    }

    /// Whether it was accepted; else it is tried again under the same number.
    fn submit(&self, number: u64, loaded: &mut Loaded) -> bool {
        let job = (self.draws)(self.seed, number);
        let body = job.submission(&self.program, &self.marks);
        let answer = self.api.submit(&format!("chaos-{number}"), &body);
        loaded.in_doubt = false;
        match answer {
            Ok(run) => {
                if let Some(after) = job.cancel_after {
                    loaded.to_cancel.push((boot_millis() + after, run.clone()));
                }
                loaded.submitted.insert(run, Submitted { job, cancelled: false, words: Vec::new() });
                true
            }
            Err(error) => {
                let text = format!("{error:#}");
                loaded.in_doubt = !text.starts_with('4');
                if !loaded.in_doubt {
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

    /// A person looks at the lost runs, and says what is drawn for each.
    fn say_what_is_due(&self, loaded: &mut Loaded, lost: Vec<(String, u64)>) {
        let now = boot_millis();
        for (run, attempt) in lost {
            let seen = *loaded.lost.entry((run.clone(), attempt)).or_insert(now);
            let Some(submitted) = loaded.submitted.get_mut(&run) else { continue };
            let due = submitted.job.word_about(attempt).filter(|(_, after)| seen + after <= now);
            let Some((verb, _)) = due else { continue };
            let said = submitted.words.iter().position(|word| word.attempt == attempt);
            let place = said.unwrap_or_else(|| {
                submitted.words.push(Word { attempt, verb, times: 0, taken: None });
                submitted.words.len() - 1
            });
            let word = &mut submitted.words[place];
            if word.taken.is_none() {
                word.times += 1;
                word.taken = self.api.resolve(&run, attempt, verb).ok();
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the product")]
fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}
