//! What a chaos run did and found, as the document that it is kept as.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::checker::{JUDGED, Violation};
use super::fault::EXCLUDED;
use super::history::{History, What};
use super::run::Options;

/// The world that was built.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetUp {
    pub(super) workers: usize,
    pub(super) slots: usize,
}

/// The document.
pub(super) fn report(options: &Options, set_up: SetUp, history: &History, found: &[Violation], seconds: u64) -> String {
    let Options { faults, seed, of, millis, .. } = options;
    let SetUp { workers, slots } = set_up;
    let minutes = Duration::from_millis(*millis).as_secs_f64() / 60.0;
    let verdict = match found.len() {
        0 => "**Every invariant holds.**".to_owned(),
        1 => "**1 violation.**".to_owned(),
        count => format!("**{count} violations.**"),
    };
    let hits = history.faults.iter().filter(|happened| !happened.missed).count();
    let (runs, starts) = (history.runs.len(), history.marks.iter().filter(|mark| mark.what == What::Start).count());
    format!(
        "# A chaos run\n\n`cargo xtask chaos --faults {faults} --minutes {minutes:.1} --seed {seed}` on the release \
         binaries of {of}.\n\n{verdict} {hits} faults hit, {runs} runs with {starts} starts, {seconds} s in all, on {}.\n\n\
         {workers} workers with {slots} slots each and a control plane, each on a machine of its own: a network namespace, \
         a wall clock that jumps, a boot id that changes. The jobs wrote down their own starts, lives and ends; afterwards \
         that was compared with every run, attempt, event and log of the product, and with what was left: processes, \
         files, leases.\n\n{}\n{}\n{}",
        machine(),
        judged(found),
        counted(history),
        excluded(),
    )
}

/// Where it ran, in a few words.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!("{cores} cores, Linux {}, load {}", read("/proc/sys/kernel/osrelease").trim(), load.join(" "))
}

fn judged(found: &[Violation]) -> String {
    let mut text = "| invariant | judged here | not judged here | |\n| --- | --- | --- | --- |\n".to_owned();
    for (number, what, not) in JUDGED {
        let broken = found.iter().filter(|violation| violation.invariant == *number).count();
        let verdict = match broken {
            _ if what.is_empty() => "not judged".to_owned(),
            0 => "holds".to_owned(),
            count => format!("**broken {count} times**"),
        };
        let _ = writeln!(text, "| {number} | {what} | {not} | {verdict} |");
    }
    text
}

/// A table of two columns.
fn table(what: &str, counts: &BTreeMap<String, u32>) -> String {
    let mut text = format!("| {what} | how many |\n| --- | --- |\n");
    for (name, count) in counts {
        let _ = writeln!(text, "| {name} | {count} |");
    }
    text
}

fn count(names: impl IntoIterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn counted(history: &History) -> String {
    let mut faults: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for happened in &history.faults {
        let (hit, missed) = faults.entry(happened.fault.name()).or_default();
        *(if happened.missed { missed } else { hit }) += 1;
    }
    let mut text = "| fault | hit | found nothing to hit |\n| --- | --- | --- |\n".to_owned();
    for (name, (hit, missed)) in faults {
        let _ = writeln!(text, "| {name} | {hit} | {missed} |");
    }
    let words = history.submitted.values().flat_map(|submitted| &submitted.words).map(|word| {
        let answer = match word.taken {
            Some(true) => "taken",
            Some(false) => "refused: the question was closed",
            None => "not answered",
        };
        format!("{} a lost run, {answer}", word.verb.name())
    });
    let cancels = history.submitted.values().filter(|submitted| submitted.cancelled);
    let limits = history.submitted.values().filter(|submitted| submitted.job.timeout.is_some());
    let said =
        words.chain(cancels.map(|_| "cancel".to_owned())).chain(limits.map(|_| "time limit of a job".to_owned()));
    let attempts = || history.runs.iter().flat_map(|run| &run.attempts);
    let outcomes = attempts().map(|attempt| {
        attempt.outcome.as_ref().map_or("none".to_owned(), |outcome| {
            let why = outcome.evidence.as_ref().or(outcome.reason.as_ref());
            let which = if outcome.kind == "exited" { "" } else { why.map_or("", String::as_str) };
            format!("{} {which}", outcome.kind).trim_end().to_owned()
        })
    });
    let tables = [
        text,
        table("wish of a person", &count(said)),
        table("run", &count(history.runs.iter().map(|run| run.state.clone()))),
        table("outcome of an attempt", &count(outcomes)),
        table("resolution of a lost attempt", &count(lost(history))),
        table("log of an attempt", &count(attempts().map(|attempt| attempt.log.state.clone()))),
    ];
    tables.join("\n")
}

fn lost(history: &History) -> impl Iterator<Item = String> {
    let lost = history.runs.iter().flat_map(|run| &run.attempts).filter(|attempt| attempt.state == "lost");
    lost.map(|attempt| attempt.resolution.clone())
}

fn excluded() -> String {
    let mut text = "Never drawn, because no promise is made for it:\n\n".to_owned();
    for (what, why) in EXCLUDED {
        let _ = writeln!(text, "- {what}: {why}");
    }
    text
}

/// Every violation, and the story of each run that is in one.
pub(super) fn tell(history: &History, found: &[Violation]) {
    let mut told: Vec<&str> = Vec::new();
    for violation in found {
        eprintln!("\n{violation}");
        if let Some(run) = violation.run.as_deref().filter(|run| !told.contains(run)) {
            told.push(run);
            eprint!("{}", history.story(run));
        }
    }
    eprintln!("\n{} violations", found.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::fault::Fault;
    use crate::chaos::history::Happened;

    fn written(found: &[Violation]) -> String {
        let happened = |missed| Happened { fault: Fault::KillLauncher(0), at: 1, until: 1, attempt: None, missed };
        let faults = vec![happened(false), happened(true), happened(false)];
        let history = History { faults, ..History::default() };
        let options = Options { faults: 3, seed: 7, millis: 60_000, of: "commit x".to_owned(), only_plan: false };
        report(&options, SetUp { workers: 3, slots: 3 }, &history, found, 90)
    }

    #[test]
    fn a_fault_counts_where_it_hit() {
        let text = written(&[]);
        assert!(text.starts_with("# A chaos run\n\n`cargo xtask chaos --faults 3 --minutes 1.0 --seed 7`"), "{text}");
        assert!(text.contains("**Every invariant holds.** 2 faults hit"), "{text}");
        assert!(text.contains("| kill launcher | 2 | 1 |"), "{text}");
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn a_broken_invariant_is_named() {
        let text = written(&[Violation { invariant: 4, run: None, sentence: "untrue".to_owned() }]);
        assert!(text.contains("**1 violation.**") && text.contains("**broken 1 times**"), "{text}");
    }
}
