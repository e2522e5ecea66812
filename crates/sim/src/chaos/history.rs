//! What a chaos run left to be judged: what the jobs wrote down, what the product says, and what was done to it.
//!
//! Plain data, so that the checker is a pure function and a test can write a history by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::fault::Fault;
use super::jobs::{Job, Stream, Verb};

/// The number that stands for every attempt of a run.
pub(crate) const EVERY: u64 = u64::MAX;

/// Everything of one chaos run.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// What was submitted, by run.
    pub(crate) submitted: BTreeMap<String, Submitted>,
    /// What the jobs wrote down, file by file in the order of its lines.
    pub(crate) marks: Vec<Mark>,
    /// The product's runs.
    pub(crate) runs: Vec<Run>,
    /// What was done, in the order it began.
    pub(crate) faults: Vec<Happened>,
    /// When the attempts of a run up to this number were first seen to be over, one way or another: ended or lost.
    pub(crate) seen_over: BTreeMap<(String, u64), u64>,
    /// When a person had drained a worker.
    pub(crate) drained: Vec<Drained>,
    /// Slots of each worker.
    pub(crate) slots: usize,
    /// Processes of the product that ended although nobody had told them to, or not as they were told.
    pub(crate) ends: Vec<String>,
    /// Actions of the product's audit.
    pub(crate) audit: Vec<String>,
    /// What was still there when everything was over: processes, files, leases.
    pub(crate) left: Vec<String>,
    /// What in the database contradicts itself.
    pub(crate) contradictions: Vec<String>,
    /// Where a secret or a token stood that belongs elsewhere.
    pub(crate) leaks: Vec<String>,
}

/// A run as it was submitted.
#[derive(Debug, Clone)]
pub(crate) struct Submitted {
    pub(crate) job: Job,
    /// Whether a person's cancel was accepted, or may have been.
    pub(crate) cancelled: bool,
    /// What a person said of it.
    pub(crate) words: Vec<Word>,
}

/// What a person said of a lost attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) attempt: u64,
    pub(crate) verb: Verb,
    /// How often it was said: a word that was not answered is said again.
    pub(crate) times: u32,
    /// Whether it was taken; nobody knows while no answer has come.
    pub(crate) taken: Option<bool>,
}

impl Word {
    /// Whether it may have been taken: one of several that was not answered, too.
    pub(crate) fn may_count(&self) -> bool {
        self.taken != Some(false) || self.times > 1
    }
}

/// A worker that a person had drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drained {
    pub(crate) worker: String,
    /// When that was answered, on the boot-time clock.
    pub(crate) from: u64,
    /// When it was about to be resumed.
    pub(crate) until: u64,
    /// The attempts that it held just after it was drained.
    pub(crate) held: BTreeSet<String>,
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Start,
    Beat,
    End,
    Daemon,
}

/// A line that a job's process wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) worker: String,
    pub(crate) what: What,
    pub(crate) run: String,
    pub(crate) attempt: u64,
    pub(crate) pid: u32,
    /// On the boot-time clock, in milliseconds.
    pub(crate) at: u64,
    /// The fence number of a start, the lines printed at a beat, the code of an end.
    pub(crate) number: u64,
}

impl Mark {
    /// Reads a line of a worker's file; none if it is torn.
    pub(crate) fn parse(worker: &str, line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, run, attempt, pid, at, number] = words.as_slice() else { return None };
        let what = match *what {
            "start" => What::Start,
            "beat" => What::Beat,
            "end" => What::End,
            "daemon" => What::Daemon,
            _ => return None,
        };
        Some(Self {
            worker: worker.to_owned(),
            what,
            run: (*run).to_owned(),
            attempt: attempt.parse().ok()?,
            pid: pid.parse().ok()?,
            at: at.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// A run as the product shows it at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) end_not_observed: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) events: Vec<Event>,
}

/// An attempt as the product shows it at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) number: u64,
    pub(crate) state: String,
    pub(crate) worker: Option<String>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) resolution: String,
    /// The word of a person that closed its question.
    pub(crate) word: Option<String>,
    /// Everything that is known of its end.
    pub(crate) evidence: Vec<String>,
    pub(crate) may_live: bool,
    /// Whether the kernel would not let go of something of it.
    pub(crate) is_left: bool,
    pub(crate) log: Log,
}

/// An attempt's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) state: String,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Log {
    pub(crate) fn of(&self, stream: Stream) -> &[u8] {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

/// How something ended, in the product's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) kind: String,
    pub(crate) exit_code: Option<u64>,
    pub(crate) signal: Option<i64>,
    pub(crate) reason: Option<String>,
    pub(crate) evidence: Option<String>,
}

/// An event of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) kind: String,
    pub(crate) attempt: Option<String>,
    pub(crate) actor: String,
    pub(crate) facts: String,
}

/// A fault as it really came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) fault: Fault,
    /// On the boot-time clock, in milliseconds.
    pub(crate) at: u64,
    /// When it was over; the same for what happens at once.
    pub(crate) until: u64,
    /// The attempt whose launcher it hit.
    pub(crate) attempt: Option<String>,
    /// Nothing was there to be hit.
    pub(crate) missed: bool,
}

