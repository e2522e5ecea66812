//! What is known of a lost attempt, and what of it was left, as text columns: names and numbers, a space between two.

use std::collections::BTreeSet;
use std::str::FromStr;

use leasehold_core::attempt::EvidenceKind;
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};

use super::column::Column;

impl Column for BTreeSet<EvidenceKind> {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        words(value)
    }

    fn bind(&self) -> ToSqlOutput<'_> {
        joined(self)
    }
}

impl Column for Vec<u32> {
    fn read(value: ValueRef<'_>) -> Result<Self, String> {
        words(value)
    }

    fn bind(&self) -> ToSqlOutput<'_> {
        joined(self)
    }
}

fn words<T: FromStr, All: FromIterator<T>>(value: ValueRef<'_>) -> Result<All, String>
where
    T::Err: std::fmt::Display,
{
    let text = String::read(value)?;
    let words = text.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|error: T::Err| error.to_string())).collect()
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>) -> ToSqlOutput<'static> {
    let words: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    ToSqlOutput::Owned(Owned::Text(words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Column + PartialEq + std::fmt::Debug>(value: &T) {
        let ToSqlOutput::Owned(Owned::Text(text)) = value.bind() else { panic!("a text") };
        assert_eq!(T::read(ValueRef::Text(text.as_bytes())).as_ref(), Ok(value));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else() {
        survives(&BTreeSet::<EvidenceKind>::new());
        survives(&EvidenceKind::ALL.iter().copied().collect::<BTreeSet<_>>());
        survives(&vec![1_u32, 4_194_304]);
        assert!(BTreeSet::<EvidenceKind>::read(ValueRef::Text(b"lease_expired rumour")).is_err());
        assert!(Vec::<u32>::read(ValueRef::Text(b"-1")).is_err());
    }
}
