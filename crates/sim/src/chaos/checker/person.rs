//! What a person said, against what became of it: a word that was taken stands in the run's story and closes its question,
//! no other word does, and a drained worker takes nothing new.

use crate::chaos::history::{Attempt, Drained, History, Run, Submitted, Word};
use crate::chaos::jobs::Verb;

/// The word that may have been taken about this attempt.
fn word_about(submitted: &Submitted, attempt: u64) -> Option<&Word> {
    submitted.words.iter().find(|word| word.attempt == attempt && word.may_count())
}

/// Whether a person had this attempt tried again.
pub(super) fn retried(submitted: &Submitted, attempt: &Attempt) -> bool {
    attempt.resolution == "person" && word_about(submitted, attempt.number).is_some_and(|word| word.verb == Verb::Retry)
}

/// Whether a person had this attempt tried again, and its receipt came before anybody had claimed the next one.
pub(super) fn overtaken(submitted: &Submitted, attempt: &Attempt, next: &Attempt) -> bool {
    attempt.resolution == "receipt"
        && next.outcome.as_ref().is_some_and(|outcome| outcome.kind == "superseded")
        && word_about(submitted, attempt.number).is_some_and(|word| word.verb == Verb::Retry)
}

/// The state that a person gave this run, with the outcome that they gave it for; none if it was not a person.
pub(super) fn ended_by_a_person<'a>(run: &'a Run, submitted: &Submitted) -> Option<(&'static str, &'a Attempt)> {
    let latest = run.attempts.last().filter(|latest| latest.resolution == "person")?;
    match word_about(submitted, latest.number)?.verb {
        Verb::MarkFailed => Some(("failed", latest)),
        Verb::MarkSucceeded => Some(("succeeded", latest)),
        Verb::Retry | Verb::Wait => None,
    }
}

/// Words that were not taken as they were said.
pub(super) fn unheard(run: &Run, submitted: &Submitted) -> Vec<String> {
    let mut found = Vec::new();
    for attempt in run.attempts.iter().filter(|attempt| attempt.resolution == "person") {
        let said = word_about(submitted, attempt.number).map(|word| word.verb);
        let closes = said.is_some_and(|verb| verb != Verb::Wait && attempt.word.as_deref() == Some(verb.name()));
        if !closes {
            let (number, word) = (attempt.number, &attempt.word);
            found.push(format!("a person is said to have said {word:?} of attempt {number}, and they said {said:?}"));
        }
    }
    for word in &submitted.words {
        let told = run
            .events
            .iter()
            .filter(|event| {
                event.kind == "resolve.requested" && event.facts.contains(&format!("\"{}\"", word.verb.name()))
            })
            .filter(|event| {
                event.attempt == run.attempts.iter().find(|of| of.number == word.attempt).map(|of| of.id.clone())
            });
        let told = u32::try_from(told.count()).unwrap_or(u32::MAX);
        let Word { attempt, verb, times, taken } = word;
        let least = u32::from(*taken == Some(true));
        // The one that was refused is not told; the ones before it may have been taken.
        let most =
            if *verb == Verb::Wait { times - u32::from(*taken == Some(false)) } else { u32::from(word.may_count()) };
        if !(least..=most).contains(&told) {
            found.push(format!(
                "{verb:?} was said {times} times of attempt {attempt} ({taken:?}), and is told {told} times"
            ));
        }
        let resolution = run.attempts.iter().find(|of| of.number == *attempt).map_or("", |of| of.resolution.as_str());
        let stands = match verb {
            Verb::Wait => true,
            // Before the next attempt is claimed, evidence may still say how it really ended.
            Verb::Retry => matches!(resolution, "person" | "receipt"),
            Verb::MarkFailed | Verb::MarkSucceeded => resolution == "person",
        };
        if *taken == Some(true) && !stands {
            found.push(format!("{verb:?} was taken of attempt {attempt}, and its resolution is {resolution}"));
        }
    }
    let told = run.events.iter().filter(|event| event.kind == "resolve.requested");
    if told.count() > 0 && submitted.words.is_empty() {
        found.push("a person's word is told, and nobody said one".to_owned());
    }
    found
}

/// Attempts that started on a worker while a person had drained it, and that it did not hold before.
pub(super) fn started_while_drained(history: &History) -> Vec<(String, String)> {
    let lives = history.lives();
    let mut found = Vec::new();
    for Drained { worker, from, until, held } in &history.drained {
        for ((run, number), life) in &lives {
            let inside = life.worker == *worker && (*from..*until).contains(&life.main.from);
            let attempts = history.run(run).into_iter().flat_map(|run| &run.attempts);
            let known = attempts.filter(|attempt| attempt.number == *number).any(|attempt| held.contains(&attempt.id));
            if inside && !known && !life.starts.is_empty() {
                found.push(((*run).to_owned(), format!("attempt {number} started on {worker}, which was drained")));
            }
        }
    }
    found
}
