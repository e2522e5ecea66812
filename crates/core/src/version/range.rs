//! Ranges of versions: comparators that must all hold.

use std::fmt;
use std::str::FromStr;

use super::{Version, VersionError, cut};
use crate::limits::{NAME_BYTES, RANGE_COMPARATORS};

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

    use super::super::tests::{any_version, version};
    use super::*;

    fn range(text: &str) -> VersionRange {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
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
}
