//! The query of an operator's request: known names only, each value read by its type, and an error that helps.

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use leasehold_core::limits;
use leasehold_core::shape::{self, ShapeError, ShapeErrorKind, nearest};

use serde_json::{Value, json};

use super::Api;
use super::describe::{Contract, Schemas, Takes};
use super::problem::ApiError;

/// A name that a route's query knows.
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The schema of its value.
    pub(super) schema: fn() -> Value,
}

impl Param {
    /// The name of a switch.
    pub(super) const fn switch(name: &'static str, about: &'static str) -> Self {
        Self { name, about, schema: || json!({ "enum": ["1", "true", "0", "false"] }) }
    }

    /// The name of a text.
    pub(super) const fn text(name: &'static str, about: &'static str) -> Self {
        Self { name, about, schema: || json!({ "type": "string" }) }
    }

    /// The name of a number that is not negative.
    pub(super) const fn number(name: &'static str, about: &'static str) -> Self {
        Self { name, about, schema: || json!({ "type": "integer", "minimum": 0 }) }
    }
}

/// How many of a list.
pub(super) const LIMIT: Param = Param {
    name: "limit",
    about: "How many at most; a whole page unless said.",
    schema: || json!({ "type": "integer", "minimum": 1, "maximum": limits::PAGE }),
};

/// Where a page begins.
pub(super) const AFTER: Param = Param::text("after", "What the page before said as `next`.");

/// The numbers of what is counted: events, attempts, lines of the audit.
pub(super) const COUNTED: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();

/// What a route's query may name.
pub(super) trait Known: Send {
    /// The names, in the order of the alphabet.
    const PARAMS: &'static [Param];
}

/// Nothing.
impl Known for () {
    const PARAMS: &'static [Param] = &[];
}

/// A list in pages, and nothing else.
pub(super) struct Paged;

impl Known for Paged {
    const PARAMS: &'static [Param] = &[AFTER, LIMIT];
}

/// The pairs of a query string, in order: none but those that `K` knows.
pub(super) struct Query<K>(Vec<(String, String)>, PhantomData<K>);

impl<K: Known> FromRequestParts<Api> for Query<K> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Api) -> Result<Self, ApiError> {
        match axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(pairs)) => Self::only_known(pairs),
            Err(_) => Err(ApiError::field("query", "text that is not URL-encoded", "`name=value` pairs joined by `&`")),
        }
    }
}

impl<K: Known> Takes for Query<K> {
    fn takes(contract: &mut Contract, _: &mut Schemas) {
        for param in K::PARAMS {
            contract.query(param.name, param.about, &(param.schema)());
        }
        contract.problem(StatusCode::BAD_REQUEST);
    }
}

impl<K: Known> Query<K> {
    fn only_known(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let known: Vec<&'static str> = K::PARAMS.iter().map(|param| param.name).collect();
        let errors: Vec<ShapeError> = pairs
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()))
            .map(|(name, _)| ShapeError {
                nearest: nearest(name, known.iter().copied()).map(str::to_owned),
                ..ShapeError::new(name, ShapeErrorKind::Unknown, name, known.join(", "))
            })
            .collect();
        if errors.is_empty() { Ok(Self(pairs, PhantomData)) } else { Err(ApiError::fields(&errors)) }
    }

    /// The text of `name`, which may stand once.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() {
            return Err(ApiError::field(name, "it twice", "it at most once"));
        }
        Ok(first)
    }

    /// The value of `name`, which may stand once.
    pub(super) fn one<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, ApiError> {
        self.text(name)?.map(|text| read(name, text)).transpose()
    }

    /// Every value of `name`, which may stand several times.
    pub(super) fn every<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Vec<T>, ApiError> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, text)| read(name, text)).collect()
    }

    /// A switch: `1` and `true` are on, `0` and `false` are off.
    pub(super) fn switch(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)? {
            Some("1" | "true") => Ok(true),
            None | Some("0" | "false") => Ok(false),
            Some(other) => Err(ApiError::field(name, other, "1 or 0")),
        }
    }

    /// A number within `range`, which may stand once. What is none is refused in the words of one outside.
    pub(super) fn number<N>(&self, name: &str, range: RangeInclusive<N>) -> Result<Option<N>, ApiError>
    where
        N: FromStr + Ord + Display,
    {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let allowed = || format!("an integer from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| ApiError::field(name, text, allowed()))
    }

    /// How many of a list: 1 to [`limits::PAGE`], all of a page unless said.
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        Ok(self.number("limit", 1..=limits::PAGE)?.unwrap_or(limits::PAGE))
    }
}

fn read<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: T::Err| ApiError::field(name, text, shape::allowed(&error.to_string())))
}
