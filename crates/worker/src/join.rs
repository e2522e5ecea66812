//! `join`: a machine becomes a worker. It pins the CA by what was pasted, makes its own key, and writes its identity.
//!
//! The key never leaves the machine, and is on disk before the token is spent: joining again with the same token after a
//! lost answer asks for the same certificate. (Protocol, *Sessions*, `enroll`; decisions, *How a new machine trusts the
//! server*.)

mod issued;
mod under_way;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use leasehold_core::join::JoinToken;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::time::Millis;
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::{Message, encode, parse, route};
use rcgen::{CertificateParams, PublicKeyData};
use zeroize::Zeroizing;

use crate::client::connection::{Connection, Response, Unanswered};
use crate::client::tls;
use crate::durable::{Dir, DurableError};
use crate::fault::steps::CALL_ENROLL;
use crate::identity::{self, Identity};
use crate::session_file::SessionFile;
use crate::state::{StateError, StateFile};

const TIMEOUT: Millis = Millis::from_secs(20);
/// The worker ingress's port where the URL names none.
const PORT: u16 = 7443;

/// A machine could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is an identity already.
    #[error(
        "{0} holds an identity already: `leasehold-worker run` starts it. To enroll anew, choose another directory with \
         --state-dir, or remove this one once no job of it runs"
    )]
    Exists(String),
    /// Not the URL of a control plane.
    #[error(
        "`{0}` is not the URL of a control plane: expected https://HOST:7443, as `leasehold worker enroll` prints it"
    )]
    Url(String),
    /// Not the pasted token.
    #[error("this is not a whole join token: paste what `leasehold worker enroll` printed after --token")]
    Token,
    /// No connection.
    #[error(
        "cannot reach the control plane: {0}. Nothing was sent: check the URL, that the control plane runs, and that its \
         port is open to this machine; then run the same line again"
    )]
    Connection(String),
    /// A connection that the pinned CA does not vouch for.
    #[error(
        "{0} is not the control plane that made this token: {1}. Nothing was sent: check the URL and this machine's clock, \
         or ask for a new line with `leasehold worker enroll`"
    )]
    Stranger(String, String),
    /// Whether the token was used up is unknown.
    #[error(
        "the control plane did not answer: {0}. Run the same line again; if that is refused, ask for a new line with \
         `leasehold worker enroll`"
    )]
    Unknown(String),
    /// Refused.
    #[error("{}", sentence(.0))]
    Refused(Refusal),
    /// The answer makes no sense.
    #[error("the control plane's answer makes no sense: {0}. Ask for a new line with `leasehold worker enroll`")]
    Answer(String),
    /// The machine has no time.
    #[error("this machine's clock cannot be read: set it, then run the same line again")]
    Clock,
    /// The key could not be made.
    #[error("cannot make a key: {0}")]
    Key(String),
    /// The state directory cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
}

impl JoinError {
    /// The exit code of the process. (Decisions, *Worker exit codes*.)
    pub const fn code(&self) -> u8 {
        match self {
            Self::Url(_) | Self::Token => 2,
            Self::Exists(_) | Self::State(_) => 24,
            Self::Refused(Refusal { code: RefusalCode::UnsupportedProtocol, .. }) => 22,
            Self::Connection(_)
            | Self::Stranger(..)
            | Self::Unknown(_)
            | Self::Refused(_)
            | Self::Answer(_)
            | Self::Clock
            | Self::Key(_) => 1,
        }
    }
}

/// The refusal with what helps: a token is good once and for a while, everything else can be tried again.
fn sentence(refusal: &Refusal) -> String {
    let help = match refusal.code {
        RefusalCode::Unauthenticated | RefusalCode::Revoked => "Ask for a new line with `leasehold worker enroll`",
        RefusalCode::UnsupportedProtocol => "Install the leasehold-worker that comes with this control plane",
        RefusalCode::RateLimited | RefusalCode::Overloaded => "Run the same line again in a minute",
        _ => "Run the same line again, or ask for a new one with `leasehold worker enroll`",
    };
    format!("the control plane refused: {refusal}. {help}")
}

impl From<DurableError> for JoinError {
    fn from(error: DurableError) -> Self {
        Self::State(error.into())
    }
}

