//! How far one comes on the way to a control plane, address by address: for the doctor, who wants to know which step
//! fails.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http2::Builder;
use hyper::header::DATE;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use leasehold_core::time::UtcMillis;
use rustls::{CertificateError, ClientConfig, Error as TlsError};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CONNECT, Response, chain};

/// A step on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The name becomes addresses.
    Dns,
    /// A connection is made.
    Tcp,
    /// Keys are agreed on, under the CA that this worker trusts.
    Tls,
    /// The certificate is the control plane's of this worker's trust domain.
    San,
    /// A request is answered.
    Http,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "resolving the name (DNS)",
            Self::Tcp => "connecting (TCP)",
            Self::Tls => "agreeing on TLS",
            Self::San => "checking who answers (SAN)",
            Self::Http => "asking (HTTP)",
        })
    }
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub step: Step,
    /// Why.
    pub why: String,
}

/// An answer.
#[derive(Debug)]
pub struct Heard {
    /// The answer.
    pub response: Response,
    /// The server's clock, to the second, where it told it.
    pub date: Option<UtcMillis>,
}

/// The addresses of a host and a port.
pub async fn resolve(address: &str) -> Result<Vec<SocketAddr>, Failed> {
    let failed = |why: String| Failed { step: Step::Dns, why };
    let found = tokio::time::timeout(CONNECT, tokio::net::lookup_host(address)).await;
    let found = found.map_err(|_| failed(format!("no answer within {CONNECT:?}")))?;
    let found: Vec<SocketAddr> = found.map_err(|error| failed(error.to_string()))?.collect();
    if found.is_empty() { Err(failed("it has no address".to_owned())) } else { Ok(found) }
}

/// Goes the whole way to one address and asks one question there.
pub async fn reach(
    host: &str,
    address: SocketAddr,
    tls: &Arc<ClientConfig>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Heard, Failed> {
    let at = |step: Step| move |why: String| Failed { step, why };
    let late = |step: Step| move |_| Failed { step, why: format!("no answer within {CONNECT:?}") };
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await.map_err(late(Step::Tcp))?;
    let stream = stream.map_err(|error| at(Step::Tcp)(error.to_string()))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| at(Step::Dns)(error.to_string()))?;
    let agreed = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
    let stream =
        tokio::time::timeout(CONNECT, agreed).await.map_err(late(Step::Tls))?.map_err(|error| refused(&error))?;
    let http = |error: hyper::Error| at(Step::Http)(chain(&error));
    let (mut sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .handshake(TokioIo::new(stream))
        .await
        .map_err(http)?;
    let driving = tokio::spawn(connection);
    let asked = async {
        let response = sender.send_request(request).await.map_err(http)?;
        let status = response.status().as_u16();
        let date = response.headers().get(DATE).and_then(|date| parse_date(date.to_str().ok()?));
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| at(Step::Http)(format!("the answer broke off: {error}")))?.to_bytes();
        Ok(Heard { response: Response { status, body }, date })
    };
    let heard = tokio::time::timeout(CONNECT, asked).await.map_err(late(Step::Http)).and_then(|heard| heard);
    driving.abort();
    heard
}

/// A handshake that failed: because of who answers, or for another reason.
fn refused(error: &io::Error) -> Failed {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::InvalidCertificate(CertificateError::NotValidForName)) => Failed {
            step: Step::San,
            why: "the certificate is not the control plane's of this worker's trust domain".to_owned(),
        },
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            Failed { step: Step::San, why: "the certificate is from another CA than this worker trusts".to_owned() }
        }
        _ => Failed { step: Step::Tls, why: chain(error) },
    }
}

/// A time as HTTP spells it: `Mon, 30 Nov 2026 06:20:00 GMT`.
fn parse_date(text: &str) -> Option<UtcMillis> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (time, "GMT") = (words.next()?, words.next()?) else { return None };
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let month = i64::try_from(MONTHS.iter().position(|known| *known == month)?).ok()? + 1;
    let (day, year) = (day.parse::<i64>().ok()?, year.parse::<i64>().ok()?);
    // Days since 1970, years counted from March (see the inverse in `logging`).
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(UtcMillis::new((days * 86_400 + hour * 3600 + minute * 60 + second) * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::rfc3339;

    #[test]
    fn a_date_of_http_is_an_instant() {
        for (text, instant) in [
            ("Mon, 30 Nov 2026 06:20:01 GMT", "2026-11-30T06:20:01.000Z"),
            ("Thu, 29 Feb 2024 23:59:59 GMT", "2024-02-29T23:59:59.000Z"),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37.000Z"),
            ("Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(parse_date(text).map(rfc3339).as_deref(), Some(instant), "{text}");
        }
        for text in ["", "Mon, 30 Nov 2026", "Mon, 30 Foo 2026 06:20:01 GMT", "Mon, 30 Nov 2026 06:20:01 CET"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
