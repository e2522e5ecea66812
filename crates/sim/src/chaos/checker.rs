//! Compares what the jobs wrote down with what the product says: every invariant of the design's proof that can be seen
//! from outside. Pure: a history in, its violations out; each check has a test with a history that it must refuse.
//!
//! [`JUDGED`] says of each of the twelve what is seen here, and what is not and why.

mod evidence;
mod judged;
mod person;
mod truth;

use std::collections::BTreeMap;
use std::fmt;

use super::fault::{Fault, worker_name};
use super::history::{Attempt, History, Life, Run, Span, Submitted};
use super::jobs::{GRACE, OnLost, Stream, output};
use evidence::unfounded;
pub(crate) use judged::JUDGED;
use person::{retried, started_while_drained, unheard};
use truth::{unjustified, unlike_its_outcome, untrue};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its number in the list of the proof.
    pub(crate) invariant: u8,
    /// Of which run.
    pub(crate) run: Option<String>,
    pub(crate) sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.invariant, self.sentence)?;
        match &self.run {
            Some(run) => write!(f, " (run {run})"),
            None => Ok(()),
        }
    }
}

/// By then after its end, a log is shipped if its machine is there, in milliseconds.
const SHIPPED: u64 = 60_000;
/// After a stop and its grace, everything is gone within this, in milliseconds.
const GONE: u64 = 2_000;

type Lives<'a> = BTreeMap<(&'a str, u64), Life>;
/// Run and attempt, and when its process lived.
type Lived<'a> = (&'a str, u64, Span);

/// Every violation of a history.
pub(crate) fn violations(history: &History) -> Vec<Violation> {
    let lives = history.lives();
    let mut found = Found { history, violations: Vec::new() };
    found.starts(&lives);
    found.overlaps(&lives);
    found.over_means_over(&lives);
    found.nothing_is_forgotten();
    for run in &history.runs {
        if let Some(submitted) = history.submitted.get(&run.id) {
            found.settled(run, submitted);
            found.truth(run, submitted, &lives);
            found.time_limit(run, submitted, &lives);
            found.logs(run, submitted, &lives);
            found.story_is_one(run);
            found.cancel_before_start(run, &lives);
            for sentence in unheard(run, submitted) {
                found.add(3, Some(&run.id), sentence);
            }
        }
    }
    found.slots(&lives);
    found.limits(&lives);
    for (run, sentence) in started_while_drained(history) {
        found.add(11, Some(&run), sentence);
    }
    found.copies();
    for leak in &history.leaks {
        found.add(7, None, leak.clone());
    }
    for contradiction in &history.contradictions {
        found.add(6, None, format!("the database contradicts itself: {contradiction}"));
    }
    for left in history.left.iter().chain(&history.ends) {
        found.add(9, None, left.clone());
    }
    found.violations
}

/// Every violation of a history in which nothing may be lost and nobody has to say anything: each run started once and
/// succeeded, whatever was killed meanwhile.
pub(crate) fn violations_where_all_succeed(history: &History) -> Vec<Violation> {
    let lives = history.lives();
    let mut found = Found { history, violations: violations(history) };
    for run in &history.runs {
        if run.state != "succeeded" {
            found.add(3, Some(&run.id), format!("it should have succeeded, and is {}", run.state));
        }
        let starts: usize = lives.iter().filter(|((of, _), _)| *of == run.id).map(|(_, life)| life.starts.len()).sum();
        if starts != 1 {
            found.add(1, Some(&run.id), format!("its program was started {starts} times, and nothing of it was lost"));
        }
    }
    found.violations
}

struct Found<'a> {
    history: &'a History,
    violations: Vec<Violation>,
}

