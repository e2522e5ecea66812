//! Enrollment of many machines that are one: each comes from a loopback address of its neighbourhood, since the ingress lets
//! one address enroll only now and then.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use leasehold_core::crypto::Ticket;
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

/// Makes the machine with this number the worker that the token is for, at the ingress on loopback.
pub(super) async fn join(number: usize, ingress: SocketAddrV4, token: &JoinToken) -> Result<(Identity, Ticket)> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let csr = CertificateParams::default().serialize_request(&key)?.der().to_vec();
    let (config, learned) = tls::join_config(token.ca)?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddrV4::new(address(number), 0).into())?;
    let stream = socket.connect(ingress.into()).await.context("cannot reach the ingress")?;
    let name = ServerName::from(std::net::IpAddr::from(*ingress.ip()));
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driving = tokio::spawn(connection);
    let request = Request::builder()
        .method("POST")
        .uri(format!("https://control{}", route::ENROLL))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(encode(&EnrollRequest { token: token.token.clone(), csr }))))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    driving.abort();
    ensure!(status.is_success(), "the enrollment was refused: {status} {}", String::from_utf8_lossy(&body));
    let answer = parse::<EnrollAnswer>(&body)?;
    let identity = Identity {
        worker: answer.worker_id,
        trust_domain: learned.trust_domain().context("the control plane names no trust domain")?,
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
