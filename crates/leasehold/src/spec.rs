//! A specification file: TOML in, a revision out, and every mistake with its file, line and column.
//!
//! The shape itself is read by `core`; this module only turns TOML into the value that `core` reads, and a mistake's path
//! back into the place where a person wrote it. (Product, *A task file*.)

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use leasehold_core::canonical::Value;
use leasehold_core::limits;
use leasehold_core::shape::{self, ShapeError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A specification as a value, with the place of every field.
#[derive(Debug)]
pub(crate) struct Spec {
    file: PathBuf,
    text: String,
    value: Value,
    places: BTreeMap<String, Range<usize>>,
}

/// One mistake in a specification file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The file, or `-` for standard input.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What is wrong, what is allowed and what to do.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

/// Why a specification cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is larger than any revision may be.
    #[error("{} is larger than {limit} bytes, the most that a specification may be", file.display())]
    TooLarge {
        /// Which file.
        file: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The file says something that is not allowed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
}

impl Spec {
    /// Reads `file`, or standard input when it is `-`.
    pub(crate) fn read(file: &Path) -> Result<Self, SpecError> {
        let refused = |source| SpecError::Read { file: file.to_owned(), source };
        // One byte more than allowed tells that it is too large; a device or a pipe may have no end at all.
        let most = limits::REVISION_BODY as u64 + 1;
        let mut text = Vec::new();
        if file.as_os_str() == "-" {
            std::io::stdin().lock().take(most).read_to_end(&mut text)
        } else {
            File::open(file).and_then(|file| file.take(most).read_to_end(&mut text))
        }
        .map_err(refused)?;
        if text.len() > limits::REVISION_BODY {
            return Err(SpecError::TooLarge { file: file.to_owned(), limit: limits::REVISION_BODY });
        }
        let no_text = |_| refused(std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8 text"));
        Self::parse(file, String::from_utf8(text).map_err(no_text)?)
    }

    /// Reads the text of `file`.
    pub(crate) fn parse(file: &Path, text: String) -> Result<Self, SpecError> {
        if text.len() > limits::REVISION_BODY {
            return Err(SpecError::TooLarge { file: file.to_owned(), limit: limits::REVISION_BODY });
        }
        let (table, errors) = DeTable::parse_recoverable(&text);
        let syntax = errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message().to_owned()));
        let mut reading = Reading { places: BTreeMap::new(), refused: syntax.collect() };
        let span = table.span();
        let value = reading.convert(&Spanned::new(span, DeValue::Table(table.into_inner())), String::new());
        let Reading { places, refused } = reading;
        if refused.is_empty() {
            return Ok(Self { file: file.to_owned(), text, value, places });
        }
        // What the broken parts might have said is nobody's guess: only what cannot be read is told.
        let told = refused.into_iter().take(MISTAKES).map(|(span, message)| {
            let (line, column) = position(&text, span.start);
            Mistake { file: file.to_owned(), line, column, message }
        });
        Err(SpecError::Mistakes(told.collect()))
    }

    /// The value for `core` to read.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// The mistakes that `core` found, each at its place in the file.
    pub(crate) fn locate(&self, errors: &[ShapeError]) -> SpecError {
        SpecError::Mistakes(errors.iter().map(|error| self.mistake(error)).collect())
    }

    fn mistake(&self, error: &ShapeError) -> Mistake {
        let mut path = error.path.as_str();
        // A missing field stands nowhere: show the table that it is missing from.
        let start = loop {
            if let Some(place) = self.places.get(path) {
                break place.start;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => break 0,
            }
        };
        let (line, column) = position(&self.text, start);
        Mistake { file: self.file.clone(), line, column, message: error.to_string() }
    }
}

/// Mistakes of the notation that are told of one file: what follows many is mostly their echo.
const MISTAKES: usize = 16;

/// A file on its way to a value.
struct Reading {
    places: BTreeMap<String, Range<usize>>,
    /// What is no part of a specification whatever it says, with its place.
    refused: Vec<(Range<usize>, String)>,
}

