//! Versions of runtimes, and the ranges a placement asks for.
//!
//! A version is one to four numbers with an optional pre-release. Its own type, because runtimes print what no
//! package ecosystem's parser takes (`1.8.0_392`, `5.2.15(1)-release`): [`Version::from_printed`] reads those, and
//! everything else is strict. (Control design, *Placement*.)

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::limits::NAME_BYTES;

mod range;

pub use range::VersionRange;

/// Why a text is not a version or a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not a version.
    #[error(
        "`{0}` is not a version: write 1 to 4 numbers and an optional pre-release, such as 3.11, 20.20.2 or 1.0.0-rc.1"
    )]
    NotVersion(String),
    /// Not a range.
    #[error(
        "`{0}` is not a version range: write =, >, >=, <, <=, ^ or ~ before each version and commas between, such as >=3.11,<4"
    )]
    NotRange(String),
    /// More comparators than a range may have.
    #[error("{0} comparators in one version range: expected at most 8")]
    TooMany(usize),
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// One to four numbers with an optional pre-release. Ordered totally: by the numbers (missing ones are zero), a
/// pre-release before its release, and last by how many numbers are written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version {
    numbers: [u32; 4],
    written: u8,
    pre: Vec<Identifier>,
}

/// One dot-separated part of a pre-release: a number or a word. Numbers come before words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Identifier {
    Number(u32),
    Word(String),
}

impl Version {
    /// What stands for the version of a runtime that is there and does not say which: `0`. Only [`VersionRange::any`]
    /// admits it.
    pub const UNKNOWN: Self = Self { numbers: [0; 4], written: 1, pre: Vec::new() };

    /// The numbers as written, one to four.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers[..usize::from(self.written)]
    }

    /// Is this a pre-release?
    pub fn is_pre_release(&self) -> bool {
        !self.pre.is_empty()
    }

    /// The order that ranges use: `3.11` and `3.11.0` are the same version.
    pub fn precedence(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }

    /// The version in what a runtime prints when it is asked for one: `v20.20.2`, `Python 3.11.7`, `1.8.0_392`,
    /// `go version go1.22rc1 linux/amd64`, `GNU bash, version 5.2.15(1)-release`.
    ///
    /// The first word with a dotted number wins over a single number before it (`perl 5, version 36 (v5.36.0)`).
    /// Suffixes of a distribution or a build are dropped; only the usual names of pre-releases are kept.
    pub fn from_printed(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.bytes().any(|b| b.is_ascii_digit()))?;
        let bytes = line.as_bytes();
        let mut single = None;
        let mut at = 0;
        while at < bytes.len() {
            if !bytes[at].is_ascii_digit() {
                at += 1;
                continue;
            }
            let (version, end) = read_printed(line, at);
            if may_begin(&line[..at])
                && let Some(version) = version
            {
                if version.written > 1 {
                    return Some(version);
                }
                single.get_or_insert(version);
            }
            at = end;
        }
        single
    }

    fn of(numbers: &[u32], pre: Vec<Identifier>) -> Option<Self> {
        if numbers.is_empty() || numbers.len() > 4 {
            return None;
        }
        let mut padded = [0; 4];
        padded[..numbers.len()].copy_from_slice(numbers);
        Some(Self { numbers: padded, written: u8::try_from(numbers.len()).ok()?, pre })
    }
}