/// The life of an attempt, as far as its processes wrote it down.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) worker: String,
    pub(crate) starts: Vec<u64>,
    pub(crate) main: Span,
    pub(crate) daemons: Option<Span>,
    /// Lines that were surely printed.
    pub(crate) printed: u64,
    /// The code of its end, written just before it.
    pub(crate) end: Option<u64>,
}

/// From the first line of a process to its last, on the boot-time clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    fn grown(span: Option<Self>, at: u64) -> Self {
        span.map_or(Self { from: at, to: at }, |span| Self { from: span.from.min(at), to: span.to.max(at) })
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

impl History {
    /// Every attempt that wrote anything, by run and number.
    pub(crate) fn lives(&self) -> BTreeMap<(&str, u64), Life> {
        let mut lives: BTreeMap<(&str, u64), Life> = BTreeMap::new();
        let mut begun = BTreeSet::new();
        for mark in &self.marks {
            let key = (mark.run.as_str(), mark.attempt);
            let life = lives.entry(key).or_default();
            life.worker.clone_from(&mark.worker);
            if mark.what == What::Daemon {
                life.daemons = Some(Span::grown(life.daemons, mark.at));
                continue;
            }
            let main = (!begun.insert(key)).then_some(life.main);
            life.main = Span::grown(main, mark.at);
            match mark.what {
                What::Start => life.starts.push(mark.number),
                What::Beat => life.printed = life.printed.max(mark.number),
                What::End => life.end = Some(mark.number),
                What::Daemon => {}
            }
        }
        lives
    }

    /// The run of this id.
    pub(crate) fn run(&self, id: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// The story of one run: its job, what was done around it, what it wrote, what the product says.
    pub(crate) fn story(&self, run: &str) -> String {
        let mut text = String::new();
        if let Some(submitted) = self.submitted.get(run) {
            let Submitted { job, cancelled, words } = submitted;
            let _ = writeln!(text, "  submitted: {job:?}, cancelled: {cancelled}, said of it: {words:?}");
        }
        let marks: Vec<&Mark> = self.marks.iter().filter(|mark| mark.run == run).collect();
        let from = marks.iter().map(|mark| mark.at).min().unwrap_or(0).saturating_sub(5_000);
        let to = marks.iter().map(|mark| mark.at).max().map_or(u64::MAX, |at| at + 40_000);
        let mut lines: Vec<(u64, String)> = self
            .faults
            .iter()
            .filter(|happened| !marks.is_empty() && happened.at <= to && happened.until >= from)
            .map(|happened| (happened.at, format!("fault  {happened}")))
            .collect();
        for (index, mark) in marks.iter().enumerate() {
            // Of the beats of one process only the last: it tells until when it lived.
            let repeats =
                |other: &&Mark| other.pid == mark.pid && other.what == mark.what && other.worker == mark.worker;
            let told = matches!(mark.what, What::Start | What::End) || !marks[index + 1..].iter().any(repeats);
            if told {
                lines.push((mark.at, format!("mark   {mark}")));
            }
        }
        for ((_, number), at) in self.seen_over.iter().filter(|((of, _), _)| of == run) {
            let which = if *number == EVERY { "every attempt".to_owned() } else { format!("attempt {number}") };
            lines.push((*at, format!("seen   that {which} is over")));
        }
        lines.sort();
        for (at, line) in lines {
            let _ = writeln!(text, "  {at} {line}");
        }
        if let Some(said) = self.run(run) {
            let _ = writeln!(
                text,
                "  said: {} {:?}, end_not_observed: {}",
                said.state, said.outcome, said.end_not_observed
            );
            for attempt in &said.attempts {
                let Attempt { number, id, state, worker, outcome, resolution, word, evidence, may_live, is_left, log } =
                    attempt;
                let worker = worker.as_deref().unwrap_or("nobody");
                let lengths = (log.stdout.len(), log.stderr.len());
                let _ = writeln!(
                    text,
                    "  said: attempt {number} ({id}) of {worker}: {state} {outcome:?}, resolution {resolution} \
                     {word:?}, evidence {evidence:?}, may_live {may_live}, left {is_left}, log {} {lengths:?}",
                    log.state
                );
            }
            for event in &said.events {
                let of = event.attempt.as_deref().unwrap_or("-");
                let _ =
                    writeln!(text, "  event {} {} {of} by {} {}", event.sequence, event.kind, event.actor, event.facts);
            }
        }
        text
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, what, attempt, pid, number, .. } = self;
        write!(f, "attempt {attempt} pid {pid} on {worker}: {what:?} {number}")
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        if let Some(attempt) = &self.attempt {
            write!(f, " (attempt {attempt})")?;
        }
        if self.until > self.at {
            write!(f, " for {} ms", self.until - self.at)?;
        }
        if self.missed { f.write_str(", nothing was hit") } else { Ok(()) }
    }
}
