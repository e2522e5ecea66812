//! The query of an operator's request: known names only, each value read by its type, and an error that helps.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use leasehold_core::limits;
use leasehold_core::shape::{ShapeError, ShapeErrorKind, nearest};

use super::Api;
use super::problem::ApiError;

/// The pairs of a query string, in order.
pub(super) struct Query(Vec<(String, String)>);

impl FromRequestParts<Api> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Api) -> Result<Self, ApiError> {
        match axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(pairs)) => Ok(Self(pairs)),
            Err(_) => Err(ApiError::field("query", "text that is not URL-encoded", "`name=value` pairs joined by `&`")),
        }
    }
}

impl Query {
    /// The same, if it names nothing but `known`.
    pub(super) fn only(self, known: &[&'static str]) -> Result<Self, ApiError> {
        let errors: Vec<ShapeError> = self
            .0
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()))
            .map(|(name, _)| ShapeError {
                nearest: nearest(name, known.iter().copied()).map(str::to_owned),
                ..ShapeError::new(name, ShapeErrorKind::Unknown, name, format!("one of {}", known.join(", ")))
            })
            .collect();
        if errors.is_empty() { Ok(self) } else { Err(ApiError::fields(&errors)) }
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

    /// How many of a list: 1 to [`limits::PAGE`], all of a page unless said.
    pub(super) fn limit(&self) -> Result<usize, ApiError> {
        match self.one::<usize>("limit")? {
            None => Ok(limits::PAGE),
            Some(limit) if (1..=limits::PAGE).contains(&limit) => Ok(limit),
            Some(other) => {
                Err(ApiError::field("limit", other.to_string(), format!("an integer from 1 to {}", limits::PAGE)))
            }
        }
    }
}

fn read<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error: T::Err| ApiError::field(name, text, error.to_string()))
}