/// May a version begin after `before`? Not in the middle of a word, unless the word is a usual prefix.
fn may_begin(before: &str) -> bool {
    let rest = before.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let word = before[rest.len()..].to_ascii_lowercase();
    matches!(word.as_str(), "" | "v" | "go" | "jdk" | "r") && !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The version that begins at `at`, and where to look on.
fn read_printed(line: &str, at: usize) -> (Option<Version>, usize) {
    let bytes = line.as_bytes();
    let digits_from = |start: usize| start + bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut numbers = Vec::new();
    let mut end = at;
    let mut start = at;
    loop {
        let stop = digits_from(start);
        match line[start..stop].parse() {
            Ok(number) if numbers.len() < 4 => numbers.push(number),
            Ok(_) => return (Version::of(&numbers, Vec::new()), stop),
            Err(_) => return (None, stop.max(start + 1)),
        }
        end = end.max(stop);
        // Java 8 writes its update after an underscore.
        let separator = bytes.get(stop).is_some_and(|b| matches!(b, b'.' | b'_'));
        if !(separator && bytes.get(stop + 1).is_some_and(u8::is_ascii_digit)) {
            break;
        }
        start = stop + 1;
    }
    let suffix = line[end..].strip_prefix('-').unwrap_or(&line[end..]);
    let length = suffix.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-')).count();
    let suffix = suffix[..length].trim_end_matches(['.', '-']);
    let word: String = suffix.chars().take_while(char::is_ascii_alphabetic).collect();
    let known =
        ["a", "alpha", "b", "beta", "rc", "pre", "preview", "dev", "nightly", "canary", "ea", "snapshot", "SNAPSHOT"];
    let pre = if known.contains(&word.as_str()) { read_pre(suffix).unwrap_or_default() } else { Vec::new() };
    (Version::of(&numbers, pre), end + length.max(1))
}

fn read_number(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn read_pre(text: &str) -> Option<Vec<Identifier>> {
    let identifier = |part: &str| {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            return read_number(part).map(Identifier::Number);
        }
        let word = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        word.then(|| Identifier::Word(part.to_owned()))
    };
    text.split('.').map(identifier).collect()
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let refused = || VersionError::NotVersion(cut(text));
        if text.len() > NAME_BYTES {
            return Err(refused());
        }
        let (numbers, pre) = match text.split_once('-') {
            Some((numbers, pre)) => (numbers, read_pre(pre).ok_or_else(refused)?),
            None => (text, Vec::new()),
        };
        let numbers: Option<Vec<u32>> = numbers.split('.').map(read_number).collect();
        numbers.and_then(|numbers| Self::of(&numbers, pre)).ok_or_else(refused)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.precedence(other).then(self.written.cmp(&other.written))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.numbers().iter().enumerate() {
            write!(f, "{}{number}", if index == 0 { "" } else { "." })?;
        }
        for (index, part) in self.pre.iter().enumerate() {
            f.write_str(if index == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => number.fmt(f)?,
                Identifier::Word(word) => word.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn version(text: &str) -> Version {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn any_version() -> impl Strategy<Value = Version> {
        "(0|[1-9][0-9]{0,3})(\\.(0|[1-9][0-9]{0,3})){0,3}(-(rc|beta|0|[1-9])(\\.([a-z]{1,3}|0|[1-9])){0,2})?"
            .prop_map(|text| version(&text))
    }

    proptest! {
        #[test]
        fn a_version_survives_the_round_trip(version in any_version()) {
            prop_assert_eq!(version.to_string().parse::<Version>(), Ok(version));
        }

        #[test]
        fn the_order_is_total(a in any_version(), b in any_version(), c in any_version()) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b).is_eq(), a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }

        #[test]
        fn nothing_printed_panics(text in ".{0,60}|[a-z0-9._ ()-]{0,40}") {
            if let Some(version) = Version::from_printed(&text) {
                prop_assert_eq!(version.to_string().parse::<Version>(), Ok(version));
            }
        }
    }

    #[test]
    fn what_is_not_a_version_is_refused() {
        for text in [
            "",
            "v1",
            "1.",
            ".1",
            "1..2",
            "1.2.3.4.5",
            "01",
            "1.02",
            "1.x",
            "*",
            "1-",
            "1-rc..1",
            "1-rc_1",
            "1-01",
            "4294967296",
            "1 ",
            "-1",
            "1.2+build",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_as_people_expect() {
        let ascending = [
            "1-alpha",
            "1-alpha.1",
            "1-alpha.beta",
            "1-beta.2",
            "1-beta.11",
            "1-rc.1",
            "1",
            "1.0",
            "1.0.0.1",
            "1.9",
            "1.10",
        ];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert!(version("3.11").precedence(&version("3.11.0")).is_eq());
    }

    #[test]
    fn what_runtimes_print_is_understood() {
        for (printed, expected) in [
            ("v20.20.2", "20.20.2"),
            ("Python 3.11.7", "3.11.7"),
            ("Python 3.13.0rc1", "3.13.0-rc1"),
            ("Python 3.12.1+", "3.12.1"),
            ("1.8.0_392", "1.8.0.392"),
            ("openjdk version \"1.8.0_392\"\nOpenJDK Runtime Environment", "1.8.0.392"),
            ("openjdk 21 2023-09-19", "21"),
            ("openjdk version \"17.0.9\" 2023-10-17", "17.0.9"),
            ("go1.22", "1.22"),
            ("go version go1.22rc1 linux/amd64", "1.22-rc1"),
            ("5.2.15(1)-release", "5.2.15"),
            ("GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)", "5.2.15"),
            ("git version 2.39.2", "2.39.2"),
            ("git version 2.39.2-1ubuntu1", "2.39.2"),
            ("ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]", "3.1.2"),
            ("\nThis is perl 5, version 36, subversion 0 (v5.36.0) built for x86_64-linux", "5.36.0"),
            ("PHP 8.2.7 (cli) (built: Jun  9 2023 19:37:27) (NTS)", "8.2.7"),
            ("Docker version 24.0.5, build ced0996", "24.0.5"),
            ("v22.0.0-nightly20240101abc", "22.0.0-nightly20240101abc"),
            ("podman version 4.3.1", "4.3.1"),
            ("1.2.3.4.5", "1.2.3.4"),
            ("tool 07.04", "7.4"),
        ] {
            assert_eq!(Version::from_printed(printed), Some(version(expected)), "{printed}");
        }
        for printed in ["", "no version", "x86_64", "99999999999"] {
            assert_eq!(Version::from_printed(printed), None, "{printed}");
        }
    }
}
