//! Enrollment of many machines that are one: each comes from a loopback address of its neighbourhood, since the ingress lets
//! one address enroll only now and then.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_core::crypto::Ticket;
use leasehold_core::id::TrustDomain;
use leasehold_core::join::JoinToken;
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::{encode, parse, route};
use leasehold_worker::client::tls;
use leasehold_worker::identity::Identity;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// Machines of one address: fewer than may enroll at once.
const OF_AN_ADDRESS: usize = 32;

/// The loopback address that the machine with this number comes from.
fn address(number: usize) -> Ipv4Addr {
    let [.., high, low] = (number / OF_AN_ADDRESS + 1).to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

/// How often an enrollment is sent that is put off, and how long after.
const TRIES: usize = 10;
const AGAIN: Duration = Duration::from_secs(1);

/// Makes the machine with this number the worker that the token is for, at the ingress on loopback.
pub(super) async fn join(number: usize, ingress: SocketAddrV4, token: &JoinToken) -> Result<(Identity, Ticket)> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let csr = CertificateParams::default().serialize_request(&key)?.der().to_vec();
    let body = Bytes::from(encode(&EnrollRequest { token: token.token.clone(), csr }));
    let mut tries = 0;
    // The same token with the same key is answered as before, should it have been done.
    let (answer, domain) = loop {
        tries += 1;
        let (status, answer, domain) = enroll(address(number), ingress, token, body.clone()).await?;
        if status == StatusCode::SERVICE_UNAVAILABLE && tries < TRIES {
            eprintln!("an enrollment was put off");
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        ensure!(status.is_success(), "the enrollment was refused: {status} {}", String::from_utf8_lossy(&answer));
        break (parse::<EnrollAnswer>(&answer)?, domain);
    };
    let identity = Identity {
        worker: answer.worker_id,
        trust_domain: domain,
        address: ingress.to_string(),
        ca: token.ca,
        certificates: answer.certificates,
        key: key.serialize_der().into(),
        trust_bundle: answer.trust_bundle,
        machine: None,
        allow_root: false,
    };
    Ok((identity, answer.ticket))
}

/// One request over a connection of its own, and the trust domain that the control plane showed.
async fn enroll(
    from: Ipv4Addr,
    ingress: SocketAddrV4,
    token: &JoinToken,
    body: Bytes,
) -> Result<(StatusCode, Bytes, TrustDomain)> {
    let (config, learned) = tls::join_config(token.ca)?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddrV4::new(from, 0).into())?;
    let stream = socket.connect(ingress.into()).await.context("cannot reach the ingress")?;
    let name = ServerName::from(std::net::IpAddr::from(*ingress.ip()));
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driving = tokio::spawn(connection);
    let request = Request::builder()
        .method("POST")
        .uri(format!("https://control{}", route::ENROLL))
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    driving.abort();
    let domain = learned.trust_domain().context("the control plane names no trust domain")?;
    Ok((status, body, domain))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn no_address_has_more_machines_than_may_enroll_at_once() {
        let mut machines: BTreeMap<Ipv4Addr, usize> = BTreeMap::new();
        for number in 0..20_000 {
            *machines.entry(address(number)).or_default() += 1;
        }
        assert!(machines.values().all(|count| *count == OF_AN_ADDRESS), "{machines:?}");
        assert!(machines.keys().all(Ipv4Addr::is_loopback), "{machines:?}");
    }
}