impl Found<'_> {
    fn add(&mut self, invariant: u8, run: Option<&str>, sentence: String) {
        self.violations.push(Violation { invariant, run: run.map(str::to_owned), sentence });
    }

    /// 1: at most one process per attempt. Also: fence numbers grow, and a start is of the worker that has the attempt.
    fn starts(&mut self, lives: &Lives<'_>) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for ((run, number), life) in lives {
            if life.starts.len() > 1 {
                self.add(1, Some(run), format!("attempt {number} was started {} times", life.starts.len()));
            }
            for fence in &life.starts {
                if last.insert(run, *fence).is_some_and(|before| before >= *fence) {
                    self.add(1, Some(run), format!("attempt {number} has fence number {fence}, which is not higher"));
                }
            }
            let said = self.history.run(run).and_then(|run| run.attempts.iter().find(|said| said.number == *number));
            let Some(said) = said else {
                self.add(1, Some(run), format!("attempt {number} ran and the product does not know it"));
                continue;
            };
            if said.worker.as_ref() != Some(&life.worker) {
                let text = format!("attempt {number} ran on {}, and is said to be {:?}'s", life.worker, said.worker);
                self.add(1, Some(run), text);
            }
        }
    }

    /// 2: two attempts of one run live at once only where it is allowed by name.
    fn overlaps(&mut self, lives: &Lives<'_>) {
        let lives: Vec<_> = lives.iter().collect();
        for (index, ((run, earlier), first)) in lives.iter().enumerate() {
            for ((_, later), second) in lives[index + 1..].iter().take_while(|((other, _), _)| other == run) {
                let of_first = [Some(first.main), first.daemons];
                let of_second = [Some(second.main), second.daemons];
                for (is_daemon, span) in [false, true].into_iter().zip(of_first) {
                    let Some(span) = span else { continue };
                    let meets = of_second.into_iter().flatten().any(|other| span.overlaps(other));
                    if meets && !(is_daemon && self.descendants_may_survive(run, *earlier)) {
                        let who = if is_daemon { "a daemon of attempt" } else { "attempt" };
                        self.add(2, Some(run), format!("{who} {earlier} lived while attempt {later} did"));
                    }
                }
            }
        }
    }

    /// The exception that this run's faults can cause: contact was lost, the task is safe to repeat, the launcher was
    /// killed and what it had started survived.
    fn descendants_may_survive(&self, run: &str, attempt: u64) -> bool {
        let submitted = self.history.submitted.get(run);
        let said = self.history.run(run).and_then(|run| run.attempts.iter().find(|said| said.number == attempt));
        let safe = |said| submitted.is_some_and(|of| of.job.on_lost == OnLost::Retry || retried(of, said));
        said.is_some_and(|said| safe(said) && said.state == "lost" && self.launcher_was_hit(&said.id))
    }

    fn launcher_was_hit(&self, attempt: &str) -> bool {
        self.history.faults.iter().any(|happened| {
            matches!(happened.fault, Fault::KillLauncher(_) | Fault::FreezeLauncher(_))
                && happened.attempt.as_deref() == Some(attempt)
        })
    }

    /// 2, for whoever reads that an attempt is lost or has ended: by then nothing of it lives, with the same exceptions.
    fn over_means_over(&mut self, lives: &Lives<'_>) {
        for ((run, number), life) in lives {
            let seen = self.history.seen_over.iter().filter(|((of, up_to), _)| of == run && up_to >= number);
            let Some(seen) = seen.map(|(_, at)| *at).min() else { continue };
            let said = self.history.run(run).and_then(|run| run.attempts.iter().find(|said| said.number == *number));
            let excused = said.is_some_and(|said| self.launcher_was_hit(&said.id));
            for span in [Some(life.main), life.daemons.filter(|_| !excused)].into_iter().flatten() {
                if span.to > seen {
                    let late = span.to - seen;
                    self.add(2, Some(run), format!("attempt {number} lived {late} ms after it was seen to be over"));
                }
            }
        }
    }

    /// 3: what was accepted is there, once, and nothing else is.
    fn nothing_is_forgotten(&mut self) {
        for id in self.history.submitted.keys() {
            let times = self.history.runs.iter().filter(|run| run.id == *id).count();
            if times != 1 {
                self.add(3, Some(id), format!("it was accepted, and is listed {times} times"));
            }
        }
        for run in &self.history.runs {
            if !self.history.submitted.contains_key(&run.id) {
                self.add(3, Some(&run.id), "nobody submitted it".to_owned());
            }
        }
    }

    /// 3: terminal, or lost and held with its evidence.
    fn settled(&mut self, run: &Run, submitted: &Submitted) {
        let last = run.attempts.last().and_then(|last| last.outcome.as_ref());
        // What is known of it: evidence, or that its launcher stopped it when its lease was about to end.
        let evidence = last.is_some_and(|last| last.evidence.is_some() || last.reason.as_deref() == Some("lease"));
        let settled = match run.state.as_str() {
            "succeeded" | "failed" | "cancelled" | "timed_out" => run.outcome.is_some(),
            "lost" => submitted.job.on_lost == OnLost::Hold && evidence,
            _ => false,
        };
        if !settled {
            let text =
                format!("it is {} with {:?}, and its policy is {:?}", run.state, run.outcome, submitted.job.on_lost);
            self.add(3, Some(&run.id), text);
        }
        for attempt in &run.attempts {
            let is_terminal = !matches!(attempt.state.as_str(), "pending" | "claimed" | "starting" | "running");
            if settled && !is_terminal {
                self.add(
                    3,
                    Some(&run.id),
                    format!("it is {}, and attempt {} is {}", run.state, attempt.number, attempt.state),
                );
            }
        }
    }

    /// 4: every end is what really happened.
    fn truth(&mut self, run: &Run, submitted: &Submitted, lives: &Lives<'_>) {
        for attempt in &run.attempts {
            let life = lives.get(&(run.id.as_str(), attempt.number));
            let untrue = untrue(self.history, attempt, life, submitted);
            for sentence in untrue.into_iter().chain(unfounded(self.history, run, attempt)) {
                self.add(4, Some(&run.id), format!("attempt {}: {sentence}", attempt.number));
            }
        }
        if let Some(sentence) = unlike_its_outcome(run, submitted) {
            self.add(4, Some(&run.id), sentence);
        }
        for pair in run.attempts.windows(2) {
            let [before, next] = pair else { continue };
            if let Some(sentence) = unjustified(before, next, submitted) {
                self.add(2, Some(&run.id), sentence);
            }
        }
        // Whoever did not say that a second start is safe gets none after a first.
        let started = lives.keys().filter(|(of, _)| *of == run.id).count();
        let asked = run.attempts.iter().filter(|attempt| retried(submitted, attempt)).count();
        if submitted.job.on_lost != OnLost::Retry && started > 1 + asked {
            self.add(
                2,
                Some(&run.id),
                format!("{started} attempts were started, and nobody had said that this is safe"),
            );
        }
    }

    /// 4: a time limit is kept by the launcher, whoever else is frozen, gone or cut off.
    fn time_limit(&mut self, run: &Run, submitted: &Submitted, lives: &Lives<'_>) {
        let Some(limit) = submitted.job.timeout else { return };
        for attempt in &run.attempts {
            if self.launcher_was_hit(&attempt.id) {
                continue;
            }
            let Some(life) = lives.get(&(run.id.as_str(), attempt.number)) else { continue };
            let last = life.daemons.map_or(life.main.to, |daemons| daemons.to.max(life.main.to));
            let lived = last.saturating_sub(life.main.from);
            if lived > limit + GRACE + GONE {
                let text = format!("attempt {} lived {lived} ms with a limit of {limit} ms", attempt.number);
                self.add(4, Some(&run.id), text);
            }
        }
    }

    /// 5: the log is exactly what the processes wrote.
    fn logs(&mut self, run: &Run, submitted: &Submitted, lives: &Lives<'_>) {
        for attempt in &run.attempts {
            let life = lives.get(&(run.id.as_str(), attempt.number));
            let printed = life.map_or(0, |life| life.printed);
            let went = self.went_with_its_machine(attempt, life);
            let ended_itself = attempt.outcome.as_ref().is_some_and(|outcome| outcome.kind == "exited") && !went;
            let said_how = attempt.outcome.as_ref().is_some_and(|outcome| outcome.kind != "lost");
            match attempt.log.state.as_str() {
                "complete" => {}
                "incomplete" if !said_how => {}
                "partial" | "incomplete" if went => {}
                other => {
                    let text = format!("the log of attempt {} is {other} after {:?}", attempt.number, attempt.outcome);
                    self.add(5, Some(&run.id), text);
                }
            }
            for stream in Stream::ALL {
                let (has, whole) =
                    (attempt.log.of(stream), output(&run.id, attempt.number, stream, submitted.job.lines));
                let surely = output(&run.id, attempt.number, stream, printed).len();
                let exact = if ended_itself { has == whole } else { whole.starts_with(has) };
                let misses = attempt.log.state == "complete" && has.len() < surely;
                if !exact || misses {
                    let text = format!(
                        "the {} of attempt {} has {} bytes that are not what it wrote ({surely} to {} bytes)",
                        stream.name(),
                        attempt.number,
                        has.len(),
                        whole.len()
                    );
                    self.add(5, Some(&run.id), text);
                }
            }
        }
    }

    /// Whether the machine went away, for good, before it can have shipped the rest of an attempt's log.
    fn went_with_its_machine(&self, attempt: &Attempt, life: Option<&Life>) -> bool {
        self.history.faults.iter().any(|happened| {
            matches!(happened.fault, Fault::Destroy(_) | Fault::Retire(_))
                && !happened.missed
                && happened.fault.worker().map(worker_name) == attempt.worker
                && life.is_some_and(|life| life.main.from <= happened.until && happened.at <= life.main.to + SHIPPED)
        })
    }

    /// 6: nobody changes what has ended. The order of events is the order of the product's transactions.
    fn story_is_one(&mut self, run: &Run) {
        let mut ended: Vec<&str> = Vec::new();
        let mut run_ended = false;
        for event in &run.events {
            let attempt = event.attempt.as_deref().unwrap_or_default();
            let moves = matches!(
                event.kind.as_str(),
                "attempt.claimed"
                    | "attempt.released"
                    | "claim.expired"
                    | "attempt.starting"
                    | "attempt.running"
                    | "lease.rebound"
            );
            let ends = matches!(event.kind.as_str(), "attempt.ended" | "attempt.lost");
            if (moves || ends) && ended.contains(&attempt) {
                let text =
                    format!("event {} ({}) moved attempt {attempt}, which had ended", event.sequence, event.kind);
                self.add(6, Some(&run.id), text);
            }
            if ends {
                ended.push(attempt);
            }
            if run_ended && matches!(event.kind.as_str(), "run.ended" | "run.lost" | "run.retry_wait" | "run.pending") {
                self.add(
                    6,
                    Some(&run.id),
                    format!("event {} ({}) moved a run that had ended", event.sequence, event.kind),
                );
            }
            run_ended |= event.kind == "run.ended";
        }
        let sequence: Vec<u64> = run.events.iter().map(|event| event.sequence).collect();
        if !sequence.iter().copied().eq(1..=run.events.len() as u64) {
            self.add(6, Some(&run.id), format!("its events have gaps: {sequence:?}"));
        }
    }

    /// 10: nobody is taken for a copy where there is none.
    fn copies(&mut self) {
        for action in &self.history.audit {
            if action.contains("credential_replayed") {
                self.add(10, None, format!("the audit tells of a copy, and there is none: {action}"));
            }
        }
    }

    /// 11: never one live process more than there are slots.
    fn slots(&mut self, lives: &Lives<'_>) {
        for ((run, number), life) in lives {
            let beside = lives.values().filter(|other| {
                other.worker == life.worker && other.main.from <= life.main.from && life.main.from <= other.main.to
            });
            let count = beside.count();
            if count > self.history.slots {
                let slots = self.history.slots;
                self.add(
                    11,
                    Some(run),
                    format!("attempt {number} was process {count} of {} with {slots} slots", life.worker),
                );
            }
        }
    }

    /// 11: never one live process more than a task's or a project's limit. What was lost has been stopped by then.
    fn limits(&mut self, lives: &Lives<'_>) {
        let mut groups: BTreeMap<(String, usize), Vec<Lived<'_>>> = BTreeMap::new();
        for ((run, number), life) in lives {
            let Some(submitted) = self.history.submitted.get(*run) else { continue };
            for limit in submitted.job.places.limits() {
                groups.entry(limit).or_default().push((run, *number, life.main));
            }
        }
        for ((what, limit), members) in groups {
            for (run, number, span) in &members {
                let beside = members.iter().filter(|(.., other)| other.from <= span.from && span.from <= other.to);
                let count = beside.count();
                if count > limit {
                    let text = format!("attempt {number} was process {count} of {what}, whose limit is {limit}");
                    self.add(11, Some(run), text);
                }
            }
        }
    }

    /// 12: what was cancelled while it was claimed never starts.
    fn cancel_before_start(&mut self, run: &Run, lives: &Lives<'_>) {
        let mut claimed: Option<&str> = None;
        for event in &run.events {
            match event.kind.as_str() {
                "attempt.claimed" => claimed = event.attempt.as_deref(),
                "attempt.released" | "claim.expired" | "attempt.starting" | "attempt.ended" => claimed = None,
                "cancel.requested" => {
                    let Some(id) = claimed else { continue };
                    let Some(attempt) = run.attempts.iter().find(|attempt| attempt.id == id) else { continue };
                    if lives.get(&(run.id.as_str(), attempt.number)).is_some_and(|life| !life.starts.is_empty()) {
                        let text = format!("attempt {} started after it was cancelled while claimed", attempt.number);
                        self.add(12, Some(&run.id), text);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
