//! Versions of runtimes and the ranges a placement asks for.
//!
//! A version is one to four numbers with an optional pre-release. Its own type, because runtimes print what no
//! package ecosystem's parser takes (`1.8.0_392`, `5.2.15(1)-release`): [`Version::from_printed`] reads those, and
//! everything else is strict. (Control design, *Placement*.)

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::limits::{NAME_BYTES, RANGE_COMPARATORS};

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
    #[error("{0} comparators in one version range, at most 8 are allowed")]
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

/// How a comparator compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Caret,
    Tilde,
}

impl Operator {
    /// Longer spellings first, so that `>=` is not read as `>`.
    const ALL: [(&'static str, Self); 7] = [
        (">=", Self::GreaterEqual),
        ("<=", Self::LessEqual),
        (">", Self::Greater),
        ("<", Self::Less),
        ("=", Self::Equal),
        ("^", Self::Caret),
        ("~", Self::Tilde),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Caret => "^",
            Self::Tilde => "~",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Comparator {
    operator: Operator,
    version: Version,
}

impl Comparator {
    /// Numbers that the comparator leaves out match anything: `=3.11` takes 3.11.7, `>3.11` begins at 3.12.
    fn admits(&self, version: &Version) -> bool {
        let given = self.version.numbers();
        let leading = version.numbers[..given.len()].cmp(given);
        let exact = version.precedence(&self.version);
        let pre = self.version.is_pre_release();
        match self.operator {
            Operator::Equal if pre => exact.is_eq(),
            Operator::Equal => leading.is_eq(),
            Operator::Greater if pre => exact.is_gt(),
            Operator::Greater => leading.is_gt(),
            Operator::GreaterEqual => exact.is_ge(),
            Operator::Less => exact.is_lt(),
            Operator::LessEqual if pre => exact.is_le(),
            Operator::LessEqual => leading.is_le(),
            Operator::Caret => exact.is_ge() && self.same(version, 1 + given.iter().take_while(|n| **n == 0).count()),
            Operator::Tilde => exact.is_ge() && self.same(version, 2),
        }
    }

    /// Are the first `count` of the numbers given the same in `version`?
    fn same(&self, version: &Version, count: usize) -> bool {
        let count = count.min(self.version.numbers().len());
        version.numbers[..count] == self.version.numbers[..count]
    }
}

/// Comparators that must all hold: `>=3.11,<4`, `^20`, `~1.22`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VersionRange(Vec<Comparator>);

impl VersionRange {
    /// Every release.
    pub fn any() -> Self {
        Self(vec![Comparator { operator: Operator::GreaterEqual, version: Version::UNKNOWN }])
    }

    /// Is `version` inside? A pre-release is, only where a comparator names a pre-release of the same numbers:
    /// nobody who asks for `>=3.11` means a release candidate of 3.13. A version that nobody knows is inside of no
    /// bound: a guess would be right only by chance.
    pub fn admits(&self, version: &Version) -> bool {
        if *version == Version::UNKNOWN {
            return *self == Self::any();
        }
        let asked_for = || self.0.iter().any(|c| c.version.is_pre_release() && c.version.numbers == version.numbers);
        self.0.iter().all(|comparator| comparator.admits(version)) && (!version.is_pre_release() || asked_for())
    }

    /// Both ranges at once.
    pub fn and(&self, other: &Self) -> Result<Self, VersionError> {
        Self::of(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Sorted and without repeats, so that one meaning has one digest.
    fn of(mut comparators: Vec<Comparator>) -> Result<Self, VersionError> {
        comparators.sort();
        comparators.dedup();
        if comparators.len() > RANGE_COMPARATORS {
            return Err(VersionError::TooMany(comparators.len()));
        }
        let range = Self(comparators);
        // What `Display` writes must be readable again.
        let text = range.to_string();
        if text.len() > NAME_BYTES { Err(VersionError::NotRange(cut(&text))) } else { Ok(range) }
    }
}

impl FromStr for VersionRange {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let refused = || VersionError::NotRange(cut(text));
        if text.len() > NAME_BYTES {
            return Err(refused());
        }
        let comparator = |part: &str| {
            let part = part.trim_matches(' ');
            let (spelling, operator) = Operator::ALL.into_iter().find(|(spelling, _)| part.starts_with(spelling))?;
            let version = part[spelling.len()..].trim_start_matches(' ').parse().ok()?;
            Some(Comparator { operator, version })
        };
        let comparators: Option<Vec<_>> = text.split(',').map(comparator).collect();
        Self::of(comparators.ok_or_else(refused)?)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, comparator) in self.0.iter().enumerate() {
            write!(f, "{}{}{}", if index == 0 { "" } else { "," }, comparator.operator.as_str(), comparator.version)?;
        }
        Ok(())
    }
}

impl fmt::Debug for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionRange({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn range(text: &str) -> VersionRange {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn any_version() -> impl Strategy<Value = Version> {
        "(0|[1-9][0-9]{0,3})(\\.(0|[1-9][0-9]{0,3})){0,3}(-(rc|beta|0|[1-9])(\\.([a-z]{1,3}|0|[1-9])){0,2})?"
            .prop_map(|text| version(&text))
    }

    #[test]
    fn a_version_that_nobody_knows_is_inside_of_no_bound() {
        assert_eq!("0".parse(), Ok(Version::UNKNOWN));
        assert!(VersionRange::any().admits(&Version::UNKNOWN));
        for bounded in ["<4", ">=0,<4", "=0", "^0", "~0", ">=1", "<=0"] {
            let range: VersionRange = bounded.parse().unwrap();
            assert!(!range.admits(&Version::UNKNOWN), "{bounded}");
        }
        assert!("<4".parse::<VersionRange>().unwrap().admits(&"0.1".parse().unwrap()));
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
        fn a_range_survives_the_round_trip(a in any_version(), b in any_version(), operator in 0..7usize) {
            let text = format!("{}{a}, <{b}", Operator::ALL[operator].0);
            let range = range(&text);
            prop_assert_eq!(range.to_string().parse::<VersionRange>(), Ok(range));
        }

        #[test]
        fn comparators_agree_with_the_order(a in any_version(), b in any_version()) {
            prop_assume!(!a.is_pre_release() && !b.is_pre_release());
            if [&a, &b].contains(&&Version::UNKNOWN) {
                return Ok(());
            }
            prop_assert_eq!(range(&format!(">={a}")).admits(&b), b.precedence(&a).is_ge());
            prop_assert_eq!(range(&format!("<{a}")).admits(&b), b.precedence(&a).is_lt());
            let above = range(&format!(">{a}")).admits(&b);
            let upto = range(&format!("<={a}")).admits(&b);
            prop_assert!(above != upto);
            let own = [range(&format!("={a}")), range(&format!("^{a}")), range(&format!("~{a}"))];
            prop_assert!(own.iter().all(|range| range.admits(&a)));
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
    fn ranges_admit_what_they_say() {
        for (text, inside, outside) in [
            ("=3.11", "3.11 3.11.7 3.11.0.1", "3.10.9 3.12 3.11.7-rc.1"),
            (">3.11", "3.12 4", "3.11 3.11.9"),
            (">=3.11", "3.11 3.11.1 4", "3.10.99 3.13-rc.1"),
            ("<4", "3.99 0.1", "4 4.0 4-rc.1 0"),
            ("<=3.11", "3.11.9 3.10", "3.12"),
            ("^20", "20 20.19.1", "21 19.9"),
            ("^0.3", "0.3.9", "0.4 0.2"),
            ("^0.0.3", "0.0.3 0.0.3.9", "0.0.4"),
            ("^0", "0.9", "1"),
            ("^1.2.3", "1.2.3 1.9", "1.2.2 2"),
            ("~1.22", "1.22 1.22.9", "1.23 1.21.9"),
            ("~1.22.3", "1.22.3 1.22.9", "1.22.2 1.23"),
            ("~1", "1.9", "2"),
            (">=3.11,<4", "3.11 3.99", "3.10 4"),
            (">= 3.11 , < 4", "3.11", "4"),
            (">=2.0-beta.2", "2.0-beta.2 2.0-rc.1 2.0 2.1", "2.0-beta.1 2.1-rc.1"),
        ] {
            let range = range(text);
            for good in inside.split(' ') {
                assert!(range.admits(&version(good)), "{text} admits {good}");
            }
            for bad in outside.split(' ') {
                assert!(!range.admits(&version(bad)), "{text} refuses {bad}");
            }
        }
    }

    #[test]
    fn what_is_not_a_range_is_refused() {
        for text in
            ["", "3.11", "*", "3.x", ">=3.11 <4", "==3", "!=3", "=>3", ">=3,", "||", ">=3 || <2", "><3", "latest"]
        {
            assert!(text.parse::<VersionRange>().is_err(), "{text}");
        }
        let nine = (1..=9).map(|n| format!(">{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(nine.parse::<VersionRange>(), Err(VersionError::TooMany(9)));
    }

    #[test]
    fn one_meaning_has_one_spelling() {
        assert_eq!(range("< 4, >=3.11,<4"), range(">=3.11,<4"));
        assert_eq!(range("<4,>=3.11").to_string(), ">=3.11,<4");
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
