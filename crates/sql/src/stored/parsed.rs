//! What canonical bytes were parsed into, kept per thread, so that the same revision or capabilities are parsed once
//! and not at every call.
//!
//! Keyed by the bytes themselves: a hit means that exactly these bytes were read from this row just now, so nothing can be
//! stale and nothing needs to be forgotten but for room. Bytes that do not parse are not kept.

use std::collections::HashMap;

/// Bytes kept per thread and type: a few hundred ordinary revisions.
const KEPT: usize = 512 * 1024;

/// Parsed forms of one type.
pub(crate) struct Parsed<T> {
    by_bytes: HashMap<Box<[u8]>, T>,
    kept: usize,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { by_bytes: HashMap::new(), kept: 0 }
    }
}

impl<T: Clone> Parsed<T> {
    /// What `bytes` mean, parsed now if they were not before.
    pub(crate) fn read<E>(&mut self, bytes: &[u8], parse: impl FnOnce(&[u8]) -> Result<T, E>) -> Result<T, E> {
        if let Some(known) = self.by_bytes.get(bytes) {
            return Ok(known.clone());
        }
        let parsed = parse(bytes)?;
        if self.kept + bytes.len() > KEPT {
            *self = Self::default();
        }
        self.kept += bytes.len();
        self.by_bytes.insert(bytes.into(), parsed.clone());
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(bytes: &[u8]) -> Result<usize, &'static str> {
        if bytes.is_empty() { Err("empty") } else { Ok(bytes.len()) }
    }

    #[test]
    fn the_same_bytes_are_parsed_once() {
        let mut parsed = Parsed::default();
        assert_eq!(parsed.read(b"four", length), Ok(4));
        assert_eq!(parsed.read(b"four", |_| -> Result<usize, ()> { panic!("parsed again") }), Ok(4));
        assert_eq!(parsed.read(b"other", length), Ok(5));
    }

    #[test]
    fn what_does_not_parse_is_asked_again() {
        let mut parsed = Parsed::default();
        assert_eq!(parsed.read(b"", length), Err("empty"));
        assert_eq!(parsed.read(b"", |_| -> Result<usize, &str> { Ok(7) }), Ok(7));
    }

    #[test]
    fn it_never_holds_more_than_its_bound() {
        let mut parsed = Parsed::default();
        for n in 0_u32..1000 {
            let mut bytes = vec![0; 4096];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            assert_eq!(parsed.read(&bytes, length), Ok(4096));
            let held: usize = parsed.by_bytes.keys().map(|bytes| bytes.len()).sum();
            assert!(held == parsed.kept && held <= KEPT, "{held}");
        }
    }
}
