//! What a job prints: a pattern that can be computed again, so that whoever has some of it knows what is missing.

/// A stream of a job's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    pub(super) const fn of_line(number: u64) -> Self {
        if number % 4 == 3 { Self::Stderr } else { Self::Stdout }
    }
}

/// What an attempt has written to a stream after this many lines: bytes of any value, no two lines alike.
pub(crate) fn output(run: &str, attempt: u64, stream: Stream, lines: u64) -> Vec<u8> {
    (0..lines)
        .filter(|number| Stream::of_line(*number) == stream)
        .flat_map(|number| line(run, attempt, number))
        .collect()
}

/// One line of it.
pub(super) fn line(run: &str, attempt: u64, number: u64) -> Vec<u8> {
    let mut bytes = format!("{number:06} {run} {attempt} ").into_bytes();
    bytes.extend((0..number % 71).map(|at| u8::try_from((number * 31 + at * 7) % 256).unwrap_or(0)));
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_grows_and_tells_attempts_apart() {
        let (few, many) = (output("r", 1, Stream::Stdout, 10), output("r", 1, Stream::Stdout, 20));
        assert!(many.starts_with(&few) && many.len() > few.len());
        assert_ne!(output("r", 2, Stream::Stdout, 10), few);
        assert_eq!(output("r", 1, Stream::Stderr, 4), line("r", 1, 3));
    }
}
