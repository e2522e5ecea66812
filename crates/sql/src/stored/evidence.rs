//! What is known of a lost attempt, and what of it was left: names and numbers, a space between two.

use std::fmt::Display;
use std::str::FromStr;

/// The text of `all`.
pub(crate) fn encode<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let words: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    words.join(" ")
}

/// What [`encode`] wrote.
pub(crate) fn decode<T: FromStr<Err: Display>, All: FromIterator<T>>(text: &str) -> Result<All, String> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|error: T::Err| error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leasehold_core::attempt::EvidenceKind;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nothing_else() {
        for all in [BTreeSet::new(), EvidenceKind::ALL.iter().copied().collect::<BTreeSet<_>>()] {
            assert_eq!(decode(&encode(&all)), Ok(all));
        }
        assert_eq!(decode(&encode([1_u32, 4_194_304])), Ok(vec![1_u32, 4_194_304]));
        assert!(decode::<EvidenceKind, Vec<_>>("lease_expired rumour").is_err());
        assert!(decode::<u32, Vec<_>>("-1").is_err());
    }
}
