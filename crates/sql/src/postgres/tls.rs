//! Encrypted connections to PostgreSQL: what `sslmode` and `sslrootcert` in a URL mean, the same as for `psql`.
//!
//! `prefer` (the default) and `require` encrypt, and `verify-ca` and `verify-full` also prove who answers; `require` with a
//! root certificate is `verify-ca`. Only proof keeps somebody in between from reading along.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Where systems keep the certificates that they trust, for `sslrootcert=system`.
const SYSTEM: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What a URL asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Makes connections encrypted, as a URL asks for.
#[derive(Clone)]
pub(super) struct Tls {
    mode: Mode,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Tls {
    /// What `url` asks for, and the URL without it: the driver knows a part of it only. The answer names what is wrong, and
    /// never the URL.
    pub(super) fn of(url: &str) -> Result<(Self, String), String> {
        let (rest, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut others) = (None, None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(unescaped(value)),
                _ => others.push(part),
            }
        }
        let mode = match (mode, &roots) {
            (None | Some("prefer"), None) => Mode::Prefer,
            (None, Some(_)) | (Some("verify-full"), _) => Mode::VerifyFull,
            (Some("disable"), _) => Mode::Disable,
            (Some("require"), None) => Mode::Require,
            (Some("prefer" | "require" | "verify-ca"), _) => Mode::VerifyCa,
            (Some(other), _) => {
                let known = "disable, prefer, require, verify-ca or verify-full";
                return Err(format!("sslmode is {known}, not `{other}`"));
            }
        };
        let config = Arc::new(client(mode, roots.as_deref())?);
        let url = if others.is_empty() { rest.to_owned() } else { format!("{rest}?{}", others.join("&")) };
        Ok((Self { mode, config }, url))
    }

    /// The part of it that the driver decides by.
    pub(super) fn driver_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }
}

fn client(mode: Mode, roots: Option<&str>) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| error.to_string())?;
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        Mode::Disable | Mode::Prefer | Mode::Require => Arc::new(Anybody(provider)),
        Mode::VerifyCa | Mode::VerifyFull => {
            let store = trusted(roots.unwrap_or("system"))?;
            let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
                .build()
                .map_err(|error| format!("sslrootcert: {error}"))?;
            if mode == Mode::VerifyFull { strict } else { Arc::new(AnyName(strict)) }
        }
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// The certificates in a file, or those that the system trusts.
fn trusted(file: &str) -> Result<RootCertStore, String> {
    let file = if file == "system" {
        let there = SYSTEM.iter().copied().find(|path| std::path::Path::new(path).is_file());
        there.ok_or("this system has no file of trusted certificates: name one with sslrootcert=FILE")?
    } else {
        file
    };
    let unreadable = |error: &dyn fmt::Display| format!("sslrootcert: cannot read certificates from {file}: {error}");
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        // A bundle may hold one that this library does not take; the others still count.
        store.add_parsable_certificates([certificate]);
    }
    if store.is_empty() { Err(unreadable(&"there is none in it")) } else { Ok(store) }
}

/// The text of a value in a URL.
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let number = escaped.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(number.unwrap_or(first));
        rest = if number.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Takes whatever certificate the server shows: encryption without proof.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

/// Takes a certificate of the trusted authorities for whatever name it is.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is looked at last, when the rest is proven.
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// One handshake.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = rustls_pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake {
            connector: TlsConnector::from(self.config.clone()),
            name: ServerName::try_from(domain.to_owned())?,
        })
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, stream).await.map(Encrypted) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_keeps_what_is_not_about_encryption() {
        for (url, mode, rest) in [
            ("postgres://h/d", Mode::Prefer, "postgres://h/d"),
            ("postgres://h/d?sslmode=disable", Mode::Disable, "postgres://h/d"),
            ("postgres://h/d?a=1&sslmode=require&b=2", Mode::Require, "postgres://h/d?a=1&b=2"),
            ("postgres://h/d?sslmode=verify-full&sslrootcert=system", Mode::VerifyFull, "postgres://h/d"),
            ("postgres://h/d?sslmode=verify-ca", Mode::VerifyCa, "postgres://h/d"),
        ] {
            let (tls, left) = Tls::of(url).unwrap();
            assert_eq!((tls.mode, left.as_str()), (mode, rest), "{url}");
        }
        let refused = |url| Tls::of(url).unwrap_err();
        assert!(refused("postgres://u:secret@h/d?sslmode=on").contains("verify-full"));
        let missing = refused("postgres://u:secret@h/d?sslrootcert=/nowhere%20at/all");
        assert!(missing.contains("/nowhere at/all") && !missing.contains("secret"), "{missing}");
    }
}
