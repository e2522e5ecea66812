//! Reading a request's body: at most so many bytes, for at most so long, before anything looks at them.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It has more bytes than allowed.
    #[error("the body is too large: at most {0} bytes are allowed")]
    TooLarge(usize),
    /// It did not arrive in time.
    #[error("the body did not arrive within {} s", BODY_TIMEOUT.as_secs())]
    TooSlow,
    /// The connection broke while it was sent.
    #[error("the connection broke before the body's end")]
    Broken,
}

/// The whole body, if it has at most `limit` bytes. No more than that is ever held.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| usize::try_from(declared).map_or(true, |declared| declared > limit)) {
        return Err(BodyError::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(BodyError::TooLarge(limit)),
        Ok(Err(_)) => Err(BodyError::Broken),
        Err(_) => Err(BodyError::TooSlow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_of_the_limit_is_read_and_one_byte_more_is_not() {
        let headers = HeaderMap::new();
        assert_eq!(read(&headers, Body::from("1234"), 4).await, Ok(Bytes::from_static(b"1234")));
        assert_eq!(read(&headers, Body::from("12345"), 4).await, Err(BodyError::TooLarge(4)));
    }

    #[tokio::test]
    async fn a_declared_length_over_the_limit_is_refused_unread() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, "5".parse().unwrap());
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(read(&headers, never, 4).await, Err(BodyError::TooLarge(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(read(&HeaderMap::new(), never, 4).await, Err(BodyError::TooSlow));
    }
}