impl Reading {
    fn convert(&mut self, value: &Spanned<DeValue<'_>>, path: String) -> Value {
        let span = value.span();
        let converted = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Int(number),
                Err(_) => self.refuse(&span, "this number is larger than any that is allowed"),
            },
            // Numbers with a fraction have one exact spelling as text, such as `limits.cpu = 1.5`.
            DeValue::Float(number) => Value::Text(number.as_str().to_owned()),
            DeValue::Datetime(_) => self.refuse(&span, "dates are not used here: write a text in quotes"),
            DeValue::Array(items) => {
                let members = items.iter().enumerate();
                Value::List(members.map(|(at, item)| self.convert(item, format!("{path}[{at}]"))).collect())
            }
            DeValue::Table(table) => {
                let mut map = BTreeMap::new();
                for (key, item) in table {
                    let name: &str = key.get_ref();
                    // As `core` spells it, or the place of a strange key is not found again.
                    let inner = shape::join(&path, name);
                    self.places.insert(inner.clone(), key.span());
                    map.insert(name.to_owned(), self.convert(item, inner));
                }
                Value::Map(map)
            }
        };
        self.places.entry(path).or_insert(span);
        converted
    }

    fn refuse(&mut self, span: &Range<usize>, message: &str) -> Value {
        self.refused.push((span.clone(), message.to_owned()));
        Value::Bool(false)
    }
}

/// Line and column of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use leasehold_core::revision::Revision;

    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let told = |error: SpecError| error.to_string().lines().map(str::to_owned).collect();
        match Spec::parse(Path::new("job.toml"), text.to_owned()) {
            Err(error) => told(error),
            Ok(spec) => match Revision::from_value(spec.value()) {
                Ok(_) => Vec::new(),
                Err(errors) => told(spec.locate(&errors)),
            },
        }
    }

    #[test]
    fn a_whole_specification_is_read() {
        let text = "[command]\nargv = ['true']\n[limits]\ncpu = 1.5\ntimeout = '10m'\n[[placement.prefer]]\nlabel = 'disk=ssd'\nweight = 10\n";
        assert_eq!(mistakes(text), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_key_names_its_place_and_the_nearest_key() {
        let told = mistakes("[command]\nargv = ['true']\n\n[limits]\n  timeot = '10m'\n");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("job.toml:5:3: "), "{told:?}");
        assert!(told[0].contains("timeout"), "{told:?}");
    }

    #[test]
    fn several_mistakes_are_told_at_once() {
        let told = mistakes("priority = 1000\n[command]\nargv = ['true']\n[retry]\nmax_attempts = 'x'\n");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("job.toml:1:1: ")), "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("job.toml:5:1: ")), "{told:?}");
    }

    #[test]
    fn a_file_without_an_end_is_too_large_and_no_text_is_said_to_be_none() {
        let endless = Spec::read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(endless, SpecError::TooLarge { .. }), "{endless}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"name = \"\xff\"").unwrap();
        let told = Spec::read(file.path()).unwrap_err().to_string();
        assert!(told.contains("UTF-8"), "{told}");
    }

    #[test]
    fn broken_toml_names_every_place() {
        let told = mistakes("[command]\nargv = ['true'\n");
        assert!(told[0].starts_with("job.toml:"), "{told:?}");
        let told = mistakes(
            "priority = \nname = 'a'\nname = 'b'\n[limits]\ntimeout = 2027-01-31\n[command]\nargv = ['true']\n",
        );
        for place in ["job.toml:1:", "job.toml:3:", "job.toml:5:11: dates"] {
            assert!(told.iter().any(|line| line.starts_with(place)), "{place}: {told:?}");
        }
    }

    #[test]
    fn without_a_command_the_other_mistakes_are_told_too() {
        let told = mistakes(
            "[artifacts]\ncolect = ['x']\n[[placement.prefer]]\nweight = 101\n[[trigger]]\noverlap = 'never'\n",
        );
        for place in ["job.toml:2:1: ", "job.toml:4:1: ", "job.toml:6:1: "] {
            assert!(told.iter().any(|line| line.starts_with(place)), "{place}: {told:?}");
        }
        assert!(told.iter().any(|line| line.contains("command")), "{told:?}");
    }

    #[test]
    fn a_strange_key_is_found_where_it_stands() {
        let told = mistakes("[command]\nargv = ['true']\n[limits]\n'time out' = '1m'\n");
        assert!(told[0].starts_with("job.toml:4:1: "), "{told:?}");
    }
}
