//! Secrets leave the output before a byte of it reaches a disk, also when a secret is split across writes.
//!
//! Each stream passes its own [`Masked`]; what could be the beginning of a secret is held back until it is decided.
//! Without secrets this copies nothing. (Worker design, *Launcher*; control design, *Logs, artifacts, secrets*.)

use std::borrow::Cow;

use zeroize::Zeroizing;

use super::request::SecretValue;

/// What stands where a secret was.
const STARS: &[u8] = b"***";

/// The values to hide, longest first: of two that begin alike the longer one is hidden whole.
pub(super) struct Mask {
    values: Vec<Zeroizing<Vec<u8>>>,
}

impl Mask {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a SecretValue>) -> Self {
        let mut values: Vec<_> = secrets
            .into_iter()
            .map(|secret| Zeroizing::new(secret.reveal().as_bytes().to_vec()))
            .filter(|value| !value.is_empty())
            .collect();
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values }
    }

    /// What of `held` followed by `input` may be written now; `last` decides everything.
    fn pass(&self, held: &mut Zeroizing<Vec<u8>>, input: &[u8], last: bool) -> Vec<u8> {
        held.extend_from_slice(input);
        let (mut out, mut at) = (Vec::with_capacity(held.len()), 0);
        while at < held.len() {
            let rest = &held[at..];
            // A longer secret that may still complete here decides before a shorter one that already has.
            match self.values.iter().find(|value| rest.starts_with(value) || (!last && value.starts_with(rest))) {
                Some(value) if rest.starts_with(value) => {
                    out.extend_from_slice(STARS);
                    at += value.len();
                }
                Some(_) => break,
                None => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
        }
        held.drain(..at);
        out
    }
}

/// One stream's way through a [`Mask`].
#[derive(Default)]
pub(super) struct Masked {
    held: Zeroizing<Vec<u8>>,
}

impl Masked {
    /// What may be written after the stream gave `input`.
    pub(super) fn pass<'a>(&mut self, mask: &Mask, input: &'a [u8]) -> Cow<'a, [u8]> {
        if mask.values.is_empty() { Cow::Borrowed(input) } else { Cow::Owned(mask.pass(&mut self.held, input, false)) }
    }

    /// What is left when the stream has ended.
    pub(super) fn finish(&mut self, mask: &Mask) -> Vec<u8> {
        mask.pass(&mut self.held, &[], true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(values: &[&str]) -> Mask {
        let secrets: Vec<_> = values.iter().map(|value| SecretValue::new((*value).to_owned())).collect();
        Mask::new(&secrets)
    }

    fn masked(mask: &Mask, pieces: &[&[u8]]) -> String {
        let mut stream = Masked::default();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&stream.pass(mask, piece));
        }
        out.extend(stream.finish(mask));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_is_split() {
        let mask = mask(&["hunter2", "p"]);
        let text = b"one hunter2 two hunterhunter2 p";
        for split in 0..=text.len() {
            let (a, b) = text.split_at(split);
            assert_eq!(masked(&mask, &[a, b]), "one *** two hunter*** ***");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(masked(&mask, &bytes), "one *** two hunter*** ***");
    }

    #[test]
    fn of_two_secrets_the_longer_is_hidden_whole() {
        let mask = mask(&["abc", "abcdef"]);
        assert_eq!(masked(&mask, &[b"abc", b"def abcd"]), "*** ***d");
    }

    #[test]
    fn output_without_a_secret_is_not_held_back() {
        let mask = mask(&["secret"]);
        let mut stream = Masked::default();
        assert_eq!(&*stream.pass(&mask, b"progress 10%\n"), b"progress 10%\n");
        assert_eq!(&*stream.pass(&mask, b"sec"), b"");
        assert_eq!(&*stream.pass(&mask, b"ond\n"), b"second\n");
    }

    #[test]
    fn without_secrets_nothing_is_copied() {
        assert!(matches!(Masked::default().pass(&mask(&[""]), b"x"), Cow::Borrowed(_)));
    }
}
