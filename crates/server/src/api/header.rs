//! The headers that a request may have once. Of two, neither is taken: somebody on the way may have read the other.

use axum::http::{HeaderMap, HeaderValue};

use super::problem::ApiError;

/// Who asks.
pub(super) const AUTHORIZATION: &str = "Authorization";
/// What the body is.
pub(super) const CONTENT_TYPE: &str = "Content-Type";
/// The key that makes a request safe to repeat.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// What an edit says that it saw.
pub(super) const IF_MATCH: &str = "If-Match";
/// The same, where that is nothing.
pub(super) const IF_NONE_MATCH: &str = "If-None-Match";
/// The last event that a reader of a stream saw.
pub(super) const LAST_EVENT_ID: &str = "Last-Event-ID";

/// The value of the header `name`, if there is one. Never repeated in a refusal: it may be a secret.
pub(super) fn once<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(ApiError::field(name, "the header twice", "the header once"));
    }
    Ok(first)
}

/// Its text.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ApiError> {
    let text = |value: &'h HeaderValue| {
        value.to_str().map_err(|_| ApiError::field(name, "bytes", "printable ASCII characters"))
    };
    once(headers, name)?.map(text).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stands_once_however_it_is_spelled() {
        let mut headers = HeaderMap::new();
        assert_eq!(text(&headers, IF_MATCH).unwrap(), None);
        headers.insert("if-match", "*".parse().unwrap());
        assert_eq!(text(&headers, IF_MATCH).unwrap(), Some("*"));
        headers.append("If-Match", "secret".parse().unwrap());
        let refused = format!("{:?}", once(&headers, IF_MATCH).unwrap_err());
        assert!(refused.contains("If-Match") && !refused.contains("secret"), "{refused}");
        headers.insert(LAST_EVENT_ID, HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(once(&headers, LAST_EVENT_ID).is_ok() && text(&headers, LAST_EVENT_ID).is_err());
    }
}