/// Joins as the worker that `token` was made for, and writes its identity into `state`.
pub async fn join(state: &Path, url: &str, token: &str, allow_root: bool) -> Result<Identity, JoinError> {
    if identity::exists(state) {
        return Err(JoinError::Exists(state.display().to_string()));
    }
    let address = address_of(url).ok_or_else(|| JoinError::Url(url.to_owned()))?;
    let token = JoinToken::parse(token).map_err(|_| JoinError::Token)?;
    // Everything that can fail here fails before the token is spent.
    let dir = open_state(state)?;
    let key = under_way::key(&dir, &token.token)?;
    let csr = CertificateParams::default()
        .serialize_request(&key)
        .map_err(|error| JoinError::Key(error.to_string()))?
        .der()
        .to_vec();
    let (config, learned) = tls::join_config(token.ca).map_err(|error| JoinError::Key(error.to_string()))?;
    let config = Arc::new(config);
    let connection = Connection::new(&address, Arc::clone(&config));
    let answer = match enroll(&connection, &EnrollRequest { token: token.token.clone(), csr }).await {
        Err(JoinError::Connection(why)) if learned.is_stranger() => return Err(JoinError::Stranger(address, why)),
        answer => answer?,
    };
    let trust_domain = learned.trust_domain().ok_or_else(|| JoinError::Answer("no trust domain".to_owned()))?;
    let asked = issued::Asked {
        public_key: &key.subject_public_key_info(),
        ca: token.ca,
        domain: &trust_domain,
        now: config.time_provider.current_time().ok_or(JoinError::Clock)?,
    };
    issued::check(&answer, &asked).map_err(JoinError::Answer)?;
    let identity = Identity {
        worker: answer.worker_id,
        trust_domain,
        address,
        ca: token.ca,
        certificates: answer.certificates,
        key: Zeroizing::new(key.serialize_der()),
        trust_bundle: answer.trust_bundle,
        machine: identity::machine_id(),
        allow_root,
    };
    // The identity last: it is what says that joining is done.
    SessionFile::enrolled(answer.ticket).write(&dir)?;
    identity.write(&dir)?;
    under_way::done(&dir)?;
    Ok(identity)
}

/// Opens the state directory, making it and what stands above it where they are missing.
fn open_state(state: &Path) -> Result<Dir, DurableError> {
    Dir::create_parents(state)?;
    Dir::create(state)
}

async fn enroll(connection: &Connection, request: &EnrollRequest) -> Result<EnrollAnswer, JoinError> {
    let request = Request::builder()
        .method("POST")
        .uri(format!("https://control{}", route::ENROLL))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(encode(request))))
        .map_err(|error| JoinError::Answer(error.to_string()))?;
    let limit = EnrollAnswer::LIMIT.max(Problem::LIMIT);
    let sent = tokio::time::timeout(TIMEOUT.to_std(), connection.send(CALL_ENROLL, request, limit)).await;
    let Response { status, body } = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(Unanswered::NotSent(why))) => return Err(JoinError::Connection(why)),
        Ok(Err(Unanswered::MayHaveArrived(why))) => return Err(JoinError::Unknown(why)),
        Err(_) => return Err(JoinError::Unknown(format!("no answer within {TIMEOUT}"))),
    };
    if (200..300).contains(&status) {
        return parse::<EnrollAnswer>(&body).map_err(|error| JoinError::Answer(error.to_string()));
    }
    match parse::<Problem>(&body) {
        Ok(problem) => Err(JoinError::Refused(Refusal::from(&problem))),
        Err(_) => Err(JoinError::Answer(format!("status {status}"))),
    }
}

/// Host and port of `https://HOST[:PORT][/]`.
pub(crate) fn address_of(url: &str) -> Option<String> {
    let rest = url.trim().strip_prefix("https://")?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let plain =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']'));
    if host.is_empty() || !plain(host) {
        return None;
    }
    let port = if host.starts_with('[') {
        host.split_once(']').and_then(|(_, port)| port.strip_prefix(':'))
    } else {
        host.split_once(':').map(|(_, port)| port)
    };
    match port {
        Some(port) => port.parse::<u16>().ok().map(|_| host.to_owned()),
        None => Some(format!("{host}:{PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_a_port() {
        for (url, address) in [
            ("https://127.0.0.1:7443", Some("127.0.0.1:7443")),
            ("https://control.example", Some("control.example:7443")),
            ("https://control.example/", Some("control.example:7443")),
            ("https://[::1]:9443", Some("[::1]:9443")),
            ("https://[::1]", Some("[::1]:7443")),
            ("http://127.0.0.1:7443", None),
            ("127.0.0.1:7443", None),
            ("https://", None),
            ("https://host:port", None),
            ("https://host/path", None),
            ("https://a b", None),
        ] {
            assert_eq!(address_of(url).as_deref(), address, "{url}");
        }
    }

    #[tokio::test]
    async fn an_existing_identity_is_never_overwritten() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("identity.json"), b"{}").unwrap();
        let error = join(state.path(), "https://127.0.0.1:1", "x", false).await.unwrap_err();
        assert!(matches!(error, JoinError::Exists(_)), "{error}");
    }

    #[tokio::test]
    async fn a_wrong_token_is_refused_before_anything_is_sent_and_never_repeated() {
        let parent = tempfile::tempdir().unwrap();
        let error = join(&parent.path().join("state"), "https://127.0.0.1:1", "lhj1_secret", false).await.unwrap_err();
        assert!(matches!(error, JoinError::Token));
        assert!(!error.to_string().contains("secret"));
    }
}
