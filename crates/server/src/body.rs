//! Reading a request's body: at most so many bytes, for at most so long, before anything looks at them.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Of a body that is too large, as much and as long is read and thrown away: a caller that is still sending would hear of
/// the broken stream before it reads why.
const DISCARDED: usize = 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

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
pub(crate) async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let read = if declared.is_some_and(|declared| usize::try_from(declared).map_or(true, |declared| declared > limit)) {
        Err(BodyError::TooLarge(limit))
    } else {
        tokio::time::timeout(BODY_TIMEOUT, collect(&mut body, limit)).await.unwrap_or(Err(BodyError::TooSlow))
    };
    if matches!(read, Err(BodyError::TooLarge(_))) {
        // Whether all of it came is no matter: the answer is the same.
        let _elapsed = tokio::time::timeout(DISCARD_TIMEOUT, discard(&mut body)).await;
    }
    read
}

async fn collect(body: &mut Body, limit: usize) -> Result<Bytes, BodyError> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if data.len() > limit - collected.len() {
            return Err(BodyError::TooLarge(limit));
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}

async fn discard(body: &mut Body) {
    let mut discarded = 0;
    while discarded < DISCARDED
        && let Some(Ok(frame)) = body.frame().await
    {
        discarded += frame.data_ref().map_or(0, Bytes::len);
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

    #[tokio::test(start_paused = true)]
    async fn a_declared_length_over_the_limit_is_refused_although_nothing_comes() {
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
