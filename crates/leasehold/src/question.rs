//! The open question of a lost run, for people: what is known, what is not, and what may be said now.

use std::io::{self, Write};

use leasehold_wire::api::explanation::Question;

/// Writes the question of run `id`.
pub(crate) fn write(out: &mut dyn Write, question: &Question, id: &str) -> io::Result<()> {
    for (title, sentences) in [("Known:", &question.known), ("Not known:", &question.unknown)] {
        writeln!(out, "{title}")?;
        for sentence in sentences {
            writeln!(out, "  - {sentence}")?;
        }
    }
    writeln!(out, "What you can say, with `--reason TEXT` for the record:")?;
    for option in &question.options {
        writeln!(out, "  leasehold runs resolve {id} {}", option.verb)?;
        writeln!(out, "      {}", option.effect)?;
    }
    writeln!(out, "Its output so far: leasehold runs logs {id}")
}

#[cfg(test)]
mod tests {
    use leasehold_core::resolve::Verb;
    use leasehold_wire::api::explanation::ResolveOption;

    use super::*;

    #[test]
    fn every_verb_is_a_line_to_copy() {
        let options = Verb::ALL.iter().map(|verb| ResolveOption { verb: *verb, effect: format!("does {verb}") });
        let question = Question {
            attempt: 1,
            worker: None,
            known: vec!["it ran".to_owned()],
            unknown: vec!["how it ended".to_owned()],
            options: options.collect(),
        };
        let mut text = Vec::new();
        write(&mut text, &question, "0192").unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("Known:\n  - it ran\nNot known:\n  - how it ended\n"), "{text}");
        for verb in ["wait", "retry", "mark-failed", "mark-succeeded"] {
            let lines = format!("  leasehold runs resolve 0192 {verb}\n      does {verb}\n");
            assert!(text.contains(&lines), "{text}");
        }
    }
}
